"""Workers as Ray actors, one a node; needs the extra ``ray``.

Ray finds the places and starts the processes; nothing else goes over it but one call an actor,
which ends with the worker. In its arguments is the run's token: it is as safe as Ray's own channel.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from headway.cluster.config import ClusterConfig
from headway.cluster.launch.launcher import Meeting
from headway.errors import ArgumentError, ClusterError
from headway.sources.text import clean

_GRACE_S: Final = 3.0
_KNOCK_S: Final = 5.0
_OBJECTS_BYTES: Final = 80 * 1024 * 1024
"""Room for Ray's objects, its least: tensors do not go there."""
_AROUND: Final = ("Worker exit detail: ", " Some common causes")
"""What Ray says of the end of a process is between these two; after it come guesses."""


class RayLauncher:
    """Starts workers on a Ray cluster, or on this machine where there is none.

    The cluster is the one that this process is connected to, else that of ``RAY_ADDRESS``, else the
    one that ``ray start`` started on this machine. A Ray started here is reached from this machine
    alone, and ends with `close`; ``RAY_ADDRESS=local`` asks for it.

    Attributes:
        folder: Where a Ray started here keeps its files; None where none was started.
    """

    def __init__(self, config: ClusterConfig) -> None:
        """Look for what is needed; nothing is started yet.

        Raises:
            ArgumentError: A node names one GPU of several: which it has is Ray's to say.
            ClusterError: The extra is missing.
        """
        self._devices = {node.addr: node.device for node in config.nodes}
        self._timeout_s = config.launch_timeout_s
        self._calls: dict[str, Any] = {}
        self._actors: dict[str, Any] = {}
        self._reserved: list[Any] = []
        self._connected = False
        self._starter: ThreadPoolExecutor | None = None
        self.folder: Path | None = None
        if numbered := [addr for addr, device in self._devices.items() if ":" in device]:
            raise ArgumentError(
                f"Cannot start {numbered[0]} by Ray on {self._devices[numbered[0]]}: Ray says which GPU a worker has",
                'Give device = "cuda"',
                "bad-config",
            )
        with self._alone_here():
            self._ray = _import_ray()

    def start(self, addrs: list[str], meeting: Meeting) -> None:
        """Start an actor for each of these nodes, on hosts of their own where there are enough.

        Raises:
            ClusterError: Ray cannot be reached or started, or has no room.
        """
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        ray = self._ray
        self._connect()
        places = self._reserve(addrs, meeting)
        for place, addr in enumerate(addrs):
            actor = ray.remote(_Node).options(
                num_cpus=1,
                num_gpus=_gpus(self._devices[addr]),
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(places, placement_group_bundle_index=place),
            )
            self._actors[addr] = actor.remote()
            self._calls[addr] = self._actors[addr].serve.remote(
                meeting.host, meeting.port, meeting.token, addr, meeting.beat_s
            )

    def ended(self, addr: str) -> str | None:
        """Return how a worker has ended, of an actor that died in Ray's words; None while it lives."""
        call = self._calls.get(addr)
        if call is None or not self._ray.wait([call], timeout=0)[0]:
            return None
        try:
            return f"ended with status {self._ray.get(call)}"
        except Exception as error:  # noqa: BLE001 - whatever the worker or Ray raised
            said = str(getattr(error, "cause", None) or error).strip().rpartition("\n")[2]
            return clean(said.rpartition(_AROUND[0])[2].partition(_AROUND[1])[0])

    def kill(self, addr: str) -> None:
        """End a worker at once."""
        if (actor := self._actors.get(addr)) is not None:
            self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """End all workers; a Ray started here ends as well, and so does a connection made here."""
        if self._calls:
            self._ray.wait(list(self._calls.values()), num_returns=len(self._calls), timeout=_GRACE_S)
        for addr in self._actors:
            self.kill(addr)
        for places in self._reserved:
            self._ray.util.remove_placement_group(places)
        if self._connected:
            self._ray.shutdown()
        self._calls, self._actors, self._reserved, self._connected = {}, {}, [], False
        if self._starter is not None:
            self._starter.shutdown()
        if self.folder is not None:
            self._remove()

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        address = _address()
        try:
            if address is None:
                # the kernel ends Ray's processes with the thread that started them: this one lives as long as they
                self._starter = ThreadPoolExecutor(1, "headway-ray")
                self._starter.submit(self._start_ray).result()
            else:
                _knock(address)
                self._ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            said = clean(str(error).strip().partition("\n")[0])
            raise ClusterError(
                f"Cannot {'start Ray' if address is None else f'reach Ray at {clean(address)}'}: {said}",
                "Start it there, or set RAY_ADDRESS=local for one of its own" if address else "Look at its logs",
                "no-start",
            ) from error
        self._connected = True

    def _start_ray(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headway-ray-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)  # without a close, too
        inner = self.folder / "ray"  # Ray opens the folder that it is given to everyone
        with self._alone_here():
            self._ray.init(
                address="local",
                num_cpus=len(self._devices),
                include_dashboard=False,
                object_store_memory=_OBJECTS_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=str(inner),
            )

    def _reserve(self, addrs: list[str], meeting: Meeting) -> Any:
        """Reserve a place for each, as far apart as there are nodes of Ray, and return them.

        Raises:
            ClusterError: There is no room, or some could not reach the coordinator.
        """
        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        hosts = {node["NodeManagerAddress"] for node in nodes}
        if len(hosts) > 1 and meeting.here_only:
            raise ClusterError(
                f"Cannot start workers on the {len(hosts)} hosts of Ray: the coordinator listens on {meeting.host}, "
                "which is reached from this host alone",
                'Set listen = "<address>" to one of this host\'s that they reach',
                "no-start",
            )
        bundles = [{"CPU": 1, "GPU": 1} if _gpus(self._devices[addr]) else {"CPU": 1} for addr in addrs]
        strategy = "STRICT_SPREAD" if len(nodes) >= len(addrs) else "SPREAD"
        places = self._ray.util.placement_group(bundles, strategy=strategy)
        self._reserved.append(places)
        if not places.wait(self._timeout_s):
            raise ClusterError(
                f"Cannot start the workers of {len(addrs)} nodes by Ray: no room within {self._timeout_s:g} s; "
                f"each takes a CPU, one of device cuda a GPU as well, and they are placed {strategy}",
                "Look at `ray status`, or give fewer nodes",
                "no-start",
            )

        return places

    @contextlib.contextmanager
    def _alone_here(self) -> Iterator[None]:
        """What Ray is told by its environment, when it is one of our own: nobody else is to know of it."""
        before = dict(os.environ)
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        if _address() is None:
            # else its actors would give way to every other process
            os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - as Ray spells it
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # so it listens on 127.0.0.1, also on Linux
            if not (Path.home() / ".ray" / "auth_token").exists() and "RAY_AUTH_TOKEN_PATH" not in os.environ:
                os.environ.setdefault("RAY_AUTH_TOKEN", _own_token())  # else it would be written there
        try:
            yield
        finally:
            for name in set(os.environ) - set(before):
                del os.environ[name]
            os.environ.update(before)


