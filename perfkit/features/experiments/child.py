"""One trial in a process of its own, forked or fresh, and what is watched in its first steps."""

from __future__ import annotations

import contextlib
import functools
import gc
import glob
import inspect
import itertools
import json
import math
import numbers
import re
import statistics
import struct
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Self

from perfkit.agent.counters.model import Places
from perfkit.agent.counters.tensors import TensorWatch
from perfkit.agent.counters.torch_adapter import operator_mode, storage_of
from perfkit.agent.processes import resident_growth
from perfkit.agent.provenance import libraries_since, read_torch_settings
from perfkit.errors import UsageError
from perfkit.features.experiments.binding import Call, call_to_its_end, load_bound
from perfkit.features.experiments.records import (
    ACCURACY,
    DEVICE_PEAK,
    DEVICE_RESERVED,
    HOST_PEAK,
    SAMPLE_TIME,
    STEP_TIME,
    TOTAL_TIME,
    Experiment,
    Fingerprint,
)
from perfkit.features.experiments.trial import TrialResult, TrialSpec
from perfkit.identity import source_version
from perfkit.model import PassSummary
from perfkit.profiling.passes.child import leave
from perfkit.profiling.passes.exchange import Problem
from perfkit.profiling.passes.meter import EnoughSteps, Meter, import_torch, until_enough
from perfkit.profiling.passes.target_code import describe_failure, find_own_code, redirect_hydra
from perfkit.profiling.passes.targets import Target
from perfkit.runner.machine.facts import read_environment
from perfkit.runner.requests import Parent
from perfkit.runner.targets import load_function, prepare_process, wrong_code

# Enough steps to see a graph grow over three steps in a row.
_LOOKED_AT_STEPS = 5
_NO_HOST_MEMORY = "can't allocate memory"
_ACCURACY = "acc(?:uracy)?(?:[@_-]?(?:top[_-]?)?1(?![.\\d]))?"
# A name is followed by its number, or by words up to a colon: "Accuracy on 10000 test images: 54 %".
_BEHIND_NAME = r"""(?:(?:[ \t:=|>"'()\[\]]|-(?![\d.])){0,16}(?:[a-z][\w.]*\()?|[ \t][^\n:=|,;]*[:=][ \t]*)"""
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+|nan\b|inf\b)(?:\s*/\s*\d+\.?\d*|\s*%)?"


def main(request: TrialSpec, parent: Parent) -> None:
    """Do what was requested, and send the result."""
    before = set(sys.modules)
    import_torch()
    root = Path(request.root)
    prepare_process(request.target.place, (), root=root)
    redirect_hydra(Path(request.folder) / "hydra")
    found = _proven(_do(request), root)
    news = libraries_since(before, root)
    parent.send(replace(found, libraries=tuple(news)))
    leave()


def _proven(found: TrialResult, root: Path) -> TrialResult:
    """Return a trial's result, or the problem that other code ran; a usage mistake comes first."""
    if found.problem is not None and found.problem.kind == "usage":
        return found
    wrong = wrong_code(root)
    return TrialResult(problem=Problem(kind="failed", message=wrong)) if wrong else found


def _do(spec: TrialSpec) -> TrialResult:
    try:
        template, words = spec.experiment.argument, spec.experiment.command_line
        call = [load_bound(spec.target, each, template, words) for each in spec.arguments][spec.number]
        reset_settings(spec.experiment.threads)
        with _applied(spec):
            return _look(spec, call) if spec.task == "look" else _time(spec, call)
    except BaseException as error:  # noqa: BLE001 (the user's code may raise anything)
        return TrialResult(problem=_failure(error, spec))


@contextlib.contextmanager
def _applied(spec: TrialSpec) -> Iterator[None]:
    """Apply the variant's tricks from outside; a whole run that had no use for one is no variant."""
    if not spec.tricks:
        yield
        return
    from perfkit.features.tricks.suite import using

    with using(spec.tricks) as unused:
        yield
        if spec.task == "time" and unused():
            raise UsageError(
                f"{', '.join(unused())} changed nothing in {spec.target.name}, which uses nothing that it"
                " could change; leave that factor out"
            )


