"""Environments between two others: some packages in head's version, the others in base's.

Nothing is installed for them: a mixture links the files of packages that lie in the two environments.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from perfkit.errors import NotMeasuredError, UsageError
from perfkit.identity import fingerprint
from perfkit.model import SIDES, Side
from perfkit.repo.environments import (
    PRESENT,
    PYTHON,
    Environments,
    SideEnvironment,
    answer_of,
    changed_members,
    content_of,
)
from perfkit.runner.commands import Interpreter

_PROBE = """
import base64, csv, hashlib, json, os, re, sys
from importlib import metadata
from urllib.parse import unquote, urlsplit

def hash_of(file):
    with open(file, "rb") as opened:
        return base64.urlsafe_b64encode(hashlib.sha256(opened.read()).digest()).rstrip(b"=").decode()

def sources(top):
    for folder, inner, files in os.walk(top):
        if "pyvenv.cfg" in files:
            inner[:], files = [], []
        inner[:] = [name for name in inner if name[0] != "." and name != "__pycache__"]
        for file in files:
            if file.endswith((".py", ".so")):
                yield os.path.join(folder, file)

def files_of(one):
    # The library makes an object for each file: of 40,000 that takes longer than all else here.
    record = one.read_text("RECORD")
    if not record:
        return None if one.files is None else [(str(file), "") for file in one.files]
    return [(line[0], line[1].partition("=")[2]) for line in csv.reader(record.splitlines()) if line]

is_other = re.compile("__pycache__|/bin/|[.]dist-info/(?!METADATA$|entry_points.txt$)").search

def content(one, files, source):
    # Hashes were listed when a package was installed; files that were written later are hashed anew.
    if source:
        found = [(os.path.relpath(file, source), hash_of(file)) for file in sources(source)]
    else:
        top = os.path.join(one.locate_file(""), "")
        listed = [name for name, _ in files if name.endswith(".dist-info/RECORD")]
        then = os.stat(top + listed[0]).st_mtime_ns if listed else 0
        found = []
        for name, known in files:
            place = os.path.join(top, name)
            if not is_other(name) and os.path.isfile(place) and os.access(place, os.R_OK):
                is_listed = known and os.stat(place).st_mtime_ns <= then
                found.append((name, known if is_listed else hash_of(place)))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()

found, hidden, folders = {}, [], []
for one in metadata.distributions():
    name = re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower()
    folder = os.path.realpath(one.locate_file(""))
    if folder not in folders:
        folders.append(folder)
    files = files_of(one)
    names = None if files is None else [file for file, _ in files]
    package = {"version": one.version, "folder": folder, "files": names, "requires": one.requires or []}
    if name and name not in found:
        direct = json.loads(one.read_text("direct_url.json") or "{}")
        is_editable = direct.get("dir_info", {}).get("editable")
        source = unquote(urlsplit(direct["url"]).path) if is_editable else ""
        package["source"], package["commit"] = source, direct.get("vcs_info", {}).get("commit_id", "")
        package["content"] = content(one, files or (), source)
        found[name] = package
    elif name:
        hidden.append(package)
