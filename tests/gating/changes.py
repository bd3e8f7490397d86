"""Changes of a small project: some put where they hide, and some that no benchmark can notice."""
# ruff: noqa: E501 (a small program reads best in few lines)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

BENCH = "test_it.py"
# What a file holds, the target of a link in a tuple, or None where there is no file.
Text = str | bytes | tuple[str] | None


@dataclass(frozen=True, kw_only=True)
class Change:
    """The files of both sides; ``after`` are those that head has otherwise."""

    before: Mapping[str, Text]
    after: Mapping[str, Text] = field(default_factory=dict)

    def write(self, name: str, root: Path) -> None:
        """Write the files of a side."""
        for file, text in {**self.before, **(self.after if name == "head" else {})}.items():
            place = root / file
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(text, tuple):
                place.symlink_to(text[0])
            elif text is not None:
                place.write_bytes(dedent(text).encode() if isinstance(text, str) else text)


def _change(
    app: str,
    old: str,
    new: str,
    *,
    file: str = "app.py",
    bench: str = "from app import step\ndef test_it(benchmark):\n    benchmark(step)\n",
    more: dict[str, str] | None = None,
) -> Change:
    """Return a change of ``old`` into ``new`` in one file of a project."""
    before = {"app.py": dedent(app), BENCH: dedent(bench), **{k: dedent(v) for k, v in (more or {}).items()}}
    assert old in before[file]
    return Change(before=before, after={file: before[file].replace(old, new)})


_STEP = "def step():\n    return sum(range(10))\n"
_CONSTANT = "N = 10\ndef step():\n    return sum(range(N))\n"
_USER = "from config import N\ndef step():\n    return sum(range(N))\n"

