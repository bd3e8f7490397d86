"""The records of counters, which the agent defines because it imports nothing of perfkit."""

from perfkit.runner.agent.counters.model import (
    NO_TORCH,
    PEAK_MEMORY,
    TRACKED,
    Cause,
    Count,
    Counts,
    joined_counts,
)

# The counter of Valgrind's callgrind.
INSTRUCTIONS = "instructions"

__all__ = ["INSTRUCTIONS", "NO_TORCH", "PEAK_MEMORY", "TRACKED", "Cause", "Count", "Counts", "joined_counts"]
