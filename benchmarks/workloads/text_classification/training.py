"""Training and inference: batches of texts, one optimiser step each, and the accuracy on held-out texts."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, RandomSampler, Sampler, SequentialSampler

from ..classification import TrainingResult, check_choices
from ..command_line import OneLineParser
from ..mixed_precision import Device, Precision, ScaledOptimizer, autocast
from .batches import Batch, EncodedTexts, Item, batch_loader
from .inference import Classification, classify
from .texts import (
    LabelledTexts,
    find_texts,
    split_stratified,
    standard_library_texts,
)
from .tokens import SPECIAL, Vocabulary

Task = Literal["training", "inference"]


_LEAST = {
    "batch_size": 1,
    "epochs": 1,
    "batches": 0,
    "max_length": 2,
    "hidden_size": 1,
    "layers": 1,
    "heads": 1,
    "vocabulary": len(SPECIAL) + 1,
    "workers": 0,
    "repeats": 1,
}
_CHOICES = {"precision": Precision, "device": Device}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """All choices of one run of training or inference.

    Attributes:
        data: Folder with one subfolder of .txt files per class; None for the documentation of the
            standard library.
        batch_size: Texts per batch.
        epochs: Passes over the training part.
        batches: Most batches per epoch of training; 0 for all.
        max_length: Where a text is cut, in words, [CLS] among them.
        hidden_size: Dimension of a word inside the encoder, a multiple of `heads`.
        layers: Layers of the encoder.
        heads: Attention heads of a layer.
        vocabulary: Most words to know; all others are one.
        learning_rate: AdamW's step size.
        weight_decay: AdamW's decay of the weights.
        precision: That of the matrix products; "default" is the parameters' own.
        workers: Processes that load batches; 0 loads in the training process.
        device: Where the model trains and classifies.
        seed: The same seed gives the same losses.
        repeats: How often inference classifies the test part.
        trained: Let inference train first; otherwise it has the random weights of the seed.

    Raises:
        ValueError: There is no such choice, CUDA is asked for where there is none, or a number is out of
            its range.
    """

    data: Path | None = None
    batch_size: int = 16
    epochs: int = 1
    batches: int = 0
    max_length: int = 64
    hidden_size: int = 128
    layers: int = 2
    heads: int = 2
    vocabulary: int = 4000
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    precision: Precision = "default"
    workers: int = 0
    device: Device = "cpu"
    seed: int = 0
    repeats: int = 1
    trained: bool = False

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES, _LEAST)
        if self.learning_rate <= 0:
            raise ValueError(f"expected a learning_rate above 0, found {self.learning_rate}; raise it")
        if self.weight_decay < 0:
            raise ValueError(f"expected a weight_decay of at least 0, found {self.weight_decay}; raise it")
        if self.hidden_size % self.heads:
            raise ValueError(
                f"expected a hidden_size that {self.heads} heads can share evenly, found "
                f"{self.hidden_size}; change hidden_size or heads"
            )
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("expected a CUDA device, found none that torch can use; run on device cpu")


@dataclass(frozen=True, kw_only=True)
class InferenceResult:
    """The results of an inference run.

    Attributes:
        predictions: The class of each text of the test part as the model sees it.
        test_accuracy: Share of these texts that it puts in their class.
        samples: Texts classified, all repeats together.
        seconds_per_batch: Time of every batch: waiting for it, transfer, forward, and reading the
            predictions.
    """

    predictions: tuple[int, ...]
    test_accuracy: float
    samples: int
    seconds_per_batch: tuple[float, ...]

    @property
    def steps(self) -> int:
        """Batches classified."""
        return len(self.seconds_per_batch)

    @property
    def inference_s(self) -> float:
        """Time of all batches together."""
        return sum(self.seconds_per_batch)


class Training:
    """A model in training: call `run_epoch` for each epoch, then `result`.

    Args:
        config: All choices.

    Raises:
        DataError: The texts are missing, unusable or too few.
        ModuleNotFoundError: There is no transformers.
    """

    def __init__(self, config: TrainingConfig) -> None:
        train, test = _parts(config)
        vocabulary = Vocabulary.from_texts(train.texts, size=config.vocabulary)
        self._config = config
        self._model = _seeded_model(config, vocabulary=len(vocabulary), classes=len(train.classes))
        self._optimizer = _optimizer(self._model, config)
        train_texts, test_texts = (
            EncodedTexts(part, vocabulary, max_length=config.max_length) for part in (train, test)
        )
        self._loader = _loader(train_texts, _random_order(train_texts, config), config)
        self._test_loader = _loader(test_texts, SequentialSampler(test_texts), config)
        self._losses: list[float] = []
        self._seconds_per_step: list[float] = []
        self._samples = 0
        self._training_s = 0.0

    def run_epoch(self, epoch: int) -> None:
        """Train with the batches of one epoch."""
        self._model.train()
        losses: list[Tensor] = []
        with _seeded(self._config, offset=epoch):
            epoch_start = step_start = perf_counter()
            for batch in self._loader:
                losses.append(self._step(batch.to(self._config.device)))
                self._samples += len(batch.labels)
                step_end = perf_counter()
                self._seconds_per_step.append(step_end - step_start)
                step_start = step_end
            # Reading a loss waits for the device to finish. That is done once an epoch, so that the host can
            # prepare a step while the device computes the one before.
            self._losses += torch.stack(losses).tolist()
            self._training_s += perf_counter() - epoch_start

    def _step(self, batch: Batch) -> Tensor:
        with autocast(self._config.device, self._config.precision):
            loss = functional.cross_entropy(self._model(batch.tokens, batch.mask), batch.labels)
        self._optimizer.step(loss)
        return loss.detach()

    def classify(self) -> Classification:
        """Classify the texts held out."""
        return classify(
            self._model, self._test_loader, device=self._config.device, precision=self._config.precision
        )

    def result(self) -> TrainingResult:
        """Measure the accuracy on the texts held out, and return the results so far."""
        start = perf_counter()
        accuracy = self.classify().accuracy
        return TrainingResult(
            losses=tuple(self._losses),
            test_accuracy=accuracy,
            samples=self._samples,
            skipped_steps=self._optimizer.skipped,
            seconds_per_step=tuple(self._seconds_per_step),
            training_s=self._training_s,
            validation_s=perf_counter() - start,
        )


def train(config: TrainingConfig) -> TrainingResult:
    """Train a model from scratch; the same configuration gives the same losses on the same processor.

    Raises:
        DataError: The texts are missing, unusable or too few.
        ModuleNotFoundError: There is no transformers.
    """
    return _trained(config).result()


def infer(config: TrainingConfig) -> InferenceResult:
    """Classify the test part `repeats` times, with random weights or, where asked for, trained ones.

    Raises:
        DataError: The texts are missing, unusable or too few.
        ModuleNotFoundError: There is no transformers.
    """
    training = _trained(config) if config.trained else Training(config)
    runs = [training.classify() for _ in range(config.repeats)]
    return InferenceResult(
        predictions=runs[-1].predictions,
        test_accuracy=runs[-1].accuracy,
        samples=sum(len(run.predictions) for run in runs),
        seconds_per_batch=tuple(seconds for run in runs for seconds in run.seconds_per_batch),
    )


def _trained(config: TrainingConfig) -> Training:
    training = Training(config)
    for epoch in range(config.epochs):
        training.run_epoch(epoch)
    return training


def _parts(config: TrainingConfig) -> tuple[LabelledTexts, LabelledTexts]:
    texts = standard_library_texts() if config.data is None else find_texts(config.data)
    return split_stratified(texts, seed=config.seed)


@contextmanager
def _seeded(config: TrainingConfig, *, offset: int = 0) -> Iterator[None]:
    # The caller's random generators are left as they were.
    devices = [torch.cuda.current_device()] if config.device == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(config.seed + offset)
        yield


def _seeded_model(config: TrainingConfig, *, vocabulary: int, classes: int) -> nn.Module:
    try:
        from .model import EncoderClassifier
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "expected transformers, found none; install it: pip install transformers"
        ) from error
    with _seeded(config):
        model = EncoderClassifier(
            vocabulary=vocabulary,
            classes=classes,
            hidden_size=config.hidden_size,
            layers=config.layers,
            heads=config.heads,
            max_length=config.max_length,
        )
    return model.to(config.device)


def _optimizer(model: nn.Module, config: TrainingConfig) -> ScaledOptimizer:
    adamw = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    return ScaledOptimizer(adamw, device=config.device, precision=config.precision)


def _random_order(texts: EncodedTexts, config: TrainingConfig) -> RandomSampler:
    # Texts beyond the limit are not drawn, so that no worker reads them.
    limit = config.batches * config.batch_size or len(texts)
    return RandomSampler(
        texts,
        num_samples=min(limit, len(texts)),
        generator=torch.Generator().manual_seed(config.seed),
    )


def _loader(texts: EncodedTexts, order: Sampler[int], config: TrainingConfig) -> DataLoader[Item]:
    return batch_loader(
        texts,
        order,
        batch_size=config.batch_size,
        workers=config.workers,
        seed=config.seed,
        pin_memory=config.device == "cuda",
    )


def main(argv: Sequence[str] | None = None) -> TrainingResult | InferenceResult:
    """Train or classify as the command line asks, by default train with the default configuration.

    Args:
        argv: The arguments; None for those of the process.

    Raises:
        SystemExit: With status 2 after one line on standard error, for a mistake of the user's.
    """
    parser = _parser()
    options = vars(parser.parse_args(argv))
    run = infer if options.pop("task") == "inference" else train
    try:
        return run(TrainingConfig(**options))
    except (ValueError, ModuleNotFoundError) as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="text_classification", description=__doc__, argument_default=argparse.SUPPRESS
    )
    parser.add_argument("--task", choices=get_args(Task), default="training")
    parser.add_argument("--data", type=Path, help="folder with one subfolder of .txt files per class")
    parser.add_argument("--trained", action="store_true", help="let inference train first")
    for name, choices in _CHOICES.items():
        parser.add_argument(f"--{name}", choices=get_args(choices))
    default = TrainingConfig()
    for name in (*_LEAST, "seed", "learning_rate", "weight_decay"):
        value = getattr(default, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), help=f"default {value}")
    return parser


def summary(result: TrainingResult | InferenceResult) -> str:
    """Return the result in one line."""
    if isinstance(result, InferenceResult):
        return (
            f"{result.steps} batches, {result.samples} texts; inference {result.inference_s:.1f} s; "
            f"test accuracy {result.test_accuracy:.3f}"
        )
    return (
        f"{result.steps} steps ({result.skipped_steps} skipped), {result.samples} texts; "
        f"training {result.training_s:.1f} s, validation {result.validation_s:.1f} s; "
        f"last loss {result.last_loss:.3f}, test accuracy {result.test_accuracy:.3f}"
    )


if __name__ == "__main__":
    sys.stdout.write(summary(main()) + "\n")
