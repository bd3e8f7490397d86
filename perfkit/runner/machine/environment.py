"""The software environment: interpreter, torch, threads, allocator and precision flags."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
from collections.abc import Mapping

from perfkit.identity import fingerprint
from perfkit.model import ABSENT, Environment
from perfkit.runner.agent.torch_settings import read_torch_settings
from perfkit.runner.machine.devices import own_devices

_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "LD_PRELOAD",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
)


def read_environment(
    variables: Mapping[str, str] = os.environ,
    *,
    torch_settings: Mapping[str, str] | None = None,
    installed: Mapping[str, str] | None = None,
) -> Environment:
    """Return the environment of this process, or of another one by its variables and torch's settings.

    Torch's settings are known only where torch is loaded. ``installed`` says what another interpreter has:
    its "python", "torch" and whatever else tells it from others.
    """
    facts = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "torch": _version("torch"),
        **(installed or {}),
        **{name: variables[name] for name in _VARIABLES if name in variables},
        **(read_torch_settings() if torch_settings is None else torch_settings),
        **own_devices().environment(),
    }
    return Environment(env_id=fingerprint(facts), facts=facts)


@functools.cache
def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT
