"""A worker: one node's process, the same however it was started.

It connects to the coordinator, proves the run's token, and does what it is told: build a stage,
form a group, run a drive. A thread beats; another hears. When a peer is gone the coordinator says
so, and the sockets of the group are shut, so that nothing waits for it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from headway.cluster.control.channel import Channel, connect
from headway.cluster.control.message import (
    AnyMessage,
    Beat,
    Build,
    Built,
    Drive,
    Failed,
    Form,
    Formed,
    Hello,
    Leave,
    Left,
    Stop,
)
from headway.cluster.hand import Hand
from headway.cluster.stagelog import StageLog
from headway.errors import ClusterError, HeadwayError

if TYPE_CHECKING:
    from headway.cluster.pipeline import Pipeline
    from headway.cluster.stage import Stage

_END_S: Final = 2.0
"""So long the main thread may take to end when the coordinator is gone [s]."""
_AGAIN_S: Final = 0.05
_STUCK_S: Final = 0.5
"""So long a drive that was given up may take to notice, before its thread is left behind [s]."""


def work(host: str, port: int, token: str, addr: str, beat_s: float = 1.0) -> int:
    """Serve the coordinator until it says stop or is gone; return the exit status.

    Args:
        host: Where the coordinator listens.
        port: Its port.
        token: The run's.
        addr: Which node of the configuration this is.
        beat_s: How often to say that it lives [s].

    Raises:
        ClusterError: The coordinator cannot be reached or refuses.
    """
    me = Hello(addr=addr, pid=os.getpid(), host=socket.gethostname())
    channel = connect(host, port, token)
    channel.send(me)
    keys = connect(host, port, token)
    keys.send(Hello(addr=addr, pid=me.pid, host=me.host, store=True))
    worker = _Worker(addr, channel, keys, _interface_of(host, channel))
    threading.Thread(target=worker.hear, name="headway-hear", daemon=True).start()
    threading.Thread(target=worker.beat, args=(beat_s,), name="headway-beat", daemon=True).start()
    return worker.run()


@dataclass
class _Worker:
    """The state of `work`."""

    addr: str
    channel: Channel
    keys: Channel
    interface: str
    stage: Stage | None = None
    pipeline: Pipeline | None = None
    log: StageLog = field(default_factory=StageLog)
    forwards: int = 0
    generation: int = -1
    within: int | None = None  # the generation of what is being done
    left: int = -1  # the last generation that was given up
    threads: int | None = None
    hand: Hand | None = None  # what runs the drives
    store: Any = None
    own_sockets: set[int] = field(default_factory=set)
    todo: queue.SimpleQueue[AnyMessage] = field(default_factory=queue.SimpleQueue)

    def hear(self) -> None:
        """Take what the coordinator says; without it this process has no reason to be."""
        with contextlib.suppress(EOFError):
            while True:
                given_up = self.within is not None and self.within <= self.left
                message = self.channel.receive(_AGAIN_S if given_up else None)
                if message is None:
                    if self.within is not None and self.within <= self.left:
                        _shut_sockets(self.own_sockets)  # those that the engine has opened since
                    continue
                if isinstance(message, Failed):
                    _write(sys.stderr, f"headway: Cannot join as {self.addr}: {message.what}. {message.next_step}.")
                    break
                if isinstance(message, Leave | Stop):
                    self.left = max(self.left, message.generation if isinstance(message, Leave) else self.generation)
                    _shut_sockets(self.own_sockets)
                self.todo.put(message)
        self.left = self.within if self.within is not None else self.generation
        _shut_sockets(self.own_sockets)
        self.todo.put(Stop(reason="failed"))
        time.sleep(_END_S)
        os._exit(3)  # the main thread is stuck, and nobody is there to be told

    def beat(self, every_s: float) -> None:
        """Say that this process lives, until it does not."""
        with contextlib.suppress(OSError, ValueError):
            while True:
                self.channel.send(Beat(rss_bytes=resident_bytes(), forwards=self.forwards))
                time.sleep(every_s)

    def run(self) -> int:
        """Do what there is to do, in order, until told to stop; return the exit status."""
        while not isinstance(message := self.todo.get(), Stop):
            try:
                self.do(message)
            except EOFError:
                continue  # the coordinator is gone: a stop follows
            except Exception as error:  # noqa: BLE001 - whatever it is, the coordinator hears it
                self.tell(_failed(error))
        self.log.close(message.reason)
        self.leave()
        return 0 if message.reason == "finished" else 3

    def do(self, message: AnyMessage) -> None:
        """Do one thing."""
        match message:
            case Build():
                self.build(message)
            case Form() | Drive():
                self.in_group(message)
            case Leave():
                self.leave()
                self.log.close("failed")
                self.tell(Left(generation=message.generation))

    def tell(self, message: AnyMessage) -> None:
        """Send, whether or not anybody is there."""
        with contextlib.suppress(OSError, ValueError):
            self.channel.send(message)

    def build(self, order: Build) -> None:
        """Build a stage in the place of the one before."""
        self.log.open(order.log)  # what is imported from here on is startup
        import torch

        from headway.cluster.checkpoint import Checkpoint
        from headway.cluster.stage import Stage, prepare

        if order.threads:
            torch.set_num_threads(order.threads)
        self.threads = order.threads
        self.stage = self.pipeline = None
        checkpoint = Checkpoint.open(order.folder)
        if order.fingerprint and checkpoint.fingerprint != order.fingerprint:
            raise ClusterError(
                f"Cannot build on {self.addr}: {order.folder} there is another checkpoint than the coordinator's",
                "Copy the same checkpoint to every node",
                "other-checkpoint",
            )
        prepare(checkpoint)
        with self.log.span("checkpoint_restore"):
            self.stage = Stage(checkpoint, range(order.start, order.stop), order.precision, order.device)
        report = msgspec.json.encode(self.stage.report(self.addr, resident_bytes()).to_json()).decode()
        _write(sys.stdout, f"NODEREPORT {report}\nserving on {self.addr}")
        self.tell(Built(report=report))

    def in_group(self, order: Form | Drive) -> None:
        """Form a group or run a drive in it; what has been given up ends without a word, for a `Leave` follows."""
        self.within = order.generation
        try:
            if order.generation <= self.left:
                return
            if isinstance(order, Form):
                self.form(order)
            else:
                self.drive(order)
        except Exception as error:
            if isinstance(order, Drive) and order.generation > self.left and not _is_of_a_peer(error):
                raise
            # whose end it was the coordinator knows better; it says what to do next
            self.leave()
            self.tell(Left(generation=order.generation, why=_root(error)))
        finally:
            self.within = None

    def form(self, order: Form) -> None:
        """Join the group of a generation; a newer one may be on its way already."""
        import torch.distributed as dist

        from headway.cluster.control.keys import store_over
        from headway.cluster.pipeline import Pipeline

        self.leave()
        assert self.stage is not None  # noqa: S101 - the coordinator builds first
        self.log.open(order.log)
        self.own_sockets = _sockets()
        os.environ["GLOO_SOCKET_IFNAME"] = self.interface
        self.store = store_over(self.keys, order.timeout_s)  # the engine does not keep what is Python of it
        # a group that failed while it formed is counted in the names of keys: every rank begins anew
        dist.distributed_c10d._world.group_count = 0  # noqa: SLF001 - the engine resets it for a whole group alone
        with self.log.span("device_init"):
            dist.init_process_group(
                "nccl" if self.stage.device.type == "cuda" else "gloo",
                store=dist.PrefixStore(  # type: ignore[attr-defined]
                    f"{order.generation}/", self.store
                ),
                rank=order.rank,
                world_size=order.world,
                timeout=timedelta(seconds=order.timeout_s),
            )
            self.pipeline = Pipeline(self.stage)
        self.generation = order.generation
        self.tell(Formed(generation=order.generation, log_fault=self.log.fault))
        self.log.idle()

    def leave(self) -> None:
        """Leave the group, if there is one."""
        self.pipeline = None
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_initialized():
            with contextlib.suppress(Exception):
                dist.destroy_process_group()

    def drive(self, order: Drive) -> None:
        """Run a drive."""
        from headway.cluster.drive import run

        if self.pipeline is None or order.generation != self.generation:
            self.tell(Left(generation=order.generation, why="it is in no group"))
            return
        self.forwards = 0

        def counted() -> None:
            if order.generation <= self.left:
                raise _GivenUpError
            self.forwards += 1

        pipeline = self.pipeline
        self.hand = self.hand or Hand(self.prepare)
        task = self.hand.start(lambda: run(pipeline, order, self.log, counted))
        since = None
        while not task.done.wait(_AGAIN_S):
            if order.generation <= self.left:
                since = since or time.monotonic()
                if time.monotonic() - since > _STUCK_S:
                    self.hand.leave()
                    self.hand = None
                    raise _GivenUpError
        if task.error is not None:
            raise task.error
        self.tell(task.result)

    def prepare(self) -> None:
        """Set what a thread of torch has to itself."""
        import torch

        if self.threads:
            torch.set_num_threads(self.threads)


class _GivenUpError(Exception):
    """A drive goes on in a group that was given up."""


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process, also a stopped one, when the thread that started it ends: on Linux alone.

    Args:
        parent: The process that started it; in a container its number may be 1.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != parent:
        os._exit(3)  # it had ended before


def resident_bytes() -> int | None:
    """Return what this process holds in memory [bytes]; None where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - once a beat
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _write(stream: TextIO, text: str) -> None:
    with contextlib.suppress(OSError):
        stream.write(f"{text}\n")
        stream.flush()


