"""What recording costs a real training loop: digits, a PyTorch `DataLoader`, with and without Headway.

Pairs run one after the other in turn, so that both meet the same machine; the figure is the median
of the pairs' ratios. Also measured alone: the time `headway.track` and a recorder add to one step,
as it is the difference of two long loops that no neighbour of this machine can disturb much.

    python benchmarks/overhead.py [PAIRS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import headway

LIMIT = 1.01
BATCH, EPOCHS = 64, 4


def make_training() -> tuple[Callable[[], Iterable[Any]], Callable[[Any], None]]:
    """Return what makes a loader, and one training step on a batch."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = load_digits()
    digits = TensorDataset(torch.tensor(data.images / 16, dtype=torch.float32), torch.tensor(data.target))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: Any) -> None:
        images, labels = batch
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return lambda: DataLoader(digits, BATCH, shuffle=True), step


def timed(loader: Iterable[Any], step: Callable[[Any], None]) -> tuple[float, int]:
    """Train some epochs; return the processor's time [s] and the number of steps."""
    began, n_steps = time.perf_counter(), 0
    for _ in range(EPOCHS):
        for batch in loader:
            step(batch)
            n_steps += 1
    return time.perf_counter() - began, n_steps


@contextmanager
def recorder() -> Iterator[headway.Recorder]:
    """A recorder on a log of its own."""
    with tempfile.TemporaryDirectory() as folder, headway.start("overhead", dir=folder) as rec:
        yield rec


def added_per_step(n: int = 200_000) -> float:
    """Return what `track` adds to one step of an empty loop [s]."""
    with recorder() as rec:
        began = time.perf_counter()
        for _ in rec.track(range(n), quiet=True):
            pass
        recorded = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(n):
        pass
    return (recorded - (time.perf_counter() - began)) / n


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    make_loader, step = make_training()
    timed(make_loader(), step)
    ratios, bases, n_steps = [], [], 1
    for pair in range(pairs):
        with recorder() as rec:
            both = {False: make_loader(), True: rec.track(make_loader(), quiet=True)}
            took = {}
            for recorded in (False, True) if pair % 2 else (True, False):
                took[recorded], n_steps = timed(both[recorded], step)
        ratios.append(took[True] / took[False])
        bases.append(took[False])
    ratio, base = statistics.median(ratios), statistics.median(bases)
    spread = statistics.quantiles(ratios, n=4)
    added = added_per_step()
    print(f"train_base       {base * 1e6 / n_steps:8.1f} us a step, median of {pairs} runs of {n_steps} steps")
    print(
        f"train_recorded   {ratio:8.4f} x train_base, median of {pairs} pairs (quartiles {spread[0]:.4f}, {spread[2]:.4f})"
    )
    print(
        f"track alone      {added * 1e6:8.3f} us a step, {100 * added * n_steps / base:.3f} % of a step of train_base"
    )
    print(f"bar: {LIMIT:.2f} x: {'met' if ratio < LIMIT else 'MISSED'}")
    return int(ratio >= LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
