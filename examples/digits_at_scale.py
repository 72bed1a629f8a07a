"""The digits run of `headway demo`, taken to 1,024 devices: what it would keep there, and what would return most.

    python examples/digits_at_scale.py [LOGS]

LOGS is the folder of a recorded run; without it a small run is recorded, which fails once and goes on.
"""

import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np

import headway
from headway.model import Scenarios, fit, levers
from headway.model.projection import project
from headway.units import show_seconds

DEVICES, PRICE = 1024, "2 USD/h"


def train(rec: headway.Recorder, folder: Path, first: int, fails_at: int) -> None:
    """Train from that step on, saving every 20 steps; the program raises after the step it fails at."""
    weights = np.load(folder / "weights.npy") if first else np.eye(256)
    rec.restored(first - 1)
    for step in rec.track(range(first, 120)):
        weights = np.tanh(weights @ weights.T)
        if step % 20 == 19:
            with rec.span("checkpoint_save"):
                np.save(folder / "weights.npy", weights)
            rec.saved(step)
        if step == fails_at:
            raise RuntimeError("a device is lost")


def record(logs: Path) -> Path:
    """Record a small run of two attempts: the first fails, the second goes on from the last save."""
    with suppress(RuntimeError), headway.start("tiny", dir=logs, attempt="a0") as rec:
        train(rec, logs, first=0, fails_at=69)
    with headway.start("tiny", dir=logs, attempt="a1") as rec:
        train(rec, logs, first=60, fails_at=-1)
    return logs


def main(logs: Path) -> None:
    """Print what the run tells, what it would keep at scale, and its levers."""
    told = fit(headway.account(headway.load(logs)[0]))
    low, high = (show_seconds(limit) if limit else "no limit" for limit in (told.mtbf.low_s, told.mtbf.high_s))
    print(f"{told.run}: R {told.runtime:.1%} in {told.attempts} attempts, a save takes {show_seconds(told.save_s)}")
    print(f"  {told.mtbf.n_failures} failure in {show_seconds(told.held_s)}: the MTBF is from {low} to {high} (95 %)")

    # A laptop's process fails unlike a cluster: at scale the published rate counts, and a save of a real model.
    mtbf = Scenarios.MetaRSC1Failures.at(DEVICES).result.mtbf
    then = project(told, devices=DEVICES, mtbf=mtbf, save="30 s", restart="5 min")
    failing, saving = show_seconds(then.mtbf.value_s), show_seconds(then.interval_s)
    print(f"on {DEVICES:,} devices, a failure every {failing}, saved every {saving}: R {then.runtime:.1%}")
    for name, share in sorted(then.shares.items(), key=lambda item: -item[1])[:5]:
        print(f"  {name:<16} {share:6.1%}")
    print("what would return most in a month")
    for lever in levers(then, price=PRICE)[:3]:
        print(f"  {lever.text}: +{100 * lever.gain:.1f} points, {lever.money:,.0f} USD")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(record(Path(folder)))
