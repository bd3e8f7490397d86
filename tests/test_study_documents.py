"""Documents of studies, of experiments and of perfkit's own log hold what was kept."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import git
import pytest
from modules import BENCHMARKS, study_scripts

from perfkit.commands.log import read_change_log, render_log
from perfkit.config import Project, load_project
from perfkit.features.experiments import command as experiment
from perfkit.features.tricks import command as tricks
from perfkit.gating.rows import judge_anew
from perfkit.ledger.store import Ledger

ROOT = Path(__file__).parent.parent
MEASURED = ROOT / "docs" / "measured"


@pytest.fixture(scope="module")
def points() -> Iterator[Mapping[str, ModuleType]]:
    names = ("point_study", "point_tables", "detectors", "series", "plan", "neutral")
    with study_scripts(("calibration", "change_points"), names) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def bisects() -> Iterator[Mapping[str, ModuleType]]:
    names = ("bisect_study", "bisect_tables", "searches", "recorded", "plan", "neutral", "upgrades")
    with study_scripts(("calibration", "bisect"), names) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def others() -> Iterator[Mapping[str, ModuleType]]:
    """Return the scripts that tried perfkit on other people's libraries."""
    with study_scripts(("strangers",), ("strangers", "newcomers")) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def studies() -> Iterator[Mapping[str, ModuleType]]:
    names = ("neutral", "plan", "study", "gates", "readme", "render", "pairs", "tools", "contest", "table")
    with study_scripts(("calibration", "peers"), names) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def measured(studies: Mapping[str, ModuleType]) -> list[Any]:
    """Return the gates of the study, judged anew from the committed rows."""
    return list(studies["gates"].read_gates(studies["plan"].NEWER))


# The verdicts of these rows are in contract/test_verdicts.py; judging all of them anew takes many seconds.
@pytest.mark.slow
def test_the_documents_are_what_the_rows_hold(studies: Mapping[str, ModuleType], measured: list[Any]) -> None:
    render, readme = studies["render"], studies["readme"]
    text = readme.README.read_text()

    assert (MEASURED / "calibration.md").read_text() == render.render(measured)
    assert text == readme.with_lines(text, render.PLACE, render.lines_for_readme(measured))


@pytest.mark.slow
def test_the_page_of_the_contest_is_what_the_tools_found(studies: Mapping[str, ModuleType]) -> None:
    table, contest, pairs = studies["table"], studies["contest"], studies["pairs"]
    machines = table.name_machines(Ledger(contest.LEDGERS / pairs.NEWER).rows())
    text = table.render(contest.read_outcomes(pairs.NEWER), machines, table.read_again())

    assert table.DOCUMENT.read_text() == text


def test_the_page_of_change_points(points: Mapping[str, ModuleType]) -> None:
    outcomes = json.loads((BENCHMARKS / "change_points/outcomes.json").read_text())

    assert (MEASURED / "change-points.md").read_text() == points["point_tables"].render(outcomes)
    again = points["point_study"].count_stepped((points["series"].HELD_OUT, True, 0.05, "perfkit"))
    assert again in outcomes["stepped"]


def test_the_page_of_bisections(bisects: Mapping[str, ModuleType]) -> None:
    study, document, tables = BENCHMARKS / "bisect", MEASURED / "bisect.md", bisects["bisect_tables"]
    outcomes = json.loads((study / "outcomes.json").read_text())

    assert document.read_text() == tables.render(document.read_text(), outcomes, tables.read_real(study))
    upgrades = bisects["upgrades"]
    found = json.loads(upgrades.OUTCOMES.read_text())
    assert document.read_text() == upgrades.filled(document.read_text(), found)
    right = [upgrades.is_right(case, found[name]) for name, case in upgrades.read_cases().items()]
    assert sum(right) >= 0.9 * len(right)
    assert max(one["seconds"] for one in found.values()) < upgrades.LIMIT_S


