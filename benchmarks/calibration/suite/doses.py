"""How many units of its own work each benchmark does; 100 is the undosed amount.

A slowdown is planted by changing a number here: 103 units instead of 100 are 3 % more work by construction.
``EVERY_TENTH`` is the work of each tenth call, None where it is like any other.
"""

from __future__ import annotations

UNITS = {
    "tensor": 100,
    "loss": 100,
    "training": 100,
    "loading": 100,
    "python": 100,
    "allocation": 100,
}
EVERY_TENTH: dict[str, int] = {}
