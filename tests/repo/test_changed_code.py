"""Functions that differ between two versions of a file are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.repo.source import changed_code

OLD = '''"""A module."""
import math

LIMIT = 3

def kept(x):
    """Say something."""
    return x + 1

def changed(x):
    return math.sqrt(x)

class Kind:
    """A class."""
    size = 2

    def method(self):
        def inner():
            return 1
        return inner()

    def other(self):
        return 2
'''


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        pytest.param("math.sqrt(x)", "x ** 0.5", ("changed",), id="a body"),
        pytest.param("return 1", "return 3", ("Kind.method",), id="inside a method"),
        pytest.param("def kept(x)", "def kept(x, y=1)", ("kept",), id="arguments"),
        pytest.param("LIMIT = 3", "LIMIT = 4", None, id="a constant"),
        pytest.param("size = 2", "size = 3", None, id="an attribute of a class"),
        pytest.param("import math", "import math\nimport os\n\n\n", (), id="an import, and lines that moved"),
        pytest.param('"""Say something."""', '"""Say more."""', (), id="a docstring"),
        pytest.param("def kept", "def new(x):\n    return x\n\ndef kept", ("new",), id="a new function"),
        pytest.param("LIMIT = 3", "LIMIT = 3 +", None, id="what cannot be read"),
    ],
)
def test_what_differs_is_named(tmp_path: Path, old: str, new: str, found: tuple[str, ...] | None) -> None:
    """Layout, texts and imports are no difference; anything outside of functions concerns them all."""
    assert old in OLD
    for side, text in (("base", OLD), ("head", OLD.replace(old, new))):
        (tmp_path / side).mkdir()
        (tmp_path / side / "module.py").write_text(text)

    expected = {} if found == () else {"module.py": found}
    assert expected == changed_code(["module.py", "notes.md"], tmp_path / "base", tmp_path / "head")


def test_a_new_file_differs_as_a_whole(tmp_path: Path) -> None:
    """So do the files of a change that has more of them than are worth reading."""
    (tmp_path / "new.py").write_text("x = 1\n")

    assert {"new.py": None} == changed_code(["new.py"], tmp_path / "none", tmp_path)
    many = [f"module{number}.py" for number in range(100)]
    assert dict.fromkeys(many) == changed_code(many, tmp_path, tmp_path)
