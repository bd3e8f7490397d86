"""A child imports the code of its own side, however the environment serves the user tree, or reports it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from perfkit import agent

PRELUDE = """
import importlib, importlib.util, json, os, site, sys
from pathlib import Path

folder, root, *origins = sys.argv[1:]
file = folder + "/__init__.py"
spec = importlib.util.spec_from_file_location("_agent", file, submodule_search_locations=[folder])
sys.modules["_agent"] = importlib.util.module_from_spec(spec)
from _agent.imports import *
from _agent.provenance import *
ROOT, ORIGINS = Path(root), [Path(origin) for origin in origins]

def emit(value):
    print(json.dumps(value, default=sorted))

def sides(*names):
    return [getattr(importlib.import_module(name), "SIDE") for name in names]
"""

# As scikit-build-core leaves it in site-packages: a table from modules to files, put before all finders.
REDIRECTING_FINDER = """
import importlib.abc, importlib.util, sys

class RedirectingFinder(importlib.abc.MetaPathFinder):
    def __init__(self, known_source_files):
        self.known_source_files = known_source_files

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in self.known_source_files:
            return None
        return importlib.util.spec_from_file_location(fullname, self.known_source_files[fullname])

sys.meta_path.insert(0, RedirectingFinder(FILES))
"""

# As meson-python does: builds before it answers, knows top-level names only, and packages have a search path
# that only its own path hook understands.
BUILDING_FINDER = """
import importlib.abc, importlib.machinery, importlib.util, os, subprocess, sys

class BuildingFinder(importlib.abc.MetaPathFinder):
    def __init__(self, names, files, build):
        self._names, self._build, self._files = names, build, lambda: files

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] not in self._names:
            return None
        subprocess.run(self._build, check=True)
        virtual = [os.path.join(__file__, fullname)]
        if fullname in self._files():
            file = self._files()[fullname]
            places = virtual if file.endswith("__init__.py") else None
            return importlib.util.spec_from_file_location(fullname, file, submodule_search_locations=places)
        if any(name.startswith(fullname + ".") for name in self._files()):
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = virtual
            return spec
        return None

    def _path_hook(self, path):
        if not path.startswith(__file__):
            raise ImportError
        return self

