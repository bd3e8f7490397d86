"""Profiles of a training loop: one process for each pass, and their results."""
