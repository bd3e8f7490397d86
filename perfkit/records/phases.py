"""The phases of a training step, by the names that every profile of it uses."""

from __future__ import annotations

DATA = "data wait"
TO_DEVICE = "host to device"
FORWARD = "forward"
LOSS = "loss"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
TO_HOST = "device to host"
EVALUATION = "evaluation"
LOGGING = "logging"
# As a step goes through them.
PHASES = (DATA, TO_DEVICE, FORWARD, LOSS, BACKWARD, OPTIMIZER, TO_HOST, EVALUATION, LOGGING)
RESIDUAL = "residual"