finder = BuildingFinder(NAMES, FILES, BUILD)
sys.meta_path.insert(0, finder)
sys.path_hooks.insert(0, finder._path_hook)
"""


class Trees:
    """A user's tree with a checked-out side of it, and an environment, all in real folders."""

    def __init__(self, top: Path) -> None:
        self.origin, self.root = top / "origin", top / "root"
        self.site = self._environment(top / "venv")
        for tree in (self.origin, self.root):
            tree.mkdir()

    def move_environment_into_the_origin(self) -> None:
        """Use an environment below the user's tree, as many do."""
        self.site = self._environment(self.origin / ".venv")

    def hold(self, *files: str) -> None:
        """Put modules into both trees; their SIDE names the tree they lie in."""
        for tree in (self.origin, self.root):
            write_modules(tree, *files)

    def install(self, *files: str) -> None:
        """Put copies of modules into the environment."""
        write_modules(self.site, *files, side="installed")

    def add_to_site(self, name: str, text: str) -> None:
        """Put a file of an installer's making into the environment."""
        (self.site / name).write_text(text)

    def run(self, code: str, *, environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> Any:  # noqa: ANN401
        """Run code in a child that has the environment's packages; return what it reported last."""
        script = f"{PRELUDE}\nsite.addsitedir({str(self.site)!r})\n{textwrap.dedent(code)}"
        folder = str(Path(agent.__file__).parent)
        done = subprocess.run(
            [sys.executable, "-c", script, folder, str(self.root), str(self.origin)],
            cwd=cwd or self.root,
            # Without the safe path, the folder it runs in would be first anyway.
            env={**os.environ, "PYTHONSAFEPATH": "1", **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    @staticmethod
    def _environment(folder: Path) -> Path:
        site = folder / "lib" / "python3" / "site-packages"
        site.mkdir(parents=True)
        (folder / "pyvenv.cfg").write_text("home = /usr\n")
        return site


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """Return an empty origin, an empty root and an empty environment."""
    return Trees(tmp_path)


def write_modules(folder: Path, *files: str, side: str | None = None) -> None:
    """Write modules that know which folder they were written into."""
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"SIDE = {side or folder.name!r}\n")


IMPORT_AND_PROVE = """
pointing = point_imports(ROOT, ORIGINS)
before = check_before_import(ROOT, own_names(ROOT))
found = sides(*NAMES)
emit([found, before, foreign_modules(ROOT, ORIGINS), loaded_files(ROOT)])
"""


def proven(trees: Trees, *names: str) -> list[str]:
    """Import modules in a pointed child; return their sides once the proofs agree that nothing is foreign."""
    found, before, foreign, _ = trees.run(f"NAMES = {names!r}\n{IMPORT_AND_PROVE}")
    assert {} == before
    assert {} == foreign
    return list(found)


@pytest.mark.parametrize("place", ["", "src/"])
def test_a_tree_that_is_not_installed_is_imported_from_root(trees: Trees, place: str) -> None:
    trees.hold(f"{place}thing/__init__.py", f"{place}thing/part.py", f"{place}single.py")

    assert ["root", "root", "root"] == proven(trees, "thing", "thing.part", "single")


def test_a_src_that_is_a_package_itself_is_no_source_folder(trees: Trees) -> None:
    trees.hold("src/__init__.py", "src/datasets/__init__.py")
    trees.install("datasets/__init__.py")

    assert ["root", "installed"] == proven(trees, "src.datasets", "datasets")


@pytest.mark.parametrize("place", ["", "src/", "python/", "packages/thing/src/"])
def test_a_path_line_into_the_origin_is_pointed_at_root(trees: Trees, place: str) -> None:
    trees.hold(f"{place}thing/__init__.py")
    trees.add_to_site("thing.pth", f"{trees.origin / place}\n")

    assert ["root"] == proven(trees, "thing")


def test_python_path_entries_of_the_origin_are_pointed_at_root(trees: Trees) -> None:
    trees.hold("lib/thing/__init__.py", "tools/helper.py")
    top = trees.origin.parent
    write_modules(top / "elsewhere", "other.py")

    output = trees.run(
        """
        sys.path[:0] = ["origin/tools", "elsewhere"]
        point_imports(ROOT, ORIGINS)
        os.chdir(ROOT)
        emit(sides("thing", "helper", "other"))
        """,
        environment={"PYTHONPATH": str(trees.origin / "lib")},
        cwd=top,
    )

    assert ["root", "root", "elsewhere"] == output


def test_the_innermost_of_two_origins_decides(trees: Trees) -> None:
    trees.hold("lib/thing.py", "inner/lib/thing.py")

    output = trees.run(
        """
        sys.path.append(str(ORIGINS[0] / "inner" / "lib"))
        point_imports(ROOT, [*ORIGINS, ORIGINS[0] / "inner"])
        import thing
        emit([thing.__file__, foreign_modules(ROOT)])
        """
    )

    assert [str(trees.root / "lib/thing.py"), {}] == output


def test_a_place_that_root_lacks_leaves_the_path(trees: Trees) -> None:
    write_modules(trees.origin, "python/thing/__init__.py")
    trees.add_to_site("thing.pth", f"{trees.origin / 'python'}\n")

    path, found = trees.run(
        "point_imports(ROOT, ORIGINS); emit([sys.path, importlib.util.find_spec('thing')])"
    )

    assert str(trees.origin / "python") not in path
    assert found is None


def test_a_namespace_over_two_distributions_is_judged_by_its_modules(trees: Trees) -> None:
    trees.hold("src/acme/models/__init__.py")
    trees.install("acme/tools/__init__.py", "acme/models/__init__.py")

    assert ["root", "installed"] == proven(trees, "acme.models", "acme.tools")


def test_an_installed_copy_is_hidden_by_root(trees: Trees) -> None:
    trees.hold("src/thing/__init__.py", "flat.py")
    trees.install("thing/__init__.py", "flat.py")

    assert ["root", "root"] == proven(trees, "thing", "flat")


def test_an_environment_inside_the_origin_stays_where_it_is(trees: Trees) -> None:
    trees.move_environment_into_the_origin()
    trees.hold("thing/__init__.py")
    trees.install("library/__init__.py", "thing/__init__.py")

    found, before, foreign, files = trees.run(f"NAMES = ['thing', 'library']\n{IMPORT_AND_PROVE}")

    assert (["root", "installed"], {}, {}) == (found, before, foreign)
    assert ["thing/__init__.py"] == files


@pytest.mark.parametrize("place", ["venv/src/library", "vendor/site-packages"])
def test_other_installed_code_inside_the_origin_stays_too(trees: Trees, place: str) -> None:
    trees.hold("thing.py")
    write_modules(trees.origin, f"{place}/library.py")
    (trees.origin / "venv").mkdir(exist_ok=True)
    (trees.origin / "venv/pyvenv.cfg").write_text("home = /usr\n")
    trees.add_to_site("library.pth", f"{trees.origin / place}\n")

    assert ["root", "origin"] == proven(trees, "thing", "library")


def build_editable(trees: Trees, configuration: str) -> None:
    """Install the origin as setuptools does: its own wheel of an editable install, unpacked."""
    (trees.origin / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        f'[project]\nname = "thing"\nversion = "1"\n[tool.setuptools]\n{configuration}\n'
    )
    code = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
    wheels = trees.site.parent / "wheels"
    subprocess.run([sys.executable, "-c", code, wheels], cwd=trees.origin, check=True, capture_output=True)
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        wheel.extractall(trees.site)


def test_finders_of_setuptools_give_way(trees: Trees) -> None:
    trees.hold("python/thing/__init__.py", "python/thing/part.py", "python/acme/models/__init__.py")
    build_editable(
        trees,
        'packages = ["thing", "acme.models"]\n'
        'package-dir = {thing = "python/thing", acme = "python/acme", "acme.models" = "python/acme/models"}',
    )
    assert list(trees.site.glob("__editable___*_finder.py"))

    assert ["root", "root", "root"] == proven(trees, "thing", "thing.part", "acme.models")


def test_the_path_hook_of_setuptools_gives_way(trees: Trees) -> None:
    trees.hold("lib/acme/models.py", "lib/acme/deep/more.py")
    build_editable(
        trees,
        'packages = ["acme", "acme.deep"]\npackage-dir = {acme = "lib/acme", "acme.deep" = "lib/acme/deep"}',
    )

    finders, hooks, found = trees.run(
        """
        point_imports(ROOT, ORIGINS)
        hooks = [hook.__qualname__ for hook in sys.path_hooks if "Editable" in hook.__qualname__]
        left = [name for name in map(str, sys.meta_path) if "Editable" in name]
        emit([left, hooks, sides("acme.models", "acme.deep.more")])
        """
    )

    assert ([], []) == (finders, hooks)
    assert ["root", "root"] == found


def test_a_redirecting_finder_gives_way(trees: Trees) -> None:
    trees.hold("python/thing/__init__.py", "python/thing/part.py", "python/acme/models.py")
    modules = {"thing": "thing/__init__.py", "thing.part": "thing/part.py", "acme.models": "acme/models.py"}
    files = {name: str(trees.origin / "python" / file) for name, file in modules.items()}
    trees.add_to_site("_thing_editable.py", REDIRECTING_FINDER.replace("FILES", repr(files)))
    trees.add_to_site("thing.pth", "import _thing_editable\n")

    assert ["root", "root", "root"] == proven(trees, "thing", "thing.part", "acme.models")


def test_a_building_finder_gives_way_without_building(trees: Trees) -> None:
    trees.hold("python/thing/__init__.py", "src/acme/models.py")
    files = {
        "thing": str(trees.origin / "python/thing/__init__.py"),
        "acme.models": str(trees.origin / "src/acme/models.py"),
    }
    built = trees.origin / "built"
    text = BUILDING_FINDER.replace("FILES", repr(files)).replace("NAMES", "{'thing', 'acme'}")
    trees.add_to_site("_thing_loader.py", text.replace("BUILD)", f"['touch', {str(built)!r}])"))
    trees.add_to_site("thing.pth", "import _thing_loader\n")

    assert ["root", "root"] == proven(trees, "thing", "acme.models")
    assert not built.exists()


def test_finders_that_serve_nothing_of_the_tree_stay(trees: Trees) -> None:
    trees.hold("thing.py")
    other = trees.origin.parent / "other"
    write_modules(other, "library.py")
    files = {"library": str(other / "library.py")}
    trees.add_to_site("_other_editable.py", REDIRECTING_FINDER.replace("FILES", repr(files)))
    trees.add_to_site("_broken.py", REDIRECTING_FINDER.replace("FILES", "None"))
    trees.add_to_site("other.pth", "import _other_editable\nimport _broken\n")

    left = trees.run(
        """
        point_imports(ROOT, ORIGINS)
        emit([type(finder).__module__ for finder in sys.meta_path][:2])
        """
    )

    assert ["_broken", "_other_editable"] == left


def test_pointing_imports_nothing_through_the_users_finders(trees: Trees) -> None:
    trees.hold("thing.py")
    trees.add_to_site(
        "_asked.py",
        """
import sys

class Finder:
    asked = []

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        cls.asked.append(fullname)
        if fullname != "thing":
            sys.path.insert(0, "changed")

sys.meta_path.insert(0, Finder)
""",
    )
    trees.add_to_site("asked.pth", "import _asked\n")

    asked, path = trees.run(
        """
        import _asked
        _asked.Finder.asked.clear()
        sys.path[:] = [entry for entry in sys.path if entry != "changed"]
        point_imports(ROOT, ORIGINS)
        emit([list(_asked.Finder.asked), sys.path])
        """
    )

    assert {"thing"} == set(asked)
    assert "changed" not in path


def test_what_was_imported_before_pointing_is_named(trees: Trees) -> None:
    trees.hold("thing/__init__.py", "thing/part.py", "clean.py")
    write_modules(trees.origin, "thing/newer.py")
    trees.add_to_site("thing.pth", f"{trees.origin}\n")

    early, late = trees.run(
        """
        import thing
        point_imports(ROOT, ORIGINS)
        early = check_before_import(ROOT, own_names(ROOT))
        import thing.part, thing.newer, clean
        emit([early, foreign_modules(ROOT)])
        """
    )

    files = {"thing": "__init__.py", "thing.newer": "newer.py", "thing.part": "part.py"}
    expected = {name: str(trees.origin / "thing" / file) for name, file in files.items()}
    assert {"thing": expected["thing"]} == early
    assert expected == late


def test_a_name_that_would_come_from_elsewhere_is_named_before_it_is_imported(trees: Trees) -> None:
    trees.hold("src/thing/__init__.py")
    trees.install("thing/__init__.py")

    misplaced, loaded = trees.run(
        "emit([check_before_import(ROOT, own_names(ROOT)), 'thing' in sys.modules])"
    )

    assert {"thing": str(trees.site / "thing/__init__.py")} == misplaced
    assert loaded is False


def test_a_part_that_a_leftover_finder_serves_is_foreign(trees: Trees) -> None:
    trees.hold("thing/__init__.py")
    trees.install("thing/core.py")
    files = {"thing.core": str(trees.site / "thing/core.py")}
    trees.add_to_site("_thing_editable.py", REDIRECTING_FINDER.replace("FILES", repr(files)))
    trees.add_to_site("thing.pth", "import _thing_editable\n")

    foreign = trees.run("point_imports(ROOT, ORIGINS); import thing.core; emit(foreign_modules(ROOT))")

    assert files == foreign


def test_extension_modules_of_root_count(trees: Trees) -> None:
    trees.hold("thing/__init__.py")
    # The first is the one that names this interpreter.
    suffix = EXTENSION_SUFFIXES[0]
    for file in (f"fast{suffix}", f"thing/core{suffix}"):
        (trees.root / file).write_bytes(b"")
    trees.install("fast.py")

    names, foreign = trees.run(
        "sys.path.insert(0, sys.path.pop()); import fast; emit([own_names(ROOT), foreign_modules(ROOT)])"
    )

    assert ["fast", "thing"] == names
    assert {"fast": str(trees.site / "fast.py")} == foreign


def test_own_names_are_what_can_be_imported(trees: Trees) -> None:
    own = (
        "single.py",
        "pack/__init__.py",
        "pack/sub/part.py",
        "src/inner/__init__.py",
        "space/deep/module.py",
    )
    other = ("not-a-name.py", ".hidden/module.py", "__pycache__/old.py", "env/lib/site-packages/gone.py")
    write_modules(trees.root, *own, *other)
    (trees.root / "data" / "images").mkdir(parents=True)
    (trees.root / "data" / "images" / "one.txt").write_text("")

    names, modules = trees.run("emit([own_names(ROOT), own_modules([ROOT])])")

    assert ["inner", "pack", "single", "space", "src"] == names
    assert ["pack", "single", "space.deep.module", "src.inner"] == modules


def test_a_script_with_a_standard_name_accuses_nobody(trees: Trees) -> None:
    trees.hold("profile.py")

    misplaced, foreign, preloaded = trees.run(
        """
        import profile
        point_imports(ROOT, ORIGINS)
        emit([check_before_import(ROOT, ["profile"]), foreign_modules(ROOT), preloaded_own([ROOT])])
        """
    )

    assert ({}, {}, []) == (misplaced, foreign, preloaded)


def test_a_link_in_root_is_of_root(trees: Trees) -> None:
    trees.hold("thing/__init__.py")
    write_modules(trees.origin, "thing/generated.py", "thing/made/module.py")
    for name in ("generated.py", "made"):
        (trees.root / "thing" / name).symlink_to(trees.origin / "thing" / name)

    assert ["origin", "origin"] == proven(trees, "thing.generated", "thing.made.module")


def test_a_library_under_a_second_name_is_not_foreign(trees: Trees) -> None:
    trees.hold("thing/other.py")
    (trees.root / "thing/__init__.py").write_text(
        "import library, sys\nsys.modules['thing.vendored'] = library\n"
    )
    trees.install("library.py")

    assert ["installed"] == proven(trees, "thing.vendored")


def test_the_measuring_code_itself_is_not_foreign(trees: Trees) -> None:
    trees.hold("thing.py")

    output = trees.run(
        """
        origin = Path(folder).parent
        __file__ = str(origin / "start.py")
        emit(foreign_modules(ROOT, [origin]))
        """
    )

    assert {} == output


def test_an_origin_reached_through_a_link_is_mapped(trees: Trees) -> None:
    trees.hold("src/thing/__init__.py")
    link = trees.origin.parent / "link"
    link.symlink_to(trees.origin / "src")
    trees.add_to_site("thing.pth", f"{link}\n")

    path, found = trees.run("point_imports(ROOT, ORIGINS); emit([sys.path, sides('thing')])")

    assert str(link) not in path
    assert ["root"] == found


def test_own_names_are_not_preloaded(trees: Trees) -> None:
    trees.hold("library/__init__.py")

    kept = trees.run("emit(preloadable(['json', 'library', 'library.part', 'pytest'], [ROOT, *ORIGINS]))")

    assert ["json", "pytest"] == kept


def test_what_another_library_pulled_in_is_reported(trees: Trees) -> None:
    trees.hold("python/library/__init__.py", "unused.py")
    trees.install("heavy.py")
    trees.add_to_site("library.pth", f"{trees.origin / 'python'}\n")
    (trees.site / "heavy.py").write_text("import library\n")

    kept, loaded = trees.run(
        """
        kept = preloadable(["heavy", "library"], [ROOT], ORIGINS)
        import heavy
        emit([kept, preloaded_own([ROOT], ORIGINS)])
        """
    )

    assert ["heavy"] == kept
    assert ["library"] == loaded
