"""The balance pass: hooks that notice the phases of a training step, and the clock that they switch."""
