"""What a gate tells people: in the terminal, while it measures, and as a pull-request comment."""
