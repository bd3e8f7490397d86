"""What is said of PyTorch's speed and memory, each claim checked on the torch that is installed."""

from perfkit.features.tricks.claims import device, gradients, layout, optimizers
from perfkit.features.tricks.claims.claim import Claim


def claims() -> tuple[Claim, ...]:
    """Return all claims, those of one subject together."""
    return layout.CLAIMS + gradients.CLAIMS + optimizers.CLAIMS + device.CLAIMS
