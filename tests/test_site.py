"""The site is built from the documents, its reference has all of the code, and its links lead somewhere."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from forked_commands import run

import perfkit

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
_AUTHOR = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A Reader"), ("EMAIL", "reader@example.org"))
}
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# A line of a block, perhaps after a prompt, and a piece of code within a sentence.
_TYPED_LINE = re.compile(r"^(?:\$ )?(perfkit [^\n#|;&]+)", re.MULTILINE)
# The beginning of a line that is printed.
_PRINTED = "perfkit compares "
_TYPED_WORDS = re.compile(r"`(perfkit [^`\n]+)`")
_BLOCK = re.compile(
    r"(<!-- exit code: (\d+) -->\n)?```(bash|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


@pytest.fixture(scope="module")
def pages() -> Iterator[ModuleType]:
    """Return the module that fills the pages of the site."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        yield importlib.import_module("reference_pages")


@pytest.fixture(scope="module")
def filled(pages: ModuleType) -> dict[str, str]:
    """Return the text of each page of the reference as the site has it."""
    return {page: pages.filled(page, (DOCS / f"{page}.md").read_text()) for page in pages.PAGES}


def test_each_key_and_column_has_a_meaning_and_none_is_left_over(pages: ModuleType) -> None:
    reported = pages.meanings()
    keys = {table: set(struct.__struct_fields__) for table, _, struct in pages.tables()}

    assert keys == {table: set(words) for table, words in reported["configuration"].items()}
    assert set(pages.SCHEMA.names) == set(reported["columns"])


def test_what_documents_show_to_type_exists(pages: ModuleType) -> None:
    known = dict(pages.each_command())
    groups = {path.rpartition(" ")[0] for path in known if path.count(" ") == 2}
    typed = []
    for document in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        text = document.read_text()
        lines = [line for block in _FENCED.findall(text) for line in _TYPED_LINE.findall(block)]
        lines += _TYPED_WORDS.findall(_FENCED.sub("", text))
        typed += [
            (document.relative_to(ROOT).as_posix(), line) for line in lines if not line.startswith(_PRINTED)
        ]

    assert len(typed) > 250
    assert [] == [one for one in typed if not _is_known(one[1], known, groups)]


def _is_known(line: str, known: dict[str, Any], groups: set[str]) -> bool:
    """Return whether a command exists, and each option before what is for another program."""
    own = re.split(r" -- | torchrun | > | \\$", line)[0]
    words = re.sub(r"\"[^\"]*\"|'[^']*'", "TEXT", own).split()
    path = next((" ".join(words[:size]) for size in (3, 2) if " ".join(words[:size]) in known), "")
    if not path:
        return " ".join(words[:2]) in groups or words[1].startswith(("-", "…"))
    parameters = [*known[path].params, *known["perfkit"].params]
    options = {name: one for one in parameters for name in (*one.opts, *one.secondary_opts)}
    most = sum(9 if one.nargs < 0 else 1 for one in parameters if one.param_type_name == "argument")
    rest = iter(words[path.count(" ") + 1 :])
    arguments = 0
    for word in rest:
        name, equals, _ = word.partition("=")
        if not re.match(r"--?[a-z]", word):
            arguments += 1
        elif name not in options and name != "--help":
            return False
        elif name != "--help" and not options[name].is_flag and not equals:
            next(rest, None)
    return arguments <= most


def test_what_import_perfkit_has_is_described(filled: dict[str, str]) -> None:
    for name in perfkit.__all__:
        assert (inspect.getdoc(getattr(perfkit, name)) or "").partition("\n")[0].endswith((".", ":")), name
        assert f"perfkit.{name}\n" in filled["reference/python"]


def test_the_stored_reference_is_that_of_the_code(pages: ModuleType) -> None:
    texts = {page: (DOCS / f"{page}.md").read_text() for page in pages.PAGES}

    assert {page: pages.stored(page, text) for page, text in texts.items()} == texts
    assert "- `perfkit.gate`: Compare two versions" in texts["reference/python"]
    assert "eval-rst" not in texts["reference/python"]


