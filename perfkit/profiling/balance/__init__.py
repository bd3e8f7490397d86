"""The balance pass: hooks that see the phases of a training step, and the clock that they set."""
