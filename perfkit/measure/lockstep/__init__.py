"""Lockstep launches: a base and a head process that take turns, round by round."""
