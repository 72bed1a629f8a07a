"""The digits example with PyTorch: a `DataLoader` with workers, checkpoints, and going on after a kill."""

import sys
from pathlib import Path

import headway

EPOCHS, SAVE_EVERY, BATCH = 12, 20, 64


def train(folder: Path, epochs: int = EPOCHS) -> float:
    """Train to the last epoch and return the accuracy on images kept apart."""
    with headway.start("digits-torch", dir=folder / "logs") as rec:
        import torch  # heavy imports are start-up time: the ledger sees them
        from sklearn.datasets import load_digits
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset, random_split

        torch.manual_seed(0)
        torch.set_num_threads(1)
        data = load_digits()
        digits = TensorDataset(torch.tensor(data.images / 16, dtype=torch.float32), torch.tensor(data.target))
        seen, unseen = random_split(digits, [0.8, 0.2], torch.Generator().manual_seed(0))
        loader = rec.track(DataLoader(seen, BATCH, shuffle=True, num_workers=2, persistent_workers=True))

        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        checkpoint, done = folder / "checkpoint.pt", -1
        if checkpoint.exists():
            with rec.span("checkpoint_restore"):
                state = torch.load(checkpoint)
                model.load_state_dict(state["model"])
                optimizer.load_state_dict(state["optimizer"])
                done = state["step"]
        rec.restored(done)  # the last step that is in the model; -1 is from scratch

        step, last = done, epochs * len(loader) - 1
        while step < last:
            for images, labels in loader:
                step += 1
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                if (step + 1) % SAVE_EVERY == 0 or step == last:
                    with rec.span("checkpoint_save"):
                        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                        torch.save(state, checkpoint.with_suffix(".new"))
                        checkpoint.with_suffix(".new").replace(checkpoint)
                    rec.saved(step)
                if step == last:
                    break

        with rec.span("evaluation"), torch.inference_mode():
            images, labels = next(iter(DataLoader(unseen, len(unseen))))
            return float((model(images).argmax(1) == labels).float().mean())


if __name__ == "__main__":
    home = Path(sys.argv[1] if len(sys.argv) > 1 else "digits-torch")
    home.mkdir(parents=True, exist_ok=True)
    print(f"accuracy on images never seen in training: {train(home):.1%}")
