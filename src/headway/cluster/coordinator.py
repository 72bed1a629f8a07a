"""The coordinator: starts workers, tells them what to do, and names the one that is gone.

A worker is gone when its connection ends, which the kernel sees to at once, or when it has not
been heard for the time of a heartbeat.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headway.cluster.config import ClusterConfig
from headway.cluster.control.hub import Heard, Hub
from headway.cluster.control.message import (
    AnyMessage,
    Build,
    Built,
    Drive,
    Driven,
    Failed,
    Form,
    Formed,
    Hello,
    Leave,
    Left,
    LogPlace,
    Stop,
)
from headway.cluster.launch import launcher_of
from headway.cluster.launch.launcher import Launcher, Meeting
from headway.cluster.report import NodeReport
from headway.errors import ClusterError

_LOOK_S: Final = 0.05
_SURE_S: Final = 0.1
"""A worker is silent for so long once more before it counts as hung: the one that did not hear may be this process."""
_BUILDING: Final = 6
"""So many times longer it may be silent while it builds: nothing else runs while the system loads the engine."""
_MORE_S: Final = 5.0
"""So much longer than the engine's own timeout is waited for what it ends [s]."""
_END_S: Final = 0.2
"""So long a process may take to end after its connection [s]."""


_Done = Callable[[str, AnyMessage], bool]


class NodeLost(Exception):  # noqa: N818 - it is what happened; whether it is an error the caller knows
    """Workers are gone.

    Attributes:
        why: How each of them ended, by address.
    """

    def __init__(self, why: Mapping[str, str]) -> None:
        super().__init__(dict(why))
        self.why = dict(why)


