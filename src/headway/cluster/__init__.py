"""A model split over nodes, run on torch.distributed, with every node watched.

    with Cluster.from_path("cluster.toml") as cluster:
        print(cluster.plan_table())
        cluster.launch()
        print(cluster.drive([[1, 2, 3]], steps=8).table())

What runs a model needs the extra ``cluster``; its report types need NumPy alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headway.cluster.cluster import Cluster, NodeState
    from headway.cluster.collective import all_reduce
    from headway.cluster.config import ClusterConfig, NodeConfig, PlacementConfig
    from headway.cluster.placement import Placement
    from headway.cluster.probe import NodeProbe
    from headway.cluster.report import ClusterRun, NodeReport, ReduceKind, StageTiming

_HOME: Final = {
    "Cluster": "cluster",
    "ClusterConfig": "config",
    "ClusterRun": "report",
    "NodeConfig": "config",
    "NodeProbe": "probe",
    "NodeReport": "report",
    "NodeState": "cluster",
    "Placement": "placement",
    "PlacementConfig": "config",
    "ReduceKind": "report",
    "StageTiming": "report",
    "all_reduce": "collective",
}

__all__ = [
    "Cluster",
    "ClusterConfig",
    "ClusterRun",
    "NodeConfig",
    "NodeProbe",
    "NodeReport",
    "NodeState",
    "Placement",
    "PlacementConfig",
    "ReduceKind",
    "StageTiming",
    "all_reduce",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
