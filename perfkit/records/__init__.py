"""The typed records that modules hand to one another: frozen dataclasses with keyword arguments only.

Times are in seconds and UTC, sizes in bytes; ``None`` means "not known", never 0.
"""

from perfkit.records.phases import PHASES
from perfkit.records.profiles import (
    Balance,
    LineTime,
    PassName,
    PassSummary,
    PhaseSeconds,
    ProfileEntry,
    ProfileSummary,
    RatioInterval,
    RoleProfile,
)
from perfkit.records.results import (
    OF_CHANGED_CODE,
    SIDES,
    TYPICAL_TIME,
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
    RowPolicy,
    RunSummary,
    Side,
    Source,
    Status,
)

__all__ = [
    "OF_CHANGED_CODE",
    "PHASES",
    "SIDES",
    "TYPICAL_TIME",
    "WALL_TIME",
    "Balance",
    "Benchmark",
    "Better",
    "Commit",
    "Environment",
    "LineTime",
    "Machine",
    "Metric",
    "Outcome",
    "PassName",
    "PassSummary",
    "PhaseSeconds",
    "Placement",
    "ProfileEntry",
    "ProfileSummary",
    "RatioInterval",
    "RoleProfile",
    "Row",
    "RowPolicy",
    "RunSummary",
    "Side",
    "Source",
    "Status",
]
