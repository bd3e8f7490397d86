"""A profile that was read: as tables for the terminal, and as text."""
