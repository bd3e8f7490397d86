"""A difference between two profiles: in the terminal, as markdown, and as a page."""
