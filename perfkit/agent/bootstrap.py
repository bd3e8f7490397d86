"""Entry points of fresh processes; the command line that loads the agent is made in the coordinator."""

from __future__ import annotations

import json

from .child import run_child
from .preloader import serve
from .process import die_with_parent


def preload(descriptor: int) -> None:
    """Be a preloader for the coordinator at the other end of a socket."""
    serve(descriptor)


def run_fresh(descriptor: int, assignment: str) -> None:
    """Be a child that was not forked."""
    die_with_parent()
    run_child(json.loads(assignment), descriptor)
