"""Child processes: how they start and end, how that is told, what they load, and proof of their code."""
