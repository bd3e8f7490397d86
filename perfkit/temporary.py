"""Temporary folders that say whose they are, so that the next perfkit can remove those of killed ones."""
