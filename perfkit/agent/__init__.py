"""The code inside measured children, loaded under a private name, so that it can measure perfkit itself.

It needs the standard library, pytest and pytest-benchmark, and imports torch only in order to count with it.
"""

FIXTURE_NAME = "benchmark"
# This file in a child's temporary folder names what its session is collecting.
COLLECTING = "collecting"
MARKER = "perfkit(margin, gate, limit, sentinel): how perfkit treats a benchmark"
