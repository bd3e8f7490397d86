"""Where the steps of a training end, found by what repeats in them."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary, WeakSet


class StepEnds:
    """Finds the ends of steps from the steps of optimizers and the batches of loaders.

    A step is over when an optimizer that stepped in it steps again, or an iterator that gave it a batch gives
    another one after that: then ``end`` is called late. The optimizer that was last in a step is expected to
    be so in the next one, whose end is then known at once; ``extend`` is called where another one follows,
    unless steps of the same one followed each other without a batch: then the other one trains another part.
    """

    def __init__(self, end: Callable[[], None], extend: Callable[[], None], last: int | None = None) -> None:
        self._end, self._extend = end, extend
        self.last, self.is_late = last, False
        self._numbers: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        # How many have stepped, and how many at most in one step.
        self.optimizers = self.most = 0
        self._stepped: set[int] = set()
        self._gave: WeakSet[object] = WeakSet()
        self._gave_before: WeakSet[object] = WeakSet()
        # The optimizers of the last step, until it is sure that it is over.
        self._extensible: set[int] = set()
        # Those of the last step, and whether they repeat without batches.
        self._before: set[int] = set()
        self._repeats = False

    def begin_update(self, optimizer: object) -> None:
        """Note that an optimizer is about to step."""
        if self._number(optimizer) in self._stepped:
            self._close()

    def end_update(self, optimizer: object) -> None:
        """Note that an optimizer has stepped."""
        number = self._number(optimizer)
        is_new = bool(self._extensible) and not self._stepped and number not in self._extensible
        if is_new and self._repeats:
            self.last = number
        elif is_new:
            self._extensible.add(number)
            self.last, self.most = number, max(self.most, len(self._extensible))
            self._extend()
            return
        self._stepped.add(number)
        self.most = max(self.most, len(self._stepped))
        if self.last is None or (self.last < self.optimizers and self.last not in self._numbers.values()):
            self.last = number
        if number == self.last:
            self._extensible = self._close()

    def give(self, iterator: object) -> None:
        """Note that an iterator is about to give a batch."""
        if self._stepped and iterator in self._gave:
            self.is_late = True
            self._close()
        if iterator in self._gave_before:
            self._extensible = set()
        self._gave.add(iterator)

    def _close(self) -> set[int]:
        stepped, self._stepped, self._extensible = self._stepped, set(), set()
        self._repeats = stepped == self._before and not self._gave
        self._before = stepped
        self._gave_before, self._gave = self._gave, WeakSet()
        self._end()
        return stepped

    def _number(self, optimizer: object) -> int:
        if optimizer not in self._numbers:
            self._numbers[optimizer] = self.optimizers
            self.optimizers += 1
        return self._numbers[optimizer]
