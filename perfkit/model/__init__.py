"""The typed records that modules hand to one another: frozen dataclasses with keyword arguments only.

Times are in seconds and UTC, sizes in bytes; ``None`` means "not known", never 0.
"""

from perfkit.model.profiles import (
    Balance,
    LineTime,
    PassName,
    PassSummary,
    PeriodTime,
    PhaseSeconds,
    ProfileEntry,
    ProfileSummary,
    RankProfile,
    RatioInterval,
    RoleProfile,
    Straggler,
)
from perfkit.model.readings import PHASES, LineMemory, MemoryProfile
from perfkit.model.results import (
    ABSENT,
    ALL_STEPS,
    COLD_AUTOTUNING,
    COLD_COMPILING,
    COLD_START,
    DEVICE_TIME,
    GATES,
    HOST_TIME,
    IMPORT_PREFIX,
    OF_CHANGED_CODE,
    OF_PAIRS,
    PACKAGE,
    SIDES,
    STEP_TIME,
    TIME_SET_ASIDE,
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
    Summary,
)

__all__ = [
    "ABSENT", "ALL_STEPS", "COLD_AUTOTUNING", "COLD_COMPILING", "COLD_START", "DEVICE_TIME", "GATES",
    "HOST_TIME", "IMPORT_PREFIX", "OF_CHANGED_CODE", "OF_PAIRS", "PACKAGE", "PHASES", "SIDES", "STEP_TIME",
    "TIME_SET_ASIDE", "TYPICAL_TIME", "WALL_TIME", "Balance", "Benchmark", "Better", "Commit",
    "Environment", "LineMemory", "LineTime", "Machine", "MemoryProfile", "Metric", "Outcome",
    "PassName", "PassSummary", "PeriodTime", "PhaseSeconds", "Placement", "ProfileEntry", "ProfileSummary",
    "RankProfile", "RatioInterval", "RoleProfile", "Row", "RowPolicy", "RunSummary", "Side", "Source",
    "Status", "Straggler", "Summary",
]  # fmt: skip