def reset_settings(threads: int | None) -> None:
    """Set torch's flags to what a fresh process has: importing a target may have changed them."""
    import torch

    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = False
    torch.use_deterministic_algorithms(mode=False)
    torch.set_float32_matmul_precision("highest")
    if threads is not None:
        torch.set_num_threads(threads)


def _look(spec: TrialSpec, call: Call) -> TrialResult:
    """Watch the first steps of the target, or all of it where it makes none."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    root = Path(spec.root)
    watch, look = TensorWatch(root), OperatorLook(root)

    def end_step(*_: object) -> None:
        look.end_step()
        if look.steps >= _LOOKED_AT_STEPS:
            raise EnoughSteps

    hook = register_optimizer_step_post_hook(end_step)
    try:
        with AutocastWatch() as autocast, watch, look:
            with until_enough():
                call_to_its_end(call)
            # The whole run counts as one iteration, so that the peak includes the model's own tensors.
            watch.end_iteration()
    finally:
        hook.remove()
    counts = {count.metric: int(count.values[-1]) for count in watch.counts().counts}
    fingerprint = Fingerprint(
        operators=counts.get("operators", 0),
        half=look.half,
        tensor_peak=counts.get("peak", 0),
        settings=read_torch_settings(),
        steps=look.steps,
        mistakes=look.mistakes,
    )
    return _result(
        spec, TrialResult(fingerprint=fingerprint, autocast=autocast.seen, responses=_device_peaks())
    )


def _time(spec: TrialSpec, call: Call) -> TrialResult:
    """Run the target with no other hook than one a step, after the memory was cleared."""
    _put_memory_in_order()
    meter = Meter(limit=None, report=lambda _: False, loaders=True)
    meter.prepare()
    returned: list[object] = []
    since = time.time()

    def run() -> None:
        meter.start()
        returned.append(call_to_its_end(call))

    with AutocastWatch() as autocast:
        growth = resident_growth(run)
        if growth is None:
            run()
    summary = meter.finish("clean", result=returned[0])
    responses = _times(summary, spec.experiment)
    if not spec.target.is_script:
        numbers = returned_numbers(returned[0], spec.experiment.returned)
    else:
        sys.stdout.flush()
        # What a trial prints goes to a file.
        printed = Path("/proc/self/fd/1").read_text(errors="replace")
        numbers = {name: _written(printed, what, since) for name, what in spec.experiment.returned.items()}
        if numbers.get(ACCURACY.name, 0.0) > 1:
            numbers[ACCURACY.name] /= 100
    responses |= numbers | _device_peaks()
    # A total time that the target returns replaces the one around its call.
    if TOTAL_TIME.name in numbers and summary.samples and not summary.steps:
        responses[SAMPLE_TIME.name] = numbers[TOTAL_TIME.name] / summary.samples
    if growth is not None:
        responses[HOST_PEAK.name] = float(growth)
    # A loss that diverged has no mean, and leaves the times beside it valid.
    finite = {name: value for name, value in responses.items() if math.isfinite(value)}
    lost = {name: value for name, value in responses.items() if name not in finite}
    notes = tuple(f"{name} is {value}, no finite number, and is left out" for name, value in lost.items())
    return _result(spec, TrialResult(responses=finite, autocast=autocast.seen, notes=notes))


def _result(spec: TrialSpec, found: TrialResult) -> TrialResult:
    return replace(
        found,
        version=_version(spec.target),
        settings=read_torch_settings(),
        environment=read_environment(),
    )


def _put_memory_in_order() -> None:
    """Empty the allocator and reset its peaks."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()


def _device_peaks() -> dict[str, float]:
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    return {
        DEVICE_PEAK.name: float(torch.cuda.max_memory_allocated()),
        DEVICE_RESERVED.name: float(torch.cuda.max_memory_reserved()),
    }


def _version(target: Target) -> str:
    """Return a hash of the target's file: any change of the file makes another target."""
    if target.is_script:
        return source_version(Path(target.place).read_text(errors="replace"))
    file = inspect.getsourcefile(inspect.unwrap(load_function(target.place)))
    return source_version(Path(file).read_text(errors="replace")) if file else ""


