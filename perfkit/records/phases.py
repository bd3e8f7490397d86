"""The phases of a training step, by the names that every profile of it uses."""

from __future__ import annotations

DATA = "data wait"
TO_DEVICE = "host to device"
FORWARD = "forward"
LOSS = "loss"
# A trace does not tell the two apart.
FORWARD_AND_LOSS = "forward and loss"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
TO_HOST = "device to host"
EVALUATION = "evaluation"
LOGGING = "logging"
RANKS = "other ranks"
# As a step goes through them.
PHASES = (DATA, TO_DEVICE, FORWARD, LOSS, BACKWARD, OPTIMIZER, TO_HOST, EVALUATION, LOGGING)
TRACED_PHASES = (DATA, TO_DEVICE, FORWARD_AND_LOSS, BACKWARD, OPTIMIZER, RANKS)
RESIDUAL = "residual"
# In a trace the phases that the user names have these words before their names.
MARK = "phase: "
