"""The environment variables of a launch: a fixed allocator and a hash seed of its own."""

from __future__ import annotations

from collections.abc import Mapping

# glibc hands freed memory back to the kernel above these sizes; raised, page faults no longer decide.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


def fixed_environment(environment: Mapping[str, str], *, hash_seed: int) -> dict[str, str]:
    """Return ``environment`` with what would otherwise differ or decide from launch to launch."""
    return {
        **environment,
        **ALLOCATOR,
        "PYTHONHASHSEED": str(hash_seed),
        # Without it a mere question for a GPU may initialise CUDA, and forked children could not use it.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
