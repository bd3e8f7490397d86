"""The names of the phases of a training step, which all profiles use."""

from __future__ import annotations

DATA = "data wait"
TO_DEVICE = "host to device"
FORWARD = "forward"
LOSS = "loss"
# A trace does not distinguish the two.
FORWARD_AND_LOSS = "forward and loss"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
TO_HOST = "device to host"
EVALUATION = "evaluation"
LOGGING = "logging"
# Collectives, such as an all-reduce: their own work, and the wait for the ranks that come later.
RANKS = "other ranks"
# A step goes through them in this order.
PHASES = (DATA, TO_DEVICE, FORWARD, LOSS, BACKWARD, RANKS, OPTIMIZER, TO_HOST, EVALUATION, LOGGING)
TRACED_PHASES = (DATA, TO_DEVICE, FORWARD_AND_LOSS, BACKWARD, OPTIMIZER, RANKS)
RESIDUAL = "residual"
# In a trace, the names of phases that the user has named begin with this.
MARK = "phase: "