# Each changes what the benchmark runs, or may.
HIDDEN: dict[str, Change] = {
    "function": _change(_STEP, "10", "11"),
    "constant": _change(_CONSTANT, "N = 10", "N = 11"),
    "constant of another module": _change(_USER, "10", "11", file="config.py", more={"config.py": "N = 10\n"}),
    "constant through its module": _change(
        "import config\ndef step():\n    return sum(range(config.N))\n",
        "10", "11", file="config.py", more={"config.py": "N = 10\n"},
    ),
    "module handed on": _change(
        "import config as c\ndef step():\n    return run(c)\ndef run(settings):\n    return range(getattr(settings, 'N'))\n",
        "10", "11", file="config.py", more={"config.py": "N = 10\n"},
    ),
    "module handed to a library": _change(
        "import config as c\nimport inspect\ndef step():\n    return inspect.getmembers(c)\n",
        "10", "11", file="config.py", more={"config.py": "N = 10\n"},
    ),
    "constant of a constant": _change(
        "A = 10\nN = A * 2\ndef step():\n    return sum(range(N))\n", "A = 10", "A = 11"
    ),
    "constant by another name": _change(
        "from config import N as count\ndef step():\n    return sum(range(count))\n",
        "10", "11", file="config.py", more={"config.py": "N = 10\n"},
    ),
    "constant by star import": _change(
        "from config import *\ndef step():\n    return sum(range(N))\n",
        "10", "11", file="config.py", more={"config.py": "N = 10\n"},
    ),
    "constant in __all__": _change(
        "from config import *\ndef step():\n    return len(globals())\n",
        "['N']", "['N', 'M']", file="config.py",
        more={"config.py": "__all__ = ['N']\nN = 10\nM = 11\n"},
    ),
    "constant by getattr": _change(
        "import config\ndef step():\n    return range(getattr(config, 'N'))\n",
        "10", "11", file="config.py", more={"config.py": "N = 10\n"},
    ),
    "constant by a name that is made": _change(
        "import config\ndef step(size='big'):\n    return range(getattr(config, f'N_{size}'))\n",
        "10", "11", file="config.py", more={"config.py": "N_big = 10\n"},
    ),
    "constant by globals": _change(
        "N = 10\ndef step():\n    return range(globals()['N' + ''])\n", "N = 10", "N = 11"
    ),
    "constant by vars": _change(
        "import config\ndef step():\n    return max(v for v in vars(config).values() if type(v) is int)\n",
        "10", "11", file="config.py", more={"config.py": "N = 10\n"},
    ),
    "constant in eval": _change("N = 10\ndef step():\n    return eval('1 + ' + 'N')\n", "N = 10", "N = 11"),
    "default": _change("def step(n=10):\n    return sum(range(n))\n", "n=10", "n=11"),
    "keyword default": _change("def step(*, n=10):\n    return sum(range(n))\n", "n=10", "n=11"),
    "default from a constant": _change(
        "N = 10\ndef step(n=N):\n    return sum(range(n))\n", "N = 10", "N = 11"
    ),
    "default that is called": _change(
        "STATE = []\ndef fill(n):\n    STATE.extend(range(n))\ndef unused(x=fill(10)):\n    return x\n"
        "def step():\n    return sum(STATE)\n", "fill(10)", "fill(11)",
    ),
    "decorator added": _change(
        "from functools import lru_cache\ndef step():\n    return 1\n", "def step", "@lru_cache\ndef step"
    ),
    "decorator's own code": _change(
        "def twice(f):\n    def g():\n        return f()\n    return g\n@twice\ndef step():\n    return 1\n",
        "return f()", "f(); return f()",
    ),
    "decorator's argument": _change(
        "def times(n):\n    def outer(f):\n        def g():\n            return [f() for _ in range(n)]\n"
        "        return g\n    return outer\nN = 10\n@times(N)\ndef step():\n    return 1\n", "N = 10", "N = 11",
    ),
    "class attribute": _change(
        "class A:\n    n = 10\n    def run(self):\n        return range(self.n)\ndef step():\n    return A().run()\n",
        "n = 10", "n = 11",
    ),
    "class attribute of a base class": _change(
        "class A:\n    n = 10\nclass B(A):\n    def run(self):\n        return range(self.n)\n"
        "def step():\n    return B().run()\n", "n = 10", "n = 11",
    ),
    "class attribute elsewhere": _change(
        "from base import A\nclass B(A):\n    pass\ndef step():\n    return range(B.n)\n",
        "n = 10", "n = 11", file="base.py", more={"base.py": "class A:\n    n = 10\n"},
    ),
    "field of a dataclass": _change(
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    n: int = 10\ndef step():\n    return range(A().n)\n",
        "n: int = 10", "n: int = 11",
    ),
    "new field of a dataclass": _change(
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    n: int = 10\ndef step():\n    return A()\n",
        "n: int = 10", "n: int = 10\n    m: int = 11",
    ),
    "slots": _change("class A:\n    pass\ndef step():\n    return A()\n", "    pass", "    __slots__ = ()"),
    "base class": _change(
        "class A:\n    n = 10\nclass B:\n    n = 11\nclass C(A):\n    pass\ndef step():\n    return range(C.n)\n",
        "C(A)", "C(B)",
    ),
    "metaclass": _change(
        "class Meta(type):\n    n = 10\nclass A(metaclass=Meta):\n    pass\ndef step():\n    return range(A.n)\n",
        "n = 10", "n = 11",
    ),
    "metaclass' method": _change(
        "class Meta(type):\n    def __call__(cls):\n        return 10\nclass A(metaclass=Meta):\n    pass\n"
        "def step():\n    return A()\n", "10", "11",
    ),
    "metaclass added": _change(
        "class Meta(type):\n    def __call__(cls):\n        return 10\nclass A:\n    pass\ndef step():\n    return A()\n",
        "class A:", "class A(metaclass=Meta):",
    ),
    "__init_subclass__": _change(
        "class A:\n    def __init_subclass__(cls):\n        cls.n = 10\nclass B(A):\n    pass\n"
        "def step():\n    return range(B.n)\n", "10", "11",
    ),
    "__set_name__": _change(
        "class D:\n    def __set_name__(self, owner, name):\n        owner.n = 10\nclass A:\n    d = D()\n"
        "def step():\n    return range(A.n)\n", "10", "11",
    ),
    "__getattr__ of a module": _change(
        "import config\ndef step():\n    return range(config.N)\n", "10", "11", file="config.py",
        more={"config.py": "def __getattr__(name):\n    return 10\n"},
    ),
    "dunder method added": _change(
        "class A:\n    def __init__(self):\n        self.x = 1\ndef step():\n    return A() == A()\n",
        "def step", "    def __eq__(self, other):\n        return self.x == other.x\ndef step",
    ),
    "method overridden": _change(
        "class A:\n    def run(self):\n        return 1\nclass B(A):\n    pass\ndef step():\n    return B().run()\n",
        "    pass", "    def run(self):\n        return 2",
    ),
    "method gone": _change(
        "class A:\n    def run(self):\n        return 1\nclass B(A):\n    def run(self):\n        return 2\n"
        "def step():\n    return B().run()\n", "    def run(self):\n        return 2", "    pass",
    ),
    "hasattr of a new method": _change(
        "class A:\n    def slow(self):\n        return 1\ndef step():\n    return 1 if hasattr(A, 'fast') else 2\n",
        "def step", "    def fast(self):\n        return 2\ndef step",
    ),
    "property": _change(
        "class A:\n    @property\n    def n(self):\n        return 10\ndef step():\n    return A().n\n", "10", "11"
    ),
    "setter": _change(
        "class A:\n    @property\n    def n(self):\n        return 1\n    @n.setter\n    def n(self, value):\n"
        "        self.m = value\ndef step():\n    a = A()\n    a.n = 2\n", "self.m = value", "self.m = value + 1",
    ),
    "data file": _change(
        "from pathlib import Path\ndef step():\n    return Path(__file__).with_name('data.json').read_text()\n",
        "1", "2", file="data.json", more={"data.json": "[1]"},
    ),
    "data read at import": _change(
        "from pathlib import Path\nDATA = Path(__file__).with_name('data.csv').read_text()\ndef step():\n    return DATA\n",
        "1", "2", file="data.csv", more={"data.csv": "1"},
    ),
    "page that is read": _change(
        "from pathlib import Path\ndef step():\n    return Path(__file__).with_name('README.md').read_text()\n",
        "one", "two", file="README.md", more={"README.md": "one"},
    ),
    "page that is read at import": _change(
        "from pathlib import Path\nTEXT = Path(__file__).with_name('README.md').read_text()\ndef step():\n    return TEXT\n",
        "one", "two", file="README.md", more={"README.md": "one"},
    ),
    "folder that is listed": Change(
        before={"app.py": "import os\ndef step():\n    return os.listdir(os.path.dirname(__file__) + '/pages')\n",
                BENCH: "from app import step\ndef test_it(benchmark):\n    benchmark(step)\n", "pages/a.md": ""},
        after={"pages/b.md": ""},
    ),
    "source that is read": _change(
        "from pathlib import Path\ndef step():\n    return len(Path(__file__).with_name('other.py').read_text())\n",
        "1", "11", file="other.py", more={"other.py": "x = 1\n"},
    ),
    "source that is executed": _change(
        "from pathlib import Path\nexec(Path(__file__).with_name('other.py').read_text())\ndef step():\n    return range(x)\n",
        "10", "11", file="other.py", more={"other.py": "x = 10\n"},
    ),
    "native library": _change(
        _STEP, "1", "2", file="native.so", more={"native.so": "1"},
    ),
    "extension's source": _change(_STEP, "1", "2", file="native.pyx", more={"native.pyx": "x = 1"}),
    "generated code": _change(
        "TEXT = 'def made():\\n    return 10\\n'\nspace = {}\nexec(TEXT, space)\ndef step():\n    return space['made']()\n",
        "return 10", "return 11",
    ),
    "code generated from a function": _change(
        "def make(n):\n    space = {}\n    exec(f'def made(): return {n}', space)\n    return space['made']\n"
        "SIZE = 10\ndef step():\n    return make(SIZE)()\n", "SIZE = 10", "SIZE = 11",
    ),
    "conftest": _change(
        "STATE = []\ndef step():\n    return sum(STATE)\n", "range(10)", "range(11)", file="conftest.py",
        more={"conftest.py": "import app\napp.STATE.extend(range(10))\n"},
    ),
    "fixture of conftest": Change(
        before={"conftest.py": "import pytest\n@pytest.fixture\ndef n():\n    return 10\n",
                BENCH: "def test_it(benchmark, n):\n    benchmark(sum, range(n))\n"},
        after={"conftest.py": "import pytest\n@pytest.fixture\ndef n():\n    return 11\n"},
    ),
    "fixture of a session": Change(
        before={"conftest.py": "import pytest\n@pytest.fixture(scope='session')\ndef n():\n    return 10\n",
                BENCH: "def test_it(benchmark, n):\n    benchmark(sum, range(n))\n"},
        after={"conftest.py": "import pytest\n@pytest.fixture(scope='session')\ndef n():\n    return 11\n"},
    ),
    "hook of conftest": _change(
        "STATE = []\ndef step():\n    return sum(STATE)\n", "[10]", "[11]", file="conftest.py",
        more={"conftest.py": "import app\ndef pytest_runtest_setup(item):\n    app.STATE[:] = [10]\n"},
    ),
    "hook added": _change(
        "STATE = []\ndef step():\n    return sum(STATE)\n", "import app\n",
        "import app\ndef pytest_collection_finish(session):\n    app.STATE[:] = [10]\n",
        file="conftest.py", more={"conftest.py": "import app\n"},
    ),
    "plugin": _change(
        "STATE = []\ndef step():\n    return sum(STATE)\n", "[10]", "[11]", file="plugin.py",
        more={"conftest.py": "pytest_plugins = ['plugin']\n",
              "plugin.py": "import app\ndef pytest_configure(config):\n    app.STATE[:] = [10]\n"},
    ),
    "plugin of the options": _change(
        "STATE = []\ndef step():\n    return sum(STATE)\n", "[10]", "[11]", file="plugin.py",
        more={"pytest.ini": "[pytest]\naddopts = -p plugin\npythonpath = .\n",
              "plugin.py": "import app\ndef pytest_configure(config):\n    app.STATE[:] = [10]\n"},
    ),
    "options of pytest": _change(
        _STEP, "[pytest]", "[pytest]\naddopts = --benchmark-disable-gc", file="pytest.ini",
        more={"pytest.ini": "[pytest]\n"},
    ),
    "options in pyproject.toml": _change(
        _STEP, "minversion = '6'", "minversion = '7'", file="pyproject.toml",
        more={"pyproject.toml": "[tool.pytest.ini_options]\nminversion = '6'\n"},
    ),
    "monkeypatch at import": _change(
        "import json\nimport patch\ndef step():\n    return json.size\n", "10", "11", file="patch.py",
        more={"patch.py": "import json\njson.size = 10\n"},
    ),
    "monkeypatch by a new import": Change(
        before={"app.py": "import json\njson.size = 10\ndef step():\n    return json.size\n",
                "patch.py": "import json\njson.size = 11\n",
                "other.py": "x = 1\n",
                BENCH: "import other\nfrom app import step\ndef test_it(benchmark):\n    benchmark(step)\n"},
        after={"other.py": "import patch\nx = 1\n"},
    ),
    "environment variable": _change(
        "import os\ndef step():\n    return range(int(os.environ['N']))\n", "10", "11", file="conftest.py",
        more={"conftest.py": "import os\nos.environ['N'] = '10'\n"},
    ),
    "environment variable of a module": _change(
        "import os\nimport settings\ndef step():\n    return range(int(os.environ['N']))\n", "10", "11",
        file="settings.py", more={"settings.py": "import os\nos.environ.setdefault('N', '10')\n"},
    ),
    "call at import": _change(
        "import gc\ngc.set_threshold(700)\ndef step():\n    return [[] for _ in range(9)]\n", "700", "701"
    ),
    "statement with a condition": _change(
        "import sys\nif sys.version_info > (3, 0):\n    N = 10\nelse:\n    N = 9\ndef step():\n    return range(N)\n",
        "N = 10", "N = 11",
    ),
    "function with a condition": _change(
        "try:\n    import missing_module\nexcept ImportError:\n    def step():\n        return 10\n", "10", "11"
    ),
    "lambda": _change("step = lambda: 10\n", "10", "11"),
    "lambda of a registry": _change(
        "OPS = {'a': lambda: 10}\ndef step():\n    return [op() for op in all_of()]\ndef all_of():\n"
        "    return OPS.values()\n", "10", "11",
    ),
    "registry": _change(
        "OPS = []\ndef register(f):\n    OPS.append(f)\n    return f\n@register\ndef one():\n    return 10\n"
        "def step():\n    return [op() for op in OPS]\n", "10", "11",
    ),
    "registered function added": _change(
        "OPS = []\ndef register(f):\n    OPS.append(f)\n    return f\ndef step():\n    return [op() for op in OPS]\n",
        "def step", "@register\ndef one():\n    return 10\ndef step",
    ),
    "registered class": _change(
        "ALL = []\ndef register(c):\n    ALL.append(c)\n    return c\n@register\nclass A:\n    n = 10\n"
        "def step():\n    return [getattr(c, 'n') for c in ALL]\n", "n = 10", "n = 11",
    ),
    "subclass of a registry": _change(
        "class A:\n    pass\nclass B(A):\n    n = 10\ndef step():\n    return [c.n for c in A.__subclasses__()]\n",
        "n = 10", "n = 11",
    ),
    "nested function": _change(
        "def make():\n    def inner():\n        return 10\n    return inner\ndef step():\n    return make()()\n", "10", "11"
    ),
    "generator": _change(
        "def items():\n    yield 10\ndef step():\n    return list(items())\n", "yield 10", "yield 11"
    ),
    "callback of C code": _change(
        "def key(x):\n    return x\ndef step():\n    return sorted([2, 1], key=key)\n", "return x", "return -x"
    ),
    "callback of ctypes": _change(
        "import ctypes\ndef less(a, b):\n    return a[0] - b[0]\nP = ctypes.POINTER(ctypes.c_int)\n"
        "T = ctypes.CFUNCTYPE(ctypes.c_int, P, P)\ndef step():\n    a = (ctypes.c_int * 3)(3, 1, 2)\n"
        "    ctypes.CDLL(None).qsort(a, 3, 4, T(less))\n", "a[0] - b[0]", "b[0] - a[0]",
    ),
    "finaliser": _change(
        "class A:\n    def __del__(self):\n        return 10\ndef step():\n    A()\n", "10", "11"
    ),
    "weak reference": _change(
        "import weakref\nclass A: pass\ndef gone(_):\n    return 10\ndef step():\n    a = A()\n    r = weakref.ref(a, gone)\n"
        "    del a\n", "10", "11",
    ),
    "subprocess": _change(
        "import subprocess, sys\nfrom pathlib import Path\ndef step():\n"
        "    subprocess.run([sys.executable, Path(__file__).with_name('tool.py')], check=True)\n",
        "10", "11", file="tool.py", more={"tool.py": "x = 10\n"},
        bench="from app import step\ndef test_it(benchmark):\n    benchmark.pedantic(step, rounds=2)\n",
    ),
    "process that imports a constant": _change(
        "import subprocess, sys\nfrom pathlib import Path\ndef step():\n    subprocess.run([sys.executable, '-c', 'import tool; tool.run()'], cwd=Path(__file__).parent)\n",
        "10", "11", file="tool.py", more={"tool.py": "N = 10\ndef run():\n    return N\n"},
    ),
    "process that runs a function": _change(
        "import subprocess, sys\nfrom pathlib import Path\ndef step():\n    subprocess.run([sys.executable, '-X', 'utf8', '-c', 'import tool; tool.run()'], cwd=Path(__file__).parent)\n",
        "10", "11", file="tool.py", more={"tool.py": "def run():\n    return 10\n"},
    ),
    "process that nobody awaits": _change(
        "import subprocess, sys\nfrom pathlib import Path\ndef step():\n    subprocess.Popen([sys.executable, '-c', 'import tool; tool.run()'], cwd=Path(__file__).parent)\n",
        "10", "11", file="tool.py", more={"tool.py": "import time\ndef run():\n    time.sleep(0.2)\n    return late()\ndef late():\n    return 10\n"},
    ),
    "process that forks": _change(
        "import subprocess, sys\nfrom pathlib import Path\ndef step():\n    subprocess.run([sys.executable, '-c', 'import tool; tool.run()'], cwd=Path(__file__).parent)\n",
        "10", "11", file="tool.py", more={"tool.py": "import os\ndef late():\n    return 10\ndef run():\n    pid = os.fork()\n    if not pid:\n        late()\n        os._exit(0)\n    os.waitpid(pid, 0)\n"},
    ),
    "process without variables": _change(
        "import subprocess, sys\nfrom pathlib import Path\ndef step():\n    subprocess.run([sys.executable, '-c', 'import tool; tool.run()'], cwd=Path(__file__).parent, env={})\n",
        "10", "11", file="tool.py", more={"tool.py": "def run():\n    return 10\n"},
    ),
    "process that ends at once": _change(
        "import subprocess, sys\nfrom pathlib import Path\ndef step():\n    subprocess.run([sys.executable, '-c', 'import tool; tool.run()'], cwd=Path(__file__).parent)\n",
        "10", "11", file="tool.py", more={"tool.py": "import os\ndef run():\n    late()\n    os._exit(0)\ndef late():\n    return 10\n"},
    ),
    "fork": _change(
        "import os\ndef work():\n    return 10\ndef step():\n    pid = os.fork()\n    if not pid:\n        work()\n"
        "        os._exit(0)\n    os.waitpid(pid, 0)\n", "10", "11",
    ),
    "worker": _change(
        "import multiprocessing as mp\ndef work(x):\n    return x * 10\ndef step():\n"
        "    with mp.get_context('fork').Pool(1) as pool:\n        return pool.map(work, [1])\n", "10", "11",
        bench="from app import step\ndef test_it(benchmark):\n    benchmark.pedantic(step, rounds=2)\n",
    ),
    "spawned worker": _change(
        "import multiprocessing as mp\ndef work(x):\n    return x * 10\ndef step():\n"
        "    with mp.get_context('spawn').Pool(1) as pool:\n        return pool.map(work, [1])\n", "10", "11",
        bench="from app import step\ndef test_it(benchmark):\n    benchmark.pedantic(step, rounds=1)\n",
    ),
    "thread": _change(
        "import threading\ndef work():\n    return 10\ndef step():\n    t = threading.Thread(target=work)\n    t.start()\n"
        "    t.join()\n", "10", "11",
    ),
    "pool of threads": _change(
        "from concurrent.futures import ThreadPoolExecutor\ndef work(x):\n    return 10\nPOOL = ThreadPoolExecutor(1)\n"
        "def step():\n    return list(POOL.map(work, [1]))\n", "return 10", "return 11",
    ),
    "raw thread": _change(
        "import _thread\ndef work(lock):\n    x = 10\n    lock.release()\ndef step():\n    lock = _thread.allocate_lock()\n"
        "    lock.acquire()\n    _thread.start_new_thread(work, (lock,))\n    lock.acquire()\n", "10", "11",
    ),
    "lazy import": _change(
        "def step():\n    from lazy import work\n    return work()\n", "10", "11", file="lazy.py",
        more={"lazy.py": "def work():\n    return 10\n"},
    ),
    "lazy import of a constant": _change(
        "def step():\n    import lazy\n    return range(lazy.N)\n", "10", "11", file="lazy.py",
        more={"lazy.py": "N = 10\n"},
    ),
    "import by name": _change(
        "import importlib\ndef step():\n    return importlib.import_module('lazy').work()\n", "10", "11",
        file="lazy.py", more={"lazy.py": "def work():\n    return 10\n"},
    ),
    "optional module added": Change(
        before={"app.py": "try:\n    from fast import N\nexcept ImportError:\n    N = 10\ndef step():\n    return range(N)\n",
                BENCH: "from app import step\ndef test_it(benchmark):\n    benchmark(step)\n"},
        after={"fast.py": "N = 11\n"},
    ),
    "optional module looked for": Change(
        before={"app.py": "from importlib.util import find_spec\ndef step():\n    return find_spec('fast') is None\n",
                BENCH: "from app import step\ndef test_it(benchmark):\n    benchmark(step)\n"},
        after={"fast.py": "N = 11\n"},
    ),
    "module that shadows a library": Change(
        before={"app.py": "import colorsys\ndef step():\n    return colorsys.rgb_to_hsv(1, 1, 1)\n",
                BENCH: "from app import step\ndef test_it(benchmark):\n    benchmark(step)\n"},
        after={"colorsys.py": "def rgb_to_hsv(*a):\n    return 10\n"},
    ),
    "other implementation imported": _change(
        "from slow import work\ndef step():\n    return work()\n", "from slow", "from fast",
        more={"slow.py": "def work():\n    return 1\n", "fast.py": "def work():\n    return 2\n"},
    ),
    "library of another name": _change(
        "from math import sqrt as root\ndef step():\n    return root(2)\n", "from math", "from cmath"
    ),
    "builtin shadowed": _change(
        "def step():\n    return sum([1])\n", "def step", "def sum(x):\n    return 1\ndef step"
    ),
    "path file": _change(_STEP, "a", "b", file="x.pth", more={"x.pth": "a"}),
    "sitecustomize": _change(_STEP, "1", "2", file="sitecustomize.py", more={"sitecustomize.py": "x = 1\n"}),
    "cached by another benchmark": _change(
        "from functools import lru_cache\n@lru_cache\ndef work():\n    return 10\ndef step():\n    return work()\n",
        "10", "11",
        bench="from app import step, work\ndef test_a(benchmark):\n    benchmark(work)\n"
        "def test_it(benchmark):\n    benchmark(step)\n",
    ),
    "cached by hand": _change(
        "CACHE = {}\ndef work():\n    return 10\ndef step():\n    if 'a' not in CACHE:\n        CACHE['a'] = work()\n"
        "    return CACHE['a']\n", "return 10", "return 11",
        bench="from app import step\ndef test_a(benchmark):\n    benchmark(step)\n"
        "def test_it(benchmark):\n    benchmark(step)\n",
    ),
    "cached by the first call": _change(
        "from functools import lru_cache\n@lru_cache\ndef work():\n    return 10\ndef step():\n    return work()\n",
        "10", "11",
    ),
    "set-up": _change(
        "class A:\n    def __init__(self):\n        self.n = 10\n    def run(self):\n        return range(self.n)\n",
        "self.n = 10", "self.n = 11",
        bench="from app import A\ndef test_it(benchmark):\n    a = A()\n    benchmark(a.run)\n",
    ),
    "own tracer": _change(
        "import sys\ndef work():\n    return 10\ndef step():\n    sys.settrace(None)\n    sys.setprofile(None)\n    work()\n",
        "return 10", "return 11",
    ),
    "profiled by the code itself": _change(
        "import cProfile\ndef work():\n    return 10\ndef step():\n    cProfile.Profile().runcall(work)\n",
        "return 10", "return 11",
    ),
    "docstring that is read": _change(
        'def step():\n    """10"""\n    return range(int(step.__doc__))\n', '"""10"""', '"""11"""'
    ),
    "annotation that is read": _change(
        "from typing import get_type_hints\ndef work(x: int): ...\ndef step():\n    return get_type_hints(work)\n",
        "x: int", "x: float",
    ),
    "order of definitions": _change(
        "def step():\n    return 10\ndef step():\n    return 11\n",
        "def step():\n    return 10\ndef step():\n    return 11\n",
        "def step():\n    return 11\ndef step():\n    return 10\n",
    ),
    "order of statements": _change("N = 10\nN = 11\ndef step():\n    return range(N)\n", "N = 10\nN = 11", "N = 11\nN = 10"),
    "subpackage's __init__": Change(
        before={"pkg/__init__.py": "N = 10\n", "pkg/a.py": "from . import N\ndef step():\n    return range(N)\n",
                BENCH: "from pkg.a import step\ndef test_it(benchmark):\n    benchmark(step)\n"},
        after={"pkg/__init__.py": "N = 11\n"},
    ),
    "benchmark's own text": Change(
        before={BENCH: "def test_it(benchmark):\n    benchmark(sum, range(10))\n"},
        after={BENCH: "def test_it(benchmark):\n    benchmark(sum, range(11))\n"},
    ),
    "parameters of a benchmark": Change(
        before={BENCH: "import pytest\nN = [10]\n@pytest.mark.parametrize('n', N)\ndef test_it(benchmark, n):\n"
                "    benchmark(sum, range(n))\n"},
        after={BENCH: "import pytest\nN = [10, 11]\n@pytest.mark.parametrize('n', N)\ndef test_it(benchmark, n):\n"
               "    benchmark(sum, range(n))\n"},
    ),
    "coroutine": _change(
        "import asyncio\nasync def work():\n    return 10\ndef step():\n    return asyncio.run(work())\n", "10", "11"
    ),
    "name of the class by a text": _change(
        "class A:\n    n = 10\ndef step():\n    return find('A').n\ndef find(name):\n    return globals()[name]\n",
        "n = 10", "n = 11",
    ),
    "enumeration": _change(
        "from enum import Enum\nclass Size(Enum):\n    BIG = 10\ndef step():\n    return range(Size.BIG.value)\n",
        "10", "11",
    ),
    "named tuple": _change(
        "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int = 10\ndef step():\n    return range(P().x)\n",
        "10", "11",
    ),
    "lock of a data set": _change(
        "from pathlib import Path\ndef step():\n    return Path(__file__).with_name('uv.lock').read_text()\n",
        "1", "2", file="uv.lock", more={"uv.lock": "1"},
    ),
    "augmented constant": _change("N = [1]\nN += [2]\ndef step():\n    return sum(N)\n", "[2]", "[3]"),
    "deleted name": _change(
        "sum = max\ndel sum\ndef step():\n    return sum([1])\n", "del sum\n", ""
    ),
    "file that cannot be parsed": Change(
        before={"app.py": _STEP + "def other():\n    return 1\n",
                BENCH: "from app import step\ndef test_it(benchmark):\n    benchmark(step)\n"},
        after={"app.py": _STEP + "def other(:\n    return 1\n"},
    ),
}  # fmt: skip

