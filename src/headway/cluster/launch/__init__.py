"""Ways to start the same worker: on this machine, by torchrun on each host, as Ray actors."""

from __future__ import annotations

from headway.cluster.config import ClusterConfig
from headway.cluster.launch.launcher import Launcher


def launcher_of(config: ClusterConfig) -> Launcher:
    """Return the launcher that a configuration names; one that needs an extra is imported here."""
    if config.launcher == "torchrun":
        from headway.cluster.launch.torchrun import TorchrunLauncher

        return TorchrunLauncher(config)
    if config.launcher == "ray":
        from headway.cluster.launch.ray import RayLauncher

        return RayLauncher(config)
    from headway.cluster.launch.local import LocalLauncher

    return LocalLauncher(config)
