"""Writes the report of a profile as text that fits a terminal of 80 columns."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from perfkit.model import (
    ABSENT,
    Balance,
    LineMemory,
    MemoryProfile,
    PassName,
    PassSummary,
    ProfileEntry,
    ProfileSummary,
    RankProfile,
)
from perfkit.model.counters import SYNCS, TITLES
from perfkit.model.counting import Cause, Count
from perfkit.model.phases import DATA, RANKS
from perfkit.model.readings import OperatorTime, WaitTime
from perfkit.report.counts import amount_text
from perfkit.units import counted, human_bytes, human_calls, human_percent, human_seconds

WHOLE_COLUMNS = 80
_ENTRIES = 8
_NAME_COLUMNS = 43
_COUNT_COLUMNS = 30
_WORTH_TELLING = 0.001
_FEW_STEPS = 3
_FASTER_THAN_CLEAN = 0.9
_PASS_TITLES = {
    "clean": "clean",
    "balance": "balance",
    "counts": "counts",
    "cprofile": "cProfile",
    "torch": "torch",
    "lines": "lines",
    "memory": "memory",
}
# A line that grows by less is not worth a sentence of its own.
_WORTH_NAMING_BYTES = 1024


def render_report(summary: ProfileSummary, *, folder: Path = Path(), columns: int = WHOLE_COLUMNS) -> str:
    """Return times, passes, the largest entries, warnings, and the next commands.

    ``folder`` is where the artifacts are, as the reader would type it. In fewer than 80 ``columns`` each name
    has a line of its own above its numbers.
    """
    sections = (
        _headline(summary),
        _passes(summary),
        _ranks(summary),
        _balance(summary),
        _phase_memory(summary),
        _counts(summary),
        *_entry_tables(summary),
        *_role_tables(summary),
        _backward(summary),
        _lines(summary),
        *_memory_tables(summary),
        "\n".join(_wrapped(f"warning: {warning}") for warning in warnings(summary)),
        _files(summary, folder),
        _next_commands(summary, folder),
    )
    shown = (section for section in sections if section)
    if columns < WHOLE_COLUMNS:
        shown = ("\n".join(_narrowed(section.split("\n"), columns)) for section in shown)
    return "\n\n".join(shown) + "\n"


def _narrowed(lines: Sequence[str], columns: int) -> Iterator[str]:
    """Yield lines that fit: those of a table in two, others folded."""
    is_table = lines[0].endswith("share")
    for line in lines:
        name, numbers = line[:_NAME_COLUMNS], line[_NAME_COLUMNS:]
        if len(line) <= columns:
            yield line
        elif is_table and name.endswith(" "):
            yield from (name.rstrip(), f"    {numbers}")
        else:
            indent = " " * (len(line) - len(line.lstrip()) + 2)
            yield from textwrap.wrap(line, columns, subsequent_indent=indent)


def warnings(summary: ProfileSummary) -> list[str]:
    """Return warnings about numbers that do not mean what they seem to mean."""
    problem = [summary.problem] if summary.problem else []
    return [*problem, *_warnings(summary)]


def waiting_share(summary: ProfileSummary) -> float | None:
    """Return the share of the whole time that was spent waiting for data, or None where it is not known."""
    main = summary.main_pass
    return None if main.data_wait_s is None or not main.total_s else main.data_wait_s / main.total_s


def _headline(summary: ProfileSummary) -> str:
    main = summary.main_pass
    steps = (
        ""
        if _has_no_torch(summary)
        else f", {counted(main.steps, 'step' if main.marked else 'optimizer step')}"
    )
    lines = [f"{summary.target}: {human_seconds(main.total_s)} in all{steps}"]
    if summary.ranks:
        lines[0] += f", {counted(len(summary.ranks), 'rank')}"
        lines.append("  (what follows is of rank 0, except for the table of ranks)")
    if main.step_s:
        lines.append(f"  time per step     {human_seconds(main.typical_step_s)}  ({_basis(main)})")
    if main.sample_s is not None:
        rate = f"{human_calls(1 / main.sample_s)} samples/s, {main.samples} samples"
        lines.append(f"  time per sample   {human_seconds(main.sample_s)}  ({rate})")
    if main.data_wait_s is not None:
        lines.append(f"  waiting for data  {human_seconds(main.data_wait_s)}  ({_waiting(summary)})")
    if summary.waited_s:
        lines.append(f"  before it began   {human_seconds(summary.waited_s)} of waiting for another perfkit")
    return "\n".join(lines)


def _basis(main: PassSummary) -> str:
    used = len(main.typical_steps)
    left_out = ", the first left out for its set-up" if used < main.steps else ""
    return f"median of {used}{left_out}" if used > 1 else "the only one, with the set-up in it"


def _waiting(summary: ProfileSummary) -> str:
    workers = summary.main_pass.data_workers
    how = "loaded in the process itself" if not workers else f"with {counted(workers, 'worker')}"
    return f"{human_percent(waiting_share(summary))} of the total; {how}"


def _passes(summary: ProfileSummary) -> str:
    head = f"{'pass':<10}{'steps':>7}{'total':>11}{'per step':>11}   profiled / clean"
    made = {found.name: _pass_line(summary, found) for found in summary.passes}
    asked = summary.configuration.get("passes", "").split(",") if summary.problem else ()
    missing = (f"{_PASS_TITLES.get(name, name):<10}{'failed':>7}" for name in asked if name not in made)
    return "\n".join((head, *made.values(), *missing))


def _pass_line(summary: ProfileSummary, found: PassSummary) -> str:
    ratio = summary.distortion(found.name)
    distortion = f"{ratio:.2f}" if ratio is not None else "-"
    return (
        f"{_PASS_TITLES[found.name]:<10}{found.steps:>7}{human_seconds(found.total_s):>11}"
        f"{human_seconds(found.typical_step_s):>11}   {distortion}"
    )


def _ranks(summary: ProfileSummary) -> str:
    """Return a table of step times by rank, what each spends in collectives, and whom the others wait for."""
    if not summary.ranks:
        return ""
    head = f"{'by rank':<10}{'steps':>7}{'per step':>11}{'in collectives':>24}{'outside of them':>18}"
    lines = [_rank_line(rank, summary.main_pass.name) for rank in summary.ranks]
    return "\n".join((head, *lines, *_wrapped(f"  {_straggler(summary)}").splitlines()))


def _rank_line(rank: RankProfile, main: PassName) -> str:
    found, balance = rank.pass_named(main), rank.balance
    line = f"  rank {rank.rank:<3}{found.steps if found else 0:>7}"
    line += f"{human_seconds(found.typical_step_s if found else None):>11}"
    if balance is None or not balance.step_s:
        return f"{line}{'-':>24}{'-':>18}"
    step_s, together_s = balance.step_s[balance.typical], balance.seconds_of(RANKS)[balance.typical]
    alone_s = statistics.median(step - part for step, part in zip(step_s, together_s, strict=True))
    each_s, whole_s = statistics.median(together_s), statistics.median(step_s)
    spent = f"{human_seconds(each_s)} ({human_percent(each_s / whole_s if whole_s else None)})"
    return f"{line}{spent:>24}{human_seconds(alone_s):>18}"


def _straggler(summary: ProfileSummary) -> str:
    found = summary.straggler
    if any(rank.balance is None for rank in summary.ranks):
        return "whom the ranks wait for is told by the balance pass, which was not made"
    if len(summary.ranks) == 1:
        return "one rank waits for nobody"
    if found is None:
        return "no straggler: no rank keeps the others waiting in most steps"
    more = (
        f"its time goes to {found.phase}, {human_seconds(found.phase_s)} a step more than on the others"
        if found.phase_s > 0
        else "no phase of its own takes longer than on the others"
    )
    return (
        f"rank {found.rank} is the straggler: in {found.last} of {counted(found.of, 'step')} the others"
        f" waited for it, {human_seconds(found.waited_s)} a step ({human_percent(found.share)}); {more}"
    )


def _balance(summary: ProfileSummary) -> str:
    """Return a table of a step's phases: median and 95th percentile of each, and its share of all steps."""
    balance = summary.balance
    if balance is None or not balance.step_s:
        return ""
    head = f"{'a step is made of':<{_NAME_COLUMNS}}{'median':>11}{'p95':>11}{'share':>9}"
    lines = [_phase_line(phase.name, phase.seconds, balance) for phase in balance.in_order]
    lines.append(_phase_line("residual: what no hook saw", balance.residual_s, balance))
    said = (_bound(summary, balance), _cost(balance))
    return "\n".join((head, *lines, *(f"  {line}" for line in said if line)))


