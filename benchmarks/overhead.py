"""What recording costs a real training loop: digits, a PyTorch `DataLoader`, with and without Headway.

Epochs run in pairs, one after the other in turn, so that both meet the same machine. The figure is
the median of the pairs' ratios, with the interval that holds it at 95 %: where other work on the
machine makes that wider than the bar, the pairs decide nothing, and the time that `headway.track`
adds to a step of an empty loop does.

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
BATCH = 64


def make_training() -> tuple[Callable[[], Iterable[Any]], Callable[[Any], None]]:
    """Return what makes a loader, and one training step of a small convolutional net on a batch."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = load_digits()
    digits = TensorDataset(torch.tensor(data.images / 16, dtype=torch.float32), torch.tensor(data.target))
    images = [nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()]
    model = nn.Sequential(*images, nn.Flatten(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step(batch: Any) -> None:
        images, labels = batch
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return lambda: DataLoader(digits, BATCH, shuffle=True), step


def timed(loader: Iterable[Any], step: Callable[[Any], None]) -> tuple[float, float]:
    """Train one epoch; return the wall time and the processor's time it took [s]."""
    began, worked = time.perf_counter(), time.process_time()
    for batch in loader:
        step(batch)
    return time.perf_counter() - began, time.process_time() - worked


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


def median_of(ratios: list[float]) -> tuple[float, float, float]:
    """Return the median and its interval at 95 %, by order statistics."""
    ratios = sorted(ratios)
    reach = round(0.98 * len(ratios) ** 0.5)
    middle = len(ratios) // 2
    return statistics.median(ratios), ratios[max(middle - reach, 0)], ratios[min(middle + reach, len(ratios) - 1)]


def verdict(low: float, high: float, alone: float) -> str:
    """Say whether the bar is met: by the pairs where they can tell, else by the loop alone."""
    if high < LIMIT:
        return "met"
    if low > LIMIT:
        return "MISSED"
    return f"not decided by these pairs; by track alone {'met' if alone < LIMIT else 'MISSED'}"


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    make_loader, step = make_training()
    wall, work, bases, added_in_loop = [], [], [], []
    with recorder() as rec:
        plain, recorded = make_loader(), rec.track(make_loader(), quiet=True)
        n_steps = len(plain)
        timed(plain, step), timed(recorded, step)
        for pair in range(pairs):
            took = {
                loader is recorded: timed(loader, step) for loader in ((plain, recorded), (recorded, plain))[pair % 2]
            }
            wall.append(took[True][0] / took[False][0])
            work.append(took[True][1] / took[False][1])
            bases.append(took[False][0])
            added_in_loop.append((took[True][0] - took[False][0]) / n_steps)
    base = statistics.median(bases) / n_steps
    added = added_per_step()
    print(f"train_base      {base * 1e6:9.1f} us a step, median of {pairs} epochs of {n_steps} steps")
    for name, ratios in (("wall", wall), ("processor", work)):
        ratio, low, high = median_of(ratios)
        print(
            f"train_recorded  {ratio:9.4f} x train_base, {name} time, median of {pairs} pairs ({low:.4f} to {high:.4f})"
        )
    print(f"                {statistics.median(added_in_loop) * 1e6:+9.3f} us a step, wall time")
    print(f"track alone     {added * 1e6:9.3f} us a step, {added / base:.3%} of a step of train_base")
    result = verdict(*median_of(wall)[1:], alone=1 + added / base)
    print(f"bar: under {LIMIT:.2f} x: {result}")
    return int("MISSED" in result)


if __name__ == "__main__":
    raise SystemExit(main())
