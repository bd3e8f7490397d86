"""The stages of ``perfkit gate``."""
