"""The options of pytest's cache, for sessions without one: a project may have them, and they change nothing.

Such a session is given ``-p no:cacheprovider``, so that nothing of it stays, and pytest then refuses these
options as unknown. Loaded as a plugin, this module knows them.
"""

from __future__ import annotations

import pytest

_FLAGS = {
    "lf": ("--lf", "--last-failed"),
    "failedfirst": ("--ff", "--failed-first"),
    "newfirst": ("--nf", "--new-first"),
    "cacheclear": ("--cache-clear",),
    "stepwise": ("--sw", "--stepwise"),
    "stepwise_skip": ("--sw-skip", "--stepwise-skip"),
    "stepwise_reset": ("--sw-reset", "--stepwise-reset"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options as pytest has them, and the setting of the cache's folder."""
    group = parser.getgroup("general")
    for place, names in _FLAGS.items():
        group.addoption(*names, dest=place, action="store_true", default=False)
    group.addoption("--lfnf", "--last-failed-no-failures", dest="last_failed_no_failures", default="all")
    parser.addini("cache_dir", "The folder of the cache that this session has not.", default="")
