"""What the control groups of this process may use, and for how long they were held back, in either version.

A quota may be that of the process's own group, as in a container, or of any group above it, as in a slice of
systemd or a job of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_OWN = "proc/self/cgroup"
# Where groups of the newer version are, and those of the older one that share cores out.
_NEWER, _OLDER = "sys/fs/cgroup", "sys/fs/cgroup/cpu"
_QUOTA, _OLDER_QUOTA = "cpu.max", ("cpu.cfs_quota_us", "cpu.cfs_period_us")
# The counter of each version, and how many of its units are a second.
_COUNTERS = {"throttled_usec": 1e6, "throttled_time": 1e9}


def cores_of_group(root: Path = Path("/")) -> float | None:
    """Return how many cores this process's groups may use, None where it may use all.

    ``root`` holds proc and sys.
    """
    return min((share for group in _groups(root) if (share := _share(group)) is not None), default=None)


def throttled_s(root: Path = Path("/")) -> float | None:
    """Return for how many seconds the quotas of its groups were used up, None where nobody says.

    Where several groups have one, their times are added up, so that each shows in what came since.
    """
    found = [seconds for group in _groups(root) if (seconds := _throttled_s(group)) is not None]
    return sum(found) if found else None


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's groups, from its own one up to the topmost that can be seen.

    In a container that one is its own, whatever path the process is told.
    """
    paths = {_NEWER: "/", _OLDER: "/"}
    for line in (_read(root / _OWN) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            paths[_OLDER if controllers else _NEWER] = path
    for mount, path in paths.items():
        own = PurePosixPath(path.lstrip("/"))
        # A path that begins with ".." is that of a group outside of what can be seen.
        for one in [PurePosixPath()] if ".." in own.parts else [own, *own.parents]:
            yield root / mount / one


def _share(group: Path) -> float | None:
    quota = (_read(group / _QUOTA) or "").split() or [_read(group / name) or "" for name in _OLDER_QUOTA]
    if not all(one.isdigit() for one in quota):
        # The newer version says "max" and the older one -1 where there is no quota.
        return None
    share, period = quota
    return int(share) / int(period)


def _throttled_s(group: Path) -> float | None:
    for name, _, value in (line.partition(" ") for line in (_read(group / "cpu.stat") or "").splitlines()):
        if name in _COUNTERS:
            return int(value) / _COUNTERS[name]
    return None


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
