"""Loading processes that stay from one epoch to the next."""

from torch.utils.data import DataLoader

from perfkit.features.tricks.loading import ROUNDS, WORKERS, epoch, if_workers
from perfkit.features.tricks.switches import constructing
from perfkit.features.tricks.trick import Pair, Trick

TRICK = Trick(
    name="persistent_workers",
    title="Persistent loading processes",
    what=(
        "Keeps the loader's processes at the end of an epoch for the next one, instead of ending them and "
        "starting others with a copy of the dataset each time."
    ),
    helps="With short epochs, or a dataset that takes long to copy to a new process.",
    caveat=(
        "A change to the dataset after the first epoch does not reach them: an augmentation that is told "
        "the epoch's number repeats itself."
    ),
    source=(
        "PyTorch documentation, torch.utils.data.DataLoader: "
        "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader"
    ),
    code="DataLoader(dataset, num_workers=2, persistent_workers=True)",
    size_means="images in an epoch",
    sizes=(40, 200, 1000),
    pair=lambda images: Pair(
        without=epoch(images, num_workers=WORKERS),
        with_=epoch(images, num_workers=WORKERS, persistent_workers=True),
    ),
    tolerance_why="What an image becomes depends on its index, not on the process that reads it.",
    rounds=ROUNDS,
    on_loop=lambda: constructing(
        DataLoader, lambda arguments: if_workers(arguments, persistent_workers=True)
    ),
)