def _failed(error: Exception) -> Failed:
    if isinstance(error, HeadwayError):
        return Failed(what=error.what, next_step=error.next_step, slug=error.slug)
    return Failed(what=_root(error))


def _root(error: BaseException) -> str:
    """Return what an error comes from: the engine wraps what a stage raises."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"


def _is_of_a_peer(error: Exception) -> bool:
    """Return whether the engine says that another rank is gone or too slow."""
    text = str(error)
    return isinstance(error, RuntimeError) and any(
        sign in text for sign in ("gloo", "Gloo", "Connection closed", "Connection reset", "NCCL", "Timed out")
    )


def _interface_of(host: str, channel: Channel) -> str:
    """Return the name of the network interface that reaches the coordinator: the group's sockets are on it alone."""
    with socket.socket(fileno=os.dup(channel.fileno())) as own:
        mine = own.getsockname()[0]
    for name, address in _addresses():
        if address == mine:
            return name
    return "lo" if host in {"127.0.0.1", "::1", "localhost"} else ""


def _addresses() -> list[tuple[str, str]]:
    """Return the IPv4 address of each interface of this machine."""
    import fcntl
    import struct

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asker, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
                found.append((name, socket.inet_ntoa(answer[20:24])))
    return found


def _sockets() -> set[int]:
    """Return the inodes of the sockets that this process has open."""
    return {inode for _, inode in _open_sockets()}


def _open_sockets() -> list[tuple[int, int]]:
    found = []
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():  # noqa: PTH112, PTH208
        with contextlib.suppress(OSError, ValueError):
            kind, _, inode = os.readlink(f"/proc/self/fd/{name}").partition(":")  # noqa: PTH115
            if kind == "socket":
                found.append((int(name), int(inode.strip("[]"))))
    return found


def _shut_sockets(own: set[int]) -> None:
    """Shut the group's sockets: the engine cannot be told to give up a peer that neither answers nor ends."""
    if not own:
        return
    for number, inode in _open_sockets():
        if inode not in own:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as theirs:
                # one that listens is left: the engine ends the process when that fails
                if not theirs.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    theirs.shutdown(socket.SHUT_RDWR)