class Coordinator:
    """The workers of one run.

    Attributes:
        hub: Their connections.
        launcher: What starts and ends them.
        lost: How those that are gone ended, by address.
        generation: Number of the group that was formed last; -1 before the first.
        watch: Called some twenty times a second while workers are waited for.
    """

    def __init__(self, config: ClusterConfig, watch: Callable[[], None] = lambda: None) -> None:
        self._config = config
        self._token = secrets.token_hex(32)
        self._pid = os.getpid()
        self.watch = watch
        self.lost: dict[str, str] = {}
        self.generation = -1
        self._silent_since: dict[str, float] = {}
        self.hub = Hub(config.listen, config.port, self._token, [node.addr for node in config.nodes])
        try:
            self.launcher: Launcher = launcher_of(config)
        except BaseException:
            self.hub.close()
            raise

    @property
    def meeting(self) -> Meeting:
        """What a worker needs to find this coordinator."""
        return Meeting(self.hub.host, self.hub.port, self._token, self._config.heartbeat_s)

    def start(self, orders: Mapping[str, Build | None]) -> dict[str, NodeReport]:
        """Start workers, have each build as soon as it is there, and wait for all.

        Args:
            orders: By address what to build; None: nothing yet.

        Returns:
            What each that has built says of its stage.

        Raises:
            NodeLost: One ended before.
            ClusterError: One did not come in time, or could not build.
        """
        self.launcher.start(list(orders), self.meeting)

        def done(addr: str, answer: AnyMessage) -> bool:
            order = orders[addr]
            if isinstance(answer, Hello) and order is not None:
                self._tell({addr: order})
            return isinstance(answer, Hello if order is None else Built)

        return _reports(self._gather(orders, done, self._config.launch_timeout_s, "launch", building=True))

    def build(self, orders: Mapping[str, Build]) -> dict[str, NodeReport]:
        """Have stages built, all at once; return what each node says of its own."""
        new = {addr: order for addr, order in orders.items() if addr not in self.hub.hellos and addr not in self.lost}
        there = {addr: order for addr, order in orders.items() if addr not in new}
        self._tell(there)
        built = self.start(new) if new else {}

        def done(addr: str, answer: AnyMessage) -> bool:
            return isinstance(answer, Built) and _is_of(there[addr], NodeReport.from_json(answer.report))

        return built | _reports(self._gather(there, done, self._config.launch_timeout_s, "build", building=True))

    def form(self, seats: Sequence[str], places: Mapping[str, LogPlace | None]) -> dict[str, Formed]:
        """Form a new group of these workers, in the order of their stages."""
        self.generation += 1
        self.hub.keys.begin()
        timeout_s = self._config.timeout_s
        self._tell(
            {
                addr: Form(
                    generation=self.generation, rank=rank, world=len(seats), timeout_s=timeout_s, log=places.get(addr)
                )
                for rank, addr in enumerate(seats)
            }
        )
        formed = self._gather(seats, self._of_now(Formed), timeout_s + _MORE_S, "form a group", in_group=True)
        return {addr: answer for addr, answer in formed.items() if isinstance(answer, Formed)}

    def drive(self, seats: Sequence[str], order: Drive, longest_s: float) -> dict[str, Driven]:
        """Have a drive run; return what each stage measured.

        Args:
            seats: The workers, in the order of their stages.
            order: What they run.
            longest_s: How long it may take [s].

        Raises:
            NodeLost: A worker is gone; the others still wait for `leave`.
            ClusterError: One could not do it, or it took too long.
        """
        self._tell(dict.fromkeys(seats, order))
        answers = self._gather(seats, self._of_now(Driven), longest_s, "drive", in_group=True)
        return {addr: answer for addr, answer in answers.items() if isinstance(answer, Driven)}

    def give_up(self, seats: Sequence[str]) -> list[str]:
        """Tell those that are still there to give up what they run; return who that is."""
        there = [addr for addr in seats if addr not in self.lost]
        self.hub.keys.forget()
        self._tell(dict.fromkeys(there, Leave(generation=self.generation)))
        return there

    def leave(self, seats: Sequence[str]) -> None:
        """Have those that are still there give up what they run, and wait until they have."""
        there = self.give_up(seats)

        def done(_: str, answer: AnyMessage) -> bool:
            # one with a why left before it was told to: it has not come to the order yet
            return isinstance(answer, Left) and answer.generation == self.generation and not answer.why

        self._gather(there, done, self._config.timeout_s + _MORE_S, "give up", giving_up=True)

    def stop(self, addr: str) -> None:
        """End one worker."""
        self.hub.send(addr, Stop())

    def look(self, seats: Sequence[str]) -> None:
        """Take note of who has gone since.

        Raises:
            NodeLost: One of these has.
        """
        while (heard := self.hub.hear(0.0)) is not None:
            self._note(heard)
        self._watch_hearts()
        self._all_there(seats)

    def close(self) -> None:
        """End all workers and close the port; a second call does nothing, nor one in a forked child."""
        if os.getpid() != self._pid:
            return
        for addr in self.hub.connected():
            self.stop(addr)
        self.launcher.close()
        self.hub.close()

    def _tell(self, orders: Mapping[str, AnyMessage]) -> None:
        for addr, order in orders.items():
            self.hub.send(addr, order)  # one that is gone is found out by `_gather`

    def _of_now(self, kind: type[Formed | Driven]) -> _Done:
        return lambda _, answer: isinstance(answer, kind) and answer.generation == self.generation

    def _gather(
        self,
        addrs: Sequence[str] | Mapping[str, object],
        done: _Done,
        timeout_s: float,
        to_do: str,
        *,
        in_group: bool = False,
        giving_up: bool = False,
        building: bool = False,
    ) -> dict[str, AnyMessage]:
        """Wait for the answer of each that is done; return them by address."""
        answers: dict[str, AnyMessage] = {}
        left: dict[str, str] = {}
        end = time.monotonic() + timeout_s
        while len(answers) < len(addrs):
            heard = self.hub.hear(_LOOK_S)
            if heard is not None:
                self._note(heard)
                addr, answer = heard.addr, heard.message
                if isinstance(answer, Failed) and not giving_up:
                    raise _refused(addr, to_do, answer)
                if answer is not None and addr in addrs and done(addr, answer):
                    answers[addr] = answer
                elif in_group and isinstance(answer, Left) and answer.generation == self.generation:
                    # its group broke: who broke it is told by its own connection, or by its heart
                    end = end if left else min(end, time.monotonic() + self._config.heartbeat_s + 1)
                    left[addr] = answer.why
            self._watch_hearts(addrs, _BUILDING if building else 1)
            self._all_there(addrs)
            self.watch()
            if time.monotonic() > end:
                raise self._too_late(sorted(set(addrs) - set(answers)), to_do, timeout_s, left)
        return answers

    def _all_there(self, addrs: Sequence[str] | Mapping[str, object]) -> None:
        if gone := {addr: self.lost[addr] for addr in addrs if addr in self.lost}:
            raise NodeLost(gone)

    def _note(self, heard: Heard) -> None:
        if heard.message is None and heard.addr not in self.lost:
            end = time.monotonic() + _END_S
            while (why := self.launcher.ended(heard.addr)) is None and time.monotonic() < end:
                time.sleep(0.01)
            self._lose(heard.addr, why or "its connection ended")
            self.launcher.kill(heard.addr)

    def _lose(self, addr: str, why: str) -> None:
        self.lost.setdefault(addr, why)

    def _watch_hearts(self, addrs: Sequence[str] | Mapping[str, object] = (), times: int = 1) -> None:
        """End those that have not been heard for too long, and those that ended before they came."""
        now = time.monotonic()
        for addr in self.hub.connected():
            patience = self._config.heartbeat_s * (times if addr in addrs else 1)
            if addr in self.lost or self.hub.silent_s(addr) <= patience:
                self._silent_since.pop(addr, None)
            elif now - self._silent_since.setdefault(addr, now) > _SURE_S:
                self._lose(addr, f"hung: no sign of life for {patience:g} s")
                self.hub.drop(addr)
                self.launcher.kill(addr)
        for addr in addrs:
            if addr not in self.lost and addr not in self.hub.hellos and (why := self.launcher.ended(addr)):
                self._lose(addr, why)

    def _too_late(self, missing: list[str], to_do: str, timeout_s: float, left: Mapping[str, str]) -> ClusterError:
        first = next(iter(left), "")
        if stuck := [addr for addr in missing if addr not in left and left]:
            return ClusterError(
                f"Cannot {to_do}: {', '.join(stuck)} says that it lives, but {first} waited for it in vain: "
                f"{left[first]}",
                "Look at its output, or raise timeout_s",
                "too-slow",
            )
        if left:
            return ClusterError(
                f"Cannot {to_do}: the connection between stages broke ({first}: {left[first]}), and every worker lives",
                "Look at the network between the nodes, and launch again",
                "broken-network",
            )
        never = [addr for addr in missing if addr not in self.hub.connected()]
        whether = f"no word ever from {', '.join(never)}" if never else "each says that it lives"
        which = "launch_timeout_s" if to_do in {"launch", "build"} else "timeout_s"
        return ClusterError(
            f"Cannot {to_do}: {', '.join(missing)} did not answer within {timeout_s:g} s; {whether}",
            f"Look at their output, or raise {which}",
            "too-slow",
        )


def _is_of(order: Build, report: NodeReport) -> bool:
    """Return whether a report is of that order, and not of one before that was given up."""
    return (report.layers, report.precision) == (range(order.start, order.stop), order.precision)


def _reports(answers: Mapping[str, AnyMessage]) -> dict[str, NodeReport]:
    return {addr: NodeReport.from_json(answer.report) for addr, answer in answers.items() if isinstance(answer, Built)}


def _refused(addr: str, to_do: str, answer: Failed) -> ClusterError:
    return ClusterError(
        f"Cannot {to_do} on {addr}: {answer.what}" + (f" [{answer.slug}]" if answer.slug else ""),
        answer.next_step or "Look at the worker's output",
        "worker-failed",
    )
