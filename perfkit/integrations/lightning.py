"""``PerfkitCallback`` for Lightning's Trainer: files step times and what the steps wait for."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from perfkit.commands.training import TrainingRecord
from perfkit.integrations import Followed


def _callback_class() -> Any:  # noqa: ANN401 (a class of either package)
    """Return Lightning's Callback, of the package that the program uses: it has two names.

    Raises:
        ModuleNotFoundError: neither is installed.
    """
    names = ["lightning.pytorch", "pytorch_lightning"]
    if names[0] not in sys.modules and names[1] in sys.modules:
        names.reverse()
    for name in names:
        try:
            return importlib.import_module(name).Callback
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:
                raise
    raise ModuleNotFoundError(
        "perfkit.integrations.lightning needs Lightning: pip install 'perfkit[lightning]'", name="lightning"
    )


class PerfkitCallback(Followed, _callback_class()):  # type: ignore[misc]
    """Times the steps of ``Trainer.fit``, reports what they wait for, and files all that under the commit.

    A step ends with the batch after which an optimizer stepped, so that accumulated gradients are one step.
    Its arguments are those of `Followed`.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401 (Lightning's own)
        """Begin."""
        self._record = TrainingRecord(self._name or type(pl_module).__name__, self._plan, ledger=self._ledger)
        self._record.describe(accumulate=trainer.accumulate_grad_batches, precision=trainer.precision)
        self._steps_before = trainer.global_step
        self._record.begin(rank=trainer.global_rank, ranks=trainer.world_size)

    def on_train_batch_end(
        self,
        trainer: Any,  # noqa: ANN401 (likewise)
        pl_module: Any,  # noqa: ANN401, ARG002 (likewise)
        outputs: Any,  # noqa: ANN401, ARG002 (likewise)
        batch: Any,  # noqa: ANN401 (the user's)
        batch_idx: int,  # noqa: ARG002 (likewise)
    ) -> None:
        """End a step, where an optimizer made one."""
        if self._record is None:
            return
        self._record.see_batch(batch)
        if trainer.global_step != self._steps_before:
            self._steps_before = trainer.global_step
            self._record.end_step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002 (likewise)
        """Leave the validation out."""
        if self._record is not None:
            self._record.pause()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002 (likewise)
        """Begin the step anew, in which the validation was set up."""
        if self._record is not None:
            self._record.resume()
            self._record.restart_step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002 (likewise)
        """File what there is."""
        if self._record is not None:
            self._record.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ANN401, ARG002 (likewise)
        """File what there is before a training ends by an error, and report it."""
        self.on_train_end(trainer, pl_module)
        self._print_recorded()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401, ARG002 (likewise)
        """Print what was filed, once the progress bar is gone."""
        self._print_recorded()

    def _print_recorded(self) -> None:
        if self._record is not None:
            self._record.report()
            self._record = None