def _phase_memory(summary: ProfileSummary) -> str:
    """Return a table of an accelerator's memory by phase of a step, where it was recorded."""
    balance = summary.balance
    if balance is None or not balance.memory:
        return ""
    head = (
        f"{'device memory, most in a step':<{_NAME_COLUMNS}}{'tensors':>11}{'reserved':>11}{'unusable':>12}"
    )
    lines = [
        f"  {one.name:<{_NAME_COLUMNS - 2}}{human_bytes(one.allocated):>11}{human_bytes(one.reserved):>11}"
        f"{human_bytes(one.unusable):>12}"
        for one in balance.memory_in_order
    ]
    retries = [
        f"  {one.name}: the allocator gave memory back {counted(one.retries, 'time')} before it got more"
        for one in balance.memory_in_order
        if one.retries
    ]
    return "\n".join((head, *lines, *retries))


def _phase_line(name: str, seconds: Sequence[float], balance: Balance) -> str:
    typical = seconds[balance.typical]
    whole = sum(balance.step_s[balance.typical])
    share = sum(typical) / whole if whole else None
    return (
        f"  {name:<{_NAME_COLUMNS - 2}}{human_seconds(statistics.median(typical)):>11}"
        f"{human_seconds(_percentile(typical, 0.95)):>11}{human_percent(share):>9}"
    )


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _bound(summary: ProfileSummary, balance: Balance) -> str:
    """Return how many samples a second the loader could deliver and the rest of a step could take."""
    main = summary.main_pass
    waits = next((phase.seconds for phase in balance.phases if phase.name == DATA), None)
    if waits is None or not main.samples or not main.steps:
        return ""
    each = main.samples / main.steps
    wait_s = statistics.median(waits[balance.typical])
    model_s = statistics.median(balance.step_s[balance.typical]) - wait_s
    loader_s = balance.loader_s or (None if main.data_workers else wait_s)
    if not loader_s or model_s <= 0:
        return ""
    word = "input-bound" if loader_s > model_s else "not input-bound"
    delivered, taken = f"{human_calls(each / loader_s)} samples/s", human_calls(each / model_s)
    return f"{word}: the loader could deliver {delivered}, the model takes {taken}"


