"""The functions that a benchmark may run are found by the names in the real code of a small package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import call

import pytest

from perfkit.agent.functions import CallGraph, may_run, source_of

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
    ("test", "functions"),
    [
        pytest.param(
            "test_half",
            {("reachlib/maths.py", "half"), ("reachlib/deep.py", "quarter")},
            id="a function's calls",
        ),
        pytest.param("test_module", {("reachlib/deep.py", "quarter")}, id="not all that the package imports"),
        pytest.param(
            "test_model",
            {
                ("reachlib/models.py", "Base.size"),
                ("reachlib/models.py", "Model.twice"),
                ("reachlib/late_user.py", "use"),
                ("reachlib/late.py", "value"),
            },
            id="a class with its bases, and an import inside a function",
        ),
        pytest.param(
            "test_part",
            {("reachlib/maths.py", "half"), ("reachlib/deep.py", "quarter")},
            id="a partial function",
        ),
        pytest.param("test_nothing", set(), id="nothing of its own"),
    ],
)
def test_functions_are_reached_through_the_names_in_code(
    suite: object, tmp_path: Path, test: str, functions: set[tuple[str, str]]
) -> None:
    assert {(OWN, test), *functions} == CallGraph(tmp_path).reached_by([getattr(suite, test)])


@pytest.mark.parametrize(
    ("changed", "runs"),
    [
        pytest.param({"reachlib/deep.py": ["quarter"]}, True, id="a function that it leads to"),
        pytest.param({"reachlib/deep.py": ["other"]}, False, id="another one of that file"),
        pytest.param({"reachlib/deep.py": None}, True, id="all of that file"),
        pytest.param({"reachlib/late.py": None}, False, id="another file"),
        pytest.param({}, False, id="nothing"),
    ],
)
def test_a_changed_function_that_is_reached_may_run(
    suite: object, tmp_path: Path, changed: dict[str, list[str] | None], *, runs: bool
) -> None:
    reached = CallGraph(tmp_path).reached_by([getattr(suite, "test_half")])  # noqa: B009 (a module is no type)

    assert runs == may_run(changed, reached)


ODD = """
from unittest.mock import MagicMock, call
import reachlib

class Refuses:
    @property
    def __class__(self):
        raise RuntimeError("out of context")
    def __getattr__(self, name):
        raise RuntimeError("out of context")

class Deferred:
    def __getattr__(self, name):
        return Deferred()
    def __call__(self):
        return reachlib.half(1)

refuses, deferred, mock = Refuses(), Deferred(), MagicMock()

def test_odd(benchmark):
    benchmark(reachlib.deep.quarter, 4)
    assert [call(1), refuses, mock] == [call(1), refuses, mock]

def test_deferred(benchmark):
    benchmark(deferred)
"""


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize(
    ("test", "own", "functions"),
    [
        ("test_odd", {"Refuses.__getattr__", "Refuses.__class__"}, {("reachlib/deep.py", "quarter")}),
        (
            "test_deferred",
            {"Deferred.__getattr__", "Deferred.__call__"},
            {("reachlib/maths.py", "half"), ("reachlib/deep.py", "quarter")},
        ),
    ],
)
def test_objects_that_make_attributes_up_or_refuse_them_are_taken_for_their_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: str, own: set[str], functions: set[tuple[str, str]]
) -> None:
    (tmp_path / "odd_speed.py").write_text(ODD)
    monkeypatch.delitem(sys.modules, "odd_speed", raising=False)
    module = importlib.import_module("odd_speed")

    found = CallGraph(tmp_path).reached_by([getattr(module, test)])

    assert {("odd_speed.py", test), *(("odd_speed.py", name) for name in own), *functions} == found


RINGS = """
class Odd(type):
    def __eq__(cls, other):
        raise RuntimeError("compared")
    __hash__ = None

class Shape(metaclass=Odd):
    def area(self):
        return first(0)

def first(n): return second(n)
def second(n): return third(n) or first(n)
def third(n): return fourth(n) or second(n)
def fourth(n): return n
def fifth(n): return Shape().area() + sixth(n)
def sixth(n): return sixth(n - 1)
"""
RING = {"first", "second", "third", "fourth"}


@pytest.mark.parametrize(
    ("start", "reached"),
    [
        ("second", RING),
        ("fourth", {"fourth"}),
        ("sixth", {"sixth"}),
        ("Shape", RING | {"Shape.area"}),
        ("fifth", RING | {"fifth", "sixth", "Shape.area"}),
    ],
)
def test_functions_that_lead_to_one_another_reach_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, reached: set[str]
) -> None:
    (tmp_path / "reachrings.py").write_text(RINGS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "reachrings", raising=False)
    module = importlib.import_module("reachrings")
    graph = CallGraph(tmp_path)

    for before in ("third", "fifth", start):
        found = graph.reached_by([vars(module)[before]])

    assert reached == {name for _, name in found}
    assert reached == {name for _, name in CallGraph(tmp_path).reached_by([vars(module)[start]])}


def test_what_makes_its_attributes_up_has_no_source() -> None:
    assert source_of(call).startswith("unittest.mock.")
