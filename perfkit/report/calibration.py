"""Terminal views of A/A runs: what the doctor finds of a machine, and a calibration of the gate."""

from __future__ import annotations

import glob
import json
import math
from collections.abc import Iterator, Mapping

from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table
from rich.text import Text

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS, EXIT_REGRESSED
from perfkit.model.calibration import Calibration, Fitness, Noise, Share, State, Steadiness
from perfkit.report.gate.wording import percent
from perfkit.report.names import BrokenName, columns_table, short_names, spaced
from perfkit.units import counted, human_seconds

_MARGINS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.25, 0.5)


def calibration_view(found: Calibration) -> Group:
    """Return the whole finding, the decision last; it fits a terminal of 80 columns."""
    names = short_names(one.benchmark for one in found.benchmarks)
    offered = offered_configuration(found)
    style = "bold green" if found.exit_code == EXIT_PASS else "bold yellow"
    sections = (_rates(found), _benchmarks(found, names), Text(_guide(found), style="dim"))
    rules: tuple[Text, ...] = ()
    if offered:
        # Lines that are longer than the terminal are not broken: they are to be pasted.
        lines = Text(offered, no_wrap=True, overflow="ignore")
        rules = (Text("What these benchmarks can be held to, for pyproject.toml:\n"), lines, Text(""))
    return Group(spaced(*sections), *rules, Text(calibration_decision(found), style=style))


def calibration_decision(found: Calibration) -> str:
    """Return in a sentence whether the gate's error rates hold here, with the exit code."""
    margin, code = percent(found.margin), f"exit code {found.exit_code}"
    if not found.accused.of:
        return f"NOT MEASURED: no gate of identical code has run; {code}"
    if found.exit_code == EXIT_NOT_MEASURED:
        missed = f"{found.unmeasured} of {counted(found.undecided.of, 'verdict')} on identical code"
        what = "a benchmark that failed or took too long: fix it, or leave it out with --select"
        return f"NOT MEASURED: {missed} came of {what}; {code}"
    accused = f"{found.accused.count} of {counted(found.accused.of, 'gate')} of identical code"
    if found.exit_code == EXIT_REGRESSED:
        return f"NOT TO BE TRUSTED: {accused} accused or praised it, more than alpha allows; {code}"
    if found.exit_code == EXIT_INCONCLUSIVE:
        share = _share_text(found.undecided)
        return f"TOO NOISY for a margin of {margin}: {share} of the verdicts stayed undecided; {code}"
    bound = f"at most {100 * found.accused.high:.1f} %, at 95 % confidence"
    return f"TRUSTED at a margin of {margin}: {accused} accused or praised it ({bound}); {code}"


def offered_configuration(found: Calibration) -> str:
    """Return rules for the benchmarks whose margin is too narrow, or nothing where the margin suits all."""
    rules = [
        # A glob that matches this name alone: the brackets of parameters would be a set.
        f"[[tool.perfkit.rules]]\nmatch = {json.dumps(glob.escape(one.benchmark), ensure_ascii=False)}"
        f"\n{_offer(one.decidable)}"
        for one in found.benchmarks
        if one.decidable is not None and one.decidable > found.margin
    ]
    return "\n\n".join(rules)


def _offer(decidable: float) -> str:
    margin = next((margin for margin in _MARGINS if margin >= decidable), None)
    return "gate = false" if margin is None else f'margin = "{100 * margin:g}%"'


def _rates(found: Calibration) -> Table:
    gates = f"{found.gates} of {counted(found.planned, 'gate')}"
    table = columns_table(gates, numbers=("counted", "share", "95 % bound"))
    table.add_row(
        "identical code: gates that accuse or praise",
        *_cells(found.accused),
        f"<= {100 * found.accused.high:.1f} %",
    )
    table.add_row(
        "identical code: UNCHANGED", *_cells(found.unchanged), f">= {100 * found.unchanged.low:.1f} %"
    )
    table.add_row(
        "identical code: undecided", *_cells(found.undecided), f"<= {100 * found.undecided.high:.1f} %"
    )
    if found.unmeasured:
        table.add_row("identical code: not measured", f"{found.unmeasured} of {found.undecided.of}")
    for power in found.powers:
        reading = "" if power.median_reading is None else f", read as {100 * power.median_reading:+.1f} %"
        others = f", others accused in {power.others_accused}" if power.others_accused else ""
        what = f"injected +{percent(power.plant)}: found{reading}{others}"
        table.add_row(what, *_cells(power.found), f">= {100 * power.found.low:.1f} %")
    return table