class _Node:
    """The actor of one node."""

    def serve(self, host: str, port: int, token: str, addr: str, beat_s: float) -> int:
        """Be a worker; return its exit status."""
        from headway.cluster.worker import work

        return work(host, port, token, addr, beat_s)


def _address() -> str | None:
    """Return where the Ray is that was named, or that ``ray start`` started; None where one is to be started here."""
    if named := os.environ.get("RAY_ADDRESS"):
        return None if named == "local" else named
    with contextlib.suppress(OSError):
        started = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")  # noqa: S108 - Ray's place
        return started.read_text(encoding="utf-8").strip() or None
    return None


def _knock(address: str) -> None:
    """Look whether somebody is there: Ray itself would try for minutes.

    Raises:
        OSError: Nobody is.
    """
    host, _, port = address.rpartition(":")
    if "/" not in host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S).close()


@functools.cache
def _own_token() -> str:
    """Return the token of a Ray started here; Ray keeps the first it has seen in a process."""
    return secrets.token_hex(32)


def _gpus(device: str) -> int:
    return 1 if device == "cuda" else 0


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ClusterError(
            "Cannot start workers by Ray: ray is not installed",
            'Run: pip install "headway[ray]"',
            "missing-extra",
            extra="ray",
        ) from error
    return ray
