"""A connection whose two ends have shown each other that they know the run's token.

Frames are those of `multiprocessing.connection`, of bytes alone: nothing is unpickled. Before the
proof a frame is short and soon, or the connection is closed.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import struct
import threading
from multiprocessing.connection import Connection
from typing import Final

import msgspec

from headway.cluster.control.message import AnyMessage, decode, encode
from headway.errors import ClusterError

PATIENCE_S: Final = 5.0
"""So long a stranger may say nothing in the middle of the proof, and a peer take nothing of what it is sent [s]."""
_LAST_RECEIVED: Final = 52
"""Where Linux's `struct tcp_info` has how long ago data came [ms]."""
_NONCE: Final = 32
_FRAME: Final = 64
_REFUSED: Final = (OSError, EOFError, ValueError)


class Channel:
    """Messages to and from one peer; any thread may send, one receives."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: AnyMessage) -> None:
        """Send a message.

        Raises:
            OSError: The peer is gone.
        """
        data = encode(message)
        with self._sending:
            self._connection.send_bytes(data)

    def receive(self, timeout_s: float | None = None) -> AnyMessage | None:
        """Return the next message; None after the timeout.

        Raises:
            EOFError: The peer is gone, or what it sent is no message.
        """
        try:
            if timeout_s is not None and not self._connection.poll(timeout_s):
                return None
            return decode(self._connection.recv_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise EOFError(str(error)) from error

    def quiet_s(self) -> float | None:
        """Return how long ago anything came, also a part of a message [s]; None where the system does not say."""
        try:
            with socket.socket(fileno=os.dup(self.fileno())) as it:
                told = it.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_RECEIVED + 4)
            return float(struct.unpack_from("I", told, _LAST_RECEIVED)[0]) / 1e3
        except (AttributeError, OSError, struct.error):
            return None

    def fileno(self) -> int:
        """Return the socket's number."""
        return self._connection.fileno()

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self._connection.close()


def connect(host: str, port: int, token: str) -> Channel:
    """Return a channel to the coordinator.

    Raises:
        ClusterError: Nobody listens there or says a word, or the two tokens differ.
    """
    try:
        peer = socket.create_connection((host, port), timeout=PATIENCE_S)
    except OSError as error:
        raise ClusterError(
            f"Cannot reach the coordinator at {host}:{port}: {error.strerror or error}",
            "Start it first, and give the address it prints",
            "no-coordinator",
        ) from error
    connection = as_connection(peer)
    try:
        theirs = connection.recv_bytes(_FRAME)
    except _REFUSED:
        connection.close()
        raise ClusterError(
            f"Cannot join the coordinator at {host}:{port}: what listens there does not say who it is",
            "Give the address that the coordinator prints",
            "no-coordinator",
        ) from None
    try:
        ours = secrets.token_bytes(_NONCE)
        connection.send_bytes(_proof(token, b"worker", theirs, ours))
        connection.send_bytes(ours)
        if hmac.compare_digest(connection.recv_bytes(_FRAME), _proof(token, b"coordinator", theirs, ours)):
            _wait_for(connection, 0.0, socket.SO_RCVTIMEO, socket.SO_SNDTIMEO)
            return Channel(connection)
    except _REFUSED:
        pass
    connection.close()
    raise ClusterError(
        f"Cannot join the coordinator at {host}:{port}: it has another token",
        "Give the token of this run",
        "wrong-token",
    )


def as_connection(peer: socket.socket) -> Connection:
    """Return a connected socket as a connection of frames that waits for its peer no longer than `PATIENCE_S`."""
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(peer.detach())
    _wait_for(connection, PATIENCE_S, socket.SO_RCVTIMEO, socket.SO_SNDTIMEO)
    return connection


def accept(connection: Connection, token: str) -> Channel | None:
    """Return a channel to a peer that knows the token; close the connection of one that does not."""
    try:
        ours = secrets.token_bytes(_NONCE)
        connection.send_bytes(ours)
        proof, theirs = connection.recv_bytes(_FRAME), connection.recv_bytes(_FRAME)
        if hmac.compare_digest(proof, _proof(token, b"worker", ours, theirs)):
            connection.send_bytes(_proof(token, b"coordinator", ours, theirs))
            _wait_for(connection, 0.0, socket.SO_RCVTIMEO)  # to send stays bounded: the peer may be stopped
            return Channel(connection)
    except _REFUSED:
        pass
    connection.close()
    return None


def _wait_for(connection: Connection, longest_s: float, *options: int) -> None:
    """Let reads or writes wait for the peer so long [s]; 0: as long as it takes."""
    with socket.socket(fileno=os.dup(connection.fileno())) as it:
        for option in options:
            it.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(longest_s), int(longest_s % 1 * 1e6)))


def _proof(token: str, role: bytes, coordinator: bytes, worker: bytes) -> bytes:
    return hmac.digest(token.encode(), role + coordinator + worker, "sha256")
