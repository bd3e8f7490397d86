"""The common parts of both classifications: the check of configurations, and the result of training."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, get_args

LAST_STEPS = 5


def check_choices(config: object, choices: Mapping[str, Any], least: Mapping[str, int]) -> None:
    """Check that each field of a configuration is one of its choices, or at least its least value.

    Args:
        config: The object with the fields.
        choices: Field -> its `Literal` type.
        least: Field -> its least value.

    Raises:
        ValueError: A field is not; the message names it.
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
    """The results of a training run.

    Attributes:
        losses: The loss of every step.
        test_accuracy: Share of the held-out samples that the trained model puts in their class.
        samples: Samples trained with.
        skipped_steps: Steps that changed no parameter, since a gradient overflowed.
        seconds_per_step: Time of every step: waiting for its batch, transfer, forward, backward and
            update. A GPU runs asynchronously: there it is the time until the host could begin the next step.
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
        """The number of steps tried, skipped ones included."""
        return len(self.losses)

    @property
    def last_loss(self) -> float:
        """The mean loss of the last five steps."""
        return fmean(self.losses[-LAST_STEPS:])
