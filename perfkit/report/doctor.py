"""Shows what the doctor found in the terminal: conditions, noise, and what a gate could see."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfkit.model.fitness import Fitness, Noise, State
from perfkit.report.gate.wording import percent
from perfkit.report.names import NamedTable
from perfkit.units import counted

_STYLES: dict[State, str] = {"good": "green", "notable": "yellow", "bad": "bold red", "unknown": "dim"}
_MARKS: dict[State, str] = {"good": "ok", "notable": "note", "bad": "BAD", "unknown": "?"}


def doctor_view(fitness: Fitness) -> Group:
    """Return the whole finding, the decision last; it fits a terminal of 80 columns."""
    sections: tuple[RenderableType, ...] = (
        _conditions(fitness),
        *([Group(*_advice(fitness))] if any(one.advice for one in fitness.conditions) else []),
        _noise(fitness),
        Text(_guide(fitness), style="dim"),
    )
    decision = Text(decision_sentence(fitness), style="bold green" if fitness.fit else "bold red")
    return Group(*(Padding(section, (0, 0, 1, 0)) for section in sections), decision)


def decision_sentence(fitness: Fitness) -> str:
    """Return a sentence that says what the machine is fit for, with the exit code."""
    margin, code = percent(fitness.margin), f"exit code {fitness.exit_code}"
    if not fitness.noises:
        return f"NOT MEASURED: too few launches to tell the noise; give it more --seconds; {code}"
    effects = [noise.effect for noise in fitness.noises if noise.effect is not None]
    if not fitness.fit:
        bad = [one.name for one in fitness.conditions if one.state == "bad"]
        cause = f"see {', '.join(bad)}" if bad else "the noise has no cause that shows"
        return f"UNFIT for a margin of {margin}: identical code would stay undecided; {cause}; {code}"
    found = f"a slowdown of {100 * max(effects):.1f} % would be found 19 times of 20"
    return f"FIT for a margin of {margin}: {found}; {code}"


def _conditions(fitness: Fitness) -> Table:
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("condition", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold", ratio=1)
    for condition in fitness.conditions:
        mark = Text(_MARKS[condition.state], style=_STYLES[condition.state])
        table.add_row(condition.name, mark, Text(condition.found))
    return table


def _advice(fitness: Fitness) -> Iterator[Text]:
    """Yield advice on each bad condition, the worst condition first."""
    order: tuple[State, ...] = ("bad", "notable", "unknown", "good")
    for condition in sorted(fitness.conditions, key=lambda one: order.index(one.state)):
        if condition.advice is not None:
            style = _STYLES[condition.state]
            yield Text.assemble((condition.name, style), f": {condition.advice}")


def _noise(fitness: Fitness) -> Table:
    table = NamedTable(box=SIMPLE, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("identical code", overflow="fold", ratio=1)
    for heading in (
        "launches\nmeasured",
        "sd over\nlaunches",
        "launches\nin a gate",
        "interval",
        "detectable",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for noise in fitness.noises:
        table.add_row(*_line(noise))
    return table


def _line(noise: Noise) -> Iterator[str]:
    yield noise.benchmark.rpartition("::")[2]
    yield str(noise.measured)
    yield f"{100 * noise.launch_sd:.1f} %"
    yield str(noise.launches) if noise.launches else "too few"
    yield "-" if noise.half_width is None else f"±{100 * noise.half_width:.1f} %"
    yield "-" if noise.effect is None else f"+{100 * noise.effect:.1f} %"


def _guide(fitness: Fitness) -> str:
    return (
        f"Detectable: what would be REGRESSED 19 times of 20 at margin {percent(fitness.margin)}, in a gate"
        f" of {counted(fitness.policy.family, 'benchmark')} with {fitness.seconds_per_benchmark:g} s for each"
        f" and alpha {fitness.policy.alpha:g}. Longer budgets and fewer benchmarks lower it, and so does"
        " whatever lowers the scatter."
    )
