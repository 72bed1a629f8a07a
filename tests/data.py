"""Real files that lie beside a checkout, where they do: tests that read them skip without."""

from pathlib import Path

import pytest

REAL = Path(__file__).parents[2] / "shared" / "data"


def real(*names):
    """Return the path of a real file; skip the test that asks where there is none."""
    path = REAL.joinpath(*names)
    if not path.exists():
        pytest.skip(f"no {path.name} beside the checkout")
    return path
