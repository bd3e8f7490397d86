"""Experiments in randomised complete blocks: every variant in a fresh process, once in every block."""
