"""The keys by which a group of workers finds itself: kept by the coordinator, reached over a channel.

`torch.distributed` asks a store for them. Its own stores listen on a port of their own, without a
token; this one goes over the connection that has proved it.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from headway.cluster.control.channel import Channel
from headway.cluster.control.message import StoreCall, StoreReply

_DAY_S: Final = 86_400.0


class Keys:
    """The coordinator's side: a dictionary that can be waited for."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._times_forgotten = 0
        self._open = True
        self._changed = threading.Condition()

    def answer(self, call: StoreCall) -> StoreReply:
        """Return what an operation yields."""
        with self._changed:
            if not self._open:
                return StoreReply(ok=False)
            match call.op:
                case "set":
                    self._put(call.keys[0], call.value)
                case "get" | "wait":
                    return self._wait(call)
                case "add":
                    number = int(self._values.get(call.keys[0], b"0")) + call.amount
                    self._put(call.keys[0], str(number).encode())
                    return StoreReply(number=number)
                case "compare_set":
                    now = self._values.get(call.keys[0])
                    if now == call.expected or (now is None and not call.expected):
                        self._put(call.keys[0], call.value)
                    return StoreReply(value=self._values.get(call.keys[0], call.expected))
                case _:
                    there = all(key in self._values for key in call.keys)
                    if call.op == "delete":
                        self._values.pop(call.keys[0], None)
                    return StoreReply(ok=there)
            return StoreReply()

    def forget(self) -> None:
        """Drop all keys, those of a generation that is over; until `begin` nobody waits for one."""
        with self._changed:
            self._open = False
            self._values.clear()
            self._times_forgotten += 1
            self._changed.notify_all()

    def begin(self) -> None:
        """Take the keys of a new generation."""
        with self._changed:
            self._open = True

    def _put(self, key: str, value: bytes) -> None:
        self._values[key] = value
        self._changed.notify_all()

    def _wait(self, call: StoreCall) -> StoreReply:
        before = self._times_forgotten

        def over() -> bool:
            return before != self._times_forgotten or all(key in self._values for key in call.keys)

        there = self._changed.wait_for(over, call.timeout_s)
        return StoreReply(ok=there and before == self._times_forgotten, value=self._values.get(call.keys[0], b""))


class _Asker:
    """A worker's side: one question at a time."""

    def __init__(self, channel: Channel, timeout_s: float) -> None:
        self._channel, self._timeout_s = channel, timeout_s
        self._asking = threading.Lock()

    def ask(self, op: str, *keys: str, wait_s: float = 0.0, **given: Any) -> StoreReply:
        """Return the answer.

        Raises:
            RuntimeError: There was none in time.
        """
        with self._asking:
            self._channel.send(StoreCall(op=op, keys=list(keys), timeout_s=wait_s, **given))
            reply = self._channel.receive(wait_s + self._timeout_s)
        if not isinstance(reply, StoreReply) or (not reply.ok and op in {"get", "wait"}):
            raise RuntimeError(f"no {keys[0]} within {wait_s:.0f} s, or the group was given up")
        return reply


def store_over(channel: Channel, timeout_s: float) -> Any:
    """Return a `torch.distributed.Store` whose keys are the coordinator's."""
    import torch.distributed as dist

    asker = _Asker(channel, timeout_s)
    ask = asker.ask

    class CoordinatorStore(dist.Store):  # type: ignore[misc, name-defined]
        """The calls that a process group makes."""

        def set(self, key: str, value: Any) -> None:
            ask("set", key, value=_bytes(value))

        def get(self, key: str) -> bytes:
            return ask("get", key, wait_s=timeout_s).value

        def add(self, key: str, value: int) -> int:
            return ask("add", key, amount=value).number

        def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
            return ask("compare_set", key, expected=_bytes(expected_value), value=_bytes(desired_value)).value

        def check(self, keys: list[str]) -> bool:
            return ask("check", *keys).ok

        def wait(self, keys: list[str], timeout: Any = None) -> None:
            ask("wait", *keys, wait_s=min(_DAY_S, timeout_s if timeout is None else timeout.total_seconds()))

        def deleteKey(self, key: str) -> bool:  # noqa: N802 - by this name the engine calls it
            return ask("delete", key).ok

    return CoordinatorStore()


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
