"""The suite as asv finds it."""