def _failure(error: BaseException, spec: TrialSpec) -> Problem:
    script = Path(spec.target.place) if spec.target.is_script else None
    own = functools.partial(find_own_code, spec.own, root=Path(spec.root), script=script)
    problem = describe_failure(error, spec.target.name, own)
    if _NO_HOST_MEMORY in str(error):
        problem = replace(problem, status="oom")
    reason = misfit(error)
    return replace(problem, message=f"{problem.message}; {reason}") if reason else problem


def _times(summary: PassSummary, experiment: Experiment) -> dict[str, float]:
    """Return total time, and time per step and per sample as far as steps and samples are known; in seconds.

    Steps of the warm-up do not count: its number, and as many as fill its seconds, but never all. The mean of
    the others is taken: where workers load ahead, a step that waits is followed by some that do not.
    """
    times = {TOTAL_TIME.name: summary.total_s}
    if summary.steps:
        by_time = sum(end <= experiment.warmup_s for end in itertools.accumulate(summary.step_s))
        warmup = min(max(experiment.warmup_steps, by_time), summary.steps - 1)
        step_s = statistics.fmean(summary.step_s[warmup:])
        times[STEP_TIME.name] = step_s
        if summary.samples:
            times[SAMPLE_TIME.name] = step_s * summary.steps / summary.samples
    elif summary.samples:
        times[SAMPLE_TIME.name] = summary.total_s / summary.samples
    return times


def returned_numbers(result: object, wanted: Mapping[str, str]) -> dict[str, float]:
    """Return the responses that the target itself returns, in an object's attributes or a mapping's keys.

    Raises:
        UsageError: one is not there, or is no number.
    """
    return {response: _number(result, name) for response, name in wanted.items()}


def _written(printed: str, what: str, since: float) -> float:
    """Return a number of a script: the last match of an expression in its output, or from a file."""
    file, _, keys = what.rpartition(":")
    try:
        if "tfevents" in file:
            # The pattern may be absolute, which those of paths may not.
            files = map(Path, glob.glob(file, recursive=True))  # noqa: PTH207
            times = {one.stat().st_mtime: one for one in files if one.stat().st_mtime >= since}
            return last_scalar(times[max(times)], keys)
        if not file.endswith(".json"):
            return printed_number(what, printed)
        is_new = Path(file).stat().st_mtime >= since
        found: Any = json.loads(Path(file).read_text(encoding="utf-8")) if is_new else {}
        for key in [keys] if keys in found else keys.split("."):
            found = found[int(key) if isinstance(found, list) else key]
        return float(found)
    except (OSError, ArithmeticError, ValueError, LookupError, TypeError, re.error) as error:
        raise UsageError(
            f'a trial was to write "{what}", a name, an expression with one group, FILE.json:key.key or'
            f" runs/*tfevents*:tag, as a number ({type(error).__name__}: {error}); {_last_line(printed)};"
            " mend [returned] or --measure"
        ) from error


def printed_number(what: str, printed: str) -> float:
    """Return the last number that an expression finds, or that stands behind a name: "accuracy: 91 %".

    A share "91 %" or "9123/10000" is a number between 0 and 1.

    Raises:
        LookupError: there is none.
        ValueError: what was found is no number.
    """
    if not re.compile(what).groups:
        # Names are written in several ways: "val_acc", "Val accuracy".
        words = (
            _ACCURACY if word in {"acc", "accuracy"} else re.escape(word)
            for word in re.split(r"[\s_-]", what.lower())
        )
        what = rf"(?i)(?<![a-z]){r'[ _-]?'.join(words)}{_BEHIND_NAME}({_NUMBER})"
    number, percent, whole = re.fullmatch(
        r"\s*([^%/]*?)\s*(%?)(?:/\s*(.*?))?\s*", re.findall(what, printed, re.MULTILINE)[-1]
    ).groups()  # type: ignore[union-attr]
    return float(number) / (100.0 if percent else float(whole or 1))


def _last_line(printed: str) -> str:
    last = printed.rstrip().rpartition("\n")[2].strip()
    return f'the last line that it printed is "{last}"' if last else "it printed nothing"


def _number(result: object, name: str) -> float:
    value = result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)
    if isinstance(value, numbers.Real):
        return float(value)
    found = "nothing of that name" if value is None else f"a {type(value).__name__}"
    raise UsageError(
        f'the target was to return "{name}", a number; found {found} in the {type(result).__name__} that it'
        " returned; mend [returned]"
    )


