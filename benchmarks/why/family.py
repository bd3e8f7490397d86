"""Small training loops with one fault each, in three models."""

from __future__ import annotations

import os
from dataclasses import dataclass

CORES = len(os.sched_getaffinity(0))
_OPTIMIZER = "SGD(net.parameters(), lr=0.01, momentum=0.9)"
_FAULT = "# the fault"

_LOOP = '''"""A small training loop."""
import copy, json, time
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

THREADS = {threads}


class Data(Dataset):
    def __init__(self):
        torch.manual_seed(1)
        self.x, self.y = {data}, torch.randint(10, (512,))

    def __len__(self):
        return 512

    def __getitem__(self, number):
        x = self.x[number]
{transform}
        return x, self.y[number]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
{net}

    def forward(self, x):
{forward}


def evaluate(net, batches):
    net.eval()
    right = 0
    with torch.no_grad():
        for x, y in batches:
            right += int((net(x).argmax(1) == y).sum())
    net.train()
    return right


{functions}
def train(steps):
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    loader = DataLoader(Data(), batch_size=32, num_workers={workers}, persistent_workers={workers} > 0)
    net = Net()
    optimizer = torch.optim.{optimizer}
    held = [(x, y) for (x, y), _ in zip(DataLoader(Data(), batch_size=32), range({held}))]
    history, log, step = [], open("/dev/null", "w"), 0
{setup}
    while step < steps:
        for x, y in loader:
{before}
            optimizer.zero_grad()
            out = net(x)
            loss = F.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
{after}
            step += 1
            yield
            if step >= steps:
                break


if __name__ == "__main__":
    for _ in train(1000000):
        pass
'''


@dataclass(frozen=True)
class Model:
    """The texts of a model, and how large its faults are."""

    data: str
    net: str
    forward: str
    rows: str
    held: int


MODELS = {
    "mlp": Model(
        data="torch.randn(512, 256)",
        net="self.a, self.b, self.c = nn.Linear(256, 512), nn.Linear(512, 512), nn.Linear(512, 10)",
        forward="return self.c(torch.relu(self.b(torch.relu(self.a(x)))))",
        rows="(x, x)",
        held=4,
    ),
    "cnn": Model(
        data="torch.randn(512, 3, 24, 24)",
        net="self.a, self.b, self.c = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3), nn.Linear(1600, 10)",
        forward="return self.c(F.max_pool2d(torch.relu(self.b(torch.relu(self.a(x)))), 2).flatten(1))",
        rows="x.flatten(1)[:, :256]",
        held=2,
    ),
    "text": Model(
        data="torch.randint(100, (512, 24))",
        net="self.e, self.r, self.c = nn.Embedding(100, 64), nn.GRU(64, 64), nn.Linear(64, 10)",
        forward="return self.c(self.r(self.e(x.T))[0][-1])",
        rows="x",
        held=2,
    ),
}
# Each fault by the place of its text in the loop; a tuple has the text with the fault, and the one without.
_HEAVY = "for _ in range(3): torch.sort(torch.rand(2000)); torch.cumsum(torch.rand(2000), 0).exp()"
_DRAW = "noise = torch.sort(torch.randn(6000)).values.cumsum(0).exp()"
_COMPILED = """def plain(loss, scale):
    return loss * scale


scaled = torch.compile(plain, backend="eager", dynamic=False)
torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10**6


"""
_READ = "right = sum((out[i].argmax() == y[i]).item() + out[i].max().item() for i in range(len(y)))"
FAULTS: dict[str, dict[str, str | tuple[str, str]]] = {
    # Workers gain time where a core is free.
    "loader": {"workers": ("0", "{workers}"), "transform": (_HEAVY, _HEAVY), "threads": ("1", "1")},
    "transform": {"workers": ("1", "1"), "transform": (_DRAW, "")},
    "sync": {"after": (_READ, "")},
    "growth": {"after": ("history.append(loss); average = sum(history) / len(history)", "")},
    "recompiles": {
        "after": ("scaled(loss.detach(), step // 4)", "plain(loss.detach(), step // 4)"),
        "functions": _COMPILED,
    },
    "evaluation": {"after": ("evaluate(net, held)", "")},
    "logging": {"after": ("print(step, out.abs(), loss, file=log, flush=True)", "")},
    "copy": {"after": ("best = copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict())", "")},
    "float64": {
        "setup": ("net.double()", ""),
        "before": ("x = x.double() if x.is_floating_point() else x", ""),
    },
    "threads": {"threads": ("1", str(CORES))},
    "optimizer": {
        "optimizer": ("Adam(net.parameters(), foreach=False)", "Adam(net.parameters(), fused=True)"),
    },
}
LOOPS = (
    *(("mlp", fault) for fault in FAULTS),
    *(("cnn", fault) for fault in ("transform", "sync", "evaluation", "float64")),
    *(("text", fault) for fault in ("loader", "growth", "recompiles", "logging", "copy")),
)


def text_of(model: str, fault: str, *, faulty: bool, workers: str = "1") -> str:
    """Return a loop with its fault, or as it would be without."""
    made, parts = MODELS[model], FAULTS[fault]
    texts = {"threads": str(CORES), "workers": "0", "optimizer": _OPTIMIZER}
    texts |= dict.fromkeys(("functions", "transform", "setup", "before", "after"), "")
    for place, text in parts.items():
        texts[place] = text if isinstance(text, str) else text[not faulty].replace("{workers}", workers)
    indents = {"transform": 8, "setup": 4, "before": 12, "after": 12}
    for place, indent in indents.items():
        text = texts[place]
        mark = f"  {_FAULT}" if faulty and place in parts and text else ""
        texts[place] = f"{' ' * indent}{text}{mark}" if text else ""
    body = {"net": " " * 8 + made.net, "forward": " " * 8 + made.forward}
    return _LOOP.format(data=made.data, held=made.held, **body, **texts)


def line_of(text: str) -> int:
    """Return the line of the fault, 0 where it has none of its own."""
    return next((at for at, line in enumerate(text.splitlines(), 1) if line.endswith(_FAULT)), 0)