print(json.dumps({"base": sys._base_executable, "folders": folders, "packages": found, "hidden": hidden}))
"""
_SHOWN_DIGITS = 7
_REST = "files of no package"
# Lines that a virtual environment begins with.
_SETTINGS = "home = {home}\ninclude-system-site-packages = false\n"


@dataclass(frozen=True, kw_only=True)
class _Package:
    """An installed package; ``files`` are relative to ``folder``, None where no list was kept.

    ``content`` is a hash of its code, ``commit`` the one that it was built from, and ``source`` the folder
    that an editable one is imported from.
    """

    version: str
    folder: str
    files: tuple[str, ...] | None
    requires: tuple[str, ...]
    content: str = ""
    commit: str = ""
    source: str = ""

    @functools.cached_property
    def tops(self) -> frozenset[str]:
        """Its files and folders at the top of the folder."""
        tops = {file.partition("/")[0] for file in self.files or ()}
        return frozenset(tops - {"..", "__pycache__", ""})

    @property
    def build(self) -> str:
        """The version with what distinguishes it from another build."""
        return f"{self.version} ({(self.commit or self.content)[:_SHOWN_DIGITS]})"


@dataclass(frozen=True, kw_only=True)
class _Content:
    """What an environment consists of: its Python outside of it, its folders, and its packages by name.

    Packages are ``hidden`` that a folder further back has as well.
    """

    base: str
    folders: tuple[str, ...]
    packages: Mapping[str, _Package]
    hidden: tuple[_Package, ...]


@dataclass(frozen=True)
class _Needed:
    """One package's requirement of another, in one of its versions."""

    owner: str
    side: Side
    text: str
    name: str

    def holds(self, version: str | None) -> bool:
        return version is not None and Requirement(self.text).specifier.contains(version, prereleases=True)


