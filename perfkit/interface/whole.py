"""A program that is run unchanged by ``perfkit profile --whole``, with its steps followed."""

from __future__ import annotations

import functools
import os
import signal
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

import msgspec

from perfkit.commands.training import TrainingRecord
from perfkit.commands.whole import NO_STEP, RESULT_BYTES, WholeResult, WholeSpec
from perfkit.errors import EXIT_INTERRUPTED, EXIT_USAGE, UsageError
from perfkit.profiling.passes.follow import WholeSteps
from perfkit.profiling.passes.meter import import_torch
from perfkit.profiling.passes.target_code import as_a_module, without_harness
from perfkit.profiling.passes.targets import marked_code
from perfkit.profiling.passes.training import StepPlan
from perfkit.runner.targets import load_target, prepare_process

_TERMINATED = 128 + signal.SIGTERM
_kept_alive: list[object] = []


def main() -> None:
    """Run the target as if by hand, and file what its steps took, however it ends."""
    spec, arguments = msgspec.json.decode(sys.argv[1], type=WholeSpec), tuple(sys.argv[2:])
    # The interpreter put the present folder there to find this module; a script sees its own folder alone.
    if sys.path and sys.path[0] in ("", str(Path.cwd())):
        del sys.path[0]
    import_torch()
    _keep_group()
    prepare_process(spec.target.place, arguments, root=Path(spec.root))
    record = TrainingRecord(
        spec.name,
        StepPlan(),
        ledger=spec.ledger,
        no_step=NO_STEP,
        # It may end without notice.
        plan_filed=lambda: _leave_result(spec, record, is_over=False),
    )
    record.describe(arguments=" ".join(arguments) or None)
    WholeSteps(record, spec.unit).begin()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)
    try:
        loaded = load_target(spec.target.place, change_code=lambda code: _changed(spec, code))
    except UsageError as error:
        _write(spec, WholeResult(name=spec.target.name, refused=str(error)))
        sys.exit(EXIT_USAGE)
    except Exception as error:  # noqa: BLE001 (as below)
        _show(error)
        sys.exit(1)
    process, hint = os.getpid(), ""
    record.begin()
    try:
        loaded.call()
    except Exception as error:  # noqa: BLE001 (as by hand, it is shown and ends the program)
        hint = as_a_module(error, Path(spec.root))
        _show(error)
        sys.exit(1)
    except KeyboardInterrupt as error:
        _show(error)
        sys.exit(EXIT_INTERRUPTED)
    finally:
        if os.getpid() == process:
            record.finish()
            _leave_result(spec, record, is_over=True, hint=hint)


def _keep_group() -> None:
    """Keep alive the ranks' group: its end may wait for ever for a thread that waits for the interpreter."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return
    form = distributed.init_process_group

    @functools.wraps(form)
    def form_and_keep(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (torch's own signature)
        form(*args, **kwargs)
        _kept_alive.append(distributed.group.WORLD)

    distributed.init_process_group = form_and_keep


def _changed(spec: WholeSpec, code: CodeType) -> CodeType:
    line, script = spec.unit.line, Path(spec.target.place)
    if line is not None and spec.target.is_script and os.path.realpath(script) == line.file:
        return marked_code(line, script)
    return code


def _show(error: BaseException) -> None:
    frames = without_harness(error.__traceback__)
    sys.excepthook(type(error), error.with_traceback(frames), frames)


def _end(_: int, __: FrameType | None) -> NoReturn:
    sys.exit(_TERMINATED)


def _leave_result(spec: WholeSpec, record: TrainingRecord, *, is_over: bool, hint: str = "") -> None:
    """Leave what was filed for the command that waits, on the rank that files."""
    if record.is_first:
        lines = (f"nothing was filed{hint}",) if hint else tuple(record.ending())
        _write(
            spec, WholeResult(name=spec.target.name, runs=tuple(record.runs), lines=lines, is_over=is_over)
        )


def _write(spec: WholeSpec, result: WholeResult) -> None:
    with Path(spec.result).open("r+b") as file:
        file.write(msgspec.json.encode(result).ljust(RESULT_BYTES))


if __name__ == "__main__":
    main()
