"""What a gate counts with callgrind: the instructions of each benchmark's call on both sides."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

from perfkit.compare.counts import CountedPair, Tally
from perfkit.compare.sequential import Contender
from perfkit.errors import UsageError
from perfkit.measure.lockstep.instructed import COMMANDS, Callgrind

# Under Valgrind a test takes minutes to come to its benchmark.
_LIMIT_S = 300.0


def check_valgrind() -> None:
    """Refuse to count instructions where nothing can.

    Raises:
        UsageError: Valgrind is not installed.
    """
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        raise UsageError(
            f"--instructions counts with Valgrind, but there is no {' and no '.join(missing)} on PATH:"
            " install Valgrind (apt install valgrind), or leave the option out"
        )


def count_instructions(
    contenders: Sequence[Contender], callgrind: Callgrind, *, say: Callable[[str], None]
) -> Tally:
    """Count each benchmark; ``say`` hears which one is next."""
    pairs = []
    for contender in contenders:
        node = contender.benchmark.name
        say(node)
        pairs.append(
            CountedPair(
                benchmark=contender.benchmark,
                counts=callgrind.count(node, limit_s=_LIMIT_S),
                training=False,
                gating=contender.gating,
            )
        )
    return Tally(pairs=tuple(pairs))
