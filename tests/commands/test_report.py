"""Pages of real repositories and ledgers: what they hold, what is written, what is refused."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import git
import pytest
from repositories import Repository, create_repository
from synthetic import START, build_row

from perfkit.commands import history
from perfkit.config import load_project
from perfkit.errors import ConfigError, NotMeasuredError, UsageError
from perfkit.features.site.command import make_report, read_site, write_trends
from perfkit.features.site.pages import site_files
from perfkit.features.site.series import Reference, Site
from perfkit.ledger.store import Ledger
from perfkit.model.comparisons import Policy
from perfkit.model.policies import GatePolicy
from perfkit.report.change_log import slug_of, trend_name
from perfkit.report.history import short_sha

NAME = "benchmarks/bench_a.py::test_a"
CONFIG = """
[tool.perfkit.report]
title = "Shop"
commit_url = "https://forge.example/shop/commit/{commit}"
"""
RULES = Policy(alpha=0.01, family=1, looks=(3,))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with 24 commits and a run at each, a step at the 13th and a tag behind it."""
    root = tmp_path_factory.mktemp("template") / "shop"
    root.mkdir()
    repository = Repository(root, create_repository(root))
    repository.commit({"pyproject.toml": CONFIG, ".gitignore": "site/\n"}, "Begin")
    for number in range(24):
        sha = repository.commit({"model.py": f"N = {number}\n"}, f"Change {number}")
        _measure(root, sha, number)
        if number == 13:
            repository.git.create_tag("v1.0")
    repository.git.git.gc("--quiet")
    return root


