"""The journal of a study: one line per finished case, so that an interrupted study continues."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

Done = TypeVar("Done")


@dataclass(frozen=True, kw_only=True)
class Journal(Generic[Done]):
    """The finished cases of one kind in a file."""

    file: Path
    kind: type[Done]

    def outcomes(self) -> list[Done]:
        """Return the finished cases."""
        lines = self.file.read_bytes().splitlines() if self.file.exists() else []
        return [msgspec.json.decode(line, type=self.kind) for line in lines]

    def add(self, outcome: Done) -> None:
        """Add a finished case."""
        with self.file.open("ab") as stream:
            stream.write(msgspec.json.encode(outcome) + b"\n")


def replace_table(document: Path, name: str, table: str) -> None:
    """Replace the table between two comments of a document."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, _, rest = document.read_text().partition(begin)
    document.write_text(before + begin + table + end + rest.partition(end)[2])
