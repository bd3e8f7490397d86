"""A notebook is read without a library: its cells become plain Python, or one line explains why not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from perfkit.errors import UsageError
from perfkit.runner.targets import compile_notebook, notebook_call, read_notebook, without_cell

PYTHON = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}


def write_notebook(path: Path, *cells: str, metadata: object = PYTHON, nbformat: int = 4) -> Path:
    """Write a notebook with a title and these code cells, as Jupyter does: texts as lists of lines."""
    title = {"cell_type": "markdown", "metadata": {}, "source": ["%not code"]}
    code = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": cell.splitlines(keepends=True)}
        for cell in cells
    ]
    content = {"nbformat": nbformat, "nbformat_minor": 5, "metadata": metadata, "cells": [title, *code]}
    path.write_text(json.dumps(content))
    return path


def _run(path: Path) -> None:
    notebook_call(compile_notebook(read_notebook(path)))()


def test_cells_run_in_order_in_one_namespace(tmp_path: Path) -> None:
    reported = tmp_path / "reported"
    path = write_notebook(
        tmp_path / "n.ipynb",
        "import pathlib\ndef add(a, b):\n    return a + b",
        " \n",
        f"display(add(1, 2))\npathlib.Path({str(reported)!r}).write_text(str(add(40, 2)))\nadd",
    )

    notebook = read_notebook(path)
    _run(path)

    assert [1, 2] == [cell.number for cell in notebook.cells]
    assert "42" == reported.read_text()


def test_a_failing_line_is_found_in_its_cell(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "a = 1", "%%time\n%matplotlib inline\nraise ValueError(a)")

    with pytest.raises(ValueError, match="1") as caught:
        _run(path)

    last = caught.traceback[-1]
    assert (f"{path}[cell 2]", 3) == (last.frame.code.raw.co_filename, last.lineno + 1)
    assert str(path) == without_cell(last.frame.code.raw.co_filename)
    assert "train[cell 2].py" == without_cell("train[cell 2].py")


def test_magics_that_change_no_result_are_handled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_TRIED", "before")
    path = write_notebook(
        tmp_path / "n.ipynb",
        "%load_ext autoreload\n%autoreload 2\n%config InlineBackend.figure_format = 'retina'",
        "%env PERFKIT_TRIED=after it\nif True:\n    %time x = 3",
        "%%capture\ny = 7\ntext = '''\n%matplotlib in a text\n'''\nz = (y\n% 4)",
    )

    cells = [cell.text.splitlines() for cell in read_notebook(path).cells]
    _run(path)

    assert [["pass"] * 3, 3, 7] == [cells[0], len(cells[1]), len(cells[2])]
    assert ("    x = 3", "%matplotlib in a text") == (cells[1][2], cells[2][3])
    assert "after it" == os.environ["PERFKIT_TRIED"]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("import os\n!pip install torch", "!pip install torch"),
        ("files = !ls", "files = !ls"),
        ("%%bash\nls", "%%bash"),
        ("%run other.py", "%run other.py"),
        ("%time", "%time"),
        ("x = 1\nx?", "x?"),
        ("%timeit " + "x + " * 40, "…"),
    ],
)
def test_other_commands_of_ipython_are_refused(tmp_path: Path, cell: str, shown: str) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "a = 1", cell)

    with pytest.raises(UsageError, match=r"^n\.ipynb, cell 2: `.*` is a command of IPython") as caught:
        read_notebook(path)

    assert f"{shown}`" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no json", "n.ipynb is no notebook: it holds no JSON"),
        ("\udcff", "n.ipynb is no notebook: it holds no JSON"),
        ("[" * 100_000, "n.ipynb is no notebook: it holds no JSON"),
        ("[]", 'its JSON has no "nbformat"'),
        ('{"cells": []}', 'its JSON has no "nbformat"'),
        ('{"nbformat": 4, "cells": 3}', "a notebook of format 4, and one of format 4 with cells is expected"),
        ('{"nbformat": 3, "worksheets": []}', "a notebook of format 3"),
        ('{"nbformat": 4, "cells": []}', "has no code cells"),
        ('{"nbformat": 4, "cells": [1, {"cell_type": "code", "source": 3}]}', "has no code cells"),
    ],
)
def test_what_is_no_notebook_is_reported(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "n.ipynb"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError) as caught:
        read_notebook(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "metadata",
    [
        {"kernelspec": {"name": "ir", "language": "R", "display_name": "R 4.4"}},
        {"language_info": {"name": "R"}},
    ],
)
def test_a_kernel_of_another_language_is_refused(tmp_path: Path, metadata: object) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "x <- 1", metadata=metadata)
    with pytest.raises(UsageError, match=r"is a notebook for R \(kernel"):
        read_notebook(path)


def test_what_nbformat_writes_is_read(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("a = 1\nb = a")])
    nbformat.write(made, tmp_path / "n.ipynb")
    assert "a = 1\nb = a\n" == read_notebook(tmp_path / "n.ipynb").source
