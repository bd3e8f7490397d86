"""What the study trains on texts: a BERT with random weights, in float32 or mixed precision."""

from __future__ import annotations

from typing import Any

import torch
from targets import Precision, Trained, fit
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification


def text(
    *,
    precision: Precision = "default",
    seed: int = 0,
    device: str = "cuda",
    batch_size: int = 16,
    length: int = 512,
    steps: int = 24,
    small: bool = False,
) -> Trained:
    """Train BERT-base to distinguish texts by the half of the vocabulary that their first word is from."""
    torch.manual_seed(seed)
    net = _bert(device, small=small)
    words = torch.randint(1000, 30000, (batch_size * 8 + 32, length))
    labels = (words[:, 0] > 15500).long()
    loader = DataLoader(
        TensorDataset(words[32:], labels[32:]),
        batch_size=batch_size,
        shuffle=True,
        pin_memory=device == "cuda",
    )

    def loss_of(batch: tuple[Tensor, Tensor]) -> Tensor:
        found: Any = net(input_ids=batch[0].to(device, non_blocking=True), labels=batch[1].to(device))
        return found.loss  # type: ignore[no-any-return]

    last = fit(net, loader, loss_of, precision=precision, device=device, steps=steps, rate=2e-5)
    net.eval()
    with torch.inference_mode():
        logits = net(input_ids=words[:32].to(device)).logits
    return Trained(
        test_accuracy=float((logits.argmax(1).cpu() == labels[:32]).float().mean()), last_loss=last
    )


def _bert(device: str, *, small: bool) -> nn.Module:
    """Return BERT-base with random weights, for two classes."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    with torch.device(device):
        model: nn.Module = BertForSequenceClassification(BertConfig(**(sizes if small else {})))
    return model
