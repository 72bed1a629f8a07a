"""Put the folder of the tests on the path, so that they share their helpers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