def _cost(balance: Balance) -> str:
    cost = balance.cost
    if cost is None:
        return ""
    low, middle, high = (100 * (value - 1) for value in (cost.low, cost.ratio, cost.high))
    return f"the hooks cost {middle:+.1f} % of a step ({low:+.1f} to {high:+.1f}), by turns with a clean loop"


def _counts(summary: ProfileSummary) -> str:
    """Return a step's counts, each with its largest cause, and every sync with its line."""
    counts = summary.counts
    if counts is None:
        return ""
    head = f"{'counted in a step':<{_COUNT_COLUMNS}}{'a step':>12}   mostly"
    lines = [_count_line(count) for count in counts.counts]
    lines += [
        f"  not counted: {TITLES.get(metric, metric)} ({why})" for metric, why in counts.not_counted.items()
    ]
    syncs = [cause for count in counts.counts if count.metric == SYNCS for cause in count.causes]
    lines += [f"  sync: {_cause(cause, '1')}" for cause in syncs[:_ENTRIES]]
    return "\n".join((head, *lines))


def _count_line(count: Count) -> str:
    title = TITLES.get(count.metric, count.metric)
    most = _cause(count.causes[0], count.unit) if count.causes else ""
    amount = amount_text(count.values[-1], count.unit)
    room = WHOLE_COLUMNS - _COUNT_COLUMNS - 15
    return f"  {title:<{_COUNT_COLUMNS - 2}}{amount:>12}   {most[:room]}".rstrip()


def _cause(cause: Cause, unit: str) -> str:
    where = f" {cause.place}" if cause.place else ""
    return f"{amount_text(cause.amount, unit)} {cause.what}{where}"


