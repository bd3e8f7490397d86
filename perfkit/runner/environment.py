"""The environment variables of a launch: a fixed allocator and a hash seed of its own."""

from __future__ import annotations

from collections.abc import Mapping

# glibc returns freed memory above these sizes to the kernel. They are raised, so that page faults, which
# come and go by chance, do not decide how long a round takes.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


def fixed_environment(environment: Mapping[str, str], *, hash_seed: int) -> dict[str, str]:
    """Return ``environment`` with fixed values for what would otherwise make launches differ."""
    return {
        **environment,
        **ALLOCATOR,
        "PYTHONHASHSEED": str(hash_seed),
        # Without it, asking whether there is a GPU may initialise CUDA, and forked children could not use it.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
