"""What `perfkit init` finds in a repository, tries out, and would write."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.choices import Service


@dataclass(frozen=True, kw_only=True)
class FoundScript:
    """A training script, and its kind: "Lightning", "Hugging Face Trainer" or "training loop"."""

    path: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a repository is made of; paths are relative to the project's root, with slashes.

    ``packages`` maps the name of each package, or module beside them, to its folder or file. ``sources`` are
    the folders that imports start from. ``benchmark_files`` use pytest-benchmark already, and
    ``asv_benchmarks`` is the folder of an asv suite. ``copied`` are files that git ignores and a checkout
    lacks, ``version_files`` those of them that perfkit brings by itself, and ``prepare`` is the command that
    builds compiled extensions, None where there are none. ``pytest_file`` has pytest's configuration, from
    which ``python_files`` and ``test_paths`` are. ``services`` run continuous integration here already.
    """

    packages: dict[str, str]
    sources: tuple[str, ...]
    scripts: tuple[FoundScript, ...]
    benchmark_files: tuple[str, ...]
    asv_benchmarks: str | None
    copied: tuple[str, ...]
    version_files: tuple[str, ...]
    prepare: str | None
    python_files: tuple[str, ...]
    test_paths: tuple[str, ...]
    pytest_file: str | None
    services: tuple[Service, ...]
    installable: bool
    requirements: str | None
    nested_projects: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One way to call a function: the imports that it needs, and the lines of a benchmark's body."""

    imports: tuple[str, ...]
    body: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A public function or class that a first benchmark may call, with the ways to call it, best first."""

    module: str
    name: str
    file: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, kw_only=True)
class FirstBenchmark:
    """A benchmark that ran: ``call_s`` is what a call of it took, in seconds."""

    candidate: Candidate
    attempt: Attempt
    call_s: float


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """A file as it is, None where there is none, and as it would be."""

    path: str
    before: str | None
    after: str
    why: str


@dataclass(frozen=True, kw_only=True)
class StartingPlan:
    """What was found, what would be written, what a reader should know, and which commands come next."""

    root: str
    found: tuple[str, ...]
    files: tuple[PlannedFile, ...]
    remarks: tuple[str, ...]
    next_commands: tuple[str, ...]
