"""What a training does besides training, by what runs: batches, passes without gradients, files."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Literal

from perfkit.agent.counters.interventions import Guard, Patches
from perfkit.model.readings import CHECKPOINT, EVALUATION, ROLLOUT
from perfkit.profiling.passes.balance import Moment

# So many passes without gradients in a row are a loop by themselves, and no part of a step.
_LOOP = 3
# After so many regions without gradients in which no module ran, others of that place are not looked at.
_OFTEN = 20
Site = tuple[str, int]


@dataclass(eq=False)
class _Event:
    """A batch, a region without gradients in which a module ran, a saved file, or a backward pass."""

    kind: Literal["batch", "region", "save", "backward"]
    begin: Moment
    end: Moment
    trained: bool | None = None
    site: Site = ("", 0)
    training: bool = False


@dataclass(frozen=True)
class Region:
    """A region without gradients from the first run of a module on, and what ``before`` gave ahead of it."""

    begin: Moment
    end: Moment
    before: int
    site: Site
    training: bool


@dataclass(kw_only=True)
class _Given:
    """What an iterator gave since the last backward pass; ``trained``: one followed it before."""

    dies: Any
    batches: int = 0
    samples: int | None = 0
    trained: bool = False
    events: list[_Event] = field(default_factory=list)


@dataclass(kw_only=True)
class Period:
    """Events in a row before the end of a ``step``, between which nothing is trained with."""

    step: int
    begin: Moment
    end: Moment
    is_save: bool
    training: bool
    batches: int = 0
    sites: Counter[Site] = field(default_factory=Counter)
    name: str = ""


@dataclass(frozen=True)
class Sites:
    """Where regions without gradients begin: those before the first update, and parts of steps."""

    early: set[Site] = field(default_factory=set)
    parts: set[Site] = field(default_factory=set)


class Periods:
    """Separates training from evaluation, rollouts and checkpoints, and the batches of each.

    A batch is trained with if a backward pass or an optimizer's step follows: an iterator that ends before,
    or gave more batches since the last backward pass than the latest iterator, is one of an evaluation.
    Passes of modules without gradients are periods where most steps have none, or several are in a row.
    """

    def __init__(
        self,
        now: Callable[[], Moment],
        *,
        on_batch: Callable[[object], None] = lambda _: None,
        on_backward: Callable[[], None] = lambda: None,
        sites: Sites | None = None,
    ) -> None:
        self.now, self._on_batch, self._on_backward = now, on_batch, on_backward
        self._sites = sites or Sites()
        self._thread = get_ident()
        self._guarded = Guard(self.close)
        self._patches = Patches()
        self._given: dict[int, _Given] = {}
        self._latest: _Given | None = None
        self._batches: Counter[int] = Counter()
        self._events: list[_Event] = []
        self._periods: list[Period] = []
        self._steps_with: defaultdict[Site, set[int]] = defaultdict(set)
        # Where each batch is a step and nothing is trained, the loop's own passes are no evaluation.
        self.only_batches = False
        # Whether anything was trained with in the present step.
        self.has_trained = False
        # Batches of a typical loader in all steps, the samples of all, and the seconds in which they came.
        self.batches = 0
        self.samples: int | None = 0
        self.wait_s = 0.0
        self.workers: int | None = None

    def watch(self) -> None:
        """Notice batches, backward passes, regions without gradients and saved files from now on."""
        import torch
        from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter

        self._thread = get_ident()
        replace = self._patches.replace
        for name in ("backward", "grad"):
            replace(torch.autograd, name, self._noticed_backward(getattr(torch.autograd, name)))
        fetch, begin = self._noticed_fetches(_BaseDataLoaderIter.__next__, DataLoader.__iter__)
        replace(_BaseDataLoaderIter, "__next__", fetch)
        replace(DataLoader, "__iter__", begin)
        notice_saves(self._patches, self._guarded, now=self._moment, note=self._note_save)
        regions = Regions(
            self._guarded, now=self._moment, note=self._note_region, before=lambda: len(self._events)
        )
        regions.notice(self._patches)

    def close(self) -> None:
        """Notice nothing more."""
        self._thread = -1
        self._patches.undo()

    def _moment(self) -> Moment:
        # The clock is replaced where a pass has one of its own.
        return self.now()

    def end_step(self, step: int, until: Moment) -> None:
        """Note the end of a step; what began later belongs to the next one."""
        self._guarded.check()
        if not self.has_trained:
            self.train()
        self.has_trained = False
        self.batches += max(self._batches.values(), default=0)
        self._batches.clear()
        events = [one for one in self._events if one.begin.at_s < until.at_s]
        self._events = [one for one in self._events if one.begin.at_s >= until.at_s]
        self._events += [one for one in events if one.kind == "batch" and one.trained is None]
        self._sort(step, (one for one in events if one.kind != "batch" or one.trained is not None))

    def found(self, steps: int) -> list[Period]:
        """Return all periods, once the training is over."""
        self._guarded.check()
        for key in list(self._given):
            self._end(key)
        self._sort(steps, self._events)
        self._events = []
        for one in self._periods:
            one.name = self._name(one, steps)
            if not one.name:
                self._sites.parts.update(one.sites)
        return [one for one in self._periods if one.name]

    def _name(self, one: Period, steps: int) -> str:
        if one.is_save:
            return CHECKPOINT
        found_in = [self._steps_with[site] for site in one.sites]
        # A teacher is asked before the first update, a look at the new weights comes after each.
        is_needed = one.training or not self._sites.early.isdisjoint(one.sites)
        is_usual = is_needed and all(2 * len(steps_with) > steps for steps_with in found_in)
        if self.only_batches or (not one.batches and is_usual and max(one.sites.values()) < _LOOP):
            return ""
        return EVALUATION if one.batches or not one.training else ROLLOUT

    def _sort(self, step: int, events: Iterable[_Event]) -> None:
        period: Period | None = None
        for event in sorted(events, key=lambda one: one.begin.at_s):
            if event.kind == "backward" or event.trained:
                period = None
                continue
            is_save = event.kind == "save"
            if event.kind == "region" and not step:
                self._sites.early.add(event.site)
            if period is not None and self._is_apart(event, period):
                period = None
            if period is None:
                begin, end, training = event.begin, event.end, event.training
                period = Period(step=step, begin=begin, end=end, is_save=is_save, training=training)
                self._periods.append(period)
            if event.end.at_s > period.end.at_s:
                period.end = event.end
            period.batches += event.kind == "batch"
            if event.kind == "region":
                period.sites[event.site] += 1
                self._steps_with[event.site].add(step)

    def _is_apart(self, event: _Event, period: Period) -> bool:
        # A file that is saved amid an evaluation is part of it; one before or after it is not.
        if period.is_save != (event.kind == "save"):
            return event.begin.at_s > period.end.at_s
        # Nor is a teacher, asked for the next step, part of a look at the weights after the last one.
        is_late = self._sites.early.isdisjoint(period.sites)
        return event.kind == "region" and bool(period.sites) and is_late == (event.site in self._sites.early)

    def train(self) -> None:
        """Note a backward pass or an update: what was given before it was trained with."""
        self.has_trained = True
        most = self._latest.batches if self._latest is not None else 0
        # An iterator may be collected meanwhile.
        for key, given in list(self._given.items()):
            self._decide(key, given, trained=0 < given.batches <= most)
        self._latest = None

    def _decide(self, key: int, given: _Given, *, trained: bool) -> None:
        for event in given.events:
            event.trained = trained
        if trained:
            given.trained = True
            self._batches[key] += given.batches
            self.samples = _sum(self.samples, given.samples)
            self.wait_s += sum(event.end.at_s - event.begin.at_s for event in given.events)
        given.batches, given.samples, given.events = 0, 0, []

    def _give(self, iterator: Any, event: _Event, batch: object, *, is_over: bool) -> None:  # noqa: ANN401 (torch's private iterator)
        import torch

        key = id(iterator)
        given = self._given.get(key)
        if given is None:
            given = self._given[key] = _Given(dies=weakref.ref(iterator, lambda _: self._end(key)))
        self._events.append(event)
        self.workers = max(self.workers or 0, iterator._num_workers)  # noqa: SLF001 (no public name)
        if not (torch.is_grad_enabled() or self.only_batches):
            event.trained = False
            return
        given.events.append(event)
        if is_over:
            self._end(key)
            return
        given.batches += 1
        given.samples = _sum(given.samples, batch_size(batch))
        self._latest = given

    def _end(self, key: int) -> None:
        given = self._given.pop(key, None)
        if given is not None:
            # A loop that fetches ahead may see the end before its last backward passes.
            self._decide(key, given, trained=given.trained)
        if given is self._latest:
            self._latest = None

    def _noticed_backward(self, backward: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        import torch

        is_compiling = torch.compiler.is_compiling

        @self._guarded
        def note() -> None:
            self.only_batches = False
            self._on_backward()
            self.train()
            if not (self._events and self._events[-1].kind == "backward"):
                now = self.now()
                self._events.append(_Event("backward", now, now))

        @functools.wraps(backward)
        def noticed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (likewise)
            if not is_compiling() and get_ident() == self._thread:
                note()
            return backward(*args, **kwargs)

        return noticed

    def _noticed_fetches(self, fetch: Any, begin: Any) -> tuple[Any, Any]:  # noqa: ANN401 (likewise)
        is_nested = False
        begun: dict[int, Moment | None] = {}
        now, on_batch = self._guarded(self._moment), self._guarded(self._on_batch)

        @self._guarded
        def give(iterator: Any, since: Moment | None, batch: object, is_over: bool) -> None:  # noqa: ANN401, FBT001 (torch's private iterator; of this function alone)
            if since is not None:
                self._give(iterator, _Event("batch", since, self.now()), batch, is_over=is_over)

        @functools.wraps(begin)
        def noticed_begin(loader: Any) -> Any:  # noqa: ANN401 (likewise)
            if is_nested or get_ident() != self._thread:
                return begin(loader)
            since = now()
            iterator = begin(loader)
            begun[id(iterator)] = since
            return iterator

        @functools.wraps(fetch)
        def noticed_fetch(iterator: Any) -> Any:  # noqa: ANN401 (torch's private iterator, the user's batch)
            nonlocal is_nested
            # A loader inside of another's dataset gives nothing to the loop.
            if is_nested or get_ident() != self._thread:
                return fetch(iterator)
            on_batch(iterator)
            is_nested = is_over = True
            since = begun.pop(id(iterator), None) or now()
            batch = None
            try:
                batch = fetch(iterator)
                is_over = False
            finally:
                is_nested = False
                give(iterator, since, batch, is_over)
            return batch

        return noticed_fetch, noticed_begin

    def _note_save(self, begin: Moment, end: Moment) -> None:
        self._events.append(_Event("save", begin, end))

    def _note_region(self, region: Region) -> None:
        if all(one.kind != "backward" for one in self._events[region.before :]):
            self._events.append(
                _Event("region", region.begin, region.end, site=region.site, training=region.training)
            )


def notice_saves(
    patches: Patches, guarded: Guard, *, now: Callable[[], Moment], note: Callable[[Moment, Moment], None]
) -> None:
    """Call ``note`` with the begin and the end of each saving of tensors in this thread."""
    import torch

    thread = get_ident()
    read, noted = guarded(now), guarded(note)

    def noticed(save: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        @functools.wraps(save)
        def noticed_save(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (likewise)
            since = read()
            try:
                return save(*args, **kwargs)
            finally:
                until = read()
                if since is not None and until is not None and get_ident() == thread:
                    noted(since, until)

        return noticed_save

    patches.replace(torch, "save", noticed(torch.save))
    with contextlib.suppress(ImportError):
        tensors: Any = importlib.import_module("safetensors.torch")
        patches.replace(tensors, "save_file", noticed(tensors.save_file))


class Regions:
    """Calls ``note`` with each outermost region in which a module ran without gradients, once it ends.

    Those that begin at a place ``passed_over`` are left alone, as later all are in which none ran so often.
    """

    def __init__(
        self,
        guarded: Guard,
        *,
        now: Callable[[], Moment],
        note: Callable[[Region], None],
        before: Callable[[], int] = lambda: 0,
        passed_over: set[Site] | None = None,
    ) -> None:
        self._now, self._note, self._before = now, note, before
        self._passed_over = set() if passed_over is None else passed_over
        self._unused: Counter[Site] = Counter()
        self._thread = get_ident()
        # The outermost region, what was before it and its place; once a module ran in it, when that was and
        # whether it trains.
        self._outer: list[Any] = []
        self._call, self._end, self._site = guarded(self._note_call), guarded(self._note_end), guarded(_site)

    def notice(self, patches: Patches) -> None:
        """Notice them until the patches are undone."""
        import torch

        self._patches = patches
        for region in (torch.no_grad, torch.inference_mode):
            patches.replace(region, "__enter__", self._noticed_enter(region.__enter__))
            patches.replace(region, "__exit__", self._noticed_leave(region.__exit__))

    def _note_call(self, module: Any) -> None:  # noqa: ANN401 (a module)
        self._patches.undo_last()
        self._outer.extend((self._now(), module.training))

    def _note_end(self) -> None:
        _, before, site, *ran = self._outer
        self._outer.clear()
        if ran:
            self._note(Region(ran[0], self._now(), before, site, training=ran[1]))
            return
        self._patches.undo_last()
        self._unused[site] += 1
        if self._unused[site] > _OFTEN:
            self._passed_over.add(site)

    def _noticed_enter(self, enter: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        from torch.nn import Module

        outer, site_of = self._outer, self._site
        noticed_call = self._noticed_call(Module._call_impl)  # noqa: SLF001 (see below)

        @functools.wraps(enter)
        def noticed(region: Any) -> Any:  # noqa: ANN401 (likewise)
            if not outer and get_ident() == self._thread:
                site = site_of()
                if site not in self._passed_over:
                    # Unlike a hook of all modules it is replaced while torch.compile makes a graph, which
                    # may not break, and a slot such as __call__ would be set in each class of modules.
                    self._patches.replace(Module, "_call_impl", noticed_call)
                    outer.extend((region, self._before(), site))
            return enter(region)

        return noticed

    def _noticed_call(self, call: Any) -> Any:  # noqa: ANN401 (likewise)
        import torch

        is_compiling, is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
        note = self._call

        @functools.wraps(call)
        def noticed(module: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (likewise)
            if not (is_compiling() or is_grad_enabled()) and get_ident() == self._thread:
                note(module)
            return call(module, *args, **kwargs)

        return noticed

    def _noticed_leave(self, leave: Any) -> Any:  # noqa: ANN401 (likewise)
        outer, end = self._outer, self._end

        @functools.wraps(leave)
        def noticed(region: Any, *error: Any) -> Any:  # noqa: ANN401 (likewise)
            if outer and outer[0] is region:
                end()
            return leave(region, *error)

        return noticed


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _site() -> Site:
    """Return where a region without gradients was entered, behind torch's own decorator."""
    # Behind this function, its guard and the hook.
    frame = sys._getframe(3)  # noqa: SLF001 (as documented)
    if frame.f_code.co_filename.endswith("_contextlib.py") and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


