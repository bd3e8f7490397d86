"""Engines: what does a list of measuring tasks, here or on other machines."""
