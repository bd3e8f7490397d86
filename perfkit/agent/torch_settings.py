"""Whether there is torch, and the settings of it that decide how fast it computes."""

from __future__ import annotations

import importlib.util
import sys


def has_torch() -> bool:
    """Return whether torch is loaded or could be imported."""
    return sys.modules.get("torch") is not None or importlib.util.find_spec("torch") is not None


def read_torch_settings() -> dict[str, str]:
    """Return torch's threads and precision flags; nothing where torch is not loaded."""
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
