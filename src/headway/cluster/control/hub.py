"""The coordinator's end: one port, a thread a worker, and what they all say in one queue."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from headway.cluster.control.channel import Channel, accept, as_connection
from headway.cluster.control.keys import Keys
from headway.cluster.control.message import AnyMessage, Beat, Failed, Hello, StoreCall
from headway.errors import ClusterError

_STRANGERS: Final = 64
"""So many connections may be unproved at once; one more, and the oldest is closed."""
_LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Heard:
    """What a worker said; None when its connection has ended."""

    addr: str
    message: AnyMessage | None


class Hub:
    """Listens for workers that know the token, and hears them.

    Attributes:
        host, port: Where it listens.
        keys: Those by which the workers' group finds itself.
        refused: How many connections did not prove the token.
    """

    def __init__(self, host: str, port: int, token: str, expected: Collection[str]) -> None:
        """Listen.

        Args:
            host: An address of this machine; ``127.0.0.1`` is reached from this machine alone.
            port: 0 takes a free one.
            token: The run's.
            expected: The workers' addresses in the configuration; no other may join.

        Raises:
            ClusterError: The address cannot be listened on.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=socket.SOMAXCONN)
        except OSError as error:
            raise ClusterError(
                f"Cannot listen on {host}:{port}: {error.strerror or error}",
                "Give an address of this machine as listen, and a free port or 0",
                "cannot-listen",
            ) from error
        self._socket.settimeout(_LOOK_S)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self.keys = Keys()
        self.refused = 0
        self._token, self._expected = token, set(expected)
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._channels: dict[str, Channel] = {}
        self._stores: dict[str, Channel] = {}
        self._beats: dict[str, tuple[float, Beat]] = {}
        self.hellos: dict[str, Hello] = {}
        self._strangers: list[socket.socket] = []
        self._closing = threading.Event()
        self._listening = threading.Thread(target=self._listen, name="headway-hub", daemon=True)
        self._listening.start()

    def hear(self, timeout_s: float) -> Heard | None:
        """Return what is said next; None when nobody says anything for so long [s]."""
        try:
            return self._heard.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def send(self, addr: str, message: AnyMessage) -> bool:
        """Send to a worker; return whether it is still connected."""
        with self._lock:
            channel = self._channels.get(addr)
        if channel is None:
            return False
        try:
            channel.send(message)
        except (OSError, ValueError):
            _shut(channel)  # half a message may be on its way: whoever hears the worker hears that it is gone
            return False
        return True

    def connected(self) -> set[str]:
        """Return who is connected."""
        with self._lock:
            return set(self._channels)

    def silent_s(self, addr: str) -> float:
        """Return how long ago a worker was last heard [s]."""
        at, _ = self._beats.get(addr, (time.monotonic(), None))
        silent = time.monotonic() - at
        with self._lock:
            channel = self._channels.get(addr)
            quiet = None if channel is None else channel.quiet_s()  # a long message may be on its way
        return silent if quiet is None else min(silent, quiet)

    def beat(self, addr: str) -> Beat:
        """Return the last beat of a worker."""
        return self._beats.get(addr, (0.0, Beat()))[1]

    def drop(self, addr: str) -> None:
        """Close a worker's connections; it ends itself when it notices."""
        with self._lock:
            gone = [self._channels.pop(addr, None), self._stores.pop(addr, None)]
        for channel in gone:
            if channel is not None:
                _shut(channel)

    def close(self) -> None:
        """Close the port and all connections; a second call does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._listening.join()
        self._socket.close()
        with self._lock:
            for peer in self._strangers:
                _end(peer)
        for addr in list(self.connected()):
            self.drop(addr)
        self.keys.forget()

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                peer, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:
                if self._closing.is_set():
                    return
                time.sleep(_LOOK_S)  # out of file descriptors, for one
                continue
            with self._lock:
                self._strangers.append(peer)
                if len(self._strangers) > _STRANGERS:
                    _end(self._strangers.pop(0))
            threading.Thread(target=self._greet, args=(peer,), daemon=True).start()

    def _greet(self, peer: socket.socket) -> None:
        """Let one peer prove the token and say who it is; then hear it until it ends."""
        try:
            channel = accept(as_connection(peer.dup()), self._token)
            hello = None if channel is None else channel.receive(timeout_s=10.0)
        except (OSError, EOFError):
            channel = hello = None
        finally:
            with self._lock:
                if peer in self._strangers:
                    self._strangers.remove(peer)
                peer.close()
        if channel is None or not isinstance(hello, Hello):
            self.refused += 1
            if channel is not None:
                channel.close()
            return
        mine = self._stores if hello.store else self._channels
        with self._lock:
            why = self._why_not(hello, mine)
            if not why:
                mine[hello.addr] = channel
                if not hello.store:
                    self.hellos[hello.addr] = hello
                    self._beats[hello.addr] = (time.monotonic(), Beat())
        if why:
            with contextlib.suppress(OSError):
                channel.send(Failed(what=why, next_step="Give each worker an addr of the configuration of its own"))
            channel.close()
        elif hello.store:
            self._serve(hello.addr, channel)
        else:
            self._follow(hello, channel)

    def _why_not(self, hello: Hello, mine: dict[str, Channel]) -> str:
        if self._closing.is_set():
            return "the run is over"
        if hello.addr not in self._expected:
            return f"no node {hello.addr} in the configuration: it has {', '.join(sorted(self._expected))}"
        return f"a worker is connected as {hello.addr} already" if hello.addr in mine else ""

    def _follow(self, hello: Hello, channel: Channel) -> None:
        addr = hello.addr
        self._heard.put(Heard(addr, hello))
        with contextlib.suppress(EOFError):
            while (message := channel.receive()) is not None:
                with self._lock:
                    if self._channels.get(addr) is not channel:
                        break
                    last = message if isinstance(message, Beat) else self._beats[addr][1]
                    self._beats[addr] = (time.monotonic(), last)
                if not isinstance(message, Beat):
                    self._heard.put(Heard(addr, message))
        with self._lock:
            ended = self._channels.get(addr) is channel
            if ended:
                del self._channels[addr]
        channel.close()
        if ended:
            self._heard.put(Heard(addr, None))

    def _serve(self, addr: str, channel: Channel) -> None:
        with contextlib.suppress(EOFError, OSError):
            while isinstance(call := channel.receive(), StoreCall):
                channel.send(self.keys.answer(call))
        with self._lock:
            if self._stores.get(addr) is channel:
                del self._stores[addr]
        channel.close()


def _shut(channel: Channel) -> None:
    """Wake whoever reads from a channel: its peer, and the thread that will close it."""
    with contextlib.suppress(OSError), socket.socket(fileno=channel.fileno()) as it:
        try:
            it.shutdown(socket.SHUT_RDWR)
        finally:
            it.detach()


def _end(peer: socket.socket) -> None:
    """End a connection; the thread that reads from it closes it."""
    with contextlib.suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)