def test_a_number_keeps_its_unit_in_a_table_and_typed_lines_look_alike(pages: ModuleType) -> None:
    text = (
        "a 5 % b\n| 4.11 ± 0.30 s | 5 % of it |\n\n```text\nperfkit gate\n```\n\n```text\nperfkit: 5 %\n```\n"
    )

    assert (
        "a 5 % b\n| 4.11 ±\N{NO-BREAK SPACE}0.30\N{NO-BREAK SPACE}s | 5\N{NO-BREAK SPACE}% of it |\n\n"
        "```sh\nperfkit gate\n```\n\n```text\nperfkit: 5 %\n```\n"
    ) == pages.filled("gate", text)


def test_no_line_of_a_document_is_a_comment_of_the_site() -> None:
    texts = {file.name: _FENCED.sub("", file.read_text()) for file in DOCS.rglob("*.md")}

    assert [] == [name for name, text in texts.items() if re.search(r"^\s*%", text, re.MULTILINE)]


def test_each_link_between_documents_leads_to_a_file_and_a_heading() -> None:
    lost = []
    for document in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for link in _LINK.findall(_FENCED.sub("", document.read_text())):
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            file = (document.parent / target).resolve() if target else document
            if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
                lost.append(f"{document.relative_to(ROOT)}: {link}")

    assert [] == lost


def _anchors(file: Path) -> set[str]:
    """Return the names that GitHub gives to a document's headings."""
    headings = _HEADING.findall(_FENCED.sub("", file.read_text()))
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def test_each_document_is_in_the_navigation_once(pages: ModuleType) -> None:
    reached = [
        (DOCS / page).parent.joinpath(target).resolve().relative_to(DOCS).as_posix()
        for page in pages.CONTENTS
        for _, target in pages.contents((DOCS / f"{page}.md").read_text())
    ]
    documents = {one.relative_to(DOCS).with_suffix("").as_posix() for one in DOCS.rglob("*.md")}

    assert sorted(documents - {"index"}) == sorted(reached)


def test_the_code_of_the_tutorial_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _, _, kind, block, name in _tutorial():
        if kind == "python":
            (tmp_path / Path(name).name).write_text(block)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "train", raising=False)
    losses: list[float] = []

    def benchmark(step: Callable[..., Any], *arguments: object) -> None:
        losses.extend(float(step(*arguments)) for _ in range(200))

    runpy.run_path(str(tmp_path / "test_step.py"))["test_step"](benchmark)
    sys.modules.pop("train")

    assert losses[-1] < 0.8 * losses[0]


def _tutorial() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield each block of the tutorial, and the name of the file that it is to be saved as."""
    text = (DOCS / "tutorial.md").read_text()
    for found in _BLOCK.finditer(text):
        names = re.findall(r"save this as\s+`([^`]+)`", text[: found.start()], re.IGNORECASE)
        yield (*found.groups(default=""), names[-1])


@pytest.mark.slow
def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    project = tmp_path / "spirals"
    project.mkdir()
    stated = ""
    for _, code, kind, block, name in _tutorial():
        if kind == "python":
            (project / name).parent.mkdir(exist_ok=True)
            (project / name).write_text(block)
        elif kind == "bash":
            stated = "".join(_typed(line, project, int(code or 0)) for line in block.strip().splitlines())
        else:
            printed = {_shape(line) for line in stated.splitlines()}
            lost = [line for line in block.splitlines() if not any(_shape(line) in one for one in printed)]
            assert [] == lost, stated


def _typed(line: str, folder: Path, code: int) -> str:
    """Run a line as somebody does who reads along, and return all that it prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=os.environ | {"PATH": path, "COLUMNS": "200", **_AUTHOR},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert code == done.returncode, line + done.stdout
    return done.stdout


def _shape(line: str) -> str:
    """Return a line without what differs between two runs: times, shares, launches, and spaces."""
    plain = re.sub(
        r"[-+]?(\d[\d,]*\.\d+|\d+(?= ?([mu]?s|%)))( ?([mu]?s|[KMG]iB|B|%))?(?!\w)", "#", line.strip()
    )
    return " ".join(re.sub(r"(?<=REGRESSED) +\d+$", "", plain).split())


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("furo") is None, reason="needs `perfkit[docs]`")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    words = ("-m", "sphinx", "-W", "--keep-going", "-b", "html", str(DOCS), str(tmp_path / "site"))
    done = run([sys.executable, *words])

    assert 0 == done.returncode, done.stderr
    assert "Get started" in (tmp_path / "site" / "start.html").read_text()
    assert "perfkit gate" in (tmp_path / "site" / "reference" / "commands.html").read_text()
