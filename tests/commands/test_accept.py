"""``perfkit accept`` on real repositories and ledgers keeps what was accepted, and refuses what cannot be."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from forked_commands import run_perfkit
from repositories import Repository
from synthetic import build_row

from perfkit.commands.accept import Accepted, accept_finding
from perfkit.commands.history import read_history
from perfkit.config import load_project
from perfkit.errors import UsageError
from perfkit.gating.accept import Accepted as Marked
from perfkit.gating.accept import accept, mark
from perfkit.identity import shown_run_id
from perfkit.ledger.annotations import acceptances_for
from perfkit.ledger.store import Ledger
from perfkit.model import Benchmark, Row, Status
from perfkit.model.comparisons import Comparison, Policy, Verdict
from perfkit.model.policies import GatePolicy, JudgedPolicy, judged_policy
from perfkit.repo.commits import resolve
from perfkit.repo.sides import Side, SidePair
from perfkit.repo.trailers import commits_in
from perfkit.repo.working_tree import describe_working_tree

LEDGER = "benchmarks/ledger"
POLICY = Policy(alpha=0.01, family=1, looks=(3,))
UNMEASURED: dict[str, Status] = {
    "FAILED": "error",
    "TIMEOUT": "timeout",
    "MISSING": "skipped",
    "CHANGED": "skipped",
}
RATIOS = {"REGRESSED": (1.08, 1.08, 1.08), "UNCHANGED": (1.0, 1.0, 1.0), "INCONCLUSIVE": (0.9, 1.08, 1.3)}


def _gate(
    sha: str,
    verdicts: dict[str, Verdict],
    *,
    run: str = "0199-gate-0001",
    minute: int = 0,
    diff_hash: str | None = None,
    gating: bool = True,
    base: str = "b" * 40,
) -> list[Row]:
    """Return the rows of a gate: three launches a side that lead to a verdict, or a row without values."""
    rows: list[Row] = []
    row = partial(build_row, run=run, minute=minute, source="gate")
    for name, verdict in verdicts.items():
        policy = JudgedPolicy(rules=POLICY, margin=0.02, gating=gating, verdict=verdict)
        head = partial(row, name=name, sha=sha, side="head", policy=policy, diff_hash=diff_hash)
        if verdict in UNMEASURED:
            rows.append(head(status=UNMEASURED[verdict]))
            continue
        for launch, ratio in enumerate(RATIOS[verdict]):
            values = (0.1, 0.2, 0.3)
            rows.append(head(*(ratio * value for value in values), launch=launch))
            rows.append(row(*values, name=name, sha=base, side="base", launch=launch, policy=policy))
    return rows


def _record(repository: Repository, rows: Sequence[Row]) -> None:
    Ledger(repository.root / LEDGER).append(rows)


def _accept(repository: Repository, benchmark: str, *, reason: str = "Wanted", ref: str = "HEAD") -> Accepted:
    project = load_project(repository.root)
    return accept_finding(
        project=project, ledger=project.ledger_path, benchmark=benchmark, reason=reason, ref=ref
    )


def _perfkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_perfkit(*arguments, cwd=cwd)


@pytest.fixture
def gated(repository: Repository) -> Repository:
    """Return a repository whose only commit was gated, with a finding of most kinds."""
    sha = repository.commit({"a.py": "1", "pyproject.toml": ""}, "Add a")
    _record(
        repository,
        _gate(
            sha,
            {
                "x/bench_a.py::test_slow": "REGRESSED",
                "x/bench_a.py::test_broken": "FAILED",
                "x/bench_a.py::test_gone[n: 1]": "MISSING",
                "x/bench_a.py::test_same": "UNCHANGED",
                "y/bench_a.py::test_slow": "INCONCLUSIVE",
            },
        ),
    )
    return repository


def test_a_finding_is_kept_with_all_that_is_known_of_it(gated: Repository) -> None:
    kept = _accept(gated, "x/bench_a.py::test_slow", reason=" Exact\n distances ")

    acceptance = kept.acceptance
    assert ("x/bench_a.py::test_slow", "REGRESSED", "0199-gate-0001", None) == (
        acceptance.benchmark,
        acceptance.verdict,
        acceptance.run_id,
        acceptance.diff_hash,
    )
    assert pytest.approx(1.08) == acceptance.ratio
    assert ("Exact distances", "A Tester") == (acceptance.reason, acceptance.author)
    assert gated.git.head.commit.hexsha == acceptance.commit
    assert (acceptance,) == acceptances_for(gated.root / LEDGER, {acceptance.commit}, None)


def test_the_ratio_is_read_as_the_gate_reads_it(repository: Repository) -> None:
    sha = repository.commit({"pyproject.toml": ""})
    policy = JudgedPolicy(rules=POLICY, margin=0.02, gating=True, verdict="INCONCLUSIVE")
    row = partial(build_row, sha=sha, source="gate", policy=policy)
    ratios = [1.0, 1.1, 1.21, 5.0]
    rows = [row(ratio, ratio, side="head", launch=launch) for launch, ratio in enumerate(ratios)]
    rows += [row(1.0, 1.0, side="base", launch=launch) for launch in range(3)]
    _record(repository, rows)

    assert pytest.approx(1.1) == _accept(repository, "test_a").acceptance.ratio


def test_the_launches_of_continued_gates_count(repository: Repository) -> None:
    sha = repository.commit({"pyproject.toml": ""})
    first = _gate(sha, {"bench_a.py::test_a": "REGRESSED"}, run="r1")
    second = _gate(sha, {"bench_a.py::test_a": "REGRESSED"}, run="r2", minute=1)
    continuing = [replace(row, policy=replace(judged_policy(row), continues=("r1",))) for row in second[:2]]
    _record(repository, first)
    _record(repository, continuing)

    acceptance = _accept(repository, "test_a").acceptance

    assert ("r2", "REGRESSED") == (acceptance.run_id, acceptance.verdict)
    assert pytest.approx(1.08) == acceptance.ratio


def test_both_findings_of_a_gate_against_a_release_can_be_accepted(repository: Repository) -> None:
    sha = repository.commit({"pyproject.toml": ""})
    names = ("bench_a.py::test_a", "bench_a.py::test_b")
    verdicts: tuple[tuple[Verdict, Verdict], ...] = (("REGRESSED", "UNCHANGED"), ("UNCHANGED", "REGRESSED"))
    for minute, (base, found) in enumerate(zip("cd", verdicts, strict=True)):
        rows = _gate(sha, dict(zip(names, found, strict=True)), run=f"r{minute}", minute=minute)
        _record(repository, [_against(row, base * 40) for row in rows])

    assert ["r0", "r1"] == [_accept(repository, name).acceptance.run_id for name in names]


def _against(row: Row, base: str) -> Row:
    """Return a row of a gate against another base."""
    judged = judged_policy(row)
    policy = GatePolicy(
        rules=POLICY,
        margin=judged.margin,
        gating=judged.gating,
        verdict=judged.verdict,
        base=base,
        budget_s=60.0,
        mode="forked",
        as_is=False,
    )
    commit = replace(row.commit, sha=base) if row.placement.side == "base" else row.commit
    return replace(row, commit=commit, policy=policy)


@pytest.mark.parametrize(
    ("name", "verdict"), [("bench_a.py::test_broken", "FAILED"), ("test_gone[n: 1]", "MISSING")]
)
def test_what_was_not_measured_has_no_ratio(gated: Repository, name: str, verdict: str) -> None:
    acceptance = _accept(gated, name).acceptance

    assert (f"x/bench_a.py::{name.rpartition('::')[2]}", verdict, None) == (
        acceptance.benchmark,
        acceptance.verdict,
        acceptance.ratio,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_slow", '"test_slow" could mean x/bench_a.py::test_slow or y/bench_a.py::test_slow; give more'),
        (
            "test_nothing",
            'no benchmark "test_nothing" in the gate ate-0001; what blocks there: x/bench_a.py',
        ),
        ("test_same", "test_same is UNCHANGED in the gate ate-0001, so it needs no accepting"),
    ],
)
def test_what_is_no_finding_is_refused(gated: Repository, name: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        _accept(gated, name)

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (gated.root / LEDGER / "acceptances").exists()


def test_a_history_names_the_newest_gate_until_what_it_found_is_accepted(repository: Repository) -> None:
    base = repository.commit({"a.py": "1", "pyproject.toml": ""}, "Add a")
    head = repository.commit({"a.py": "2"}, "Change a")
    rows = _gate(head, {"bench_a.py::test_slow": "REGRESSED"}, base=base)
    _record(repository, [_against(row, base) for row in rows])
    project = load_project(repository.root)

    def notes() -> str:
        return " ".join(read_history(project, project.ledger_path).notes)

    assert shown_run_id(rows[0].run_id) in notes()
    _accept(repository, "test_slow")
    assert shown_run_id(rows[0].run_id) not in notes()


def test_the_newest_gate_of_the_commit_counts(repository: Repository) -> None:
    old = repository.commit({"pyproject.toml": ""}, "Old")
    new = repository.commit({"a.py": "1"}, "New")
    name = "bench_a.py::test_a"
    policy = JudgedPolicy(rules=POLICY, margin=0.02, gating=True, verdict="TIMEOUT")
    _record(repository, _gate(new, {name: "FAILED"}, run="r2", minute=2))
    _record(repository, _gate(new, {name: "REGRESSED"}, run="r1", minute=1))
    _record(repository, _gate(old, {name: "CHANGED"}, run="r3", minute=3))
    _record(repository, [build_row(1.0, name=name, sha=new, run="r4", minute=4)])
    _record(repository, [build_row(1.0, name=name, sha=new, run="r5", minute=5, source="gate", side="head")])
    base = build_row(1.0, name=name, sha=new, run="r6", minute=6, source="gate", side="base", policy=policy)
    _record(repository, [*_gate("c" * 40, {name: "TIMEOUT"}, run="r6", minute=6), base])

    assert "FAILED" == _accept(repository, name).acceptance.verdict
    assert "CHANGED" == _accept(repository, name, ref="HEAD~1").acceptance.verdict


def test_uncommitted_changes_bind_the_acceptance(repository: Repository) -> None:
    sha = repository.commit({"pyproject.toml": ""})
    _record(repository, _gate(sha, {"bench_a.py::test_a": "REGRESSED"}, diff_hash="d1"))

    kept = _accept(repository, "test_a").acceptance

    ledger = repository.root / LEDGER
    assert (kept,) == acceptances_for(ledger, {sha}, "d1")
    assert () == acceptances_for(ledger, {sha}, "d2")


@pytest.fixture
def uncommitted(repository: Repository) -> Repository:
    """Return a repository whose uncommitted changes were gated, and became slower."""
    sha = repository.commit({"pyproject.toml": "", "a.py": "1"}, "Base")
    (repository.root / "a.py").write_text("2")
    (repository.root / "new.py").write_text("3")
    outputs = load_project(repository.root).output_paths
    measured = describe_working_tree(repository.root, ignored=outputs)
    _record(repository, _gate(sha, {"bench_a.py::test_a": "REGRESSED"}, diff_hash=measured.diff_hash))
    return repository


def _accepted_of(repository: Repository, base: str) -> str | None:
    return _marked(repository, base).comparisons[0].accepted


def _marked(repository: Repository, base: str) -> Marked:
    """Return what people accepted of a slower benchmark in a gate of HEAD against ``base``."""
    found = Comparison(
        benchmark=Benchmark(name="bench_a.py::test_a", version="v1"), verdict="REGRESSED", margin=0.02
    )
    project, (head, old) = (
        load_project(repository.root),
        map(partial(resolve, repository.root), ("HEAD", base)),
    )
    pair = SidePair(
        base=Side(kind="commit", commit=old, source=repository.root),
        head=Side(kind="commit", commit=head, source=repository.root),
    )
    return accept([found], (), pair, ledger=project.ledger_path, outputs=project.output_paths)


def test_what_was_accepted_before_it_was_committed_stays_accepted(uncommitted: Repository) -> None:
    kept = _accept(uncommitted, "test_a").acceptance
    base = uncommitted.git.head.commit.hexsha
    (uncommitted.root / "README.md").write_text("Slower, and right.")
    uncommitted.git.git.add("--all")
    uncommitted.git.index.commit("Slow down")

    assert kept.text == _accepted_of(uncommitted, base)
    uncommitted.commit({"other.py": "1"}, "Go on")
    assert kept.text == _accepted_of(uncommitted, base)
    assert _accepted_of(uncommitted, "HEAD~1") is None


def test_a_commit_of_other_code_is_not_accepted(uncommitted: Repository) -> None:
    _accept(uncommitted, "test_a")
    base = uncommitted.git.head.commit.hexsha
    uncommitted.git.git.add("a.py")
    uncommitted.git.index.commit("Leave a file out")

    assert _accepted_of(uncommitted, base) is None
    uncommitted.commit({"new.py": "3 + 1"}, "Change it")
    assert _accepted_of(uncommitted, base) is None


def test_changes_that_are_not_there_any_more_are_accepted_alone(uncommitted: Repository) -> None:
    (uncommitted.root / "a.py").write_text("4")

    done = _perfkit("accept", "test_a", "--reason", "Wanted", cwd=uncommitted.root)

    assert 0 == done.returncode, done.stderr
    assert ", for the uncommitted changes that the gate measured: Wanted" in done.stdout
    assert (
        "It holds for those changes alone, which are not here as they were measured: once you" in done.stdout
    )


STEP = "def step(n=3000):\n    for _ in range(3):\n        a()\n    b()\n    return sum(range(n))\n"


@pytest.fixture
def branch(repository: Repository) -> Repository:
    """Return a repository on a branch of two commits that were gated together, and accepted; main went on."""
    base = repository.commit({"pyproject.toml": "", "app.py": STEP, "old.py": "1"}, "Base")
    repository.git.git.checkout("--quiet", "-b", "feature")
    repository.commit({"app.py": STEP.replace("3000", "6000")}, "Work twice as much")
    head = repository.commit({"new.py": "1"}, "Add a file")
    _record(repository, _gate(head, {"bench_a.py::test_a": "REGRESSED"}, base=base))
    _accept(repository, "test_a")
    repository.git.git.add("--all")
    repository.git.index.commit("Keep the acceptance")
    repository.git.git.checkout("--quiet", "main")
    repository.commit({"old.py": "2"}, "Go on")
    repository.git.git.checkout("--quiet", "feature")
    return repository


def test_what_was_accepted_stays_accepted_after_a_rebase_and_a_squash(branch: Repository) -> None:
    branch.git.git.rebase("--quiet", "main")
    assert "Wanted" in (_accepted_of(branch, "main") or "")
    branch.commit({"later.py": "1"}, "Go on")
    assert "Wanted" in (_accepted_of(branch, "main") or "")

    branch.git.git.reset("--hard", "HEAD~1")
    branch.git.git.checkout("--quiet", "main")
    branch.git.git.merge("--squash", "feature")
    branch.git.index.commit("Work twice as much (#1)")

    assert "Wanted" in (_accepted_of(branch, "HEAD~1") or "")
    assert "Wanted" in (_accepted_of(branch, "HEAD~2") or "")


@pytest.mark.parametrize(
    ("old", "new"), [("6000", "6001"), ("    b()\n", "        b()\n"), ("    return", "    c()\n    return")]
)
def test_another_change_than_the_accepted_one_is_named_and_does_not_pass(
    branch: Repository, old: str, new: str
) -> None:
    branch.git.git.checkout("--quiet", "main")
    branch.git.git.checkout("feature", "--", "benchmarks")
    branch.commit({"app.py": STEP.replace("3000", "6000").replace(old, new), "new.py": "1"}, "Rewritten")

    shown = _marked(branch, "HEAD~1")

    assert shown.comparisons[0].accepted is None
    (note,) = [note for note in shown.notes if "was accepted in another change" in note]
    assert "bench_a.py::test_a" in note
    assert "perfkit accept bench_a.py::test_a --reason Wanted" in note


@pytest.mark.parametrize(("verdict", "passes"), [("REGRESSED", True), ("FAILED", False)])
def test_the_next_gate_lets_the_accepted_finding_pass(
    repository: Repository, verdict: Verdict, *, passes: bool
) -> None:
    name = "bench_a.py::test_a"
    base = repository.commit({"pyproject.toml": ""}, "Base")
    _record(repository, _gate(repository.commit({"a.py": "1"}, "Slow"), {name: "REGRESSED"}))
    kept = _accept(repository, name).acceptance
    head = repository.commit({"a.py": "2"}, "Keep the acceptance")

    shas = commits_in(repository.root, base, head)
    applying = acceptances_for(repository.root / LEDGER, shas, None)
    comparison = Comparison(benchmark=Benchmark(name=name, version="v1"), verdict=verdict, margin=0.02)
    (found,) = mark([comparison], applying)

    assert (kept.text if passes else None) == found.accepted


def test_what_does_not_gate_needs_no_accepting(repository: Repository) -> None:
    sha = repository.commit({"pyproject.toml": ""})
    _record(repository, _gate(sha, {"bench_a.py::test_a": "REGRESSED"}, gating=False))

    with pytest.raises(UsageError, match=r"is REGRESSED, not gating, .* what blocks there: nothing"):
        _accept(repository, "test_a")


def test_an_acceptance_of_what_base_has_is_not_named(branch: Repository) -> None:
    head = branch.git.head.commit.hexsha
    branch.commit({"later.py": "1"}, "Go on")

    assert () == _marked(branch, head).notes


def test_a_commit_that_was_not_gated_has_nothing_to_accept(gated: Repository) -> None:
    gated.commit({"a.py": "2"})

    with pytest.raises(UsageError, match=r"no gate of commit .* run `perfkit gate` first"):
        _accept(gated, "x/bench_a.py::test_slow")
    assert not (gated.root / LEDGER / "acceptances").exists()
