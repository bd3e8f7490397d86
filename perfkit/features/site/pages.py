"""Writes all files of a site: pages, their data, pictures of trends, and their style and scripts."""

from __future__ import annotations

import functools
import math
import shlex
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote

from perfkit.features.site.answers import Answer, answer_of, judged_of, more_runs, verdict_line
from perfkit.features.site.series import (
    ALARMS,
    GateFinding,
    GateSummary,
    Kind,
    ProfileEntryPoint,
    Runs,
    Series,
    Site,
    State,
    benchmark_script,
    commits_in_order,
    commits_script,
    kind_of_rise,
    levels_script,
    series_of,
    slower_at,
    state_of,
    status_words,
)
from perfkit.identity import shown_run_id
from perfkit.model.history import ChangePoint, CommitFacts, Shift
from perfkit.model.readings import RESIDUAL, phase_title
from perfkit.model.results import Machine
from perfkit.report import history as wording
from perfkit.report.change_log import slug_of, trend_name
from perfkit.report.chart import DARK, LIGHT, PART_COLOURS, REST_COLOUR, Sparkline, trend_chart
from perfkit.report.console import visible
from perfkit.report.gate.wording import shown
from perfkit.report.history import RUNS_TO_JUDGE, short_sha
from perfkit.report.names import short_names
from perfkit.units import counted, human_percent, human_seconds

if TYPE_CHECKING:
    from jinja2 import Environment

# What a template shows of something, by name.
Fields = dict[str, Any]
_TEMPLATES = Path(__file__).with_name("templates")
_ASSETS = Path(__file__).with_name("assets")
_SCRIPTS = ("theme.js", "site.js", "overview.js", "chart.js", "benchmark.js", "compare.js", "heat.js")
_RUNS_A_PAGE, _GATES_A_PAGE = 500, 200
_MOST_FINDINGS = 50
_SIGNS: Mapping[Kind, str] = {
    "worse": "▲",
    "drift": "↗",
    "silent": "◌",
    "unclear": "?",
    "better": "▼",
    "maybe": "?",
    "moved": "•",
    "accepted": "✓",
    "pattern": "~",
    "undone": "=",
    "few": "…",
    "steady": "=",
}
# Other sections of the overview, folded.
_OTHERS: Mapping[Kind, str] = {
    "better": "Improvements that nobody has confirmed yet",
    "maybe": "Possible changes, undecided",
    "moved": "Changes with other software or another machine",
    "pattern": "Changes to and fro",
    "undone": "Changes that a later one has undone",
}


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Something that needs attention, with its page; a ``sentence`` where it is no change point."""

    kind: Kind
    sign: str
    name: str
    page: str
    words: str
    sentence: str
    step: ChangePoint | None
    picture: Sparkline
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Card:
    """Alarms shown together: drifts and silences, or change points, on any machine, of the same commits.

    Change points have the ``commits`` after ``before`` and up to ``commit`` in common, as few as the machines
    that measured them together allow.
    """

    kind: Kind
    alarms: tuple[Alarm, ...]
    before: str | None = None
    commit: str | None = None
    commits: int | None = None

    @property
    def by_name(self) -> list[tuple[str, list[Alarm]]]:
        """The alarms by their benchmark."""
        found: dict[str, list[Alarm]] = {}
        for alarm in self.alarms:
            found.setdefault(alarm.name, []).append(alarm)
        return [*found.items()]


def site_files(site: Site) -> Iterator[tuple[str, str]]:
    """Yield the path, relative with forward slashes, and the text of each file of a site."""
    pages = _Pages(site)
    yield from pages.assets()
    yield "data/commits.js", commits_script(pages.order, site)
    yield (
        "data/levels.js",
        levels_script(pages.by_benchmark, pages.names, pages.machines, pages.numbers, site),
    )
    runs = Runs(pages.numbers, site.history)
    for benchmark, series in pages.by_benchmark.items():
        slug = slug_of(benchmark)
        yield f"data/{slug}.js", benchmark_script(series, runs)
        yield f"benchmarks/{slug}.html", pages.benchmark(benchmark)
    yield from trend_files(site, folder="trends/", series=pages.series)
    yield from pages.lists()
    yield "index.html", pages.overview()


def trend_files(
    site: Site, *, folder: str = "", series: Sequence[Series] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield a picture for each benchmark and machine, named by ``trend_name``."""
    drawn: set[tuple[str, str]] = set()
    for one in _longest_first(series_of(site.history)) if series is None else _longest_first(series):
        key = (one.benchmark, one.machine_id)
        if key not in drawn:
            drawn.add(key)
            words = status_words(one, state_of(one), site.history.commits)
            yield f"{folder}{trend_name(*key)}", trend_chart(one.shown, words, site.history.commits)


