"""Renders a gate in the terminal, while it measures, and as a pull-request comment."""
