"""The perf-change log: one table per machine, a row per commit, (mean, sd) per configured benchmark."""