def _backward(summary: ProfileSummary) -> str:
    """Return a table of the backward pass by operator, from the torch pass."""
    traced = summary.pass_named("torch")
    if traced is None or not summary.backward:
        return ""
    # The operators' seconds are of all steps that the trace holds, the set-up's too.
    watched_s = traced.step_s[traced.profiled_from :]
    title, each = "backward, by operator (torch pass)", _each(len(watched_s))
    head = f"{title:<{_NAME_COLUMNS}}{'calls':>8}{each:>11}{'share':>9}"
    return "\n".join((head, *(_backward_line(node, watched_s) for node in summary.backward[:_ENTRIES])))


def _backward_line(node: OperatorTime, watched_s: Sequence[float]) -> str:
    whole_s = sum(watched_s)
    return (
        f"  {_shortened(node.name):<{_NAME_COLUMNS - 2}}{node.calls:>8}"
        f"{human_seconds(node.cumulative_s / max(len(watched_s), 1)):>11}"
        f"{human_percent(node.cumulative_s / whole_s if whole_s else None):>9}"
    )


def _lines(summary: ProfileSummary) -> str:
    """Return the lines that took most time, of the functions whose lines were timed."""
    timed = summary.pass_named("lines")
    if timed is None or not summary.lines:
        return ""
    steps = max(timed.steps, 1)
    head = f"{'lines, by time':<{_NAME_COLUMNS}}{'hits':>8}{_each(timed.steps):>11}{'share':>9}"
    rows = (
        f"  {_shortened(f'{Path(one.file).name}:{one.line} {one.text}'):<{_NAME_COLUMNS - 2}}{one.hits:>8}"
        f"{human_seconds(one.seconds / steps):>11}{human_percent(one.seconds / timed.total_s):>9}"
        for one in summary.lines[:_ENTRIES]
    )
    return "\n".join((head, *rows))


def _each(steps: int) -> str:
    """Return what times are told for: a step, or the whole run where no step was seen."""
    return "a step" if steps else "in all"


def _memory_tables(summary: ProfileSummary) -> Iterator[str]:
    """Yield the lines that allocate most bytes a step, those whose bytes stay, and which of them grow."""
    memory = summary.memory
    if memory is None:
        return
    unit = "a step" if memory.steps else "the run"
    allocating = [line for line in memory.lines if line.step_bytes]
    staying = sorted(memory.lines, key=_stays)
    tables = {
        f"tensors, by bytes allocated in {unit}": sorted(allocating, key=_allocates)[:_ENTRIES],
        "memory that stays, by bytes": [line for line in staying if line.stays_bytes][:_ENTRIES],
    }
    for title, lines in tables.items():
        if lines:
            head = f"{title:<{_NAME_COLUMNS}}{unit:>11}{'stays':>11}{'growth':>12}"
            yield "\n".join((head, *map(_memory_line, lines)))
    yield "\n".join(line for text in _growth(memory) for line in _wrapped(text).splitlines())


def _memory_line(line: LineMemory) -> str:
    name = f"{line.what or line.kind}  {_where_allocated(line)}"
    each = "-" if line.step_bytes is None else human_bytes(round(line.step_bytes))
    return (
        f"  {_shortened(name):<{_NAME_COLUMNS - 2}}{each:>11}{human_bytes(line.stays_bytes):>11}"
        f"{_signed_bytes(line.growth_bytes):>12}"
    )


def _growth(memory: MemoryProfile) -> Iterator[str]:
    """Yield which lines grow in each step after the set-up, or why none can be named, and what is missing."""
    growing = sorted((line for line in memory.lines if line.leaks), key=_grows)
    named = [line for line in growing if line.growth_bytes >= _WORTH_NAMING_BYTES]
    for line in named[:_ENTRIES]:
        of = f"{line.kind}{f', {line.what}' if line.what else ''}"
        yield (
            f"leak: {_where_allocated(line)} ({of}) grows in each step after the set-up, by"
            f" {human_bytes(round(line.growth_bytes))}: something still holds what it allocates"
        )
    others = growing[len(named[:_ENTRIES]) :]
    if others:
        each = human_bytes(round(sum(line.growth_bytes for line in others)))
        many = f"{counted(len(others), 'line')}{' more' if named else ''}"
        yield f"{many} {'grows' if len(others) == 1 else 'grow'} in each step, by {each} together"
    elif not named and memory.tells_growth:
        yield "no line grows in each step after the set-up: no leak"
    if not memory.tells_growth:
        yield f"{counted(memory.steps, 'step')}: too few to tell a leak from what is set up once"
    if memory.not_seen:
        yield f"not seen: {memory.not_seen}"


