"""Experiments: what is measured next follows from what was measured so far."""
