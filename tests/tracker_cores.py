"""Both cores under one test: the compiled one where it is built, and its twin in Python."""

import functools
import importlib.util
from unittest import mock

import pytest

from headway.record import hot, tracker

CORES = ["compiled", "python"]


@functools.cache
def tracker_class(core):
    """Return the GoodputTracker on that core."""
    if core == "compiled":
        if not hot.COMPILED:
            pytest.skip("the compiled core is not built here")
        return tracker.GoodputTracker
    spec = importlib.util.spec_from_file_location("tracker_in_python", tracker.__file__)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.object(hot, "Core", hot.PythonCore):
        spec.loader.exec_module(module)
    return module.GoodputTracker
