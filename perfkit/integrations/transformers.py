"""``PerfkitCallback`` for the Trainer of Hugging Face: files step times and what the steps wait for."""

from __future__ import annotations

import atexit
from typing import Any

from transformers import TrainerCallback

from perfkit.commands.training import TrainingRecord
from perfkit.integrations import Followed


class PerfkitCallback(Followed, TrainerCallback):  # type: ignore[misc]
    """Times the steps of ``Trainer.train``, reports what they wait for, and files all that under the commit.

    Accumulated gradients are one step. Its arguments are those of `Followed`.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002 (the Trainer's own)
        """Begin; a training before this one that was broken off is filed first."""
        self._end()
        name = self._name or type(kwargs.get("model")).__name__
        self._record = TrainingRecord(name, self._plan, ledger=self._ledger)
        self._record.describe(
            batch=args.per_device_train_batch_size,
            accumulate=args.gradient_accumulation_steps,
            precision="bf16" if args.bf16 else "fp16" if args.fp16 else "32",
        )
        # The Trainer calls nothing where an error or Ctrl-C ends a training.
        atexit.register(self._end)
        self._record.begin(rank=args.process_index, ranks=args.world_size)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002 (likewise)
        """End a step."""
        if self._record is not None:
            self._record.end_step()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002 (likewise)
        """Begin the step anew, since an evaluation or a checkpoint came before it."""
        if self._record is not None:
            self._record.restart_step()

    on_save = on_evaluate

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002 (likewise)
        """File what there is, and print what was filed."""
        self._end()

    def _end(self) -> None:
        record, self._record = self._record, None
        if record is not None:
            atexit.unregister(self._end)
            record.finish()
            record.report()
