"""More batches prepared ahead by each loading process."""

from torch.utils.data import DataLoader

from perfkit.features.tricks.loading import ROUNDS, WORKERS, epoch, if_workers
from perfkit.features.tricks.switches import constructing
from perfkit.features.tricks.trick import Call, Pair, Trick

_AHEAD = 8


def _pair(images: int) -> Pair:
    return Pair(without=_side(images, ahead=2), with_=_side(images, ahead=_AHEAD))


def _side(images: int, *, ahead: int) -> Call:
    return epoch(images, num_workers=WORKERS, persistent_workers=True, prefetch_factor=ahead)


TRICK = Trick(
    name="prefetch_factor",
    title="Eight batches ahead",
    what=(
        "Lets each loading process prepare eight batches ahead instead of two, so that some slow images in "
        "a row do not keep the training waiting."
    ),
    helps="Where batches take very different times to load, but on average less than a step.",
    caveat="All batches ahead are in memory at once; where loading is slower than training, none ever wait.",
    source=(
        "PyTorch documentation, torch.utils.data.DataLoader: "
        "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader"
    ),
    code="DataLoader(dataset, num_workers=2, prefetch_factor=8)",
    size_means="images in an epoch",
    sizes=(40, 200, 1000),
    pair=_pair,
    tolerance_why="What an image becomes depends on its index, not on when it is read.",
    rounds=ROUNDS,
    on_loop=lambda: constructing(DataLoader, lambda arguments: if_workers(arguments, prefetch_factor=_AHEAD)),
)
