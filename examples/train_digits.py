"""Train a classifier of handwritten digits, saving as it goes. Killed and run again, it goes on from there."""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headway

STEPS, SAVE_EVERY, BATCH = 400, 50, 128


def batches(images: Any, labels: Any, first: int) -> Iterator[tuple[Any, Any]]:
    """Yield mini-batches of images, each moved a little so that no two epochs are alike."""
    import numpy as np

    for step in range(first, STEPS):
        random = np.random.default_rng(step)
        chosen = random.integers(0, len(images), BATCH)
        moved = [np.roll(images[i], random.integers(-1, 2, size=2), axis=(0, 1)) for i in chosen]
        yield np.reshape(moved, (BATCH, -1)), labels[chosen]


def save(checkpoint: Path, model: Any, step: int) -> None:
    """Write the whole checkpoint beside the old one, then put it in its place."""
    new = checkpoint.with_suffix(".new")
    new.write_bytes(pickle.dumps((model, step)))
    new.replace(checkpoint)


def train(folder: Path) -> float:
    """Train to the last step and return the accuracy on images kept apart."""
    checkpoint = folder / "checkpoint.pkl"
    with headway.start("digits", dir=folder / "logs") as rec:
        from sklearn.datasets import load_digits  # heavy imports are start-up time: the ledger sees them
        from sklearn.model_selection import train_test_split
        from sklearn.neural_network import MLPClassifier

        data = load_digits()
        x, x_test, y, y_test = train_test_split(data.images / 16, data.target, random_state=0)
        model, done = MLPClassifier((512, 256), random_state=0), -1
        if checkpoint.exists():
            with rec.span("checkpoint_restore"):
                model, done = pickle.loads(checkpoint.read_bytes())  # noqa: S301 - our own file
        rec.restored(done)  # the last step that is in the model; -1 is from scratch

        for step, (images, labels) in enumerate(rec.track(batches(x, y, done + 1)), done + 1):
            model.partial_fit(images, labels, classes=range(10))
            if (step + 1) % SAVE_EVERY == 0:
                with rec.span("checkpoint_save"):
                    save(checkpoint, model, step)
                rec.saved(step)

        with rec.span("evaluation"):
            return float(model.score(x_test.reshape(len(x_test), -1), y_test))


if __name__ == "__main__":
    home = Path(sys.argv[1] if len(sys.argv) > 1 else "digits")
    home.mkdir(parents=True, exist_ok=True)
    print(f"accuracy on images never seen in training: {train(home):.1%}")