def _longest_first(series: Iterable[Series]) -> list[Series]:
    """Return the series of each benchmark and machine, times before other metrics, most runs first."""
    return sorted(
        series,
        key=lambda one: (
            one.benchmark,
            one.machine_id,
            not wording.is_time(one.metric),
            -len(one.order),
            one.label,
        ),
    )


class _Pages:
    """The pages of one site, which share what is computed once."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.commits = site.history.commits
        self.order = commits_in_order(site.history)
        self.newest = next((sha for sha in reversed(self.order) if sha not in site.aside), "")
        self.numbers = {sha: number for number, sha in enumerate(self.order)}
        self.series = series_of(site.history, site.since, site.watched)
        self.by_benchmark: dict[str, list[Series]] = {}
        for one in self.series:
            self.by_benchmark.setdefault(one.benchmark, []).append(one)
        self.names = {name: visible(short) for name, short in short_names(self.by_benchmark).items()}
        self.machines = _machine_names(site)
        self.several = len({one.machine_id for one in self.series}) > 1
        self.together = {
            (one.benchmark, one.machine_id): sentence
            for sentence, found in wording.rises_together(site.history.rises)
            for one in found
        }
        self.templates = _templates(self)
        self._lines: dict[int, Fields] = {}

    def assets(self) -> Iterator[tuple[str, str]]:
        """Yield the style and the scripts, which are the same for all pages."""
        sheet = (_ASSETS / "site.css").read_text(encoding="utf-8")
        yield "assets/site.css", f"{_palette_rules()}{sheet}"
        for name in _SCRIPTS:
            yield f"assets/{name}", (_ASSETS / name).read_text(encoding="utf-8")

    def overview(self) -> str:
        """Return the first page: alarms, then a row for each series."""
        leading = {(one.benchmark, one.metric.name): one for one in sorted(self.series, key=_leads)}
        lines = [
            self._line(one) | {"leads": one is leading[one.benchmark, one.metric.name]} for one in self.series
        ]
        cards = _cards(self._alarms(), self.commits)
        urgent = [card for card in cards if card.kind in ALARMS]
        # The rows that are shown at first: a column without anything in them is none.
        shown = [one for one in self.series if wording.is_time(one.metric)] or self.series
        slower, unsettled, judged = self._slower(), self._unsettled(), judged_of(self.by_benchmark)
        verdict = verdict_line(judged, findings=len(urgent) or unsettled, slower=len(slower))
        metrics = Counter(one.metric.name for one in self.series)
        return self._render(
            "overview.html.j2",
            title=self.site.project,
            lines=lines,
            since=[one for one in self.site.since if any(one.name in found.since for found in shown)],
            verdict=verdict,
            judged=judged,
            to_judge=RUNS_TO_JUDGE,
            more_runs=more_runs(self.commits),
            by_environment=[
                one["name"] for one in lines if one["leads"] and _is_by_environment(one["state"])
            ],
            cards=urgent,
            others=[
                (title, of_kind)
                for kind, title in _OTHERS.items()
                if (of_kind := [card for card in cards if card.kind == kind])
            ],
            shifts=self._shifts(),
            slower=slower,
            unsettled=unsettled,
            metrics=list(dict.fromkeys(one.metric.name for one in self.series)),
            first_metric="time" if "time" in metrics else "",
            machines=self._machines_of(self.series),
            kinds=_kinds(lines),
            urgencies=get_args(Kind),
            facts=self._facts(),
            measured=len(self.order),
            notes=self._notes(),
        )

    def _slower(self) -> list[tuple[str, float, bool]]:
        """Return the benchmarks whose cell of the newest commit is red, worst first.

        Each is (name, ratio, whether the environment changed there as well).
        """
        newest = self.newest
        found = [
            (
                self.names[benchmark],
                ratio,
                any(one.border is not None and one.border.commit == newest for one in series),
            )
            for benchmark, series in self.by_benchmark.items()
            if (ratio := slower_at(newest, series)) is not None
        ]
        return sorted(found, key=lambda one: -abs(math.log(one[1])))

    def _is_over(self, shift: Shift) -> bool:
        """Return whether what changed at once is back where it was, in all benchmarks."""
        found = [one.is_over for one in self._points if shift.shift_id and one.shift == shift.shift_id]
        return bool(found) and all(found)

    @functools.cached_property
    def _points(self) -> list[ChangePoint]:
        return [one.point for series in self.series for one in series.placed]

    def _unsettled(self) -> int:
        """Return how many changes of several benchmarks, clear or probable, nobody has reviewed."""
        clear = {
            one.shift: (one.last_before, one.first_after) for one in self._points if one.shift and one.is_open
        }
        probable: dict[tuple[str, str], list[str]] = {}
        for one in self.site.history.rises:
            if one.kind == "step" and one.cause != "machine":
                probable.setdefault((one.machine_id, one.until), []).append(one.since)
        several = [(since[0], until) for (_, until), since in probable.items() if len(since) > 1]
        return len(_with_common_commits([*clear.values(), *several], self.commits))

    def _shifts(self) -> list[list[Shift]]:
        """Return what changed many benchmarks at once and is not over, a list for each change."""
        shifts = [one for one in self.site.history.shifts if not self._is_over(one)]
        ranges = [(one.last_before, one.first_after) for one in shifts]
        return [
            [shifts[number] for number in sorted(one.numbers)]
            for one in _with_common_commits(ranges, self.commits)
        ]

    def benchmark(self, benchmark: str) -> str:
        """Return the page of a benchmark: its chart, its steps and alarms, and what gates found of it."""
        series = self.by_benchmark[benchmark]
        slug = slug_of(benchmark)
        leading = max(range(len(series)), key=lambda number: _leads(series[number]))
        names = list(self.by_benchmark)
        at = names.index(benchmark)
        lines = [self._line(one) for one in series]
        return self._render(
            "benchmark.html.j2",
            depth="../",
            title=self.names[benchmark],
            benchmark=benchmark,
            slug=slug,
            selection=_selection(benchmark),
            lines=lines,
            leading=leading,
            steps=[step for number, one in enumerate(series) for step in self._steps(one, number)][::-1],
            alarms=[
                alarm
                for alarm in self._alarms(series)
                if alarm.step is None and not any(_is_in(alarm, line["answer"]) for line in lines)
            ],
            picture=trend_name(benchmark, series[leading].machine_id),
            findings=self._findings.get(benchmark, [])[:_MOST_FINDINGS],
            before=slug_of(names[at - 1]) if at else None,
            after=slug_of(names[at + 1]) if at + 1 < len(names) else None,
        )

    def lists(self) -> Iterator[tuple[str, str]]:
        """Yield the pages of comparisons, runs, gates, experiments, profiles and machines."""
        yield "compare.html", self._render("compare.html.j2", title="Compare", measured=len(self.order))
        yield from self._paged("runs", list(reversed(self.site.runs)), _RUNS_A_PAGE)
        yield from self._paged("gates", list(reversed(self.site.gates)), _GATES_A_PAGE)
        kinds = {"experiment", "tricks"}
        yield (
            "experiments.html",
            self._render(
                "experiments.html.j2",
                title="Experiments",
                documents=self.site.documents,
                runs=[run for run in reversed(self.site.runs) if run.source in kinds],
            ),
        )
        profiles = [(entry, _phases(entry)) for entry in reversed(self.site.profiles)]
        yield "profiles.html", self._render("profiles.html.j2", title="Profiles", profiles=profiles)
        yield (
            "machines.html",
            self._render(
                "machines.html.j2",
                title="Machines",
                machines=sorted(self.site.history.machines.items()),
                environments=self._environments(),
                runs=Counter(run.machine_id for run in self.site.runs),
                noise={
                    machine: statistics.median(shares.values())
                    for machine, shares in self.site.history.noise.items()
                },
            ),
        )

    def _paged(self, name: str, items: Sequence[Any], size: int) -> Iterator[tuple[str, str]]:
        pages = max(1, -(-len(items) // size))
        for page in range(pages):
            shown = items[page * size : (page + 1) * size]
            yield (
                _page_name(name, page),
                self._render(
                    f"{name}.html.j2",
                    title=name.capitalize(),
                    items=shown,
                    whole=len(items),
                    page=page,
                    pages=[_page_name(name, other) for other in range(pages)],
                ),
            )

    def _render(self, template: str, **context: object) -> str:
        values = {"site": self.site, "depth": "", "last_at": self._last_at, **context}
        return self.templates.get_template(template).render(values)

    @functools.cached_property
    def _last_at(self) -> str:
        """When the newest run was recorded; the present time would make equal ledgers differ."""
        times = [series.last_at for series in self.series] + [run.recorded_at for run in self.site.runs]
        return wording.time_text(max(times)) if times else ""

    @functools.cached_property
    def _findings(self) -> dict[str, list[tuple[GateSummary, GateFinding]]]:
        """The findings of gates by benchmark, the newest first, without counters that show no change."""
        found: dict[str, list[tuple[GateSummary, GateFinding]]] = {}
        for gate in reversed(self.site.gates):
            for finding in gate.findings:
                if not _is_quiet(finding):
                    found.setdefault(finding.benchmark, []).append((gate, finding))
        return found

    def _line(self, series: Series) -> Fields:
        """Return a row of the overview, which the page of the benchmark has as well."""
        if id(series) not in self._lines:
            self._lines[id(series)] = self._new_line(series)
        return self._lines[id(series)]

    def _new_line(self, series: Series) -> Fields:
        trend, place = series.last
        state = state_of(series)
        words = status_words(series, state, self.commits)
        beyond = ""
        if state.kind == "steady" and (ratio := slower_at(self.newest, [series])) is not None:
            beyond = wording.change_text(ratio, series.metric)
            words += f", the newest run {wording.ratio_text(ratio)}"
        return {
            "series": series,
            "state": state,
            "name": self.names[series.benchmark],
            "page": f"benchmarks/{slug_of(series.benchmark)}.html",
            "words": words,
            "sign": _sign(state),
            "value": wording.value_text(trend.levels[place], series.metric),
            "deviation": _deviation_text(series.noise),
            "answer": answer_of(
                series, state, self.commits, selection=_selection(series.benchmark), beyond=beyond
            ),
            "picture": series.picture,
            "machine": self._machine(series),
            "tags": self._tags(series),
        }

    def _machine(self, series: Series) -> str:
        return self.machines.get(series.machine_id, series.machine_id)

    def _tags(self, series: Series) -> tuple[str, ...]:
        """Return what distinguishes a series from others of its benchmark, except for the machine."""
        metric = "" if wording.is_time(series.metric) else wording.metric_title(series.metric)
        return tuple(filter(None, (metric, series.label)))

    def _alarms(self, among: Sequence[Series] | None = None) -> Iterator[Alarm]:
        """Yield the open change points, drifts and silences of some series."""
        for series in self.series if among is None else among:
            alarm = functools.partial(self._alarm, series)
            for step in series.current:
                if step.state == "open" and not step.undoes and (series.watched or among is not None):
                    yield alarm(_kind_of(step), "", step)
            for drift in series.drifts:
                kind: Kind = "drift" if drift.cause == "code" else "moved"
                yield alarm(kind, wording.drift_sentence(drift))
            for rise in series.rises:
                own = among is not None
                sentence = (
                    wording.rise_sentence(rise) if own else self.together[rise.benchmark, rise.machine_id]
                )
                yield alarm(kind_of_rise(rise), sentence)
            for silence in series.silences:
                yield alarm("silent", wording.silence_sentence(silence))

    def _alarm(self, series: Series, kind: Kind, sentence: str, step: ChangePoint | None = None) -> Alarm:
        state = State(kind=kind, step=step)
        anchor = f"#point-{step.point_id}" if step else ""
        return Alarm(
            kind=kind,
            sign=_sign(state),
            name=self.names[series.benchmark],
            page=f"benchmarks/{slug_of(series.benchmark)}.html{anchor}",
            words=status_words(series, state, self.commits),
            sentence=sentence,
            step=step,
            picture=series.picture,
            tags=(*self._tags(series), *([self._machine(series)] if self.several else [])),
        )

    def _steps(self, series: Series, number: int) -> Iterator[Fields]:
        """Yield the change points of a series, which has this number on its page."""
        for placed in series.placed:
            point = placed.point
            kind: Kind = "worse" if point.worse else "better"
            yield {
                "point": point,
                "number": number,
                "tags": (
                    wording.metric_title(series.metric),
                    *filter(None, [series.label]),
                    self._machine(series),
                ),
                "sign": _sign(State(kind=kind, step=point)),
                "undone": point.is_over,
                "sentences": (
                    *map(visible, wording.point_sentences(point)),
                    *(["It takes an earlier change back: the level is what it was."] if point.undoes else []),
                ),
            }

    def _facts(self) -> str:
        """Return what there is, in a line."""
        commits = f"{len(self.order):,} {'commit' if len(self.order) == 1 else 'commits'} measured"
        machines = counted(len({series.machine_id for series in self.series}), "machine")
        timed = len({series.benchmark for series in self.series if series.metric.name == "time"})
        some = f" ({timed} of them timed)" if 0 < timed < len(self.by_benchmark) else ""
        return f"{counted(len(self.by_benchmark), 'benchmark')}{some}, {commits}, {machines}"

    def _notes(self) -> list[str]:
        dirty = self.site.history.dirty_runs
        left_out = f"{counted(dirty, 'run')} on uncommitted changes {'is' if dirty == 1 else 'are'} left out."
        return [*self.site.notes, *self.site.history.notes, *([left_out] if dirty else [])]

    def _machines_of(self, series: Iterable[Series]) -> dict[str, str]:
        ids = sorted({one.machine_id for one in series})
        return {machine: self.machines.get(machine, machine) for machine in ids}

    def _environments(self) -> list[tuple[str, Mapping[str, str], int, dict[str, str]]]:
        """Return each environment with its facts, its runs, and how it differs from the others."""
        used = Counter(env for trend in self.site.history.trends for env in set(trend.env_ids))
        known = self.site.history.environments
        names = sorted(set(used) | set(known))
        facts = [known.get(name, {}) for name in names]
        every = sorted({fact for one in facts for fact in one})
        differing = [fact for fact in every if len({one.get(fact) for one in facts}) > 1]
        return [
            (
                name,
                known.get(name, {}),
                used[name],
                {fact: known.get(name, {}).get(fact, "-") for fact in differing},
            )
            for name in names
        ]


def _is_in(alarm: Alarm, answer: Answer) -> bool:
    """Return whether an answer has the sentence of an alarm."""
    return alarm.sentence.partition(". ")[0].removeprefix("probably ") in answer.changed


def _filled(address: str | None, **commits: str) -> str | None:
    """Return an address of the configured forge with its commits, None where none is configured."""
    for name, sha in commits.items():
        address = address and address.replace(f"{{{name}}}", quote(sha, safe=""))
    return address or None


def _templates(pages: _Pages) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    site = pages.site
    given: dict[str, Callable[..., object]] = {
        "commit_link": lambda sha: _filled(site.commit_url, commit=sha),
        "range_link": lambda before, after: _filled(site.range_url, before=before, after=after),
        "short_sha": short_sha,
        "subject": lambda sha: wording.commit_subject(sha, pages.commits),
        "commit_date": lambda sha: wording.commit_date(sha, pages.commits),
        "step_words": wording.step_words,
        "shift_sentence": wording.shift_sentence,
        "time_text": wording.time_text,
        "value_text": wording.value_text,
        "ratio_text": wording.ratio_text,
        "metric_title": wording.metric_title,
        "machine_name": lambda machine: pages.machines.get(machine, machine),
        "benchmark_name": lambda name: pages.names.get(name, name),
        "benchmark_page": lambda name: f"{slug_of(name)}.html" if name in pages.by_benchmark else None,
        "short_run": shown_run_id,
        "seconds": human_seconds,
        "percent": human_percent,
        "address": address,
        "counted": counted,
        "verdict_word": shown,
        "verdicts": _verdicts,
        "in_order": _findings_in_order,
    }
    templates.globals.update(given)
    return templates


def _shown(value: object) -> object:
    """Return a text without invisible characters, for a template; markup has a class of its own."""
    return visible(value) if type(value) is str else value


def address(path: str) -> str:
    """Return a relative path as an address, in which nothing can begin a scheme, a query or a fragment."""
    encoded = "/".join(quote(part, safe="", errors="replace") for part in path.split("/"))
    return encoded if encoded.startswith((".", "/")) else f"./{encoded}"


def _palette_rules() -> str:
    """Return the colours as rules: those of the system's choice, and those of the page's switch."""
    light = " ".join(f"--{name}: {colour};" for name, colour in LIGHT.items())
    dark = " ".join(f"--{name}: {colour};" for name, colour in DARK.items())
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {dark} }} }}\n"
        f':root[data-theme="light"] {{ color-scheme: light; {light} }}\n'
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
    )


def _machine_names(site: Site) -> dict[str, str]:
    """Return the name of each machine, with its id where names are equal."""
    found = {machine_id: _machine_name(machine) for machine_id, machine in site.history.machines.items()}
    uses = Counter(found.values())
    return {
        machine_id: f"{name} ({machine_id[:6]})" if uses[name] > 1 else name
        for machine_id, name in sorted(found.items())
    }


def _machine_name(machine: Machine) -> str:
    facts = machine.facts
    parts = [facts.get("gpus", "") or facts.get("cpu", "")]
    if facts.get("logical_cpus"):
        parts.append(f"{facts['logical_cpus']} CPUs")
    return visible(", ".join(part for part in parts if part)) or machine.machine_id


def _is_by_environment(state: State) -> bool:
    """Return whether the level of a series moved as its environment changed."""
    step = state.step if state.kind == "moved" else None
    return state.border is not None or (step is not None and step.cause == "environment")


def _kinds(lines: Iterable[Fields]) -> dict[str, str]:
    """Return the states that occur, with what the filter calls them."""
    titles: dict[Kind, str] = {
        "worse": "worse",
        "drift": "drifted",
        "silent": "silent",
        "unclear": "slower, cause unclear",
        "better": "better",
        "maybe": "possibly changed",
        "moved": "changed with environment or machine",
        "accepted": "accepted",
        "pattern": "keeps coming back",
        "undone": "undone",
        "few": "too few runs to judge",
        "steady": "steady",
    }
    present = {line["state"].kind for line in lines}
    return {kind: title for kind, title in titles.items() if kind in present}


def _sign(state: State) -> str:
    """Return the sign of a state; that of a step points where the value went."""
    cause = state.step or state.border
    if state.kind in {"worse", "better", "moved"} and cause is not None:
        return "▲" if cause.ratio > 1 else "▼"
    return _SIGNS[state.kind]


def _kind_of(step: ChangePoint) -> Kind:
    """Return the kind of an open change point."""
    if step.undone:
        return "undone"
    if not step.is_open:
        return "moved"
    return "worse" if step.worse else "better"


def _cards(alarms: Iterable[Alarm], commits: Mapping[str, CommitFacts]) -> list[Card]:
    """Return alarms with those of the same commits put together, by kind, the newest commit first."""
    together: dict[tuple[Kind, str], list[Alarm]] = {}
    found = tuple(alarms)
    for alarm in found:
        if alarm.step is None:
            together.setdefault((alarm.kind, alarm.sentence), []).append(alarm)
    cards = [Card(kind=kind, alarms=tuple(those)) for (kind, _), those in together.items()]
    cards += _cards_of_steps([alarm for alarm in found if alarm.step is not None], commits)
    order: tuple[Kind, ...] = (*ALARMS, *_OTHERS)

    def urgency(card: Card) -> tuple[int, int, float, str]:
        facts = commits.get(card.commit) if card.commit else None
        place = facts.place if facts is not None and facts.place is not None else -1
        time = facts.time.timestamp() if facts is not None and facts.time is not None else 0.0
        return order.index(card.kind), -place, -time, card.alarms[0].name

    return sorted(cards, key=urgency)


@dataclass(kw_only=True)
class _Common:
    """The ``numbers`` of ranges of commits, and what these have in common, also by place in history."""

    before: str
    commit: str
    low: int | None
    high: int | None
    numbers: list[int] = field(default_factory=list)


def _with_common_commits(
    ranges: Sequence[tuple[str, str]], commits: Mapping[str, CommitFacts]
) -> list[_Common]:
    """Return ranges put together that overlap: machines measure different commits about the same change.

    Where git does not know the places of commits, ranges are together that end with the same one.
    """
    places = {sha: commits[sha].place if sha in commits else None for one in ranges for sha in one}
    found: list[_Common] = []
    for number, (before, commit) in sorted(enumerate(ranges), key=lambda one: places[one[1][1]] or 0):
        low, high = places[before], places[commit]
        for one in found:
            if low is None or high is None or one.low is None or one.high is None:
                overlap = one.commit == commit
            else:
                same = (one.before, one.commit) == (before, commit)
                overlap = same or max(one.low, low) < min(one.high, high)
                if overlap and low > one.low:
                    one.low, one.before = low, before
            if overlap:
                one.numbers.append(number)
                break
        else:
            found.append(_Common(before=before, commit=commit, low=low, high=high, numbers=[number]))
    return found


def _cards_of_steps(alarms: Iterable[Alarm], commits: Mapping[str, CommitFacts]) -> Iterator[Card]:
    """Yield a card for the change points of one kind that the same commits may have made."""
    by_kind: dict[Kind, list[tuple[Alarm, ChangePoint]]] = {}
    for alarm in alarms:
        if alarm.step is not None:
            by_kind.setdefault(alarm.kind, []).append((alarm, alarm.step))
    for kind, found in by_kind.items():
        for one in _with_common_commits([(step.last_before, step.first_after) for _, step in found], commits):
            counts = [step.commits for number in one.numbers for step in found[number][1:] if step.commits]
            between = [] if one.low is None or one.high is None else [one.high - one.low]
            yield Card(
                kind=kind,
                alarms=tuple(found[number][0] for number in sorted(one.numbers)),
                before=one.before,
                commit=one.commit,
                commits=min(*counts, *between) if counts and between else None,
            )


def _leads(series: Series) -> tuple[bool, bool, int]:
    """Rank the series of a benchmark: the one that a page opens with has times and most runs."""
    return wording.is_time(series.metric), state_of(series).kind in ALARMS, len(series.order)


def _selection(benchmark: str) -> str:
    """Return the options of a gate of one benchmark; pytest's -k cannot select parameters."""
    file, _, inner = benchmark.partition("[")[0].partition("::")
    function = inner.rpartition("::")[2]
    known = file.endswith(".py") and function.isidentifier()
    return f" --benchmarks {shlex.quote(visible(file))} --select {shlex.quote(function)}" if known else ""