# The fields of an event, a summary, its values and a tensor that lead to a number.
_SUMMARY, _VALUE, _TAG, _SIMPLE, _TENSOR, _CONTENT, _FLOATS = 5, 1, 1, 2, 8, 4, 5
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT = struct.Struct("<f")


def last_scalar(file: Path, tag: str) -> float:
    """Return the last number of a tag in a file.

    Raises:
        LookupError: there is none.
        ValueError: it is no event file.
    """
    found = [value for name, value in _scalars(file.read_bytes()) if name == tag]
    return found[-1]


def _scalars(data: bytes) -> Iterator[tuple[str, float]]:
    place = 0
    # A record has its length, a checksum of that, its data and a checksum of these; the last may be cut off.
    while place + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        event = data[place + 12 : place + 12 + length]
        place += length + 16
        for summary in _all(event, _SUMMARY):
            for value in _all(summary, _VALUE):
                found = [*_all(value, _SIMPLE)]
                for tensor in _all(value, _TENSOR):
                    found += _all(tensor, _FLOATS, _CONTENT)
                numbers = [_FLOAT.unpack(one)[0] for one in found if len(one) == _FLOAT.size]
                yield from ((tag.decode(), one) for tag in _all(value, _TAG) for one in numbers)


def _all(message: bytes, *wanted: int) -> Iterator[bytes]:
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            _, place = _varint(message, place)
            continue
        if kind == _BYTES:
            length, place = _varint(message, place)
        elif kind in {_FIXED64, _FIXED32}:
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("no event file of TensorBoard")
        if number in wanted:
            yield message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:  # noqa: PLR2004 (the highest bit marks that more follow)
            return number, place


_SIGMOID = "aten::sigmoid"
_WITH_LOGITS = "aten::binary_cross_entropy_with_logits"
_CAST = "aten::_to_copy"
# A graph that grows over this many steps in a row is kept from step to step by mistake.
_GROWING_STEPS = 3
_HALF_MOST = 65504
# Only this many calls of modules are looked at, about one forward pass of a deep model.
_MODULES = 200
_DEVICES = ("cpu", "cuda")


