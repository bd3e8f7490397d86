"""What both classifications have in common: how choices are checked, and what training gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, get_args

LAST_STEPS = 5


def check_choices(config: object, choices: Mapping[str, Any], least: Mapping[str, int]) -> None:
    """Refuse a configuration with a field that is none of its choices, or below the least it may be.

    Args:
        config: What has the fields.
        choices: Field -> its `Literal` type.
        least: Field -> its least value.

    Raises:
        ValueError: A field is neither; the message names it.
    """
    for name, known in choices.items():
        if getattr(config, name) not in get_args(known):
            expected = ", ".join(get_args(known))
            raise ValueError(f"expected {name} to be one of {expected}, found {getattr(config, name)}")
    for name, smallest in least.items():
        if getattr(config, name) < smallest:
            raise ValueError(
                f"expected {name} of at least {smallest}, found {getattr(config, name)}; raise it"
            )


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What a training run gave.

    Attributes:
        losses: The loss of every step.
        test_accuracy: Share of the held-out samples that the trained model puts in their class.
        samples: Samples trained with.
        skipped_steps: Steps that left the parameters as they were, as a gradient overflowed.
        seconds_per_step: Time of every step: waiting for its batch, transfer, forward, backward and
            update. A GPU works behind: there it is the time after which the next step could begin.
        training_s: Time of all epochs, to the end of all work on the device.
        validation_s: Time of computing `test_accuracy`, which `training_s` leaves out.
    """

    losses: tuple[float, ...]
    test_accuracy: float
    samples: int
    skipped_steps: int
    seconds_per_step: tuple[float, ...]
    training_s: float
    validation_s: float

    @property
    def steps(self) -> int:
        """Steps tried, skipped ones among them."""
        return len(self.losses)

    @property
    def last_loss(self) -> float:
        """Mean loss of the last five steps."""
        return fmean(self.losses[-LAST_STEPS:])
