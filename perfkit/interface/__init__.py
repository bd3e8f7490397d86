"""perfkit in Python, for scripts and notebooks: ``perfkit.gate()`` and the like."""
