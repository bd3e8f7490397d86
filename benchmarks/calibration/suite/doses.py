"""How many units of its own work each benchmark does; 20 is the undosed amount.

A slowdown is injected by changing a number here: 21 units instead of 20 are 5 % more work by construction.
``EVERY_TENTH`` is the work of each tenth call, None where it is like any other.
"""

from __future__ import annotations

UNITS = {
    "tensor": 20,
    "loss": 20,
    "training": 20,
    "loading": 20,
    "python": 20,
    "allocation": 20,
    "workers": 20,
    "threads": 20,
}
EVERY_TENTH: dict[str, int] = {}