@pytest.fixture
def repository(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Return a copy of it, a day after its last run."""
    monkeypatch.setattr(history, "utc_now", lambda: START + timedelta(days=25))
    root = Path(shutil.copytree(template, tmp_path / "shop"))
    return Repository(root, git.Repo(root))


def _measure(root: Path, sha: str, number: int) -> None:
    noise = random.Random(number).gauss(0, 0.01)  # noqa: S311 (noise, not a secret)
    level = (1.0 if number < 12 else 1.5) * (1 + noise)
    rows = [
        build_row(
            level, level, name=NAME, sha=sha, run=f"run-{number:012}", launch=launch, minute=1440 * number
        )
        for launch in range(3)
    ]
    Ledger(root / "benchmarks/ledger").append(rows)


def _gate(root: Path, base: str, head: str, number: int) -> None:
    policy = GatePolicy(
        rules=RULES,
        margin=0.02,
        gating=True,
        verdict="REGRESSED",
        base=base,
        budget_s=20.0,
        mode="forked",
        as_is=False,
    )
    rows = [
        build_row(
            *([1.0 + 0.001 * launch] * 4 if side == "base" else [1.5 + 0.001 * launch] * 4),
            name=NAME, sha=base if side == "base" else head, run=f"gate-{number:012}", launch=launch,
            side=side, source="gate", policy=policy, minute=100 + number,
        )
        for launch in range(3)
        for side in ("base", "head")
    ]  # fmt: skip
    Ledger(root / "benchmarks/ledger").append(rows)


def _made(root: Path, out: Path) -> dict[str, bytes]:
    make_report(project=load_project(root), ledger=root / "benchmarks/ledger", out=out)
    return {file.relative_to(out).as_posix(): file.read_bytes() for file in out.rglob("*") if file.is_file()}


def _site(root: Path) -> Site:
    site, _ = read_site(project=load_project(root), ledger=root / "benchmarks/ledger")
    return site


def test_a_ledger_becomes_pages(repository: Repository, tmp_path: Path) -> None:
    shas = repository.git.git.rev_list("--reverse", "HEAD").split()

    first = _made(repository.root, tmp_path / "site")

    overview = first["index.html"].decode()
    assert "<h1>Shop</h1>" in overview
    assert f'href="https://forge.example/shop/commit/{shas[13]}"' in overview
    assert "“Change 12”" in overview
    assert "Since v1.0" in overview
    assert f"benchmarks/{slug_of(NAME)}.html" in first

    # The same ledger gives the same files, and writes none.
    ledger = repository.root / "benchmarks/ledger"
    again = make_report(project=load_project(repository.root), ledger=ledger, out=tmp_path / "site")
    assert (len(first) - 1, 0, 0) == (again.files, again.changed, again.removed)

    assert first == _made(repository.root, tmp_path / "elsewhere")


def test_a_site_brought_up_to_date_has_the_files_of_a_whole_report(
    repository: Repository, tmp_path: Path
) -> None:
    root, ledger = repository.root, repository.root / "benchmarks/ledger"
    old, new = repository.git.git.rev_parse("HEAD~6"), repository.commit({"shop.py": "changed again"})

    def accept() -> None:
        project = load_project(root)
        (point,) = history.read_history(project, ledger).points
        history.state_point(
            project=project, ledger=ledger, subject=point.point_id, state="accepted", reason="known"
        )

    changes: dict[str, Callable[[], object]] = {
        "a run": lambda: _measure(root, new, 24),
        "a run of an old commit": lambda: _measure(root, old, 25),
        "an acceptance": accept,
        "a run less": min(ledger.glob("*.parquet")).unlink,
        "a setting": lambda: (root / "pyproject.toml").write_text(CONFIG.replace("Shop", "Store")),
    }
    before = _made(root, tmp_path / "site")
    for name, change in changes.items():
        change()

        after = _made(root, tmp_path / "site")

        assert before != after, name
        assert after == _made(root, tmp_path / name), name
        before = after


def test_a_slow_commit_of_another_branch_is_not_the_newest_run(repository: Repository) -> None:
    repository.git.git.switch("--quiet", "--create", "slow")
    sha = repository.commit({"shop.py": "slow"})
    Ledger(repository.root / "benchmarks/ledger").append(
        [build_row(3.0, 3.0, name=NAME, sha=sha, run="run-slow-00000", minute=1440 * 24)]
    )
    on_branch = _site(repository.root)
    repository.git.git.switch("--quiet", "main")
    on_main = _site(repository.root)

    slower = [
        "In the newest run alone" in dict(site_files(site))["index.html"] for site in (on_branch, on_main)
    ]
    assert [True, False] == slower
    assert (frozenset(), frozenset({sha})) == (on_branch.aside, on_main.aside)


def test_documents_are_copied_and_pages_of_what_is_gone_removed_and_nothing_else(
    repository: Repository, tmp_path: Path
) -> None:
    folder = repository.root / "docs/experiments"
    folder.mkdir(parents=True)
    (folder / "precision.md").write_text("# Precision\n\nHalf is faster.\n")
    (folder / "precision.svg").write_text("<svg/>")
    (repository.root / "profiles").mkdir()
    (repository.root / "profiles/broken.json").write_text("{")
    out, precious = tmp_path / "site", tmp_path / "precious"
    out.mkdir()
    precious.touch()
    # A list cannot name files outside of its folder.
    (out / ".perfkit-report").write_text(f"../precious\n{precious}\nold.html\n")
    ledger = repository.root / "benchmarks/ledger"
    other = "benchmarks/bench_a.py::test_old"
    extra = Ledger(ledger).append([build_row(1.0, name=other, sha="b" * 40, run="run-old-000000")])

    files = _made(repository.root, out)

    assert precious.exists()
    assert b"# Precision" in files["files/docs/experiments/precision.md.txt"]
    assert b'href="./files/docs/experiments/precision.md.txt">Precision<' in files["experiments.html"]
    assert b'src="./files/docs/experiments/precision.svg"' in files["experiments.html"]
    assert b"The profile broken.json cannot be read" in files["index.html"]

    (out / "CNAME").write_text("shop.example\n")
    extra.unlink()
    written = make_report(project=load_project(repository.root), ledger=ledger, out=out)

    assert 3 == written.removed
    assert not (out / f"benchmarks/{slug_of(other)}.html").exists()
    assert (out / "CNAME").exists()


def test_a_folder_of_other_files_is_refused_by_the_option_that_named_it(
    repository: Repository, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("")

    with pytest.raises(UsageError, match="choose another with --trends"):
        write_trends(
            project=load_project(repository.root),
            ledger=repository.root / "benchmarks/ledger",
            folder=tmp_path / "mine",
        )


def test_old_gates_keep_the_verdicts_of_their_rows(repository: Repository) -> None:
    *_, base, head = repository.git.git.rev_list("--reverse", "HEAD").split()
    for number in range(22):
        _gate(repository.root, base, head, number)

    site = _site(repository.root)

    assert 22 == len(site.gates)
    assert [(base, head, "REGRESSED")] * 22 == [
        (one.base, one.head, one.findings[0].verdict) for one in site.gates
    ]
    assert [True] * 2 + [False] * 20 == [one.findings[0].ratio is None for one in site.gates]


def test_values_are_compared_with_the_last_release_and_the_base(repository: Repository) -> None:
    site = _site(repository.root)

    parent = repository.git.git.rev_parse("HEAD^")
    tagged = repository.git.git.rev_parse("v1.0")
    assert (
        Reference(name="v1.0", commit=tagged),
        Reference(name=short_sha(parent), commit=parent),
    ) == site.since


def test_an_empty_ledger_gives_no_pages(tmp_path: Path) -> None:
    create_repository(tmp_path)

    with pytest.raises(NotMeasuredError, match="perfkit gate"):
        _made(tmp_path, tmp_path / "site")

    assert not (tmp_path / "site").exists()


def test_pictures_alone_can_be_written_for_texts(repository: Repository, tmp_path: Path) -> None:
    ledger = repository.root / "benchmarks/ledger"

    written = write_trends(project=load_project(repository.root), ledger=ledger, folder=tmp_path / "trends")

    machine = Ledger(ledger).runs()[0].machine_id
    assert 1 == written.files
    assert "<svg" in (tmp_path / "trends" / trend_name(NAME, machine)).read_text()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            'commit_url = "javascript:alert(1)//{commit}"',
            "commit_url must begin with https:// and hold {commit}",
        ),
        ('commit_url = "https://forge.example/"', "commit_url must begin with https:// and hold {commit}"),
        (
            'range_url = "https://forge.example/{before}"',
            "range_url must begin with https:// and hold {before} and",
        ),
    ],
)
def test_an_address_that_is_none_is_refused(tmp_path: Path, setting: str, expected: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.perfkit.report]\n{setting}\n")

    with pytest.raises(ConfigError, match=expected.replace("{", r"\{")):
        load_project(tmp_path)