def _page_name(name: str, page: int) -> str:
    return f"{name}.html" if page == 0 else f"{name}-{page + 1}.html"


def _verdicts(gate: GateSummary) -> list[tuple[str, int]]:
    """Return how often each verdict was found of what decides, the most important first."""
    counts = Counter(finding.verdict or "CUT OFF" for finding in gate.findings if finding.gating)
    return sorted(counts.items(), key=lambda item: (_verdict_order(item[0]), item[0]))


def _findings_in_order(gate: GateSummary) -> tuple[list[GateFinding], list[GateFinding]]:
    """Return a gate's findings, the most important first, and separately counters that show no change."""
    ordered = sorted(
        gate.findings,
        key=lambda found: (
            _verdict_order(found.verdict or "CUT OFF"),
            not wording.is_time(found.metric),
            found.benchmark,
            found.metric.name,
        ),
    )
    return [found for found in ordered if not _is_quiet(found)], [*filter(_is_quiet, ordered)]


def _is_quiet(found: GateFinding) -> bool:
    """Return whether a counter shows no change."""
    known = found.verdict == "UNCHANGED" or (not found.gating and found.ratio is None)
    return known and not wording.is_time(found.metric)


def _verdict_order(verdict: str) -> int:
    order = (
        "REGRESSED",
        "OTHER RESULT",
        "FAILED",
        "TIMEOUT",
        "MISSING",
        "CHANGED",
        "INCONCLUSIVE",
        "IMPROVED",
    )
    return order.index(verdict) if verdict in order else len(order)


