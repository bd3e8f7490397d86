"""Profiles of a training loop: one pass per fresh process, and what they say."""
