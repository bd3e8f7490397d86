"""A command that only reads runs no program that the repository's configuration names."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from forked_commands import run_perfkit
from repositories import Repository, create_repository
from synthetic import build_row

from perfkit.ledger.store import Ledger
from perfkit.repo.git import reading_only
from perfkit.repo.working_tree import describe_working_tree

BENCHMARK = "benchmarks/bench_a.py::test_a"
FILES = {
    "perfkit.txt": "one\n",
    "data.bin": "\x00\x01",
    "benchmarks/bench_a.py": "def test_a(benchmark):\n    benchmark(int)\n",
    "pyproject.toml": '[project]\nname = "p"\nversion = "1"\n[tool.perfkit.log]\ntrends = "trends"\n',
    ".gitattributes": "* filter=evil diff=evil\n",
    "perf_log.md": "<!-- perfkit:log:begin -->\n<!-- perfkit:log:end -->\n",
}
PROGRAMS = {
    "core.fsmonitor",
    "core.pager",
    "core.editor",
    "core.sshCommand",
    "core.askPass",
    "core.gitProxy",
    "core.alternateRefsCommand",
    "credential.helper",
    "diff.external",
    "diff.evil.command",
    "diff.evil.textconv",
    "filter.evil.clean",
    "filter.evil.smudge",
    "filter.evil.process",
    "gpg.program",
    "gpg.ssh.program",
    "pager.diff",
    "pager.log",
    "sequence.editor",
}
ALIASED = ("diff", "log", "rev-list", "rev-parse", "config", "cat-file", "ls-files", "tag")
READING = {
    "log": ("log", "--ledger", "ledger"),
    "history": ("history", "--ledger", "ledger", "--check"),
    "compare": ("compare", "HEAD~1", "HEAD", "--ledger", "ledger"),
    "report": ("report", "--ledger", "ledger", "--out", "site"),
    "show env": ("show", "env", "HEAD", "--ledger", "ledger"),
    "export": ("ledger", "export", "--format", "csv", "--commit", "HEAD", "--ledger", "ledger"),
}


@pytest.fixture
def traces(repository: Repository, tmp_path: Path) -> Path:
    """Return the file to which all programs write that a repository's configuration names."""
    traces, program = tmp_path / "traces", tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {shlex.quote(str(traces))}\ncat\n')
    program.chmod(0o755)
    # A partial clone would fetch the last one.
    shas = [repository.commit(FILES), repository.commit({"perfkit.txt": "two\n"}), "c" * 40]
    rows = [
        build_row(0.1, 0.2, sha=sha, run=f"0199000{place}-0000-7000-8000-000000000000", minute=place)
        for place, sha in enumerate(shas)
    ]
    for row in rows:
        Ledger(repository.root / "ledger").append([row])
    with repository.git.config_writer() as config:
        for name in PROGRAMS:
            section, _, key = name.rpartition(".")
            outer, _, inner = section.partition(".")
            config.set_value(f'{outer} "{inner}"' if inner else outer, key, f"{program} {name}")
        for name in ALIASED:
            config.set_value("alias", name, f"!{program} alias.{name}")
        config.set_value("log", "showSignature", "true")
        config.set_value("core", "repositoryFormatVersion", "1")
        config.set_value("extensions", "partialClone", "origin")
        config.set_value('remote "origin"', "url", "ssh://nowhere.invalid/project")
        config.set_value('remote "origin"', "promisor", "true")
    for hook in ("post-index-change", "post-checkout", "reference-transaction", "fsmonitor-watchman"):
        (repository.root / ".git/hooks" / hook).symlink_to(program)
    # Git reads a file anew whose time is not the one in its index.
    for file in repository.root.glob("*.*"):
        os.utime(file, (1, 1))
    return traces


def shown(traces: Path) -> list[str]:
    return traces.read_text().splitlines() if traces.exists() else []


@pytest.mark.parametrize("command", READING.values(), ids=READING)
def test_a_command_that_reads_runs_nothing(
    repository: Repository, traces: Path, command: tuple[str, ...]
) -> None:
    done = run_perfkit(*command, cwd=repository.root)

    assert done.returncode in {0, 1, 3, 4}, done.stderr
    assert [] == shown(traces)


def test_a_look_at_the_working_tree_runs_nothing(repository: Repository, traces: Path) -> None:
    with reading_only():
        read = describe_working_tree(repository.root, ignored=())
    assert [] == shown(traces)

    describe_working_tree(repository.root, ignored=())

    assert read.dirty
    assert [] == shown(traces)


def test_a_look_at_a_submodule_runs_nothing(repository: Repository, traces: Path) -> None:
    inner = create_repository(repository.root / "inner")
    inner.git.commit("--quiet", "--allow-empty", "-m", "Begin")
    repository.git.git.update_index("--add", "--cacheinfo", f"160000,{inner.head.commit.hexsha},inner")
    with inner.config_writer() as config:
        config.set_value("core", "fsmonitor", str(traces.with_name("program")))
    traces.unlink(missing_ok=True)

    with reading_only():
        describe_working_tree(repository.root, ignored=())

    assert [] == shown(traces)
