"""The typed records that cross module boundaries: frozen, keyword-only, complete.

Times are in seconds and UTC, sizes in bytes; ``None`` means "not known", never 0.
"""

from perfkit.records.profiles import PassName, PassSummary, ProfileEntry, ProfileSummary
from perfkit.records.results import (
    SIDES,
    WALL_TIME,
    Benchmark,
    Better,
    Commit,
    Environment,
    Machine,
    Metric,
    Outcome,
    Placement,
    Row,
    RunSummary,
    Side,
    Source,
    Status,
)

__all__ = [
    "SIDES",
    "WALL_TIME",
    "Benchmark",
    "Better",
    "Commit",
    "Environment",
    "Machine",
    "Metric",
    "Outcome",
    "PassName",
    "PassSummary",
    "Placement",
    "ProfileEntry",
    "ProfileSummary",
    "Row",
    "RunSummary",
    "Side",
    "Source",
    "Status",
]