def _where_allocated(line: LineMemory) -> str:
    return line.place or "no own line"


def _signed_bytes(nbytes: float) -> str:
    return f"{'-' if nbytes < 0 else '+'}{human_bytes(abs(round(nbytes)))}"


def _allocates(line: LineMemory) -> float:
    return -(line.step_bytes or 0.0)


def _stays(line: LineMemory) -> float:
    return -line.stays_bytes


def _grows(line: LineMemory) -> float:
    return -line.growth_bytes


def _role_tables(summary: ProfileSummary) -> Iterator[str]:
    """Yield tables of what the loader's workers did together and what the pinning thread did."""
    workers = [role for role in summary.roles if role.role.startswith("worker")]
    if workers:
        total_s = sum(role.total_s for role in workers)
        entries = _together([entry for role in workers for entry in role.entries if entry.kind == "own"])
        yield _table(f"in {counted(len(workers), 'worker')} ({human_seconds(total_s)})", entries, total_s)
    for role in summary.roles:
        if role not in workers:
            yield f"{role.role}: {human_seconds(role.total_s)} in a thread of its own, see {role.file}"


def _together(entries: Sequence[ProfileEntry]) -> list[ProfileEntry]:
    """Return the entries of several processes added up by function, sorted by cumulative time."""
    merged: dict[tuple[str, int, str], ProfileEntry] = {}
    for entry in entries:
        key = (entry.file, entry.line, entry.function)
        known = merged.get(key)
        merged[key] = (
            entry
            if known is None
            else replace(
                known,
                calls=known.calls + entry.calls,
                own_s=known.own_s + entry.own_s,
                cumulative_s=known.cumulative_s + entry.cumulative_s,
            )
        )
    return sorted(merged.values(), key=_cumulative)


def _entry_tables(summary: ProfileSummary) -> Iterator[str]:
    """Yield the tables of a cProfile: waiting, own code by both times, library code by its own time."""
    own = [entry for entry in summary.entries if entry.kind == "own"]
    library = [entry for entry in summary.entries if entry.kind == "library"]
    waits = [entry for entry in summary.entries if _is_data_wait(entry)]
    profiled = summary.pass_named("cprofile")
    if profiled is None:
        return
    total_s = profiled.total_s
    yield f"in the cProfile pass ({human_seconds(total_s)}):"
    yield _waits(summary, total_s)
    yield _table("waiting for data, by cumulative time", sorted(waits, key=_cumulative), total_s)
    yield _table("own code, by cumulative time", sorted(own, key=_cumulative), total_s)
    yield _table("own code, by own time", sorted(own, key=_own), total_s)
    yield _table("library code, by own time", sorted(library, key=_own), total_s)


def _waits(summary: ProfileSummary, total_s: float) -> str:
    """Return a table of those for whom the loop stood still."""
    waits = [wait for wait in summary.waits if wait.seconds >= _WORTH_TELLING * total_s]
    head = f"{'waiting for, and through which calls':<{_NAME_COLUMNS}}{'calls':>8}{'seconds':>20}{'share':>9}"
    rows = (
        f"  {_shortened(_wait_name(wait)):<{_NAME_COLUMNS - 2}}{wait.calls:>8}"
        f"{human_seconds(wait.seconds):>20}{human_percent(wait.seconds / total_s):>9}"
        for wait in waits
    )
    return "\n".join((head, *rows)) if waits else ""


def _wait_name(wait: WaitTime) -> str:
    return f"{wait.whom}  {', '.join(wait.through[:2])}"


def _is_data_wait(entry: ProfileEntry) -> bool:
    return entry.kind == "wait" and entry.function == "__next__"


def _cumulative(entry: ProfileEntry) -> float:
    return -entry.cumulative_s


def _own(entry: ProfileEntry) -> float:
    return -entry.own_s


