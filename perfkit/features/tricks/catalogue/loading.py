"""Processes that load batches."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset, IterableDataset

from perfkit.features.tricks.catalogue.pieces import Arguments, constructing, documentation
from perfkit.features.tricks.trick import Call, Pair, Trick

WORKERS = 2
# Starting processes takes most of an epoch, so few rounds are enough.
ROUNDS = 3
IMAGES_PER_BATCH = 20


class _Images(Dataset[tuple[Tensor, int]]):
    """Grey images of 16 x 16 pixels, each enlarged from random levels and turned when it is read."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        levels = torch.randint(256, (1, 1, 8, 8), generator=generator).float()
        image = interpolate(levels, size=(16, 16), mode="bilinear")[0]
        return torch.rot90(image, index % 4, dims=(1, 2)) / 255, index % 10


class _Kept(Dataset[Any]):
    """A dataset as an epoch after the first finds it in memory: each batch has the samples of the first."""

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 (anything with an index)
        self._dataset = dataset
        self._samples: list[Any] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (the dataset's own)
        return getattr(self._dataset, name)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (the dataset's own)
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        if len(self._samples) < len(indices):
            self._samples = [self._dataset[index] for index in indices]
        return self._samples[: len(indices)]


def epoch(images: int, *, kept: bool = False, **options: Any) -> Call:  # noqa: ANN401 (the loader's own)
    """Return a call that loads one epoch with options of the loader: images (N, 1, 16, 16), labels (N,)."""
    dataset: Any = _Images(images)
    if kept:
        dataset = [dataset[index] for index in range(images)]
    loader = DataLoader(dataset, IMAGES_PER_BATCH, generator=torch.Generator(), **options)

    def load() -> tuple[Tensor, ...]:
        batches = list(loader)
        return torch.cat([batch[0] for batch in batches]), torch.cat([batch[1] for batch in batches])

    return load


def with_workers(arguments: Arguments) -> Arguments:
    """Return workers for a loader that has none; workers of an iterable data set would repeat each other."""
    if isinstance(arguments["dataset"], IterableDataset):
        return {}
    return {"num_workers": arguments.get("num_workers") or WORKERS}


def _keeping(arguments: Arguments) -> Arguments:
    dataset = arguments["dataset"]
    return {} if isinstance(dataset, IterableDataset) else {"dataset": _Kept(dataset)}


def if_workers(arguments: Arguments, **change: object) -> Arguments:
    """Return the change to a loader with workers; one without would refuse it and gets none."""
    return change if arguments.get("num_workers") else {}


DATASET_IN_MEMORY = Trick(
    name="dataset_in_memory",
    title="Samples kept in memory",
    what=(
        "Reads, decodes and augments each sample once, before the first epoch, and keeps it. Measured is an "
        "epoch with all samples in memory; on a loop each batch has the samples of the first one."
    ),
    helps="Where loading takes a good part of a step, in runs of many epochs.",
    caveat="Every epoch sees the same random augmentations, and all samples have to fit into memory.",
    source=documentation("torch.utils.data, Map-style datasets", "data.html#map-style-datasets"),
    code="DataLoader([dataset[index] for index in range(len(dataset))])",
    size_means="images in an epoch",
    sizes=(40, 200, 1000),
    pair=lambda images: Pair(without=epoch(images), with_=epoch(images, kept=True)),
    rounds=ROUNDS,
    on_loop=lambda: constructing(DataLoader, _keeping),
)


LOADER_WORKERS = Trick(
    name="loader_workers",
    title="Two loading processes",
    what=(
        "Decodes and augments images in two processes, which prepare the next batches while this one is "
        "used, and use cores that the training process leaves idle."
    ),
    helps="Where loading takes a good part of a step and cores are free.",
    caveat="Every epoch starts the processes anew, and every batch is handed over: little work loses.",
    source=documentation("torch.utils.data, Single- and Multi-process Data Loading", "data.html"),
    code="DataLoader(dataset, num_workers=2)",
    size_means="images in an epoch",
    sizes=(40, 200, 1000),
    pair=lambda images: Pair(without=epoch(images), with_=epoch(images, num_workers=WORKERS)),
    rounds=ROUNDS,
    on_loop=lambda: constructing(DataLoader, with_workers),
    rewrite=(r"^((?!.*num_workers)[^#]*DataLoader\([^#]+)\)$", rf"\1, num_workers={WORKERS})"),
    between_steps=True,
)


PERSISTENT_WORKERS = Trick(
    name="persistent_workers",
    title="Persistent loading processes",
    what=(
        "Keeps the loader's processes at the end of an epoch for the next one, instead of ending them and "
        "starting others with a copy of the dataset each time."
    ),
    helps="With short epochs, or a dataset that takes long to copy to a new process.",
    caveat=(
        "A change to the dataset after the first epoch does not reach them: an augmentation that depends "
        "on the epoch's number repeats itself."
    ),
    source=documentation("torch.utils.data.DataLoader", "data.html#torch.utils.data.DataLoader"),
    code="DataLoader(dataset, num_workers=2, persistent_workers=True)",
    size_means="images in an epoch",
    sizes=(40, 200, 1000),
    pair=lambda images: Pair(
        without=epoch(images, num_workers=WORKERS),
        with_=epoch(images, num_workers=WORKERS, persistent_workers=True),
    ),
    rounds=ROUNDS,
    on_loop=lambda: constructing(
        DataLoader, lambda arguments: if_workers(arguments, persistent_workers=True)
    ),
    between_steps=True,
)


_AHEAD = 8


def _side(images: int, *, ahead: int) -> Call:
    return epoch(images, num_workers=WORKERS, persistent_workers=True, prefetch_factor=ahead)


PREFETCH_FACTOR = Trick(
    name="prefetch_factor",
    title="Eight batches ahead",
    what=(
        "Lets each loading process prepare eight batches ahead instead of two, so that some slow images in "
        "a row do not keep the training waiting."
    ),
    helps="Where batches take very different times to load, but on average less than a step.",
    caveat="All batches ahead are in memory at once; where loading is slower than training, none ever wait.",
    source=documentation("torch.utils.data.DataLoader", "data.html#torch.utils.data.DataLoader"),
    code="DataLoader(dataset, num_workers=2, prefetch_factor=8)",
    size_means="images in an epoch",
    sizes=(40, 200, 1000),
    pair=lambda images: Pair(without=_side(images, ahead=2), with_=_side(images, ahead=_AHEAD)),
    rounds=ROUNDS,
    on_loop=lambda: constructing(DataLoader, lambda arguments: if_workers(arguments, prefetch_factor=_AHEAD)),
    between_steps=True,
)


TRICKS = (DATASET_IN_MEMORY, LOADER_WORKERS, PERSISTENT_WORKERS, PREFETCH_FACTOR)
