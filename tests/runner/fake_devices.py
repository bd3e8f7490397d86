"""Devices for tests: one in Python that writes down what is asked of it, and a backend of torch in C++."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_device.cpp")
# What a program does first to have the device as torch's accelerator; ``fake`` is the extension.
PREPARE = f"""
import sys, types
import torch
from torch.utils.cpp_extension import load

fake = load("perfkit_fake_device", [{str(SOURCE)!r}], build_directory=sys.argv[1], extra_cflags=["-O0"])
fake.install()
torch.utils.rename_privateuse1_backend("fakedev")
module = types.ModuleType("fakedev")
module.is_initialized = lambda: True
module.device_count = lambda: 1
torch._register_device_module("fakedev", module)
"""


def can_build() -> bool:
    """Return whether this machine has what the backend is built with."""
    return shutil.which("c++") is not None and shutil.which("ninja") is not None


@dataclass
class FakeEvent:
    """A point in the fake device's queue."""

    device: FakeAccelerator
    at_s: float | None = None

    def record(self) -> None:
        """Put it behind the work so far."""
        self.device.happened.append("event")
        self.at_s = max(self.device.now_s, self.device.done_s)

    def elapsed_time(self, other: FakeEvent) -> float:
        """Return milliseconds; as torch does, refuse where the device has not reached both."""
        if self.at_s is None or other.at_s is None or other.at_s > self.device.now_s:
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (other.at_s - self.at_s) * 1e3


@dataclass
class FakeAccelerator:
    """A device beside a clock that stands still until one of them works."""

    has_events: bool = True
    now_s: float = 100.0
    done_s: float = 0.0
    happened: list[str] = field(default_factory=list)

    def read_clock(self) -> float:
        """Return the time of the host."""
        self.happened.append("clock")
        return self.now_s

    def launch(self, host_s: float, device_s: float) -> None:
        """Take the host's time to queue work that takes the device's time."""
        self.now_s += host_s
        self.done_s = max(self.now_s, self.done_s) + device_s
        self.happened.append("launched")

    def synchronise(self) -> None:
        """Let the host wait until all is done."""
        self.now_s = max(self.now_s, self.done_s)
        self.happened.append("synchronised")

    def event(self) -> FakeEvent | None:
        """Return a new event."""
        return FakeEvent(self) if self.has_events else None

    def flush(self) -> None:
        """Queue a long write."""
        self.launch(0.001, 1.0)
        self.happened[-1] = "flushed"
