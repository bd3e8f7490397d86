"""The parts of ``perfkit profile``: what is settled first, what is recorded, what is put in its place."""
