"""Markers and changed functions are found in source alone: nothing is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.repo.code_units import changed_functions
from perfkit.repo.source import marked_benchmarks

MARK = "@pytest.mark.perfkit(sentinel=True)"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"{MARK}\ndef test_a(benchmark): ...\ndef test_b(benchmark): ...", {"b.py::test_a"}),
        (f"{MARK}\nasync def test_a(benchmark): ...", {"b.py::test_a"}),
        (f"@other\n{MARK}\ndef test_a(benchmark): ...", {"b.py::test_a"}),
        (f"{MARK}\nclass TestA:\n def test_a(self): ...", {"b.py::TestA::test_a"}),
        (f"class TestA:\n {MARK}\n def test_a(self): ...\n def test_b(self): ...", {"b.py::TestA::test_a"}),
        ("pytestmark = pytest.mark.perfkit(sentinel=True)\ndef test_a(): ...", {"b.py::test_a"}),
        ("pytestmark = [x, pytest.mark.perfkit(sentinel=True)]\ndef test_a(): ...", {"b.py::test_a"}),
        ("@pytest.mark.perfkit(sentinel=False)\ndef test_a(): ...", set()),
        ("@pytest.mark.perfkit(margin='5%')\ndef test_a(): ...", set()),
        ("@pytest.mark.other(sentinel=True)\ndef test_a(): ...", set()),
        ("def test_a(:", set()),
        ("\0", set()),
    ],
)
def test_the_marker_may_stand_wherever_pytest_takes_one(
    tmp_path: Path, source: str, expected: set[str]
) -> None:
    file = tmp_path / "b.py"
    file.write_text(source)

    assert expected == marked_benchmarks([file], tmp_path, "sentinel")


def test_a_file_that_is_gone_has_no_marker(tmp_path: Path) -> None:
    assert frozenset() == marked_benchmarks([tmp_path / "b.py"], tmp_path, "sentinel")


OLD = '''"""A module."""
import math

LIMIT = 3

def kept(x):
    """Do something."""
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

    @property
    def both(self):
        return self.size

    @both.setter
    def both(self, size):
        self.size = size
'''


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        pytest.param("math.sqrt(x)", "x ** 0.5", ("changed",), id="a body"),
        pytest.param("return 1", "return 3", ("Kind.method",), id="inside a method"),
        pytest.param("def kept(x)", "def kept(x, y=1)", ("kept",), id="arguments"),
        pytest.param("return self.size", "return 4", ("Kind.both",), id="the first of two of one name"),
        pytest.param("LIMIT = 3", "LIMIT = 4", None, id="a constant"),
        pytest.param("size = 2", "size = 3", None, id="an attribute of a class"),
        pytest.param("import math", "import math\nimport os\n\n\n", (), id="an import, and lines that moved"),
        pytest.param('"""Do something."""', '"""Do more."""', (), id="a docstring"),
        pytest.param("def kept", "def new(x):\n    return x\n\ndef kept", ("new",), id="a new function"),
        pytest.param("LIMIT = 3", "LIMIT = 3 +", None, id="what cannot be read"),
    ],
)
def test_what_differs_is_named(old: str, new: str, found: tuple[str, ...] | None) -> None:
    assert old in OLD
    assert found == changed_functions(OLD.encode(), OLD.replace(old, new).encode())


def test_a_new_file_differs_as_a_whole() -> None:
    assert changed_functions(b"", b"x = 1\n") is None
