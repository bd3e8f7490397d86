"""Reference workloads: training code as people write it, which knows nothing of the harness."""
