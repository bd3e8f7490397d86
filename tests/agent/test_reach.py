"""Which files a benchmark may run code of, guessed from the names in real code of a small package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfkit.agent.reach import reached_files

FILES = {
    "reachlib/__init__.py": "from reachlib import deep, models\nfrom reachlib.maths import half\n",
    "reachlib/maths.py": "from reachlib import deep\n\ndef half(x):\n    return deep.quarter(x) * 2\n",
    "reachlib/deep.py": "def quarter(x):\n    return x / 4\n",
    "reachlib/models.py": (
        "import functools\n"
        "from reachlib import late_user\n\n"
        "class Base:\n    def size(self):\n        return late_user.use()\n\n"
        "class Model(Base):\n    @property\n    def twice(self):\n        return functools.reduce(max, [1])\n"
    ),
    "reachlib/late_user.py": "def use():\n    from reachlib.late import value\n    return value()\n",
    "reachlib/late.py": "def value():\n    return 3\n",
    "test_reach_speed.py": (
        "import functools\nimport math\nimport reachlib\nimport reachlib.late\n"
        "from reachlib.models import Model\n"
        "def test_half(benchmark):\n    benchmark(lambda: reachlib.half(4))\n"
        "def test_module(benchmark):\n    benchmark(reachlib.deep.quarter, 4)\n"
        "def test_model(benchmark):\n    benchmark(Model().size)\n"
        "part = functools.partial(reachlib.half, 3)\n"
        "def test_part(benchmark):\n    benchmark(part)\n"
        "def test_nothing(benchmark):\n    benchmark(math.sqrt, 4)\n"
    ),
}
OWN = "test_reach_speed.py"


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Import the package and its benchmarks, and forget them afterwards."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.spec_from_file_location("test_reach_speed", tmp_path / OWN)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in [name for name in sys.modules if name.partition(".")[0] == "reachlib"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("test", "files"),
    [
        pytest.param("test_half", {"reachlib/maths.py", "reachlib/deep.py"}, id="a function's calls"),
        pytest.param("test_module", {"reachlib/deep.py"}, id="not all that the package imports"),
        pytest.param(
            "test_model",
            {"reachlib/models.py", "reachlib/late_user.py", "reachlib/late.py"},
            id="a class with its bases, and an import inside a function",
        ),
        pytest.param("test_part", {"reachlib/maths.py", "reachlib/deep.py"}, id="a partial function"),
        pytest.param("test_nothing", set(), id="nothing of its own"),
    ],
)
def test_files_are_reached_through_the_names_in_code(
    suite: object, tmp_path: Path, test: str, files: set[str]
) -> None:
    """The benchmark's own file is always one of them."""
    assert {OWN, *files} == reached_files([getattr(suite, test)], tmp_path)