class OperatorLook:
    """Looks at every operator of this thread: counts those in half precision, and notes mistakes.

    Enter it around the target's call, and call ``end_step`` after each optimizer step.
    """

    def __init__(self, root: Path) -> None:
        self.half: dict[str, int] = {}
        self._places = Places(root)
        self._squashed: dict[int, weakref.ref[Any]] = {}
        self._scalars: list[tuple[weakref.ref[Any], str]] = []
        self._graph_sizes: list[int] = []
        self._noticed: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._mode = operator_mode(self._handle)
        self._mode.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._mode.__exit__(*error)  # type: ignore[arg-type]

    @property
    def steps(self) -> int:
        """How many steps are over."""
        return len(self._graph_sizes)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """The mistakes that were noticed, each once, in the order of noticing."""
        return tuple(self._noticed.values())

    def end_step(self) -> None:
        """Look at the graphs that are still alive after a step."""
        alive = [(scalar, place) for ref, place in self._scalars if (scalar := ref()) is not None]
        self._scalars = [(weakref.ref(scalar), place) for scalar, place in alive]
        held = [(scalar, place) for scalar, place in alive if scalar.grad_fn is not None]
        self._graph_sizes.append(_graph_size([scalar for scalar, _ in held]))
        recent = self._graph_sizes[-_GROWING_STEPS - 1 :]
        grows = all(low < high for low, high in itertools.pairwise(recent))
        if grows and len(recent) > _GROWING_STEPS:
            where = f" at {held[0][1]}" if held[0][1] else ""
            self._log(
                "graph",
                f"a loss is accumulated with its graph{where}: after steps in a row"
                f" {', '.join(map(str, recent))} nodes of it are alive; accumulate loss.detach(), or"
                " loss.item() after the loop",
            )

    def _log(self, kind: str, text: str) -> None:
        self._noticed.setdefault(kind, text)

    def _handle(
        self,
        operator: Any,  # noqa: ANN401 (an operator)
        _kinds: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401 (its result)
        result = operator(*args, **kwargs)
        name = operator.name().partition(".")[0]
        frame = sys._getframe(1)  # noqa: SLF001 (the caller)
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            self._see(name, tensor, args, frame)
        if name == _WITH_LOGITS and self._is_squashed(args[0]):
            self._log(
                "sigmoid",
                f"a sigmoid stands before a loss that takes logits{self._at(frame)}: it would be applied"
                " twice; pass the logits, or use binary_cross_entropy",
            )
        return result

    def _see(self, name: str, tensor: Any, args: tuple[Any, ...], frame: FrameType | None) -> None:  # noqa: ANN401 (what an operator returns)
        import torch

        if not isinstance(tensor, torch.Tensor):
            return
        if tensor.dtype in {torch.float16, torch.bfloat16}:
            if name == _CAST:
                self._look_at_cast(tensor, args[0], frame)
            else:
                kind = str(tensor.dtype).removeprefix("torch.")
                self.half[kind] = self.half.get(kind, 0) + 1
        if tensor.numel() == 1 and tensor.is_floating_point():
            self._scalars.append((weakref.ref(tensor), self._places.line_of(frame) or ""))
        if name == _SIGMOID or (name == _CAST and self._is_squashed(args[0])):
            storage = storage_of(tensor)
            if storage is not None:
                self._squashed[id(storage)] = weakref.ref(storage)

    def _is_squashed(self, tensor: Any) -> bool:  # noqa: ANN401 (a tensor)
        storage = storage_of(tensor)
        known = self._squashed.get(id(storage))
        return known is not None and known() is storage

    def _look_at_cast(self, cast: Any, origin: Any, frame: FrameType | None) -> None:  # noqa: ANN401 (tensors)
        """Notice values that the half type cannot hold; in backward passes the scaler handles them."""
        import torch

        if cast.dtype != torch.float16 or _in_backward():
            return
        with torch._C._DisableTorchDispatch():  # noqa: SLF001 (a look, not an operator of the target's)
            lost = cast.isinf() & ~origin.isinf()
            if not bool(lost.any()):
                return
            largest = float(origin[lost].abs().max())
        self._log(
            "overflow",
            f"float16 holds numbers up to {_HALF_MOST}{self._at(frame)}: {largest:g} became infinite when"
            " it was cast; scale it down, or use bfloat16",
        )

    def _at(self, frame: FrameType | None) -> str:
        place = self._places.line_of(frame)
        return f" at {place}" if place else ""


def _in_backward() -> bool:
    import torch

    current: Callable[[], int] = torch._C._current_graph_task_id  # noqa: SLF001 (no public name)
    return current() != -1


def _graph_size(tensors: list[Any]) -> int:
    """Return how many nodes of the graph these tensors keep alive."""
    seen: set[Any] = set()
    left = [tensor.grad_fn for tensor in tensors]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left += [following for following, _ in node.next_functions]
    return len(seen)


def misfit(error: BaseException) -> str | None:
    """Return which layer was given another number of features than it takes, None for any other error."""
    from torch import Tensor
    from torch.nn import Linear

    frames = error.__traceback__
    while frames is not None:
        layer, given = (frames.tb_frame.f_locals.get(name) for name in ("self", "input"))
        if isinstance(layer, Linear) and isinstance(given, Tensor):
            features, outputs = given.shape[-1], layer.out_features
            if features != layer.in_features:
                return (
                    f"Linear({layer.in_features}, {outputs}) was given {features} features: make it"
                    f" Linear({features}, {outputs})"
                )
        frames = frames.tb_next
    return None


class AutocastWatch:
    """Notes under which types of automatic casting the first modules ran, while it is entered."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}
        self._left = _MODULES

    def __enter__(self) -> Self:
        from torch.nn.modules.module import register_module_forward_pre_hook

        self._hook = register_module_forward_pre_hook(self._on_module)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    @property
    def seen(self) -> tuple[str, ...]:
        """The types, such as "bfloat16", in the order in which they were met."""
        return tuple(self._seen)

    def _on_module(self, *_: object) -> None:
        import torch

        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                self._seen[str(torch.get_autocast_dtype(device)).removeprefix("torch.")] = None
        self._left -= 1
        if self._left <= 0:
            self._hook.remove()
