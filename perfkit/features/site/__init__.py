"""The pages of a project's history: files that open from a disk or a web server, and load nothing else."""