def _cells(share: Share) -> tuple[str, str]:
    return f"{share.count} of {share.of}", _share_text(share)


def _share_text(share: Share) -> str:
    return f"{100 * share.count / share.of:.0f} %" if share.of else "-"


def _benchmarks(found: Calibration, names: Mapping[str, str]) -> Table:
    numbers = ("a call", "taken", "sd zy-\ngotes", "sd laun-\nches", "sd\nrounds", "detect-\nable")
    table = columns_table("benchmark", numbers=numbers)
    for one in found.benchmarks:
        table.add_row(BrokenName(names[one.benchmark]), *_line(one))
    return table


def _line(one: Steadiness) -> Iterator[str]:
    yield human_seconds(one.seconds)
    yield f"{one.launches:g}"
    for sd in (one.components.preloaders, one.components.launches, one.components.rounds):
        yield "-" if sd is None or math.isnan(sd) else f"{100 * sd:.1f} %"
    yield "-" if one.effect is None else f"+{100 * one.effect:.1f} %"


def _guide(found: Calibration) -> str:
    return (
        "Taken: launches until decided (median). Then the standard deviations of the ratio between"
        " zygotes, between launches of one, between rounds of one; and the slowdown that would be"
        " REGRESSED 19 times of 20 within the budget. A gate took"
        f" {human_seconds(found.median_gate_s)} (median), at alpha {found.policy.alpha:g} for all benchmarks"
        " together."
    )


_STYLES: dict[State, str] = {"good": "green", "notable": "yellow", "bad": "bold red", "unknown": "dim"}
_MARKS: dict[State, str] = {"good": "ok", "notable": "note", "bad": "BAD", "unknown": "?"}


def doctor_view(fitness: Fitness) -> Group:
    """Return the whole finding, the decision last; it fits a terminal of 80 columns."""
    advice = Group(*_advice(fitness)) if any(one.advice for one in fitness.conditions) else None
    guide = Text(_doctor_guide(fitness), style="dim")
    decision = Text(doctor_decision(fitness), style="bold green" if fitness.fit else "bold red")
    return Group(spaced(_conditions(fitness), advice, _noise(fitness), guide), decision)


def doctor_decision(fitness: Fitness) -> str:
    """Return in a sentence which margin the machine is fit for, with the exit code."""
    margin, code = percent(fitness.margin), f"exit code {fitness.exit_code}"
    if not fitness.noises:
        return f"NOT MEASURED: too few launches to estimate the noise; give it more --seconds; {code}"
    effects = [noise.effect for noise in fitness.noises if noise.effect is not None]
    if not fitness.fit:
        bad = [one.name for one in fitness.conditions if one.state == "bad"]
        cause = f"see {', '.join(bad)}" if bad else "the noise has no visible cause"
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
    numbers = ("launches\nmeasured", "sd over\nlaunches", "launches\nin a gate", "interval", "detectable")
    table = columns_table("identical code", numbers=numbers)
    for noise in fitness.noises:
        table.add_row(*_noise_row(noise))
    return table


def _noise_row(noise: Noise) -> Iterator[str]:
    yield noise.benchmark.rpartition("::")[2]
    yield str(noise.measured)
    yield f"{100 * noise.launch_sd:.1f} %"
    yield str(noise.launches) if noise.launches else "too few"
    yield "-" if noise.half_width is None else f"±{100 * noise.half_width:.1f} %"
    yield "-" if noise.effect is None else f"+{100 * noise.effect:.1f} %"


def _doctor_guide(fitness: Fitness) -> str:
    return (
        f"Detectable: what would be REGRESSED 19 times of 20 at margin {percent(fitness.margin)}, in a gate"
        f" of {counted(fitness.policy.family, 'benchmark')} with {fitness.seconds_per_benchmark:g} s for each"
        f" and alpha {fitness.policy.alpha:g}. Longer budgets and fewer benchmarks lower it, and so does"
        " anything that lowers the scatter."
    )
