"""Profiles: the passes that take them, the reading of any file, and what differs between two."""
