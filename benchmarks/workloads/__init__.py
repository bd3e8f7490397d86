"""Reference workloads: training code as people write it, which does not use the harness."""
