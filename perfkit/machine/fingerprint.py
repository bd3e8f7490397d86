"""Short stable identities of sets of facts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

_DIGITS = 12


def fingerprint(facts: Mapping[str, str]) -> str:
    """Return 12 hex digits that depend on the facts alone, not on their order."""
    canonical = json.dumps(dict(facts), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:_DIGITS]
