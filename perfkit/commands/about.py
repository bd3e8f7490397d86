"""``perfkit --version --env``: what somebody who looks into a bug has to know, a fact a line."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator

from perfkit.model import ABSENT
from perfkit.runner.machine.facts import read_environment, read_machine


def about_lines() -> Iterator[str]:
    """Yield versions, system, CPU and GPUs without importing torch, which may be broken."""
    software, machine = read_environment(torch_settings={}).facts, read_machine().facts
    yield f"perfkit {_version('perfkit')}"
    yield f"Python: {software['python']}"
    yield f"torch: {software['torch']}"
    yield f"pytest: {_version('pytest')}"
    yield f"pytest-benchmark: {_version('pytest-benchmark')}"
    yield f"OS: {platform.platform()}"
    yield f"CPU: {machine['cpu']}"
    yield f"cores: {machine['physical_cpus']} physical, {machine['logical_cpus']} logical"
    yield f"GPU: {machine['gpus'] or 'none seen'}"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT
