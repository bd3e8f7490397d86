"""Lockstep launches: a process of base and one of head run at the same time and are timed in turns."""
