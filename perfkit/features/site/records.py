"""What the pages of a project show: its history, and what else its ledger and its folders hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from perfkit.model.change_log import GateRatio
from perfkit.model.comparisons import Verdict
from perfkit.model.history import HistoryReport
from perfkit.model.profiles import ProfileSummary
from perfkit.model.results import Metric, RunSummary

DocumentKind = Literal["experiment", "explanation", "document"]


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A commit that has a name, such as a release or the base of the present work."""

    name: str
    commit: str


@dataclass(frozen=True, kw_only=True)
class GateFinding:
    """What a gate found of one benchmark and metric; ``ratio`` is None where nothing was compared.

    ``verdict`` is None where the gate was cut off before it judged, ``message`` says why there is no ratio.
    """

    benchmark: str
    metric: Metric
    verdict: Verdict | None
    gating: bool = True
    ratio: GateRatio | None = None
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class GateSummary:
    """One gate: the commits that it compared, and what it found."""

    run_id: str
    recorded_at: datetime
    base: str
    head: str
    machine_id: str
    findings: tuple[GateFinding, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file that tells more: ``link`` is its path as seen from the site, ``picture`` that of its picture."""

    title: str
    kind: DocumentKind
    link: str
    picture: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProfileEntryPoint:
    """A saved profile, and the paths of its files as seen from the site, by what people call them."""

    summary: ProfileSummary
    links: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Site:
    """All that the pages are made of.

    Attributes:
        project: What the project is called.
        history: Its trends, their steps, and the alarms.
        runs: The ledger's runs, oldest first.
        gates: Its gates, oldest first.
        profiles: The saved profiles, oldest first.
        documents: Reports of experiments, explanations, and whatever else the pages link to.
        releases: Named commits, oldest first; they are marked in the charts.
        since: The commits that the last values are compared with, such as the last release and the base.
        commit_url: The address of a commit, with ``{commit}`` in the place of its hash; None for no links.
        range_url: The address of a range, with ``{before}`` and ``{after}`` in the places of its commits.
        watched: The metrics whose steps ask for attention; the others' are told without an alarm.
        notes: Sentences that a reader should know, such as files that could not be read.
    """

    project: str
    history: HistoryReport
    runs: tuple[RunSummary, ...] = ()
    gates: tuple[GateSummary, ...] = ()
    profiles: tuple[ProfileEntryPoint, ...] = ()
    documents: tuple[Document, ...] = ()
    releases: tuple[Reference, ...] = ()
    since: tuple[Reference, ...] = ()
    commit_url: str | None = None
    range_url: str | None = None
    watched: frozenset[str] = frozenset({"time"})
    notes: tuple[str, ...] = ()
