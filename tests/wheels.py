"""These helpers make small wheels by hand, so that a test can install two versions of a package offline."""

from __future__ import annotations

import zipfile
from pathlib import Path

_WHEEL = "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheel(
    folder: Path, name: str, version: str, text: str, *, needs: str | None = None, data: str = ""
) -> Path:
    """Write a wheel of one module, and return it; it may need another package, and have a data file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    described = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    content = {
        f"{name}.py": text,
        f"{info}/METADATA": described + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": _WHEEL,
        **({f"{name}-{version}.data/data/{data}": version} if data else {}),
    }
    listed = "".join(f"{place},,\n" for place in (*content, f"{info}/RECORD"))
    with zipfile.ZipFile(file, "w") as archive:
        for place, output in (*content.items(), (f"{info}/RECORD", listed)):
            archive.writestr(place, output)
    return file
