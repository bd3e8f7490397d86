"""A program that is run unchanged by ``perfkit profile --whole``, with its steps followed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import NoReturn

import msgspec

from perfkit.commands.training import TrainingRecord
from perfkit.commands.whole import NO_STEP, RESULT_BYTES, WholeResult, WholeSpec
from perfkit.profiling.passes.follow import WholeSteps
from perfkit.profiling.passes.meter import import_torch
from perfkit.profiling.passes.target_code import as_a_function
from perfkit.profiling.passes.targets import marked_code
from perfkit.profiling.passes.training import StepPlan
from perfkit.runner.targets import load_target, prepare_process

_TERMINATED = 128 + signal.SIGTERM


def main() -> None:
    """Run the target as if by hand, and file what its steps took, however it ends."""
    spec, arguments = msgspec.json.decode(sys.argv[1], type=WholeSpec), tuple(sys.argv[2:])
    # The interpreter put the present folder there to find this module; a script sees its own folder alone.
    if sys.path and sys.path[0] in ("", str(Path.cwd())):
        del sys.path[0]
    import_torch()
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
    loaded = load_target(spec.target.place, change_code=lambda code: _changed(spec, code))
    process, hint = os.getpid(), ""
    record.begin()
    try:
        loaded.call()
    except Exception as error:  # noqa: BLE001 (as by hand, it is shown and ends the program)
        hint = as_a_function(error, Path(spec.root))
        frames = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        sys.exit(1)
    finally:
        if os.getpid() == process:
            record.finish()
            _leave_result(spec, record, is_over=True, hint=hint)


def _changed(spec: WholeSpec, code: CodeType) -> CodeType:
    line, script = spec.unit.line, Path(spec.target.place)
    if line is not None and spec.target.is_script and os.path.realpath(script) == line.file:
        return marked_code(line, script)
    return code


def _end(_: int, __: FrameType | None) -> NoReturn:
    sys.exit(_TERMINATED)


def _leave_result(spec: WholeSpec, record: TrainingRecord, *, is_over: bool, hint: str = "") -> None:
    """Leave what was filed for the command that waits, on the rank that files."""
    if record.is_first:
        lines = (f"nothing was filed{hint}",) if hint else tuple(record.ending())
        result = WholeResult(name=spec.target.name, runs=tuple(record.runs), lines=lines, is_over=is_over)
        with Path(spec.result).open("r+b") as file:
            file.write(msgspec.json.encode(result).ljust(RESULT_BYTES))


if __name__ == "__main__":
    main()