class Mixtures:
    """All environments between two; a group names what is in head's version: packages, Python, variables."""

    def __init__(self, environments: Environments, root: Path) -> None:
        self._ends = environments
        self._content = {side: answer_of(environments[side].interpreter, _PROBE, _Content) for side in SIDES}
        base, head = (self._content[side].packages for side in SIDES)
        # The project itself is measured at a commit.
        own = {name for found in (base, head) for name, one in found.items() if one.source == str(root)}
        rebuilt = {
            name: (base[name].build, head[name].build)
            for name in sorted((base.keys() & head.keys()) - own)
            if base[name].version == head[name].version and base[name].content != head[name].content
        }
        self.changes = {**self._others(), **rebuilt, **changed_members(environments)}
        # Launches between other environments are not comparable, nor those from before these were changed.
        self.ends = fingerprint(
            {
                side: repr(sorted((name, one.build) for name, one in found.items() if name not in own))
                for side, found in {"base": base, "head": head}.items()
            }
        )
        folders = dict.fromkeys(one for side in SIDES for one in self._content[side].folders)
        self._listed = {folder: _listing(folder) for folder in folders}
        pythons = [environments[side].python for side in SIDES]
        if pythons[0].rpartition(".")[0] != pythons[1].rpartition(".")[0]:
            raise UsageError(
                f"base has {pythons[0]} and head {pythons[1]}, and packages of one do not load in the other;"
                " give both environments one Python, or compare them as they are: perfkit gate --base-with"
            )
        for side in SIDES:
            for name in self.changes:
                one = self._content[side].packages.get(name)
                if one is not None and one.files is None:
                    raise UsageError(
                        f"{name} of {side} has no list of its files (RECORD), so it cannot be exchanged by"
                        f" itself; install it with pip or uv: pip install {name}=={one.version}"
                    )
        self._needed = tuple(self._all_needed())
        self._ignored = self._broken(frozenset()) | self._broken(frozenset(self.changes))

    @property
    def python(self) -> str:
        """The Python of base, which mixtures run where head's is the same."""
        return self._ends["base"].python

    @property
    def names(self) -> tuple[str, ...]:
        """The packages that differ."""
        return tuple(self.changes)

    def versions(self, group: Collection[str]) -> dict[str, str | None]:
        """Return the version of each package that differs, None where it is absent."""
        return {name: pair[name in group] for name, pair in self.changes.items()}

    def problem(self, group: Collection[str]) -> str | None:
        """Return the requirement that a mixture breaks and neither environment does; None where it can be."""
        broken = sorted(self._broken(frozenset(group)) - self._ignored, key=lambda one: (one.owner, one.text))
        if not broken:
            return None
        one = broken[0]
        found = self.versions(group).get(one.name)
        return f"{one.owner} needs {one.text}, found {found or 'none'}"

    def order(self, group: Collection[str] = (), names: Collection[str] | None = None) -> tuple[str, ...]:
        """Return packages in an order in which they can be upgraded one by one, after those of a group.

        Those that only go together are neighbours.
        """
        done, order = set(group), list[str]()
        left = [one for one in (self.names if names is None else names) if one not in done]
        while left:
            together = min((self._closure(one, done) for one in left), key=len)
            order += [one for one in left if one in together]
            done |= together
            left = [one for one in left if one not in together]
        return tuple(order)

    def with_needed(self, group: Collection[str]) -> frozenset[str]:
        """Return a group with the packages that have to go with it."""
        found = frozenset(group)
        for one in sorted(group):
            found |= self._closure(one, found - {one})
        return found

    def lay(self, group: Collection[str], place: Path) -> SideEnvironment:
        """Return the environment of a group, whose folder is made at ``place``."""
        for folder, listed in self._listed.items():
            if _listing(folder) != listed:
                raise NotMeasuredError(
                    f"the packages in {folder} were changed during the search; start it again"
                )
        if not group or len(group) == len(self.changes):
            return self._ends["head" if group else "base"]
        base, chosen = self._ends["base"], frozenset(group)
        python = place / "bin" / "python"
        python.parent.mkdir(parents=True)
        original = Path(self._content[self._side(PYTHON, chosen)].base)
        python.symlink_to(original)
        (place / "pyvenv.cfg").write_text(_SETTINGS.format(home=original.parent))
        version = ".".join(base.python.split()[-1].split(".")[:2])
        site = place / "lib" / f"python{version}" / "site-packages"
        site.mkdir(parents=True)
        whole = self._link(chosen, site)
        lines = [f"import site; site.addsitedir({folder!r})\n" for folder in whole]
        (site / "perfkit_others.pth").write_text("".join(lines))
        # A side that lacks pytest has it lent by a variable.
        lent = {**self._ends["head"].interpreter.variables, **base.interpreter.variables}
        given = {
            name: value
            for side in SIDES
            for name, value in self._ends[side].variables.items()
            if self._side(name, chosen) == side
        }
        every = {name for side in SIDES for name in self._ends[side].variables}
        variables = {
            name: value for name, value in {**lent, **given}.items() if name in given or name not in every
        }
        found = {**base.packages, **self.versions(group)}
        return SideEnvironment(
            wanted=(str(place),),
            interpreter=Interpreter(python=str(python), variables=variables),
            python=base.python,
            packages={name: version for name, version in found.items() if version is not None},
            named=None,
        )

    def _side(self, name: str, group: frozenset[str]) -> Side:
        return "head" if name in group else "base"

    def _all_needed(self) -> Iterator[_Needed]:
        """Yield the requirements that depend on what is mixed."""
        for side in SIDES:
            for owner, package in self._content[side].packages.items():
                if side == "head" and owner not in self.changes:
                    continue
                for text in package.requires:
                    name = _name_of(text)
                    if name is not None and (owner in self.changes or name in self.changes):
                        yield _Needed(owner, side, text.partition(";")[0].strip(), name)

    def _broken(self, group: frozenset[str]) -> frozenset[_Needed]:
        return frozenset(
            one
            for one in self._needed
            if one.side == self._side(one.owner, group) and not _holds(one, self._version(one.name, group))
        )

    def _version(self, name: str, group: frozenset[str]) -> str | None:
        one = self._content[self._side(name, group)].packages.get(name)
        return None if one is None else one.version

    def _closure(self, name: str, done: Collection[str]) -> frozenset[str]:
        """Return a package with those that have to be upgraded together with it."""
        found = frozenset({name, *done})
        while True:
            broken = self._broken(found) - self._ignored
            more = {one for needed in broken for one in (needed.owner, needed.name)} & self.changes.keys()
            if not more - found:
                return found - frozenset(done)
            found |= more

    def _link(self, group: frozenset[str], site: Path) -> list[str]:
        """Link the packages of a group's mixture; return the folders that no mixture changes."""
        mixed = {
            one.folder
            for side in SIDES
            for name, one in self._content[side].packages.items()
            if name in self.changes
        }
        # What lies in a folder of one side alone is not of the other.
        base, head = (set(self._content[side].folders) for side in SIDES)
        mixed |= base ^ head
        shared = self._shared_tops()
        chosen = [
            (name, self._content[self._side(name, group)].packages.get(name))
            for name in {**self._content["base"].packages, **self.changes}
        ]
        for _, one in chosen:
            if one is not None and one.folder in mixed:
                _link_package(one, shared, site)
        for place in self._rest(self._side(_REST, group)):
            if str(place.parent) in mixed:
                _link(place, site / place.name)
        return [folder for folder in self._listed if folder not in mixed]

    def _rest(self, side: Side) -> list[Path]:
        """Return what no package of a side owns, such as files that were put there by hand."""
        known = self._content[side]
        shared = self._shared_tops()
        owned = {(one.folder, top) for one in (*known.packages.values(), *known.hidden) for top in one.tops}
        return [
            entry
            for folder in known.folders
            if Path(folder).is_dir()
            for entry in sorted(Path(folder).iterdir())
            if entry.exists()
            and (folder, entry.name) not in owned
            and entry.name not in {"__pycache__", PRESENT, *shared}
        ]

    def _others(self) -> dict[str, tuple[str | None, str | None]]:
        """Return what differs besides packages: files of none, and the build of one Python."""
        base, head = (self._content[side] for side in SIDES)
        rest = [
            {
                place.name: content_of(place)
                for place in reversed(self._rest(side))
                if not {*base.folders} & {*head.folders} & {str(place.parent)}
            }
            for side in SIDES
        ]
        names = sorted(name for name in {**rest[0], **rest[1]} if rest[0].get(name) != rest[1].get(name))
        files = [{name: one[name] for name in names if name in one} for one in rest]
        described = [
            f"{', '.join(one)} ({fingerprint(one)[:_SHOWN_DIGITS]})" if one else None for one in files
        ]
        pythons = [
            f"{self._ends[side].python} ({Path(self._content[side].base).resolve()})" for side in SIDES
        ]
        found = {_REST: (described[0], described[1]), PYTHON: (pythons[0], pythons[1])}
        return {name: pair for name, pair in found.items() if pair[0] != pair[1]}

    def _shared_tops(self) -> frozenset[str]:
        """Return the files and folders at the top that several packages have parts of."""
        found = [
            Counter((one.folder, top) for one in self._content[side].packages.values() for top in one.tops)
            for side in SIDES
        ]
        return frozenset(top for one in found for (_, top), many in one.items() if many > 1)


