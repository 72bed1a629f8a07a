"""Which node holds which layers: planned from what layers cost and what nodes can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from headway.cluster.config import ClusterConfig, NodeConfig
from headway.cluster.cost import ModelCost
from headway.cluster.holder import Holder, budgets_of
from headway.cluster.policy import split
from headway.cluster.probe import NodeProbe
from headway.errors import ClusterError
from headway.units import show_bytes, show_seconds

_COLUMNS: Final = "{:<17} {:<9}{:<8}{:<10}{:>10}{:>10}{:>6}{:>9}"


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """The layers of one node.

    Attributes:
        addr: The node.
        layers: Its layers.
        device: Where it holds them.
        precision: Of their linear weights.
        budget_bytes: Memory it has for weights and KV window [bytes].
        need_bytes: What the stage takes of it: layers, their KV window, and at an end embedding or head [bytes].
        capacity: How many layers, as large as its largest, it could hold in this place of the pipeline.
        predicted_ms: Time for one token [ms]; None where speed or work is not known.
        predicted_prefill_ms: Time for `ClusterConfig.seq` tokens at once [ms]; None as before.
    """

    addr: str
    layers: range
    device: str
    precision: str
    budget_bytes: int
    need_bytes: int
    capacity: int
    predicted_ms: float | None
    predicted_prefill_ms: float | None


@dataclass(frozen=True, kw_only=True)
class StandbyPlan:
    """A node that waits to take the place of another.

    Attributes:
        addr: The node.
        stage_addr: Whose stage it mirrors; None: it was not told one, or that one does not fit.
        fits: Whose stages it can hold, each with the stage that it would have; `stage_addr` alone where it was
            told one.
        budget_bytes: Memory it has for weights and KV window [bytes].
    """

    addr: str
    stage_addr: str | None
    fits: Mapping[str, StagePlan]
    budget_bytes: int


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One precision that was tried for all nodes.

    Attributes:
        precision: Which; None: each node's own.
        need_bytes: What the whole model takes, KV window included [bytes].
        budget_bytes: What the nodes have together [bytes].
        fits: Whether there was a placement.
    """

    precision: str | None
    need_bytes: int
    budget_bytes: int
    fits: bool


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Every layer on exactly one node, in the order of the nodes.

    Attributes:
        stages: In the order of the layers; nodes without layers are left out.
        standbys: Nodes that could take over, in the order of the config.
        policy: How it was found.
        trials: The precisions that were tried, the one that fits last.
        notes: What the plan does differently from what was asked, a sentence each.
        retired: Nodes that were taken out since the config was read, in that order, each with the standby that took
            its stage; None where there was none.
    """

    stages: tuple[StagePlan, ...]
    standbys: tuple[StandbyPlan, ...]
    policy: str
    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()
    retired: Mapping[str, str | None] = field(default_factory=dict)

    def stage_of(self, addr: str) -> StagePlan | None:
        """Return the stage of a node; None where it has none."""
        return next((stage for stage in self.stages if stage.addr == addr), None)

    def can_hold(self, standby: str, addr: str) -> bool:
        """Tell whether a standby can take over the stage of a node."""
        return any(one.addr == standby and addr in one.fits for one in self.standbys)

    def standby_of(self, addr: str) -> StandbyPlan | None:
        """Return the standby that takes a node's stage over: one told to before one that can; None where none can."""
        able = [standby for standby in self.standbys if addr in standby.fits]
        return min(able, key=lambda standby: standby.stage_addr != addr, default=None)

    @property
    def uncovered(self) -> list[str]:
        """Whose stage no standby can take over; empty where there are no standbys at all."""
        return [one.addr for one in self.stages if self.standbys and self.standby_of(one.addr) is None]

    def promoted(self, addr: str, standby: str) -> Placement:
        """Return the placement in which a standby has the stage of a node, and that node is retired.

        Other standbys of that stage are now standbys of the one that has it.

        Raises:
            ClusterError: The standby cannot hold it.
        """
        heir = next((one for one in self.standbys if one.addr == standby and addr in one.fits), None)
        if heir is None:
            raise ClusterError(
                f"Cannot give the stage of {addr} to {standby}: it is no standby that can hold it",
                "Give one of those that the plan names for this stage",
                "no-standby",
                addr=addr,
            )

        def renamed(one: StandbyPlan) -> StandbyPlan:
            fits = {standby if name == addr else name: stage for name, stage in one.fits.items()}
            return replace(one, stage_addr=standby if one.stage_addr == addr else one.stage_addr, fits=fits)

        return replace(
            self,
            stages=tuple(heir.fits[addr] if stage.addr == addr else stage for stage in self.stages),
            standbys=tuple(renamed(one) for one in self.standbys if one is not heir),
            retired={**self.retired, addr: standby},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON types; layers as {"start", "end"}."""
        return msgspec.json.decode(msgspec.json.encode(self, enc_hook=_layers_json))  # type: ignore[no-any-return]

    def table(self) -> str:
        """Return the plan as text: a row a stage, then standbys, precisions that were tried, and notes."""
        head = ("node", "layers", "device", "precision", "need", "budget", "holds", "token")
        lines = [_COLUMNS.format(*head), *(_COLUMNS.format(*_cells(one)) for one in self.stages)]
        for standby in self.standbys:
            able = f"standby for {', '.join(standby.fits)}" if standby.fits else "standby, holds no stage"
            lines.append(f"{standby.addr:<17} {able}; budget {_budget(standby.budget_bytes)}")
        lines += [f"no standby for {addr}" for addr in self.uncovered]
        for trial in self.trials:
            word = "fits" if trial.fits else "does not fit"
            lines.append(f"{_name(trial.precision)} {word}: {_totals(trial)}")
        return "".join(f"{line}\n" for line in (*lines, *self.notes))


def plan(config: ClusterConfig, cost: ModelCost, probes: Mapping[str, NodeProbe]) -> Placement:
    """Return a placement of all layers on the active nodes, in their order.

    The budget of a node is the lesser of its memory and `max_ram_gb`, or without that what is available, less
    `reserve_ram_gb`. Nodes of one host without `max_ram_gb` share evenly what is available there, less the reserve
    and what its other nodes may take. A stage needs its layers, a KV window for each, and at an end embedding or head.

    - ``ram_balanced``, ``throughput``: layers by shares of the budget or of the speed, within what each node holds.
    - ``auto``: the partition with the least slowest stage (``throughput``), sum of stages (``latency``) or largest
      share of a budget (``memory``); of equals the one with fewest nodes, then the most even one. Stages fit their
      budgets, so no time is reckoned for paging.
    - ``manual``: as the nodes say.

    With a precision ladder its precisions are tried in turn for all nodes; else each node has its own.

    Args:
        config: Nodes and policy. Draining nodes get no layers.
        cost: Of the model.
        probes: Of the nodes, by `addr`. What is not known has to be told: `max_ram_gb` or `assume_ram_gb`,
            `assume_gflops`, `kv_bytes_per_token`.

    Raises:
        ClusterError: The layers have no room; manual ranges leave layers out, place them twice or do not fit; or
            something that the policy goes by is not known.
    """
    budgets = budgets_of(config, probes)
    nodes = config.active
    trials: list[Trial] = []
    for precision in config.placement.precision_ladder or (None,):
        holders = [
            Holder(config, node, precision, cost, budget=budgets[node.addr], probed=probes.get(node.addr))
            for node in nodes
        ]
        notes = [f"{below}: no layers there"] if (below := _below_reserve(config, nodes)) else []
        parts = split(config, holders, notes)
        fits = parts is not None and all(one.holds(part) for one, part in zip(holders, parts, strict=True) if part)
        trials.append(_trial(precision, cost, holders, fits))
        if parts is not None and fits:
            stages = tuple(_stage(one, part) for one, part in zip(holders, parts, strict=True) if part)
            standbys = _standbys(config, stages, cost, budgets, probes)
            policy = config.placement.policy
            return Placement(stages=stages, standbys=standbys, policy=policy, trials=tuple(trials), notes=tuple(notes))
    raise _no_room(config, cost, trials, holders, parts)


def retire(
    placement: Placement, config: ClusterConfig, cost: ModelCost, probes: Mapping[str, NodeProbe], addr: str
) -> Placement:
    """Return the placement without a node.

    A standby that holds the node's stage takes it over, and all other stages stay where they are. Without one the
    layers are planned again over the nodes that are left. A standby, or a node without layers, is only left out. For
    a node that is out already the placement stays as it is.

    Args:
        placement: As it is, after other nodes were retired or not.
        config: As it was read.
        cost: Of the model.
        probes: By `addr`.
        addr: The node to take out.

    Raises:
        ClusterError: There is no such node, or no room without it.
    """
    if addr in placement.retired:
        return placement
    retired = {**placement.retired, addr: None}
    left = _left(config, retired)
    if placement.stage_of(addr) is None:
        return replace(
            placement, standbys=tuple(one for one in placement.standbys if one.addr != addr), retired=retired
        )
    standby = placement.standby_of(addr)
    if standby is not None:
        return placement.promoted(addr, standby.addr)
    if not any(node.role == "active" for node in left):
        raise ClusterError(
            f"Cannot take out the node {addr}: it is the last active one, and no standby holds its stage",
            "Give a standby with room for the stage",
            "no-room",
            addr=addr,
        )
    return replace(plan(replace(config, nodes=left), cost, probes), retired=retired)


def _left(config: ClusterConfig, retired: Mapping[str, str | None]) -> tuple[NodeConfig, ...]:
    """Return the nodes that are left after some retired, those that were promoted in the place of the former."""
    nodes = list(config.nodes)
    manual = config.placement.policy == "manual"
    for addr, heir in retired.items():
        place = next((n for n, node in enumerate(nodes) if node.addr == addr), None)
        if place is None:
            raise ClusterError(
                f"Cannot take out the node {addr!r}: there is none of that name",
                f"Give one of {', '.join(node.addr for node in nodes)}",
                "unknown-node",
                addr=addr,
            )
        layers = nodes[place].layers if manual else None
        for n, node in enumerate(nodes):
            if node.addr == heir:
                nodes[place] = replace(node, role="active", standby_for=None, layers=layers)
                del nodes[n]
                break
        else:
            del nodes[place]
        nodes = [replace(node, standby_for=heir) if node.standby_for == addr else node for node in nodes]
    return tuple(nodes)


def _stage(holder: Holder, layers: range) -> StagePlan:
    """Return the plan of a node's stage."""
    largest = max(holder.each[layers.start : layers.stop])
    room = holder.capacity(first=layers.start == 0, last=layers.stop == holder.cost.n_layers, largest=largest)
    return StagePlan(
        addr=holder.node.addr,
        layers=layers,
        device=holder.node.device,
        precision=holder.precision,
        budget_bytes=holder.budget,
        need_bytes=holder.need(layers),
        capacity=max(room, len(layers)),
        predicted_ms=holder.time_ms(layers, 1, holder.gflops),
        predicted_prefill_ms=holder.time_ms(layers, holder.seq, holder.gflops_prefill),
    )


def _standbys(
    config: ClusterConfig,
    stages: tuple[StagePlan, ...],
    cost: ModelCost,
    budgets: Mapping[str, int],
    probes: Mapping[str, NodeProbe],
) -> tuple[StandbyPlan, ...]:
    """Return for each standby which stages it can hold, at the precision that they have."""
    found = []
    for node in config.nodes:
        if node.role != "standby":
            continue
        wanted = [stage for stage in stages if node.standby_for in {None, stage.addr}]
        fits = {}
        for stage in wanted:
            holder = Holder(
                config, node, stage.precision, cost, budget=budgets[node.addr], probed=probes.get(node.addr)
            )
            if holder.holds(stage.layers):
                fits[stage.addr] = _stage(holder, stage.layers)
        mirrored = node.standby_for if node.standby_for in fits else None
        plan_of = StandbyPlan(addr=node.addr, stage_addr=mirrored, fits=fits, budget_bytes=budgets[node.addr])
        found.append(plan_of)
    return tuple(found)


def _trial(precision: str | None, cost: ModelCost, holders: list[Holder], fits: bool) -> Trial:
    """Return what one precision took; of nodes that differ, the one that needs most stands for the whole."""
    need = max(one.need(range(cost.n_layers)) for one in holders)
    budget = sum(one.budget for one in holders if one.budget > 0)
    return Trial(precision=precision, need_bytes=need, budget_bytes=budget, fits=fits)


def _no_room(
    config: ClusterConfig, cost: ModelCost, trials: list[Trial], holders: list[Holder], parts: list[range] | None
) -> ClusterError:
    details: dict[str, Any] = {
        "need_bytes": [trial.need_bytes for trial in trials],
        "budget_bytes": {one.node.addr: one.budget for one in holders},
    }
    if below := _below_reserve(config, config.active):
        what, step = f"Cannot place {cost.n_layers} layers: {below}", "Raise max_ram_gb, or lower reserve_ram_gb"
        return ClusterError(what, step, "no-room", **details)
    tried = "; ".join(f"{_name(trial.precision)} {_totals(trial)}" for trial in trials)
    each = ", ".join(f"{one.node.addr} {_budget(one.budget)}" for one in holders)
    found = f"{tried}; after {config.reserve_ram_gb:g} GB of reserve: {each}"
    over = [(one, part) for one, part in zip(holders, parts or (), strict=False) if part and not one.holds(part)]
    if over:
        found += "".join(f"; layers {_dots(p)} of {one.node.addr} need {show_bytes(one.need(p))}" for one, p in over)
    return ClusterError(
        f"Cannot place {cost.n_layers} layers: {found}",
        "Give more memory or nodes, less reserve_ram_gb or context, or a precision_ladder with a narrower precision",
        "no-room",
        **details,
    )


def _below_reserve(config: ClusterConfig, nodes: Sequence[NodeConfig]) -> str:
    """Say which nodes give less than what is left alone there; nothing where none does."""
    below = [one for one in nodes if one.max_ram_gb is not None and one.max_ram_gb < config.reserve_ram_gb]
    each = ", ".join(f"{one.addr} ({one.max_ram_gb:g})" for one in below)
    return f"max_ram_gb is below reserve_ram_gb = {config.reserve_ram_gb:g} on {each}" if below else ""


def _cells(stage: StagePlan) -> tuple[str, ...]:
    token = "-" if stage.predicted_ms is None else show_seconds(stage.predicted_ms / 1000)
    sizes = show_bytes(stage.need_bytes), show_bytes(stage.budget_bytes)
    return (stage.addr, _dots(stage.layers), stage.device, stage.precision, *sizes, f"{stage.capacity}", token)


def _budget(size: int) -> str:
    return show_bytes(size) if size > 0 else "none"


def _totals(trial: Trial) -> str:
    return f"needs {show_bytes(trial.need_bytes, trial.budget_bytes)}"


def _name(precision: str | None) -> str:
    return precision or "the model"


def _dots(layers: range) -> str:
    return f"{layers.start}..{layers.stop}"


def _layers_json(layers: range) -> dict[str, int]:
    return {"start": layers.start, "end": layers.stop}
