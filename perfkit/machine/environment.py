"""The software environment: interpreter, torch, threads, allocator and precision flags."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping

from perfkit.identity import fingerprint
from perfkit.records import Environment

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
    variables: Mapping[str, str] = os.environ, *, torch_settings: Mapping[str, str] | None = None
) -> Environment:
    """Return the environment of this process, or of another one by its variables and torch's settings.

    Torch's settings are known only where torch is loaded.
    """
    facts = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "torch": _version("torch"),
        **{name: variables[name] for name in _VARIABLES if name in variables},
        **(_torch_settings() if torch_settings is None else torch_settings),
    }
    return Environment(env_id=fingerprint(facts), facts=facts)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _torch_settings() -> dict[str, str]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {
        "cuda": str(torch.version.cuda),
        "threads": str(torch.get_num_threads()),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "cudnn_benchmark": str(torch.backends.cudnn.benchmark),
    }