@pytest.mark.parametrize("study", ["strangers", "newcomers"])
def test_the_page_of_other_libraries_is_what_was_found(
    others: Mapping[str, ModuleType], study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, page = others[study], others["strangers"]
    # Computing it from the launches of all gates takes seconds: the next test does.
    monkeypatch.setattr(page, "detectable", lambda _: "DETECTABLE")

    table = re.escape("\n".join(module.table(json.loads(module.OUTCOMES.read_text()))))

    assert re.search(table.replace("DETECTABLE", "[^|]+"), page.DOCUMENT.read_text())


# The verdicts of these rows, too, are in contract/test_verdicts.py.
@pytest.mark.slow
@pytest.mark.parametrize("study", ["strangers", "newcomers"])
def test_what_was_found_follows_from_the_kept_launches(others: Mapping[str, ModuleType], study: str) -> None:
    module, page = others[study], others["strangers"]
    kept = Ledger(page.LEDGER)
    outcomes = json.loads(module.OUTCOMES.read_text())
    gates = [one["gate"] for one in outcomes.values() if one["gate"]["run_id"]]

    assert "\n".join(module.table(outcomes)) in page.DOCUMENT.read_text()
    assert gates
    for gate in gates:
        rows = kept.rows_of(gate["run_id"])
        assert gate["verdicts"] == dict(Counter(one.verdict for one in judge_anew(rows, kept)))


def test_newcomers_have_their_answer_within_five_minutes(others: Mapping[str, ModuleType]) -> None:
    newcomers = others["newcomers"]
    outcomes = json.loads(newcomers.OUTCOMES.read_text())

    assert outcomes
    for name, one in outcomes.items():
        assert one["init"]["seconds"] + one["gate"]["seconds"] < newcomers.LIMIT_S, name


def test_the_page_of_speeds_has_the_table_beside_other_tools() -> None:
    with study_scripts(("ledger_scale",), ("beside", "generate")) as scripts:
        kept = json.loads((BENCHMARKS / "ledger_scale/beside.json").read_text())

        assert scripts["beside"].table(kept) in (MEASURED / "speed.md").read_text()
        generate = scripts["generate"]
        # The benchmarks of large ledgers write these.
        assert {5} == {table.num_rows for _, table in generate.tables(generate.Scale(runs=2, benchmarks=5))}
    assert {"asv publish", "perfkit report", "perfkit log"} < kept["seconds"].keys()


def test_the_page_of_fake_gains() -> None:
    text = (MEASURED / "referee.md").read_text()
    with study_scripts(("referee",), ("fakes",)) as scripts:
        study = scripts["fakes"]
        outcomes = json.loads(study.OUTCOMES.read_text())

        assert text == study.filled(text, study.table(outcomes))
        assert study.fakes().keys() == outcomes["fakes"].keys()


def test_the_page_of_public_speedups() -> None:
    text = (MEASURED / "speedups.md").read_text()
    with study_scripts(("referee", "speedups"), ("fakes", "speedups")) as scripts:
        study = scripts["speedups"]
        outcomes = json.loads(study.OUTCOMES.read_text())
        cases = study.read_cases()
        verdicts = {
            word: [study.agreement(word, [middle, middle - 0.01, middle + 0.01], 0.02) for middle in middles]
            for word in ("IMPROVED", "NOT SLOWER", "SAME CODE", "REGRESSED", "INCONCLUSIVE", "OTHER RESULT")
            for middles in [(0.8, 1.0, 1.2)]
        }

        assert text == study.filled(text, study.table(outcomes))
    names = [case["name"] for case in cases]
    assert len(set(names)) == len(names)
    assert outcomes.keys() <= set(names)
    for case in cases:
        compile(case["speed"], case["name"], "exec")
        assert re.fullmatch("[0-9a-f]{40}", case["commit"]), case["name"]
    assert verdicts == {
        "IMPROVED": ["agrees", "contradicts", "contradicts"],
        "NOT SLOWER": ["agrees", "agrees", "contradicts"],
        "SAME CODE": ["contradicts", "agrees", "contradicts"],
        "REGRESSED": ["contradicts", "contradicts", "agrees"],
        "INCONCLUSIVE": ["open", "open", "open"],
        "OTHER RESULT": ["contradicts", "contradicts", "contradicts"],
    }


LEDGER = ROOT / "benchmarks" / "ledger"
DOCUMENTS = sorted((MEASURED / "experiments").glob("*.md"))
TRICKS = sorted((MEASURED / "tricks").glob("*.md"))
SECTIONS = [
    pytest.param(run, section, id=run)
    for section in (MEASURED / "experiments.md").read_text().split("\n## ")[1:]
    for run in re.findall(r"[Rr]un\s`([0-9a-f-]+)`", section)
]


def test_the_page_of_labels(tmp_path: Path) -> None:
    with study_scripts(("change_points",), ("labels", "seen", "detectors")) as scripts:
        labels, text = scripts["labels"], (MEASURED / "labels.md").read_text()
        outcomes = json.loads(labels.OUTCOMES.read_text())
        assert text == labels.filled(text, outcomes)
        changed = [one for one in outcomes["charts"].values() if one["of"]]
        reported = sum(one["reported"] == one["of"] for one in changed)
        assert f"reported in {reported} of {len(changed)} charts, and called steady in none" in text
        assert not any(one["steady"] for one in changed)
        (chart,) = scripts["seen"].ask(tmp_path / "charts", [1001])
        assert outcomes["charts"]["1001"] == chart

        # The examples of the measures' authors.
        several = {"1": [10, 20], "2": [11, 20], "3": [10], "4": [0, 5]}
        assert 1.0 == labels.score(several, [10, 20], 50)["f1"]
        assert 0.9091 == labels.score({"1": [], "2": [10], "3": [50]}, [10], 60)["f1"]
        assert 0.7963 == labels.score({"1": [10, 20], "2": [10], "3": [0, 5]}, [10, 20], 45)["cover"]

        values = [1 + 0.01 * (run % 3) + (run >= 30) for run in range(60)]
        series = {"name": "a", "n_obs": 60, "n_dim": 1, "series": [{"raw": values}]}
        files: dict[str, object] = {
            "annotations.json": {"a": {"1": [30], "2": [28]}, "unread": {"1": []}},
            "datasets/a.json": series,
            "rivals/a/default_pelt/1.json": {"result": {"cplocations": [30, 50]}},
            "tables/default_f1_full.json": {"a": {"amoc": 0.5, "zero": 0.1}, "unread": {"amoc": 1.0}},
        }
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(json.dumps(content))
        (judged,) = labels.judge([tmp_path]).values()
    assert [30] == judged["places"]
    assert (1.0, 0.8, 0.5) == tuple(judged["scores"][name]["f1"] for name in ("perfkit", "pelt", "amoc"))
    assert {"perfkit", "nothing", "pelt", "amoc"} == judged["scores"].keys()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_a_report_is_what_the_ledger_holds(document: Path, tmp_path: Path) -> None:
    named = re.search(r"run `([0-9a-f-]{36})`", document.read_text())
    assert named is not None

    experiment.write_document(
        experiment.recorded_experiment(named[1], ledger=LEDGER), tmp_path / document.name
    )

    assert document.read_text() == (tmp_path / document.name).read_text()
    picture = document.with_suffix(".svg")
    assert picture.read_text() == (tmp_path / picture.name).read_text()


@pytest.mark.parametrize("document", TRICKS, ids=lambda document: document.stem)
def test_tricks_are_reported_as_the_ledger_has_them(document: Path, tmp_path: Path) -> None:
    named = re.search(r"run `([0-9a-f]{8})`", document.read_text())
    assert named is not None

    tricks.write_document(tricks.recorded_tricks(named[1], ledger=LEDGER), tmp_path / document.name)

    assert document.read_text() == (tmp_path / document.name).read_text()
    for picture in tmp_path.glob("*.svg"):
        assert document.with_suffix(".svg").read_text() == picture.read_text()


@pytest.mark.parametrize(("run", "section"), SECTIONS)
def test_the_summary_has_the_figures_of_the_reports(run: str, section: str, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    if "-" in run:
        experiment.write_document(experiment.recorded_experiment(run, ledger=LEDGER), report)
    else:
        tricks.write_document(tricks.recorded_tricks(run, ledger=LEDGER), report)
    lines = report.read_text().splitlines()

    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 2
    assert [] == [row for row in rows if not any(line.startswith(row) for line in lines)]


@pytest.fixture
def repository() -> git.Repo:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout of perfkit")
    return git.Repo(ROOT)


@pytest.fixture
def committed_ledger(repository: git.Repo, tmp_path: Path) -> Path:
    """Return a ledger of the files that git knows: local measurements are not part of the log yet."""
    project = load_project(ROOT)
    for name in repository.git.ls_files(str(project.ledger_path)).splitlines():
        target = tmp_path / (ROOT / name).relative_to(project.ledger_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    return tmp_path


def test_the_log_is_what_the_ledger_holds(
    committed_ledger: Path, repository: git.Repo, tmp_path: Path
) -> None:
    committed = tmp_path / "perf_log.md"
    committed.write_text(repository.git.show(":perf_log.md") + "\n")

    result = render_log(project=_project(), ledger=committed_ledger, file=committed, check=True)

    assert not result.changed


def test_five_rows_rest_on_five_launches_each(committed_ledger: Path, repository: git.Repo) -> None:
    tables = read_change_log(project=_project(), ledger=committed_ledger).tables
    compared = Counter(
        entry.commit
        for table in tables
        for entry in table.entries
        for cell in entry.cells
        if cell is not None and cell.launches >= 5 and cell.ratio is not None
    )

    assert len(compared) >= 5
    assert {"commit"} == {repository.git.cat_file("-t", sha) for sha in compared}


def test_the_page_on_claims_has_the_outcomes_of_why() -> None:
    found = json.loads((ROOT / "benchmarks/why/outcomes.json").read_text())
    text = " ".join((ROOT / "docs/claims.md").read_text().split())
    named, within = (sum(one[key] for one in found) for key in ("named_first", "within"))

    assert 20 == len(found)
    assert f"named first in {named}," in text
    assert f"lies within the interval foreseen in {within}." in text


def _project() -> Project:
    return load_project(ROOT)


def test_the_page_of_public_scripts_is_what_was_kept() -> None:
    with study_scripts(("training",), ("scripts",)) as loaded:
        kept = json.loads((BENCHMARKS / "training" / "scripts.json").read_text())
        assert (MEASURED / "scripts.md").read_text().endswith(loaded["scripts"].table(kept))
