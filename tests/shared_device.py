"""The text of a module for both trees: a device whose memory all processes share, by files in a folder."""

from __future__ import annotations

# torch knows it by a kind of its own. By its clock a call takes a thousandth of a second, the first ones of a
# process longer. What is set to disturb makes it half as long again where another process holds memory.
SHARED_DEVICE = """
import fcntl, os, types
from contextlib import contextmanager
from pathlib import Path
import torch

PLACE, TOTAL = Path(os.environ["FAKE_DEVICE"]), 80 << 30
COLD_S = [0.06, 0.008, 0.008]
held, calls, now_s = 0, 0, 0.0

def clock():
    return now_s

def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

def others():
    found = [one for one in PLACE.glob("[0-9]*") if int(one.name) != os.getpid() and alive(int(one.name))]
    return sum(int(one.read_text()) for one in found)

@contextmanager
def one_at_a_time():
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

def allocate(gib):
    global held, calls
    with one_at_a_time():
        if others() + held + (gib << 30) > TOTAL:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {gib} GiB.")
        held, calls = held + (gib << 30), 0
        written = PLACE / f"of-{os.getpid()}"
        written.write_text(str(held))
        written.rename(PLACE / str(os.getpid()))

def note(text):
    with (PLACE / "seen.txt").open("a") as file:
        print(text, os.getpid(), others() >> 30, file=file)

def work():
    global calls, now_s
    cold_s = COLD_S[calls] if calls < len(COLD_S) else 0.0
    calls += 1
    factor = 1.5 if (PLACE / "disturbs").exists() and others() else 1.0
    now_s += cold_s + 0.001 * factor

torch.fakedev = types.SimpleNamespace(
    is_initialized=lambda: held > 0,
    synchronize=lambda index=None: None,
    device_count=lambda: 1,
    current_device=lambda: 0,
    memory_reserved=lambda index=None: held,
    max_memory_reserved=lambda index=None: held,
    mem_get_info=lambda index=None: (TOTAL - held - others(), TOTAL),
)
torch.accelerator.current_accelerator = lambda check_available=False: types.SimpleNamespace(type="fakedev")
"""