@functools.cache
def _holds(needed: _Needed, version: str | None) -> bool:
    return needed.holds(version)


def _listing(folder: str) -> frozenset[tuple[str, int]]:
    """Return which packages are in a folder, which may be gone by now, and since when."""
    infos = (".dist-info", ".egg-info")
    return frozenset(
        (one.name, one.stat().st_mtime_ns) for one in Path(folder).glob("*-info") if one.suffix in infos
    )


def _name_of(text: str) -> str | None:
    """Return the package that a requirement names; None where it does not hold here, or is an extra's."""
    try:
        one = Requirement(text)
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            return None
    except (InvalidRequirement, UndefinedEnvironmentName):
        return None
    return canonicalize_name(one.name)


def _link_package(one: _Package, shared: Collection[str], site: Path) -> None:
    folder = Path(one.folder)
    for top in one.tops - set(shared):
        _link(folder / top, site / top)
    for file in one.files or ():
        top, _, rest = file.partition("/")
        # Data files lie beside the folder of packages; programs would start the Python that they came with.
        is_data = top == ".." and not rest.startswith("../../bin/")
        if is_data or (top in shared and rest and "__pycache__" not in rest):
            place = Path(os.path.normpath(site / file))
            place.parent.mkdir(parents=True, exist_ok=True)
            _link(folder / file, place)


def _link(source: Path, target: Path) -> None:
    # The first one is the one that Python would import.
    if os.path.lexists(source) and not os.path.lexists(target):
        target.symlink_to(source)