def _phases(entry: ProfileEntryPoint) -> list[Fields]:
    """Return the balance of a profile as parts of a bar; the rest was seen by no hook."""
    balance = entry.summary.balance
    if balance is None or not balance.step_s:
        return []
    typical = balance.typical
    whole = sum(balance.step_s[typical]) or 1.0
    steps = len(balance.step_s[typical])
    parts = [(phase.name, sum(phase.seconds[typical])) for phase in balance.in_order]
    parts.append((phase_title(RESIDUAL), sum(balance.residual_s[typical])))
    found: list[Fields] = []
    start = 0.0
    for number, (name, seconds) in enumerate(parts):
        share = max(seconds / whole, 0.0)
        is_rest = number == len(parts) - 1
        found.append(
            {
                "name": visible(name),
                "text": f"{human_seconds(seconds / steps)}, {human_percent(share)}",
                "start": round(1000 * start, 1),
                "width": round(1000 * share, 1),
                "colour": REST_COLOUR if is_rest else PART_COLOURS[number % len(PART_COLOURS)],
            }
        )
        start += share
    return found


def _deviation_text(noise: float | None) -> str:
    if not noise:
        return ""
    text = human_percent(noise)
    return f"± {'<0.1 %' if text == human_percent(0.0) else text} between runs"
