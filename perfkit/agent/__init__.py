"""The code inside measured children, loaded under a private name, so that it can measure perfkit itself.

It needs the standard library, pytest and pytest-benchmark, and imports torch only in order to count with it.
"""

FIXTURE_NAME = "benchmark"
# This file in a child's temporary folder names what its session is collecting.
COLLECTING = "collecting"
# A session that has this variable counts nothing beside its times.
NO_COUNTS = "PERFKIT_NO_COUNTS"
MARKERS = (
    "perfkit(margin, gate, limit, result): how `perfkit gate` treats a benchmark",
    "perfkit(sentinel=True): a benchmark that depends on none of the project's code",
    "perfkit(flush_l2=True): empty the second-level cache of the accelerator before each call of a benchmark",
)
