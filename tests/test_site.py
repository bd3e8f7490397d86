"""The site is built from the documents, its reference has all of the code, and its links lead somewhere."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

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
_BLOCK = re.compile(r"(<!-- exit code: (\d+) -->\n)?```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Return the module that writes the reference, with a folder of its own to write to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        module = importlib.import_module("reference_pages")
        patch.setattr(module, "FOLDER", tmp_path_factory.mktemp("reference"))
        module.write()
        yield module


def test_the_reference_has_each_command_and_option(pages: ModuleType) -> None:
    """Those of the command line itself, however deep they lie, but for the hidden ones."""
    text = (pages.FOLDER / "commands.md").read_text()
    told = subprocess.run(
        [sys.executable, "-m", "perfkit", "ledger", "import", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    options = set(re.findall(r"--[a-z][a-z-]+", told)) - {"--help"}
    section = text.partition("## `perfkit ledger import`")[2].partition("\n## ")[0]

    assert options
    assert options <= set(re.findall(r"--[a-z][a-z-]+", section))
    for verb in ("gate", "profile", "bisect", "history accept", "ledger repair"):
        assert f"## `perfkit {verb}`" in text
    assert "## `perfkit work`" not in text


def test_the_reference_has_each_key_code_and_column(pages: ModuleType) -> None:
    """A key with its default, a code with the errors that end so."""
    keys = (pages.FOLDER / "configuration.md").read_text()

    assert "| `most_seconds` | number | `240.0` |" in keys
    assert "| `benchmark` | text | required |" in keys
    assert (
        "`NotMeasuredError`"
        in (pages.FOLDER / "exit-codes.md").read_text().partition("| 4 |")[2].splitlines()[0]
    )
    assert "| `run_id` | string |" in (pages.FOLDER / "columns.md").read_text()


def test_what_import_perfkit_has_is_described(pages: ModuleType) -> None:
    """Each has a docstring that begins with a sentence, and a place on the page."""
    page = (pages.FOLDER / "python.md").read_text()

    for name in perfkit.__all__:
        assert (inspect.getdoc(getattr(perfkit, name)) or "").partition("\n")[0].endswith((".", ":")), name
        assert f"perfkit.{name}" in page


def test_the_stored_reference_is_that_of_the_code(pages: ModuleType) -> None:
    """Readers of the repository have it without building anything; `make reference` writes it anew."""
    stored = {file.name: file.read_text() for file in (DOCS / "reference").glob("*.md")}

    assert {file.name: file.read_text() for file in pages.FOLDER.iterdir()} == stored


def test_writing_the_reference_again_changes_nothing(pages: ModuleType) -> None:
    """So a build goes on from the last one."""
    before = {file.name: file.stat().st_mtime_ns for file in pages.FOLDER.iterdir()}
    pages.write()

    assert before == {file.name: file.stat().st_mtime_ns for file in pages.FOLDER.iterdir()}


def test_each_link_between_documents_leads_to_a_file_and_a_heading() -> None:
    """However deep the documents lie."""
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


def test_each_document_is_on_the_site() -> None:
    """The index names all of them."""
    index = (DOCS / "index.md").read_text()
    folders = {"reference", "experiments", "tricks"}
    documents = {file.relative_to(DOCS) for file in DOCS.rglob("*.md") if file.parent.name not in folders}

    assert set() == {str(one.with_suffix("")) for one in documents} - {"index", *index.split()}


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """Its script is saved, its commands run in order, and the gate stops the one change that it makes."""
    text = (DOCS / "tutorial.md").read_text()
    project = tmp_path / "spirals"
    project.mkdir()
    said = ""
    for _, code, kind, block in _BLOCK.findall(text):
        if kind == "python":
            (project / "train.py").write_text(block)
            continue
        for line in block.strip().splitlines():
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=project,
                env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **_AUTHOR},
                capture_output=True,
                text=True,
                check=False,
            )
            assert int(code or 0) == done.returncode, line + done.stdout + done.stderr
            said += done.stdout

    assert "host-device syncs, 1 to 21" in " ".join(said.split())
    assert "Tensor.item, from train.py:41" in said
    assert "Tensor.item, from train.py:41" in text


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("furo") is None, reason="needs `perfkit[docs]`")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Each page of it has the headings of its document."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-b",
            "html",
            str(DOCS),
            str(tmp_path / "site"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    assert "Five minutes to a gate" in (tmp_path / "site" / "start.html").read_text()
    assert "perfkit gate" in (tmp_path / "site" / "reference" / "commands.html").read_text()
