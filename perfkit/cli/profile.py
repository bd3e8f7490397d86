"""``perfkit profile``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand

from perfkit.cli import options
from perfkit.cli.output import check_two_places, emit, write_flames
from perfkit.errors import NotMeasuredError, PerfkitError, RunInterruptedError, UsageError

if TYPE_CHECKING:
    from perfkit.model import PassName

_TORCHRUN = "torchrun"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        cls=_BeforeTorchrun,
        epilog=options.examples(
            "perfkit profile train --out first_profile.stat",
            "perfkit profile package.module:function --steps 20",
            "perfkit profile train.py --step-at train.py:31 --steps 20",
            "perfkit profile train.py --step loader",
            "perfkit profile train.py --passes clean,cprofile -- --epochs 1 --lr 0.01",
            "perfkit profile train.py --out first.stat -- model=resnet optimizer.lr=0.01     (hydra)",
            "perfkit profile notebooks/finetune.ipynb",
            "perfkit profile --whole train.py -- --epochs 90",
            "perfkit profile --ranks 2 train.py --out first.stat -- --epochs 1",
            "perfkit profile --out first.stat torchrun --nproc-per-node 2 train.py --epochs 1",
            "perfkit profile train --lines auto",
            "perfkit profile train --passes clean,memory --steps 20",
            "perfkit profile train --firefox train.firefox.json",
        ),
    )(profile)


class _BeforeTorchrun(TyperCommand):
    """A command that can stand before a command line of torchrun: what follows that word is not its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (the library's own type)
        valued = {
            name for option in self.params if not getattr(option, "is_flag", True) for name in option.opts
        }
        own = args[: args.index("--")] if "--" in args else args
        at = next(
            (at for at, word in enumerate(own) if word == _TORCHRUN and args[max(at - 1, 0)] not in valued),
            None,
        )
        return super().parse_args(ctx, args if at is None else [*args[:at], "--", *args[at:]])


def profile(
    target: Annotated[
        str,
        typer.Argument(
            help='A configured name, "package.module:function", a script, a module for `python -m`, a'
            " notebook, or a line of torchrun."
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]", help="What the target finds in sys.argv.")
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="The .stat file; default: TARGET.stat among the profiles."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="End each pass after this many steps, not after a minute.")
    ] = None,
    step_at: Annotated[
        str | None,
        typer.Option(
            "--step-at",
            "--step",
            metavar="FILE:LINE|loader",
            help="What a step is: a turn of the loop at this line, or a batch of a loader.",
        ),
    ] = None,
    passes: Annotated[
        str | None,
        typer.Option(
            help="Which passes to make (default: clean,balance,counts,cprofile,torch; without torch"
            " clean,cprofile)."
        ),
    ] = None,
    lines: Annotated[
        list[str] | None,
        typer.Option(metavar="FUNCTION", help="Time package.module:function by line; auto: your slowest."),
    ] = None,
    trace_all: Annotated[
        bool, typer.Option("--trace-all", help="Trace every step, not a few after a warm-up.")
    ] = False,
    ranks: Annotated[
        int | None,
        typer.Option(help="Start the script as this many processes, as torchrun does, and profile each."),
    ] = None,
    stall_limit: Annotated[
        float, options.seconds_option("With ranks: end when none makes a step for this long.")
    ] = 600.0,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole", help="No passes, no notebooks: run it unchanged to its end, and file every step."
        ),
    ] = False,
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Record nothing; works without git too.")
    ] = False,
    speedscope: options.SpeedscopeOption = None,
    firefox: options.FirefoxOption = None,
    wait: options.WaitOption = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Profile a training loop: its times, what a step is made of and counts, and two profilers' views.

    Each pass is a process of its own; only the clean pass gives times to the ledger. It prints ten lines, and
    `perfkit show` prints the rest.
    """
    if whole:
        given = {"--out": out, "--steps": steps, "--passes": passes, "--lines": lines, "--json": json}
        given |= {"--trace-all": trace_all, "--no-ledger": no_ledger, "--speedscope": speedscope}
        _check_whole({**given, "--firefox": firefox, "--wait": wait})
        _profile_whole(target, tuple(arguments or ()), ranks=ranks, step_at=step_at, ledger=ledger)
        return
    names = None if passes is None else _names(passes)
    _check_flames(names, speedscope, firefox)
    from perfkit.commands.profile import INTERRUPTED, ProfileRequest, run_profile, started_ranks, usual_place
    from perfkit.commands.show import read_profiles
    from perfkit.config import load_project
    from perfkit.report.profiles import summary_ending

    project = load_project(Path.cwd())
    started = started_ranks(target, tuple(arguments or ()), ranks=ranks)
    target = started.target
    request = ProfileRequest(
        target=target,
        arguments=started.arguments,
        ranks=started.ranks,
        port=started.port,
        stall_limit_s=stall_limit,
        out=out or usual_place(target, project),
        steps=steps,
        step_at=step_at,
        passes=names,
        lines=tuple(lines or ()),
        trace_all=trace_all,
        wait_s=wait,
        progress=not options.is_quiet(),
        ledger=None if no_ledger else options.ledger_at(ledger or project.ledger_place),
    )
    summary = run_profile(request, project=project)
    folder = request.out.parent

    def write_both() -> None:
        if speedscope is not None or firefox is not None:
            files = [folder / name for name in summary.artifacts if name.endswith(".stat")]
            write_flames(read_profiles(files, project=project), speedscope=speedscope, firefox=firefox)

    failure: PerfkitError | None = None if summary.problem is None else NotMeasuredError(summary.problem)
    if summary.problem == INTERRUPTED:
        failure = RunInterruptedError(INTERRUPTED)
    emit(summary_ending(summary, folder=folder), summary, json=json, then=(write_both,), failure=failure)


def _check_whole(given: Mapping[str, object]) -> None:
    option = next((name for name, value in given.items() if value), None)
    if option is not None:
        rows = "`perfkit ledger show RUN --json -` has its rows"
        raise UsageError(
            f"--whole makes no passes and writes no profile, so {option} has no use;"
            f" {rows if option == '--json' else 'leave it out'}"
        )


def _profile_whole(
    target: str, arguments: tuple[str, ...], *, ranks: int | None, step_at: str | None, ledger: str | None
) -> None:
    from perfkit.commands.whole import WholeRequest, run_whole
    from perfkit.config import load_project
    from perfkit.identity import shown_run_id
    from perfkit.invocation import follow_up

    project = load_project(Path.cwd())
    place = ledger or project.ledger_place
    request = WholeRequest(target=target, arguments=arguments, ranks=ranks, step_at=step_at, ledger=place)
    result = run_whole(request, project=project)
    shown = follow_up(f"perfkit ledger show {shown_run_id(result.runs[-1])}")
    lines = [f"{result.name}: {result.lines[0]}", *result.lines[1:], "", f"next: {shown}"]
    emit("\n".join(lines), result, json=None)


def _names(passes: str) -> tuple[PassName, ...]:
    """Return the passes that are named; whether there are such is looked at with the request."""
    return cast("tuple[PassName, ...]", tuple(name.strip() for name in passes.split(",") if name.strip()))


def _check_flames(passes: Sequence[str] | None, speedscope: Path | None, firefox: Path | None) -> None:
    check_two_places(speedscope, firefox)
    if (speedscope or firefox) and passes is not None and "cprofile" not in passes:
        option = "--speedscope" if speedscope else "--firefox"
        raise UsageError(f"{option} shows what the cprofile pass sees; add cprofile to --passes")
