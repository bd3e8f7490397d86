"""What the control group of a container may use, and for how long it was held back, in either version."""

from __future__ import annotations

from pathlib import Path

_GROUPS = "sys/fs/cgroup"
_QUOTA, _OLDER_QUOTA = "cpu.max", ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
# The file and the counter of each version, and how many of its units are a second.
_COUNTERS = (("cpu.stat", "throttled_usec", 1e6), ("cpu/cpu.stat", "throttled_time", 1e9))


def cores_of_group(root: Path = Path("/")) -> float | None:
    """Return how many cores the group may use, None where it may use all; ``root`` holds its folder."""
    quota = (_read(root, _QUOTA) or "").split() or [_read(root, name) or "" for name in _OLDER_QUOTA]
    if not all(one.isdigit() for one in quota):
        # The newer version says "max" and the older one -1 where there is no quota.
        return None
    share, period = quota
    return int(share) / int(period)


def throttled_s(root: Path = Path("/")) -> float | None:
    """Return for how many seconds the group's quota was used up, None where nobody says."""
    for place, counter, units in _COUNTERS:
        for name, _, value in (line.partition(" ") for line in (_read(root, place) or "").splitlines()):
            if name == counter:
                return int(value) / units
    return None


def _read(root: Path, place: str) -> str | None:
    try:
        return (root / _GROUPS / place).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
