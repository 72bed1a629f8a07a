"""Put the folder of the tests on the path, so that they share their helpers; make CI's histories the same each time."""

import os
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
# The first call imports what it tests, on a machine that others use too: how long it takes is no test.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
