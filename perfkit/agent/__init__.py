"""The code that runs inside a measured child: stdlib, pytest and pytest-benchmark only.

It is loaded under a private package name, so that it may measure perfkit itself.
"""

FIXTURE_NAME = "benchmark"
# The file in a child's temporary folder that says what its session is collecting.
COLLECTING = "collecting"
MARKER = "perfkit(margin, gate, limit): how `perfkit gate` treats a benchmark"
