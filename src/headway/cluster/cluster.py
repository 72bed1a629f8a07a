"""A model split over nodes: probed, planned, launched, driven, and closed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headway.clock import SYSTEM
from headway.cluster.architecture import check_architecture
from headway.cluster.checkpoint import Checkpoint
from headway.cluster.config import ClusterConfig, NodeConfig
from headway.cluster.control.message import Build, Driven, Formed, LogPlace
from headway.cluster.coordinator import Coordinator, NodeLost
from headway.cluster.cost import ModelCost
from headway.cluster.outcome import collect
from headway.cluster.placement import Placement, StagePlan, plan, retire
from headway.cluster.probe import NodeProbe, probe
from headway.cluster.report import ClusterRun, NodeReport
from headway.cluster.request import Request, as_ids, most_parts, random_ids, refused
from headway.errors import ArgumentError, ClusterError
from headway.record.identity import log_root, moment_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class NodeState:
    """What is known of a node while the cluster works.

    Attributes:
        addr: Which.
        layers: Its stage; None for a standby.
        doing: ``waiting``, ``starting``, ``building``, ``ready``, ``driving``, ``standby`` or how it ended.
        build_ms: How long its stage took to build [ms]; None before.
        forwards: How many forwards of the drive it has done.
        rss_bytes: What its process holds in memory [bytes].
        budget_bytes: What it may hold [bytes].
        silent_s: How long ago it was heard [s].
        pid: Its process, of another host its number there; None before it is connected.
    """

    addr: str
    layers: range | None
    doing: str
    build_ms: float | None = None
    forwards: int = 0
    rss_bytes: int | None = None
    budget_bytes: int | None = None
    silent_s: float | None = None
    pid: int | None = None


@dataclass
class Cluster:
    """A model over the nodes of a configuration; a with-statement closes it.

    Workers live from `launch` to `close`, through many drives. A node is known by its ``addr``.

    Args:
        config: The nodes, the model and the rules of placement.
        watch: Called with the cluster some twenty times a second while it waits for its workers.

    Attributes:
        placement: Which layers are where; None before `plan`.
        reports: What each node said of its stage, by address.
        run: Name of the run in Headway's log; each launch is one.
        log_root: The folder of all runs that it is written to.
        log_faults: By address, why a stage's log is not written, or not all of it.
    """

    config: ClusterConfig
    watch: Callable[[Cluster], None] | None = None
    placement: Placement | None = None
    reports: dict[str, NodeReport] = field(default_factory=dict)
    log_faults: dict[str, str] = field(default_factory=dict)
    _probes: dict[str, NodeProbe] | None = None
    _coordinator: Coordinator | None = None
    _built: dict[str, tuple[range, str]] = field(default_factory=dict)
    _doing: str = "waiting"
    _next_step: int = 0
    _stale: bool = False  # the group that is there is none to drive in: a drive did not end, or it was left
    _alone: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _why_broken: ClusterError | None = None
    _began: str = ""

    def __post_init__(self) -> None:
        """Read the checkpoint's headers.

        Raises:
            ClusterError: It cannot be read, or its architecture is not handled.
        """
        self.checkpoint = Checkpoint.open(self.config.model)
        check_architecture(self.checkpoint)
        self.cost = ModelCost.of(self.checkpoint, self.config.placement.kv_bytes_per_token)
        self.run = self._run_name()
        self.log_root = log_root(self.config.log_dir)

    @classmethod
    def from_path(cls, path: str | Path, watch: Callable[[Cluster], None] | None = None) -> Self:
        """Return the cluster that a TOML file describes.

        Raises:
            ArgumentError: A value in it cannot be used.
            ClusterError: The checkpoint cannot be read or is not handled.
        """
        return cls(ClusterConfig.from_path(path), watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def probe(self) -> dict[str, NodeProbe]:
        """Measure what each node can do, and remember it for `plan`."""
        self._probes = probe(self.config)
        return self._probes

    def plan(self, probes: dict[str, NodeProbe] | None = None) -> Placement:
        """Place the layers on the nodes, after these probes or a new one.

        Raises:
            ClusterError: They do not fit, or something that has to be known is not.
        """
        if probes is None:
            probes = self.probe() if self._probes is None else self._probes
        self._probes = probes
        self.placement = plan(self.config, self.cost, self._probes)
        return self.placement

    def plan_table(self) -> str:
        """Return the placement as a table, planned now if it was not."""
        return (self.placement or self.plan()).table()

    def launch(self) -> list[NodeReport]:
        """Start a worker on each node that has a stage or mirrors one, and build the stages.

        Returns:
            What each node says of its stage, in the order of the stages, standbys last.

        Raises:
            ClusterError: A worker did not start, or could not build.
        """
        if self._coordinator is not None:
            raise ClusterError(
                "Cannot launch the cluster: its workers run already", "Drive it, or close it first", "launched-twice"
            )
        if self.placement is None:
            self.plan()
        self._began = moment_name(SYSTEM.wall_ns(), os.getpid())
        self.run = self._run_name()
        self._coordinator = Coordinator(self.config, self._tick)
        wanted = self._wanted()
        try:
            self._doing = "building"
            orders = {addr: self._order(addr, wanted.get(addr), generation=0) for addr in self._members()}
            self._take(self._coordinator.start(orders))
            self._form()
        except NodeLost as lost:
            error = self._gone(lost, "launch")
            self.close()
            raise error from None
        except BaseException:
            self.close()
            raise
        return [self.reports[addr] for addr in wanted]

    def drive(
        self,
        input_ids: Sequence[Sequence[int]] | NDArray[np.integer[Any]] | None = None,
        *,
        batch: int = 1,
        mode: str = "relay",
        steps: int = 0,
        micro_batches: int | None = None,
        logits: str = "all",
    ) -> ClusterRun:
        """Run a batch of prompts through the stages, then generate, a token at a time, the likeliest.

        Where a worker is lost and a standby can take its stage, the drive begins anew with it; the
        others keep their weights.

        Args:
            input_ids: Token ids ``(batch, length)``, all of one length; None: ``batch`` random
                prompts of the configuration's ``seq`` tokens.
            batch: How many random prompts.
            mode: ``relay``: the batch passes stage after stage. ``pipelined``: its micro-batches overlap.
            steps: How many tokens to generate for each prompt.
            micro_batches: Of ``pipelined``; a divisor of the batch. None: the most up to twice the stages.
            logits: Which to return: of ``all`` positions, of the ``last`` of each forward, or ``none``.

        Returns:
            Its timings, tokens, and logits ``(batch, length + max(steps - 1, 0), vocab)``.

        Raises:
            ArgumentError: An argument cannot be used.
            ClusterError: The cluster is not launched, or a node was lost that none can stand in for.
        """
        self._running()
        request = self.request(
            input_ids, batch=batch, mode=mode, steps=steps, micro_batches=micro_batches, logits=logits
        )
        if self._why_broken is not None:
            raise self._why_broken
        with self._one_at_a_time():
            return self._drive(request)

    def request(
        self,
        input_ids: Sequence[Sequence[int]] | NDArray[np.integer[Any]] | None = None,
        *,
        batch: int = 1,
        mode: str = "relay",
        steps: int = 0,
        micro_batches: int | None = None,
        logits: str = "all",
    ) -> Request:
        """Return the drive of these arguments, which are those of `drive`, checked; for that no worker has to run.

        Raises:
            ArgumentError: An argument cannot be used.
        """
        if self.placement is None:
            self.plan()
        config, vocab = self.config, self.cost.vocab
        ids = random_ids(batch, config.seq, vocab, config.rng_seed) if input_ids is None else as_ids(input_ids, vocab)
        if micro_batches is None:
            micro_batches = most_parts(len(ids), len(self._seats())) if mode == "pipelined" else 1
        request = Request(ids, mode, micro_batches, steps, logits)
        self._check(request)
        return request

    def retire(self, addr: str) -> Placement:
        """Take a node out: its standby takes its stage, or the layers are placed anew on the others.

        Nodes whose layers stay the same keep their weights.

        Raises:
            ArgumentError: No node has this address.
            ClusterError: The layers do not fit on the others.
        """
        if addr not in {node.addr for node in self.config.nodes}:
            raise ArgumentError(
                f"Cannot retire {addr!r}: the nodes are {', '.join(node.addr for node in self.config.nodes)}",
                "Give one of them",
                "unknown-node",
            )
        if self.placement is None:
            self.plan()
        with self._one_at_a_time():
            return self._retire(addr)

    def _drive(self, request: Request) -> ClusterRun:
        coordinator = self._running()
        recovered: list[str] = []
        longest_s = self.config.timeout_s * (request.n_forwards + 2)
        while True:
            try:
                coordinator.look(self._seats())
                if self._stale:
                    coordinator.leave(self._seats())
                    self._rebuild()
                self._doing, self._stale = "driving", True
                order = request.order(coordinator.generation, self._next_step)
                answers = coordinator.drive(self._seats(), order, longest_s)
                break
            except NodeLost as lost:
                recovered += self._recover(lost)
        self._doing, self._stale = "ready", False
        self._next_step += request.n_forwards
        self._hear_of_logs(answers)
        return collect(request, self._planned().stages, self.reports, answers, seq=self.config.seq, recovered=recovered)

    def _retire(self, addr: str) -> Placement:
        before, coordinator = self._seats(), self._coordinator
        placement = self._without(addr)
        if coordinator is None:
            return placement
        try:
            coordinator.look(())
            self._drop_standbys(but=addr)
            if addr in before:
                self._stale = True
                coordinator.leave(before)
                self._rebuild()
        except NodeLost as lost:
            raise self._gone(lost, f"retire {addr}") from None
        finally:
            coordinator.stop(addr)
            coordinator.lost.setdefault(addr, "retired")
        return placement

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Refuse what another thread would do at the same time."""
        if not self._alone.acquire(blocking=False):
            raise ClusterError(
                "Cannot drive or retire now: the cluster is doing one of them already",
                "Wait until it has ended, or use another cluster",
                "busy-cluster",
            )
        try:
            yield
        finally:
            self._alone.release()

    def close(self) -> None:
        """End all workers and leave nothing behind; a second call does nothing."""
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            coordinator.close()
        self._built, self._doing = {}, "waiting"

    def state(self) -> list[NodeState]:
        """Return what is known of each node of the placement now."""
        placement, coordinator = self.placement, self._coordinator
        if placement is None:
            return []
        states, pids = [], self.pids()
        for addr in self._members():
            stage, built = placement.stage_of(addr), self._built.get(addr)
            beat = None if coordinator is None else coordinator.hub.beat(addr)
            lost = None if coordinator is None else coordinator.lost.get(addr)
            doing = self._doing
            if coordinator is not None and addr not in coordinator.hub.hellos:
                doing = "starting"
            elif stage is None and (built or doing in {"ready", "driving"}):
                doing = "standby"
            states.append(
                NodeState(
                    addr=addr,
                    layers=built[0] if built else stage.layers if stage else None,
                    doing=lost or doing,
                    build_ms=self.reports[addr].build_ms if addr in self.reports else None,
                    forwards=0 if beat is None else beat.forwards,
                    rss_bytes=None if beat is None else beat.rss_bytes,
                    budget_bytes=stage.budget_bytes if stage else None,
                    silent_s=None if coordinator is None else coordinator.hub.silent_s(addr),
                    pid=pids.get(addr),
                )
            )
        return states

    def pids(self) -> dict[str, int]:
        """Return the process of each worker that is connected, by address; of another host, its number there."""
        if self._coordinator is None:
            return {}
        hub = self._coordinator.hub
        return {addr: hub.hellos[addr].pid for addr in self._members() if addr in hub.connected()}

    @property
    def lost(self) -> dict[str, str]:
        """How each worker that is gone since the launch ended, by address; those that were retired too."""
        return {} if self._coordinator is None else dict(self._coordinator.lost)

    def _run_name(self) -> str:
        """Return the name of the run of this launch: two launches are no attempts of one run."""
        return "-".join(filter(None, ("cluster", Path(self.config.model).resolve().name, self._began)))

    def _tick(self) -> None:
        if self.watch is not None:
            self.watch(self)

    def _running(self) -> Coordinator:
        if self._coordinator is None:
            raise ClusterError("Cannot drive the cluster: no worker runs", "Call launch() before", "not-launched")
        return self._coordinator

    def _check(self, request: Request) -> None:
        """Refuse what the nodes have no memory for."""
        tokens, context = request.n_tokens, self.config.placement.context
        if tokens > context:
            found = f"prompt and steps, {tokens} tokens exceed the context of {context} that memory was planned for"
            raise refused("input_ids", found, "Give fewer tokens or steps, or raise context under [placement]")
        without = [addr for addr in self._seats() if not self._node(addr).kv_cache]
        if request.steps > 1 and without:
            found = f"steps is {request.steps}, and {', '.join(without)} keeps no KV cache (kv_cache = false)"
            raise refused("steps", found, "Set kv_cache = true, or generate one token")

    def _node(self, addr: str) -> NodeConfig:
        return next(node for node in self.config.nodes if node.addr == addr)

    def _planned(self) -> Placement:
        assert self.placement is not None  # noqa: S101 - nothing is started before a plan
        return self.placement

    def _seats(self) -> list[str]:
        """Return who has a stage, in their order."""
        return [stage.addr for stage in self._planned().stages]

    def _members(self) -> list[str]:
        """Return who has a worker: the stages' nodes and the standbys."""
        return [*self._seats(), *(standby.addr for standby in self._planned().standbys)]

    def _wanted(self) -> dict[str, StagePlan]:
        """Return by node the stage that it has or mirrors."""
        placement = self._planned()
        wanted = {stage.addr: stage for stage in placement.stages}
        mirrors = {standby.addr: standby.stage_addr for standby in placement.standbys}
        return wanted | {addr: wanted[held] for addr, held in mirrors.items() if held is not None}

    def _without(self, addr: str) -> Placement:
        """Take a node out of the placement; its standby has its place then."""
        self.placement = retire(self._planned(), self.config, self.cost, self._probes or {}, addr)
        return self.placement

    def _order(self, addr: str, stage: StagePlan | None, generation: int) -> Build | None:
        """Return what a node is to build; None for a standby that waits for any stage."""
        if stage is None:
            return None
        node, seats = self._node(addr), self._seats()
        threads = self.config.threads
        if threads is None:
            beside = sum(self._node(other).ssh == node.ssh for other in seats)
            cores = self._probes[addr].cores if self._probes and addr in self._probes else os.cpu_count()
            threads = max(1, (cores or 1) // max(1, beside))
        return Build(
            folder=node.ckpt_dir or str(self.config.model),
            fingerprint=self.checkpoint.fingerprint,
            start=stage.layers.start,
            stop=stage.layers.stop,
            precision=stage.precision,
            device=node.device,
            threads=threads,
            log=self._place(addr, generation) if addr in seats else None,
        )

    def _place(self, addr: str, generation: int) -> LogPlace:
        seats = self._seats()
        return LogPlace(
            run=self.run,
            root=self.log_root,
            attempt=f"{self._began}.{generation}",
            rank=seats.index(addr),
            world=len(seats),
            restored=None if generation == 0 else self._next_step - 1,
        )

    def _take(self, reports: dict[str, NodeReport]) -> None:
        for addr, report in reports.items():
            self.reports[addr] = report
            self._built[addr] = (report.layers, report.precision)

    def _form(self) -> None:
        coordinator = self._running()
        generation = coordinator.generation + 1
        formed = coordinator.form(self._seats(), {addr: self._place(addr, generation) for addr in self._seats()})
        self._hear_of_logs(formed)
        self._doing, self._stale, self._why_broken = "ready", False, None

    def _hear_of_logs(self, answers: Mapping[str, Formed] | Mapping[str, Driven]) -> None:
        self.log_faults |= {addr: answer.log_fault for addr, answer in answers.items() if answer.log_fault}

    def _rebuild(self) -> None:
        """Build what the placement has and the nodes have not, and form the group anew."""
        coordinator = self._running()
        wanted = self._wanted()
        changed = [addr for addr, stage in wanted.items() if self._built.get(addr) != (stage.layers, stage.precision)]
        orders = {addr: self._order(addr, wanted[addr], coordinator.generation + 1) for addr in changed}
        self._take(coordinator.build({addr: order for addr, order in orders.items() if order is not None}))
        self._form()

    def _recover(self, lost: NodeLost) -> list[str]:
        """Put standbys in the place of what was lost; return what was done, a sentence each."""
        coordinator = self._running()
        said: list[str] = []
        while True:
            try:
                self._drop_standbys()
                stages = [addr for addr in self._seats() if addr in coordinator.lost]
                said.extend([self._replace(addr, lost) for addr in stages])
                coordinator.leave(self._seats())
                self._rebuild()
            except NodeLost as more:
                lost = more
            else:
                return said

    def _drop_standbys(self, but: str = "") -> None:
        """Take the standbys that are gone out of the placement."""
        seats, lost = self._seats(), self._running().lost
        for addr in self._members():
            if addr in lost and addr not in seats and addr != but:
                self._without(addr)

    def _replace(self, addr: str, lost: NodeLost) -> str:
        """Give a stage to its standby; without one, tell the others to leave what they cannot end."""
        coordinator, placement = self._running(), self._planned()
        heir = placement.standby_of(addr)
        if heir is None:
            self._why_broken = self._gone(lost, "go on")
            coordinator.give_up(self._seats())
            raise self._why_broken
        self._without(addr)
        layers = next(stage.layers for stage in self._planned().stages if stage.addr == heir.addr)
        why = coordinator.lost[addr]
        return f"{addr} (layers {layers.start}..{layers.stop}) was lost: {why}; {heir.addr} took its place"

    def _gone(self, lost: NodeLost, to_do: str) -> ClusterError:
        """Return the error that names what is gone, which layers that were, and what to do."""
        parts = []
        for addr, why in lost.why.items():
            stage = self._planned().stage_of(addr)
            layers = "" if stage is None else f" (layers {stage.layers.start}..{stage.layers.stop})"
            parts.append(f"{addr}{layers}: {why}")
        addr = next(iter(lost.why))
        if not self._built:
            return ClusterError(
                f"Cannot {to_do}: lost {'; '.join(parts)}",
                "Look at how it ended, and launch again, or without it",
                "node-lost",
                lost=dict(lost.why),
            )
        return ClusterError(
            f"Cannot {to_do}: lost {'; '.join(parts)}; no standby holds these layers",
            f'Add a [[node]] with role = "standby" and standby_for = "{addr}", or go on without it: give it '
            f'role = "draining", or in Python call cluster.retire("{addr}")',
            "node-lost",
            lost=dict(lost.why),
        )
