"""Loading batches in processes of their own."""

from torch.utils.data import DataLoader

from perfkit.features.tricks.loading import ROUNDS, WORKERS, epoch, with_workers
from perfkit.features.tricks.switches import constructing
from perfkit.features.tricks.trick import Pair, Trick

TRICK = Trick(
    name="loader_workers",
    title="Two loading processes",
    what=(
        "Decodes and augments images in two processes, which prepare the next batches while this one is "
        "used, and use cores that the training process leaves idle."
    ),
    helps="Where loading takes a good part of a step and cores are free.",
    caveat="Every epoch starts the processes anew, and every batch is handed over: little work loses.",
    source=(
        "PyTorch documentation, torch.utils.data, Single- and Multi-process Data Loading: "
        "https://docs.pytorch.org/docs/stable/data.html"
    ),
    code="DataLoader(dataset, num_workers=2)",
    size_means="images in an epoch",
    sizes=(40, 200, 1000),
    pair=lambda images: Pair(without=epoch(images), with_=epoch(images, num_workers=WORKERS)),
    tolerance_why="What an image becomes depends on its index, not on the process that reads it.",
    rounds=ROUNDS,
    on_loop=lambda: constructing(DataLoader, with_workers),
)