_BENCH = "from app import step\ndef test_it(benchmark):\n    benchmark(step)\n"
# Changes that others made up to find one that is missed.
MORE_HIDDEN: dict[str, Change] = {
    "symlink module": Change(
        before={
            "impl/v1.py": "def step():\n    return sum(range(10))\n",
            "app.py": ("impl/v1.py",),
            BENCH: _BENCH,
        },
        after={
            "impl/v1.py": "def step():\n    return sum(range(100000))\n",
        },
    ),
    "symlink package": Change(
        before={
            "lib/pkg/__init__.py": "def step():\n    return sum(range(10))\n",
            "pkg": ("lib/pkg",),
            BENCH: "from pkg import step\ndef test_it(benchmark):\n    benchmark(step)\n",
        },
        after={
            "lib/pkg/__init__.py": "def step():\n    return sum(range(100000))\n",
        },
    ),
    "symlink page": Change(
        before={
            "docs/README.md": "x",
            "data.txt": ("docs/README.md",),
            "app.py": "from pathlib import Path\ndef step():\n    return Path(__file__).with_name('data.txt').read_text().split()\n",
            BENCH: _BENCH,
        },
        after={
            "docs/README.md": "x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x ",
        },
    ),
    "pkgutil get data": Change(
        before={
            "pkg/__init__.py": "",
            "pkg/page.md": "x",
            "app.py": "import pkgutil\ndef step():\n    return pkgutil.get_data('pkg', 'page.md').split()\n",
            BENCH: _BENCH,
        },
        after={
            "pkg/page.md": "x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x ",
        },
    ),
    "own codecs module": Change(
        before={
            "pkg/__init__.py": "",
            "pkg/words.md": "x",
            "pkg/codecs.py": "from pathlib import Path\nWORDS = Path(__file__).with_name('words.md').read_text().split()\n",
            "app.py": "from pkg.codecs import WORDS\ndef step():\n    return sorted(WORDS)\n",
            BENCH: _BENCH,
        },
        after={
            "pkg/words.md": "x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y x y ",
        },
    ),
    "initsub new": Change(
        before={
            "app.py": "REG = []\nclass Base:\n    def __init_subclass__(cls):\n        REG.append(cls)\n    def run(self):\n        return sum(range(10000))\nclass A(Base):\n    pass\ndef step():\n    return [c().run() for c in REG]\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "REG = []\nclass Base:\n    def __init_subclass__(cls):\n        REG.append(cls)\n    def run(self):\n        return sum(range(10000))\nclass A(Base):\n    pass\nclass B(Base):\n    pass\ndef step():\n    return [c().run() for c in REG]\n",
        },
    ),
    "pure set contextvar": Change(
        before={
            "app.py": "from contextvars import ContextVar\nSIZE = ContextVar('size')\ntoken = SIZE.set(10)\ndef step():\n    return sum(range(SIZE.get()))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "from contextvars import ContextVar\nSIZE = ContextVar('size')\ntoken = SIZE.set(100000)\ndef step():\n    return sum(range(SIZE.get()))\n",
        },
    ),
    "alias iadd": Change(
        before={
            "reg.py": "STEPS = [1]\n",
            "more.py": "from reg import STEPS as mine\nmine += [2]\n",
            "app.py": "import more\nimport reg\ndef step():\n    return sum(range(sum(reg.STEPS)))\n",
            BENCH: _BENCH,
        },
        after={
            "more.py": "from reg import STEPS as mine\nmine += [200000]\n",
        },
    ),
    "annotation alias": Change(
        before={
            "app.py": "from typing import get_type_hints\nItem = int\ndef handler(x: Item):\n    return x\ndef step():\n    t = get_type_hints(handler)['x']\n    return [t(i) for i in range(1000)]\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "from typing import get_type_hints\nItem = str\ndef handler(x: Item):\n    return x\ndef step():\n    t = get_type_hints(handler)['x']\n    return [t(i) for i in range(1000)]\n",
        },
    ),
    "protocol isinstance": Change(
        before={
            "app.py": "from typing import Protocol, runtime_checkable\n@runtime_checkable\nclass Batch(Protocol):\n    def batched(self): ...\nclass A:\n    def run(self):\n        return 1\ndef step():\n    a = A()\n    return sum(range(100000 if isinstance(a, Batch) else 10))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "from typing import Protocol, runtime_checkable\n@runtime_checkable\nclass Batch(Protocol):\n    def batched(self): ...\nclass A:\n    def run(self):\n        return 1\n    def batched(self):\n        return 1\ndef step():\n    a = A()\n    return sum(range(100000 if isinstance(a, Batch) else 10))\n",
        },
    ),
    "import order2": Change(
        before={
            "p1.py": "import json\njson.size = 10\n",
            "p2.py": "import json\njson.size = 100000\n",
            "first.py": "import p1\n",
            "app.py": "import first\nimport p2\nimport p1\nimport json\ndef step():\n    return sum(range(json.size))\n",
            BENCH: _BENCH,
        },
        after={
            "first.py": "x = 1\n",
        },
    ),
    "import dropped comment": Change(
        before={
            "p1.py": "import json\njson.size = 100000\n",
            "app.py": "import json\njson.size = 10\nimport other\ndef step():\n    return sum(range(json.size))\n",
            "other.py": "import p1\n",
            BENCH: _BENCH,
        },
        after={
            "p1.py": "# c\nimport json\njson.size = 100000\n",
            "other.py": "x = 1\n",
        },
    ),
    "decorator named define": Change(
        before={
            "reg.py": "ALL = []\ndef define(cls):\n    ALL.append(cls)\n    return cls\n",
            "app.py": "import reg\n@reg.define\nclass A:\n    pass\ndef step():\n    return [sum(range(10000)) for c in reg.ALL]\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import reg\n@reg.define\nclass A:\n    pass\n@reg.define\nclass B:\n    pass\ndef step():\n    return [sum(range(10000)) for c in reg.ALL]\n",
        },
    ),
    "f globals": Change(
        before={
            "app.py": "import sys\nSIZE_SMALL = 10\ndef step(k='SMALL'):\n    return sum(range(sys._getframe().f_globals['SIZE_' + k]))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import sys\nSIZE_SMALL = 100000\ndef step(k='SMALL'):\n    return sum(range(sys._getframe().f_globals['SIZE_' + k]))\n",
        },
    ),
    "exists md": Change(
        before={
            "app.py": "from pathlib import Path\ndef step():\n    return sum(range(100000 if Path(__file__).with_name('FAST.md').exists() else 10))\n",
            BENCH: _BENCH,
        },
        after={
            "FAST.md": "x",
        },
    ),
    "sysmodules pkg": Change(
        before={
            "pkg/__init__.py": "",
            "pkg/prod.py": "SIZE_BIG = 10\n",
            "app.py": "import sys\nimport pkg.prod\ndef step(env='prod', size='BIG'):\n    return sum(range(getattr(sys.modules['pkg.' + env], 'SIZE_' + size)))\n",
            BENCH: _BENCH,
        },
        after={
            "pkg/prod.py": "SIZE_BIG = 100000\n",
        },
    ),
    "walrus": Change(
        before={
            "app.py": "LIMITS = [(N := 10), 5]\ndef step():\n    return sum(range(N))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "LIMITS = [(N := 100000), 5]\ndef step():\n    return sum(range(N))\n",
        },
    ),
    "getdoc": Change(
        before={
            "app.py": "import inspect\ndef rule():\n    '''expr : a b'''\ndef step():\n    return [w * 2 for w in inspect.getdoc(rule).split()]\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import inspect\ndef rule():\n",
        },
    ),
    "get data py": Change(
        before={
            "kernels.py": "def k():\n    return 1\n",
            "pkg/__init__.py": "",
            "pkg/k.py": "x = 1\n",
            "app.py": "import pkgutil, ast\ndef step():\n    return ast.parse(pkgutil.get_data('pkg', 'k.py'))\n",
            BENCH: _BENCH,
        },
        after={
            "pkg/k.py": "x = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\nx = 1\n",
        },
    ),
    "loader get source": Change(
        before={
            "pkg/__init__.py": "",
            "pkg/k.py": "x = 1\n",
            "app.py": "import pkg.k, ast\ndef step():\n    return ast.parse(pkg.k.__loader__.get_source('pkg.k'))\n",
            BENCH: _BENCH,
        },
        after={
            "pkg/k.py": "# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n",
        },
    ),
    "metaclass inherit": Change(
        before={
            "reg.py": "class Meta(type):\n    all = []\n    def __init__(cls, name, bases, space):\n        Meta.all.append(cls)\nclass Model(metaclass=Meta):\n    def check(self):\n        return sum(range(10000))\n",
            "app.py": "import reg\nimport models\ndef step():\n    return [m().check() for m in reg.Meta.all]\n",
            "models.py": "from reg import Model\nclass User(Model):\n    pass\n",
            BENCH: _BENCH,
        },
        after={
            "models.py": "from reg import Model\nclass User(Model):\n    pass\nclass Group(Model):\n    pass\n",
        },
    ),
    "new plugin module": Change(
        before={
            "reg.py": "class Plugin:\n    all = []\n    def __init_subclass__(cls):\n        Plugin.all.append(cls)\n    def check(self):\n        return sum(range(10000))\n",
            "plugins/__init__.py": "from . import a\n",
            "plugins/a.py": "from reg import Plugin\nclass A(Plugin):\n    pass\n",
            "app.py": "import reg\nimport plugins\ndef step():\n    return [m().check() for m in reg.Plugin.all]\n",
            BENCH: _BENCH,
        },
        after={
            "plugins/__init__.py": "from . import a, b\n",
            "plugins/b.py": "from reg import Plugin\nclass B(Plugin):\n    pass\n",
        },
    ),
    "latin1 name": Change(
        before={
            "app.py": b"# coding: latin-1\ngr\xf6\xdfe = 10\ndef step():\n    return sum(range(gr\xf6\xdfe))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": b"# coding: latin-1\ngr\xf6\xdfe = 100000\ndef step():\n    return sum(range(gr\xf6\xdfe))\n",
        },
    ),
    "ord binding stmt": Change(
        before={
            "app.py": "N = 10\nT = tuple(range(N))\nN = 100000\ndef step():\n    return sum(T)\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "N = 10\nN = 100000\nT = tuple(range(N))\ndef step():\n    return sum(T)\n",
        },
    ),
    "ord import stmt": Change(
        before={
            "app.py": "import json\nimport patch\njson.size = 10\ndef step():\n    return sum(range(json.size))\n",
            "patch.py": "import json\njson.size = 100000\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import json\njson.size = 10\nimport patch\ndef step():\n    return sum(range(json.size))\n",
        },
    ),
    "ord class body": Change(
        before={
            "app.py": "class A:\n    n = 10\n    t = tuple(range(n))\n    n = 100000\n    def run(self):\n        return sum(self.t)\ndef step():\n    return A().run()\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "class A:\n    n = 10\n    n = 100000\n    t = tuple(range(n))\n    def run(self):\n        return sum(self.t)\ndef step():\n    return A().run()\n",
        },
    ),
    "ord def binding": Change(
        before={
            "app.py": "fast = None\ndef fast():\n    return 1\ndef step():\n    return sum(range(10 if fast is not None else 100000))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "def fast():\n    return 1\nfast = None\ndef step():\n    return sum(range(10 if fast is not None else 100000))\n",
        },
    ),
    "base import swapped": Change(
        before={
            "a.py": "class A:\n    n = 10\n",
            "b2.py": "class A:\n    n = 100000\n",
            "app.py": "import a, b2\nfrom a import A\nclass C(A):\n    pass\ndef step():\n    return sum(range(C.n))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import a, b2\nfrom b2 import A\nclass C(A):\n    pass\ndef step():\n    return sum(range(C.n))\n",
        },
    ),
    "ann import swapped": Change(
        before={
            "t.py": "class A:\n    n = 10\nclass Z:\n    n = 100000\n",
            "app.py": "from typing import get_type_hints\nfrom t import A as Item\ndef handler(x: Item): ...\ndef step():\n    return sum(range(get_type_hints(handler)['x'].n))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "from typing import get_type_hints\nfrom t import Z as Item\ndef handler(x: Item): ...\ndef step():\n    return sum(range(get_type_hints(handler)['x'].n))\n",
        },
    ),
    "star in try": Change(
        before={
            "conf.py": "N = 10\n",
            "app.py": "try:\n    from conf import *\nexcept ImportError:\n    pass\ndef step():\n    return sum(range(N))\n",
            BENCH: _BENCH,
        },
        after={
            "conf.py": "N = 100000\n",
        },
    ),
    "sysmodules alias": Change(
        before={
            "impl.py": "N = 10\n",
            "app.py": "import sys, impl\nsys.modules['conf'] = impl\nfrom conf import N\ndef step():\n    return sum(range(N))\n",
            BENCH: _BENCH,
        },
        after={
            "impl.py": "N = 100000\n",
        },
    ),
    "include exec": Change(
        before={
            "part.py": "def work():\n    return sum(range(N))\n",
            "app.py": "from pathlib import Path\nN = 10\np = Path(__file__).with_name('part.py')\nexec(compile(p.read_text(), str(p), 'exec'))\ndef step():\n    return work()\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "from pathlib import Path\nN = 100000\np = Path(__file__).with_name('part.py')\nexec(compile(p.read_text(), str(p), 'exec'))\ndef step():\n    return work()\n",
        },
    ),
    "mangled attr": Change(
        before={
            "conf.py": "class A:\n    __limit = 10\n",
            "app.py": "from conf import A\ndef step():\n    return sum(range(A._A__limit))\n",
            BENCH: _BENCH,
        },
        after={
            "conf.py": "class A:\n    __limit = 100000\n",
        },
    ),
    "ann class getitem": Change(
        before={
            "reg.py": "SIZES = []\nclass Reg:\n    def __class_getitem__(cls, n):\n        SIZES.append(n)\n        return cls\n",
            "app.py": "from reg import Reg, SIZES\ndef unused(x: Reg[10]): ...\ndef step():\n    return sum(range(sum(SIZES)))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "from reg import Reg, SIZES\ndef unused(x: Reg[100000]): ...\ndef step():\n    return sum(range(sum(SIZES)))\n",
        },
    ),
    "alias vars": Change(
        before={
            "app.py": "import conf\nfrom builtins import vars as v\ndef step():\n    return sum(range(max(x for x in v(conf).values() if type(x) is int)))\n",
            "conf.py": "SIZE = 10\n",
            BENCH: _BENCH,
        },
        after={
            "conf.py": "SIZE = 100000\n",
        },
    ),
    "eval vars": Change(
        before={
            "app.py": "import conf\ndef step():\n    return sum(range(eval('max(x for x in vars(conf).values() if type(x) is int)')))\n",
            "conf.py": "SIZE = 10\n",
            BENCH: _BENCH,
        },
        after={
            "conf.py": "SIZE = 100000\n",
        },
    ),
    "runpy module": Change(
        before={
            "app.py": "import runpy\ndef step():\n    return sum(range(max(x for x in runpy.run_module('conf').values() if type(x) is int)))\n",
            "conf.py": "SIZE = 10\n",
            BENCH: _BENCH,
        },
        after={
            "conf.py": "SIZE = 100000\n",
        },
    ),
    "iscoroutinefunction": Change(
        before={
            "app.py": "import inspect\ndef handler(): ...\ndef step():\n    return sum(range(100000 if inspect.iscoroutinefunction(handler) else 10))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import inspect\nasync def handler(): ...\ndef step():\n    return sum(range(100000 if inspect.iscoroutinefunction(handler) else 10))\n",
        },
    ),
    "property to method": Change(
        before={
            "app.py": "class A:\n    @property\n    def n(self): return 1\ndef step():\n    return sum(range(10 if isinstance(A.n, property) else 100000))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "class A:\n    def n(self): return 1\ndef step():\n    return sum(range(10 if isinstance(A.n, property) else 100000))\n",
        },
    ),
    "abstract added": Change(
        before={
            "app.py": "from abc import ABC, abstractmethod\nclass A(ABC):\n    def stop(self): ...\nclass Z(A):\n    pass\ndef step():\n    try:\n        Z()\n    except TypeError:\n        return sum(range(100000))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "from abc import ABC, abstractmethod\nclass A(ABC):\n    @abstractmethod\n    def stop(self): ...\nclass Z(A):\n    pass\ndef step():\n    try:\n        Z()\n    except TypeError:\n        return sum(range(100000))\n",
        },
    ),
    "f lineno": Change(
        before={
            "app.py": "import sys\ndef step():\n    return sum(range(sys._getframe().f_lineno))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import sys\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n",
        },
    ),
    "getcomments": Change(
        before={
            "app.py": "import inspect, traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.format_exc()\n# c\ndef f(): ...\ndef step():\n    return sum(range(len(inspect.getcomments(f))))\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import inspect, traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.format_exc()\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n# c\n",
        },
    ),
    "stat name json": Change(
        before={
            "app.py": "import os, json\nfrom root import ROOT\nNAMES = json.loads((ROOT / 'idx.json').read_text())\ndef step():\n    return sum(range(sum(os.stat(ROOT / n).st_size for n in NAMES)))\n",
            "root.py": "from pathlib import Path\nROOT = Path(__file__).parent\n",
            "idx.json": '["guide.md"]',
            "guide.md": "x",
            BENCH: _BENCH,
        },
        after={
            "guide.md": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        },
    ),
    "find spec computed": Change(
        before={
            "app.py": "from importlib.util import find_spec\ndef step(kind='fast'):\n    return sum(range(100000 if find_spec('ext_' + kind) else 10))\n",
            "z.md": "x",
            BENCH: _BENCH,
        },
        after={
            "ext_fast.py": "x = 1\n",
        },
    ),
    "fwalk sub open": Change(
        before={
            "app.py": "import os\nfrom root import ROOT\ndef step():\n    n = 0\n    for top, ds, fs, fd in os.fwalk(ROOT / 'docs'):\n        for f in fs:\n            with open(os.open(f, os.O_RDONLY, dir_fd=fd)) as s:\n                n += len(s.read())\n    return sum(range(n))\n",
            "root.py": "from pathlib import Path\nROOT = Path(__file__).parent\n",
            "docs/sub/guide.md": "x",
            BENCH: _BENCH,
        },
        after={
            "docs/sub/guide.md": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        },
    ),
    "thread start new": Change(
        before={
            "app.py": "import _thread, threading\ndef work(l):\n    sum(range(10))\n    l.release()\ndef step():\n    l = threading.Lock()\n    l.acquire()\n    _thread.start_new(work, (l,))\n    l.acquire()\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import _thread, threading\ndef work(l):\n    sum(range(100000))\n    l.release()\ndef step():\n    l = threading.Lock()\n    l.acquire()\n    _thread.start_new(work, (l,))\n    l.acquire()\n",
        },
    ),
    "ctypes loadlibrary thread": Change(
        before={
            "app.py": "import ctypes\ndef work(_):\n    sum(range(10))\n    return 0\nT = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)\nCB = T(work)\nL = ctypes.cdll.LoadLibrary('libc.so.6')\ndef step():\n    t = ctypes.c_ulong()\n    L.pthread_create(ctypes.byref(t), None, CB, None)\n    L.pthread_join(t, None)\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import ctypes\ndef work(_):\n    sum(range(100000))\n    return 0\nT = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)\nCB = T(work)\nL = ctypes.cdll.LoadLibrary('libc.so.6')\ndef step():\n    t = ctypes.c_ulong()\n    L.pthread_create(ctypes.byref(t), None, CB, None)\n    L.pthread_join(t, None)\n",
        },
    ),
    "posixsubprocess direct": Change(
        before={
            "app.py": "import _posixsubprocess as p, os, sys\nfrom pathlib import Path\nT = str(Path(__file__).with_name('tool.py'))\ndef step():\n    import subprocess\n    r, w = os.pipe()\n    a = [sys.executable, '-S', T]\n    pid = p.fork_exec([os.fsencode(x) for x in a], [os.fsencode(a[0])], True, (w,), None, None, -1, -1, -1, -1, -1, -1, r, w, False, False, -1, None, None, None, -1, None, True)\n    os.waitpid(pid, 0)\n    os.close(r)\n    os.close(w)\n",
            "tool.py": "sum(range(10))\n",
            BENCH: "from app import step\ndef test_it(benchmark):\n    benchmark.pedantic(step, rounds=2)\n",
        },
        after={
            "tool.py": "sum(range(1000000))\n",
        },
    ),
    "gc cycle del": Change(
        before={
            "app.py": "class A:\n    def __init__(self):\n        self.me = self\n    def __del__(self):\n        sum(range(10))\ndef step():\n    A()\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "class A:\n    def __init__(self):\n        self.me = self\n    def __del__(self):\n        sum(range(100000))\ndef step():\n    A()\n",
        },
    ),
    "mock spec": Change(
        before={
            "app.py": "from unittest.mock import Mock\nclass A:\n    def run(self): ...\ndef step():\n    return Mock(spec=A)\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "from unittest.mock import Mock\nclass A:\n    def run(self): ...\n    def other(self): ...\n    def m0(self): ...\n    def m1(self): ...\n    def m2(self): ...\n    def m3(self): ...\n    def m4(self): ...\n    def m5(self): ...\n    def m6(self): ...\n    def m7(self): ...\n    def m8(self): ...\n",
        },
    ),
    "cmd help": Change(
        before={
            "app.py": "import cmd, io\nclass Sh(cmd.Cmd):\n    def do_x(self, arg):\n        '''Short'''\ndef step():\n    o = io.StringIO()\n    Sh(stdout=o).onecmd('help x')\n    return o.getvalue()\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import cmd, io\nclass Sh(cmd.Cmd):\n    def do_x(self, arg):\n",
        },
    ),
    "unittest short doc": Change(
        before={
            "app.py": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        '''Short'''\ndef step():\n    return [T('test_a').shortDescription() for _ in range(10)]\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n",
        },
    ),
    "deco shadowed in try": Change(
        before={
            "app.py": "import mycache\nfrom functools import cache\ntry:\n    from mycache import cache\nexcept ImportError:\n    pass\n@cache\ndef one(): ...\ndef step():\n    return [sum(range(10000)) for _ in mycache.REG]\n",
            "mycache.py": "REG = []\ndef cache(f):\n    REG.append(f)\n    return f\ndef property(f):\n    REG.append(f)\n    return f\nlru_cache = cache\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import mycache\nfrom functools import cache\ntry:\n    from mycache import cache\nexcept ImportError:\n    pass\n@cache\ndef one(): ...\n@cache\ndef two(): ...\ndef step():\n    return [sum(range(10000)) for _ in mycache.REG]\n",
        },
    ),
    "exception base alias": Change(
        before={
            "app.py": "import errs\nfrom errs import Temporary as Base\nclass E(Base): pass\ndef step():\n    try:\n        raise E\n    except errs.Temporary:\n        return sum(range(10))\n    except errs.Fatal:\n        return sum(range(100000))\n",
            "errs.py": "class Temporary(Exception): pass\nclass Fatal(Exception): pass\n",
            BENCH: _BENCH,
        },
        after={
            "app.py": "import errs\nfrom errs import Fatal as Base\nclass E(Base): pass\ndef step():\n    try:\n        raise E\n    except errs.Temporary:\n        return sum(range(10))\n    except errs.Fatal:\n        return sum(range(100000))\n",
        },
    ),
    "code of a function in a list": _change(
        "def rule():\n    return 1\nRULES = [rule]\ndef step():\n    return len(RULES[0].__code__.co_consts)\n",
        "return 1", "return [1, 2, 3, 4000]",
    ),
    "yield beside an inner generator": _change(
        "import inspect\ndef rule():\n    def inner():\n        yield 1\n    return inner()\n"
        "def step():\n    return sum(range(100000 if inspect.isgeneratorfunction(rule) else 10))\n",
        "return inner", "yield inner",
    ),
    "static attribute": _change(
        "import inspect\nclass A:\n    pass\ndef step(kind='run'):\n"
        "    return sum(range(10 if inspect.getattr_static(A, f'fast_{kind}', None) else 1000))\n",
        "    pass", "    def fast_run(self):\n        return 1",
    ),
    "code by the garbage collector": _change(
        "import gc\ndef rule():\n    return 1\nRULES = [rule]\n"
        "def step():\n    return sum(len(getattr(one, 'co_code', b'')) for one in gc.get_referents(RULES[0]))\n",
        "return 1", "return 1 + len([2])",
    ),
    "code that a decorator reads": _change(
        "COSTS = {}\ndef cost(f):\n    COSTS['it'] = len(f.__code__.co_code)\n    return f\n"
        "@cost\ndef rule():\n    return 1\ndef step():\n    return sum(range(COSTS['it']))\n",
        "return 1", "return 1 + len([2])",
    ),
}  # fmt: skip