def _table(title: str, entries: Sequence[ProfileEntry], total_s: float) -> str:
    """Return a table of the first entries under a title, with their shares of the cProfile pass."""
    if not entries:
        return ""
    head = f"{title:<{_NAME_COLUMNS}}{'calls':>8}{'own':>9}{'cumulative':>11}{'share':>9}"
    seconds = attrgetter("own_s" if title.endswith("by own time") else "cumulative_s")
    shown = [entry for entry in entries[:_ENTRIES] if seconds(entry) >= _WORTH_TELLING * total_s]
    lines = [_entry_line(entry, seconds(entry) / total_s if total_s else None) for entry in shown]
    return "\n".join((head, *(lines or [f"  nothing above {human_percent(_WORTH_TELLING)}"])))


def _entry_line(entry: ProfileEntry, share: float | None) -> str:
    return (
        f"  {_shortened(_entry_name(entry)):<{_NAME_COLUMNS - 2}}{entry.calls:>8}"
        f"{human_seconds(entry.own_s):>9}{human_seconds(entry.cumulative_s):>11}{human_percent(share):>9}"
    )


def _entry_name(entry: ProfileEntry) -> str:
    if entry.line == 0:
        return entry.function
    return f"{entry.function}  {entry.file}:{entry.line}"


def _shortened(name: str) -> str:
    """Return a name that fits its column, made of its beginning and the end of its path."""
    room = _NAME_COLUMNS - 3
    if len(name) <= room:
        return name
    head, gap, tail = name.partition("  ")
    kept = room - len(head) - len(gap) - 1
    return f"{head}{gap}…{tail[-kept:]}" if gap and kept > 0 else f"{name[: room - 1]}…"


def _warnings(summary: ProfileSummary) -> Iterator[str]:
    main = summary.main_pass
    if main.name != "clean":
        yield f"no clean pass was made: all times above carry the cost of {_PASS_TITLES[main.name]}"
    if _has_no_torch(summary):
        yield (
            "torch is not installed: there are no steps of an optimizer, no operators and no trace;"
            " pip install 'perfkit[torch]' for code that trains"
        )
    elif main.steps == 0:
        yield (
            "no optimizer step was seen in this process: there is no time per step; where weights are updated"
            " by hand, name a line that each step runs: --step-at FILE:LINE"
        )
    elif main.steps < _FEW_STEPS:
        yield (
            f"only {counted(main.steps, 'step')}, the set-up in the first: totals of profiles with different"
            " numbers of steps are not comparable"
        )
    steps = [found.steps for rank in summary.ranks if (found := rank.pass_named(main.name))]
    if len(set(steps)) > 1:
        yield f"the ranks made different numbers of steps: {', '.join(map(str, steps))}"
    cpus = summary.machine.facts.get("logical_cpus", "")
    if cpus.isdigit() and int(cpus) < len(summary.ranks) and not main.on_device:
        yield f"{len(summary.ranks)} ranks shared {cpus} CPUs: they took turns, so their times say little"
    if any((summary.distortion(found.name) or 1.0) < _FASTER_THAN_CLEAN for found in summary.passes):
        yield "a profiled pass was faster than the clean one: the machine was busy; measure again"
    if summary.commit is not None and summary.commit.dirty:
        yield "tracked files differ from the commit this is filed under"
    if summary.commit is None:
        yield "not filed under a commit"


def _has_no_torch(summary: ProfileSummary) -> bool:
    return summary.environment.facts.get("torch") == ABSENT


def _files(summary: ProfileSummary, folder: Path) -> str:
    return "\n".join(("files", *(f"  {folder / name}" for name in summary.artifacts)))


def _next_commands(summary: ProfileSummary, folder: Path) -> str:
    lines = []
    for name in summary.artifacts:
        if name == f"{summary.name}.stat":
            lines.append(f"  perfkit view {folder / name}     (in the browser)")
            lines.append(f"  perfkit show {folder / name}     (in the terminal)")
        if name.endswith(".trace.json.gz"):
            lines.append(f"  open {folder / name} at https://ui.perfetto.dev")
    return "\n".join(("look further", *lines)) if lines else ""


def _wrapped(text: str) -> str:
    return textwrap.fill(text, width=WHOLE_COLUMNS, subsequent_indent="  ")
