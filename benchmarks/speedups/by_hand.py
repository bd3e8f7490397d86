"""Times the benchmarks of a module without perfkit or pytest: ``by_hand.py MODULE`` prints seconds a call."""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

_WARM_UP_S, _TIMED_S = 0.1, 0.3


class Benchmark:
    """Stands in for the fixture of pytest-benchmark; ``median_s`` is that of the calls."""

    median_s = 0.0

    def __call__(self, target: Callable[..., object], *args: object, **kwargs: object) -> object:
        """Time a call."""
        return self.pedantic(target, args, kwargs)

    def pedantic(
        self,
        target: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        setup: Callable[[], tuple[Sequence[object], Mapping[str, object]] | None] | None = None,
        **_: object,
    ) -> object:
        """Time a call with what ``setup`` makes for each one."""
        given: tuple[Sequence[object], Mapping[str, object]] = (args, kwargs or {})
        for limit_s in (_WARM_UP_S, _TIMED_S):
            taken: list[float] = []
            end = time.perf_counter() + limit_s
            while not taken or time.perf_counter() < end:
                args, kwargs = (setup and setup()) or given
                began = time.perf_counter()
                result = target(*args, **kwargs)
                taken.append(time.perf_counter() - began)
        self.median_s = statistics.median(taken)
        return result


def main() -> None:
    """Print the times of all benchmarks of the module that is named, each in a process of its own."""
    module = importlib.import_module(sys.argv[1])
    if name := "".join(sys.argv[2:]):
        benchmark = Benchmark()
        vars(module)[name](benchmark)
        print(benchmark.median_s)
        return
    names = [name for name in vars(module) if name.startswith("test_")]
    runs = {name: [sys.executable, "-P", __file__, sys.argv[1], name] for name in names}
    print(json.dumps({name: float(subprocess.check_output(run, text=True)) for name, run in runs.items()}))


if __name__ == "__main__":
    main()