HARMLESS: dict[str, Change] = {
    "settings of perfkit": _change(
        _STEP, "3%", "4%", file="pyproject.toml", more={"pyproject.toml": "[tool.perfkit]\nmargin = '3%'\n"}
    ),
    "first settings of perfkit": _change(
        _STEP, "version = '1'", "version = '1'\n[tool.perfkit]\nmargin = '3%'", file="pyproject.toml",
        more={"pyproject.toml": "[project]\nname = 'app'\nversion = '1'\n"},
    ),
    "function that no process of it runs": _change(
        "import subprocess, sys\nfrom pathlib import Path\ndef step():\n"
        "    subprocess.run([sys.executable, '-X', 'importtime', '-c', 'import tool'], check=True,\n"
        "                   stderr=subprocess.PIPE, cwd=Path(__file__).parent)\n",
        "10", "11", file="tool.py", more={"tool.py": "def other():\n    return 10\ndef run():\n    return 5\nrun()\n"},
    ),
    "comment": _change(_STEP, "def step", "# Adds.\ndef step"),
    "comment in the function": _change(_STEP, "    return", "    # Adds.\n    return"),
    "docstring": _change(_STEP, "    return", '    """Add."""\n    return'),
    "docstring of the module": _change(_STEP, "def step", '"""Steps."""\n\n\ndef step'),
    "blank lines": _change(_STEP, "def step", "\n\n\ndef step"),
    "other function": _change(_STEP + "def other():\n    return 1\n", "return 1", "return 2"),
    "other method": _change(
        "class A:\n    def run(self):\n        return 1\n    def other(self):\n        return 2\n"
        "def step():\n    return A().run()\n", "return 2", "return 3",
    ),
    "default of another function": _change(_STEP + "def other(n=1):\n    return n\n", "n=1", "n=2"),
    "default that does more": _change(
        "def step(n=10): return n\ndef other(n=3000): return sum(range(n))\n", "n=3000", "n=3000000"
    ),
    "code of one function is read": _change(
        "import types\ndef one():\n    return 1\ndef step():\n    return types.FunctionType(one.__code__, {})()\n"
        "def other():\n    return 2\n", "return 2", "return 3",
    ),
    "new function": _change(_STEP, "def step", "def other():\n    return 1\n\n\ndef step"),
    "module that nobody imports": _change(
        _STEP, "1", "2", file="other.py", more={"other.py": "print(1)\n"}
    ),
    "new module": Change(
        before={"app.py": _STEP, BENCH: "from app import step\ndef test_it(benchmark):\n    benchmark(step)\n"},
        after={"other.py": "print(1)\n"},
    ),
    "README": _change(_STEP, "one", "two", file="README.md", more={"README.md": "one"}),
    "workflow": _change(_STEP, "one", "two", file=".github/w.yml", more={".github/w.yml": "one"}),
    "type comment": _change(
        "def step():\n    x = 1  # type: int\n    return x\n", "  # type: int", "  # type: float"
    ),
    "version in pyproject.toml": _change(
        _STEP, "0.1", "0.2", file="pyproject.toml",
        more={"pyproject.toml": "[project]\nname = 'app'\nversion = '0.1'\n"},
    ),
    "import for types": _change(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import fractions\n" + _STEP,
        "import fractions", "import decimal",
    ),
    "unused import": _change(_STEP, "def step", "import textwrap\ndef step"),
    "settings of an assistant": _change(
        _STEP, "1", "2", file=".claude/settings.json", more={".claude/settings.json": "[1]"}
    ),
}  # fmt: skip
