"""What a launcher does: it starts workers and can end them; all else goes over their connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

TOKEN: Final = "HEADWAY_CLUSTER_TOKEN"  # noqa: S105 - the name of an environment variable
"""The environment variable that holds a run's token."""
BEATS: Final = 4
"""So often a worker says that it lives, in the time after which it counts as hung."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What a worker needs to find its coordinator.

    Attributes:
        host, port: Where it listens.
        token: The run's.
        heartbeat_s: After so long without a word a worker counts as hung [s].
    """

    host: str
    port: int
    token: str
    heartbeat_s: float

    @property
    def beat_s(self) -> float:
        """How often a worker says that it lives [s]."""
        return self.heartbeat_s / BEATS

    @property
    def here_only(self) -> bool:
        """Whether the coordinator is reached from this host alone."""
        return self.host.startswith("127.") or self.host in {"localhost", "::1"}

    def command(self, addr: str) -> list[str]:
        """Return the arguments of ``headway`` that start the worker of a node."""
        return [
            "cluster", "worker", "--coordinator", f"{self.host}:{self.port}",
            "--addr", addr, "--heartbeat", f"{self.heartbeat_s:g}",
        ]  # fmt: skip


class Launcher(Protocol):
    """One way to start workers."""

    def start(self, addrs: list[str], meeting: Meeting) -> None:
        """Start a worker for each of these nodes; it connects by itself."""

    def ended(self, addr: str) -> str | None:
        """Return how a worker's process has ended, such as ``killed by SIGKILL``; None while it runs, or unknown."""

    def kill(self, addr: str) -> None:
        """End a worker at once, whatever it does; nothing happens where it is gone or out of reach."""

    def close(self) -> None:
        """End all workers that are still there, and leave nothing behind; a second call does nothing."""