@dataclass(frozen=True, kw_only=True)
class BatchWork:
    """How much work a batch is, as far as its tensors show; ``tokens`` are those of its ``input_ids``."""

    samples: int | None
    tokens: int
    nbytes: int


def work_of(batch: object) -> BatchWork:
    """Return how much work a batch is."""
    tokens = nbytes = 0
    # As with its size.
    with contextlib.suppress(Exception):
        nbytes = sum(one.nbytes for one in _tensors(batch))
        if isinstance(batch, Mapping) and "input_ids" in batch:
            tokens = sum(one.numel() for one in _tensors(batch["input_ids"]))
    return BatchWork(samples=batch_size(batch), tokens=tokens, nbytes=nbytes)


def batch_size(batch: object) -> int | None:
    """Return the length of the first tensor in a batch, or of the batch; None where neither has one."""
    # A batch may be any object of the user's, and its methods may raise.
    with contextlib.suppress(Exception):
        tensor = next(_tensors(batch), None)
        if tensor is not None:
            return int(tensor.shape[0]) if tensor.ndim else None
        return len(batch) if hasattr(batch, "__len__") else None
    return None


def _tensors(batch: object) -> Iterator[Any]:
    # A tensor is in no batch of a program that has not imported torch.
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if isinstance(batch, torch.Tensor):
        yield batch
    parts = (
        batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    )
    for part in parts:
        yield from _tensors(part)
