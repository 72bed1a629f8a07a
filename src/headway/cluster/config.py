"""What a cluster is told: its model, its nodes, and how the layers are placed on them."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from headway.cluster.record import as_layers
from headway.errors import ArgumentError
from headway.sources.text import clean

PRECISIONS: Final[dict[str, float]] = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
"""What an element of a layer's linear weights takes, by precision [bytes]; the scales of int8 apart."""


@dataclass(frozen=True, kw_only=True)
class PlacementConfig:
    """How layers are placed on nodes.

    Attributes:
        policy: ``ram_balanced``, ``throughput``, ``auto`` or ``manual``.
        optimize: What ``auto`` looks for: ``throughput``, ``latency`` or ``memory``.
        context: Tokens that the KV window has room for.
        kv_bytes_per_token: KV bytes of a layer and token [bytes]; None: as the checkpoint says.
        precision_ladder: Precisions to try, widest first, until the model fits; empty: only the nodes' own.
        assume_gflops: Speed of a node whose probe has no information [GFLOP/s].
        assume_ram_gb: Memory of a node whose probe has no information [GB].
    """

    policy: str = "ram_balanced"
    optimize: str = "throughput"
    context: int = 4096
    kv_bytes_per_token: int | None = None
    precision_ladder: tuple[str, ...] = ()
    assume_gflops: float | None = None
    assume_ram_gb: float | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ArgumentError: One has a value it cannot have.
        """
        _keep(self, "placement")


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """One node, known by its address.

    Attributes:
        addr: Its unique name.
        ssh: How ssh reaches it, such as ``user@host``; None: it is this machine.
        ckpt_dir: Folder of the checkpoint there; None: the cluster's `model`. On this machine, made absolute by the
            `ClusterConfig` it is in.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        precision: Of its layers' linear weights, one of `PRECISIONS`.
        kv_cache: Whether it keeps keys and values between tokens.
        max_ram_gb: The most memory it gives [GB]; None: what is available.
        layers: Its layers under the policy ``manual``.
        role: ``active``, ``standby`` or ``draining``.
        standby_for: The active node that a standby mirrors; None: any whose stage fits it.
    """

    addr: str
    ssh: str | None = None
    ckpt_dir: str | None = None
    device: str = "cpu"
    precision: str = "bf16"
    kv_cache: bool = True
    max_ram_gb: float | None = None
    layers: range | None = None
    role: str = "active"
    standby_for: str | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ArgumentError: One has a value it cannot have.
        """
        _keep(self, "node")


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """A cluster as it is told, checked.

    Attributes:
        model: Folder of the checkpoint, made absolute here: a later change of the working folder changes nothing.
        seq: Tokens of a sequence that is driven.
        rng_seed: Seed of what is drawn at random.
        reserve_ram_gb: Memory of a node that is left alone [GB].
        listen: Address that the coordinator and the workers listen on.
        port: Port of the coordinator; 0: any that is free.
        launcher: ``local``, ``torchrun`` or ``ray``.
        heartbeat_s: After so long without a word a worker counts as hung [s], at most a day.
        timeout_s: How long one forward of a drive may take [s], at most a day.
        launch_timeout_s: How long a launch may take [s], at most a day.
        threads: Of a worker, at most 1024; None: the cores shared among the stages.
        log_dir: The folder of runs that its log goes to, made absolute here; None: ``$HEADWAY_DIR``, else
            ``headway-logs``.
        placement: How the layers are placed.
        nodes: The nodes, in the order of the pipeline; in TOML, a `[[node]]` each.

    Example:
        >>> config = ClusterConfig.from_toml('''
        ... model = "llama"
        ... [[node]]
        ... addr = "n0"
        ... ''')
        >>> config.active[0].precision, config.placement.policy
        ('bf16', 'ram_balanced')
    """

    model: str
    seq: int = 8
    rng_seed: int = 0
    reserve_ram_gb: float = 6.0
    listen: str = "127.0.0.1"
    port: int = 0
    launcher: str = "local"
    heartbeat_s: float = 5.0
    timeout_s: float = 60.0
    launch_timeout_s: float = 120.0
    threads: int | None = None
    log_dir: str | None = None
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    nodes: tuple[NodeConfig, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields, and the nodes against each other.

        Raises:
            ArgumentError: One has a value it cannot have, or the nodes contradict each other.
        """
        _keep(self, "")
        _check_nodes(self.nodes, manual=self.placement.policy == "manual")
        for name, value in _placed(vars(self), Path()).items():
            object.__setattr__(self, name, value)

    @property
    def active(self) -> tuple[NodeConfig, ...]:
        """The nodes that hold a stage from the start, in the order of the pipeline."""
        return tuple(one for one in self.nodes if one.role == "active")

    @classmethod
    def from_toml(cls, text: str | bytes) -> Self:
        """Return the config that a TOML text tells. Paths in it are relative to the working folder.

        Args:
            text: The text, or its bytes in UTF-8.

        Raises:
            ArgumentError: It is no TOML, has a key there is not or a value that a key cannot have, or its nodes
                contradict each other. The first problem is named, with its place, what is allowed, and the likely
                spelling.
        """
        return cls(**_told(cls, text))

    @classmethod
    def from_path(cls, path: str | Path) -> Self:
        """Return the config that a TOML file tells.

        `model`, `log_dir` and, of nodes on this machine, `ckpt_dir` are taken relative to the file.

        Args:
            path: The file.

        Raises:
            ArgumentError: It cannot be read; or see `from_toml`, in the message with the file's name.
        """
        path = Path(path)
        shown = clean(str(path), 4096)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            raise ArgumentError(f"Cannot read {shown}: there is nothing", "Check the path", "no-such-path") from None
        except (OSError, ValueError) as error:
            why = clean(getattr(error, "strerror", None) or str(error))
            raise ArgumentError(f"Cannot read {shown}: {why}", "Give a readable file", "unreadable-path") from None
        try:
            return cls(**_placed(_told(cls, text), path.parent))
        except ArgumentError as error:
            what = error.what.replace("Cannot read the config", f"Cannot read {shown}", 1)
            raise ArgumentError(what, error.next_step, error.slug, **error.details) from None


def _told(cls: type[ClusterConfig], text: str | bytes) -> dict[str, Any]:
    """Return the fields of a config that a TOML text tells, paths as they are."""
    try:
        told = tomllib.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        why = clean(str(error)) or "it nests too deep"
        raise ArgumentError(f"Cannot read the config: no TOML, {why}", "Correct that place", "bad-toml") from None
    values = _known(cls, told, "")
    if "placement" in told:
        given = _known(PlacementConfig, told["placement"], "placement", "[placement]")
        values["placement"] = PlacementConfig(**given)
    nodes = told.get("node", [])
    if not isinstance(nodes, list):
        raise _refusal("", "node", nodes, "tables [[node]], in double brackets")
    values["nodes"] = tuple(
        NodeConfig(**_known(NodeConfig, one, _place(number, one), "[[node]]")) for number, one in enumerate(nodes, 1)
    )
    return values


def _placed(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return fields of a config with absolute paths: relative ones are in a folder, those of other machines stay."""

    def placed(path: str, key: str, where: str = "") -> str:
        try:
            return str((folder / Path(path).expanduser()).absolute())
        except RuntimeError:
            raise _refusal(where, key, path, "a path, in which ~ and ~name are known home folders") from None

    def node_placed(node: NodeConfig, number: int) -> NodeConfig:
        if node.ssh is not None or node.ckpt_dir is None:
            return node
        return replace(node, ckpt_dir=placed(node.ckpt_dir, "ckpt_dir", _place(number, node)))

    nodes = tuple(node_placed(one, number) for number, one in enumerate(values["nodes"], 1))
    known = {key: placed(values[key], key) for key in ("model", "log_dir") if values.get(key) is not None}
    return {**values, **known, "nodes": nodes}


class _Kind(NamedTuple):
    """What a key may hold: in words, and as a function that returns the value to keep or raises ValueError."""

    allowed: str
    read: Callable[[Any], Any]
    words: tuple[str, ...] = ()


def _need(fits: bool, value: Any) -> Any:
    if not fits:
        raise ValueError
    return value


def _words(*words: str) -> _Kind:
    return _Kind("one of " + ", ".join(words), lambda v: _need(isinstance(v, str) and v in words, v), words)


def _whole(low: int, high: int = 2**63 - 1) -> _Kind:
    allowed = f"a whole number from {low} " + ("on" if high == 2**63 - 1 else f"to {high}")
    return _Kind(allowed, lambda v: _need(isinstance(v, int) and not isinstance(v, bool) and low <= v <= high, v))


def _amount(unit: str, above: bool = True, most: float = math.inf) -> _Kind:
    def read(value: Any) -> float:
        _need(isinstance(value, int | float) and not isinstance(value, bool), value)
        fits = math.isfinite(value) and (value > 0 if above else value >= 0) and value <= most
        return _need(fits, float(value))  # type: ignore[no-any-return]

    limit = "" if most == math.inf else f", at most {most:.0f}"
    return _Kind(f"a number {'above 0' if above else 'from 0 on'} [{unit}]{limit}", read)


def _text(allowed: str, pattern: str = r".+") -> _Kind:
    """A text of that pattern that a terminal shows as it is."""
    form = re.compile(pattern)
    return _Kind(
        allowed,
        lambda v: _need(isinstance(v, str) and form.fullmatch(v) is not None and clean(v, 4096) == v, v),
    )


def _layers(value: Any) -> range:
    value = value.replace("..", ":", 1) if isinstance(value, str) else value  # as tables show them
    if isinstance(value, str | range) and (layers := as_layers(value)):
        return layers
    raise ValueError


def _ladder(value: Any) -> tuple[str, ...]:
    rungs = tuple(_need(isinstance(value, list | tuple), value))
    _need(all(isinstance(one, str) and one in PRECISIONS for one in rungs) and len(set(rungs)) == len(rungs), value)
    widths = [PRECISIONS[one] for one in rungs]
    return _need(widths == sorted(widths, reverse=True), rungs)  # type: ignore[no-any-return]


def _instances(value: Any) -> tuple[NodeConfig, ...]:
    nodes = tuple(_need(isinstance(value, list | tuple), value))
    return _need(all(isinstance(one, NodeConfig) for one in nodes), nodes)  # type: ignore[no-any-return]


_DAY_S: Final = 86_400.0
_ADDR: Final = _text("a text of up to 200 characters", r".{1,200}")
_PATH: Final = _text("a path")
_KINDS: Final = {
    "model": _PATH,
    "seq": _whole(1),
    "rng_seed": _whole(0),
    "reserve_ram_gb": _amount("GB", above=False),
    "listen": _text("an address such as 127.0.0.1", r"\S+"),
    "port": _whole(0, 65535),
    "launcher": _words("local", "torchrun", "ray"),
    "heartbeat_s": _amount("s", most=_DAY_S),
    "timeout_s": _amount("s", most=_DAY_S),
    "launch_timeout_s": _amount("s", most=_DAY_S),
    "threads": _whole(1, 1024),
    "log_dir": _PATH,
    "placement": _Kind("a table [placement]", lambda v: _need(isinstance(v, PlacementConfig), v)),
    "nodes": _Kind("tables [[node]]", _instances),
    "policy": _words("ram_balanced", "throughput", "auto", "manual"),
    "optimize": _words("throughput", "latency", "memory"),
    "context": _whole(1),
    "kv_bytes_per_token": _whole(1),
    "precision_ladder": _Kind(f"a list, widest first and each once, of {', '.join(PRECISIONS)}", _ladder),
    "assume_gflops": _amount("GFLOP/s"),
    "assume_ram_gb": _amount("GB"),
    "addr": _ADDR,
    "ssh": _text("a host that does not begin with a dash, such as user@host", r"[^-\s]\S*"),
    "ckpt_dir": _PATH,
    "device": _text("cpu, cuda or cuda:N", r"cpu|cuda(:[0-9]{1,3})?"),
    "precision": _words(*PRECISIONS),
    "kv_cache": _Kind("true or false", lambda v: _need(isinstance(v, bool), v)),
    "max_ram_gb": _amount("GB"),
    "layers": _Kind('layers "a:b" or "a..b", without b, a < b', _layers),
    "role": _words("active", "standby", "draining"),
    "standby_for": _ADDR,
}


def _keep(config: Any, where: str) -> None:
    """Check every field of a config, and keep it in its own type."""
    for name, value in _read(type(config), vars(config), where).items():
        object.__setattr__(config, name, value)


def _read(cls: type, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    kept = dict(values)
    for one in fields(cls):
        value = values.get(one.name)
        if one.name not in values or (value is None and one.default is None):
            continue
        try:
            kept[one.name] = _KINDS[one.name].read(value)
        except (ValueError, OverflowError):
            kind = _KINDS[one.name]
            raise _refusal(where, one.name, value, kind.allowed, _likely(value, kind.words)) from None
    return kept


def _known(cls: type, table: Any, where: str, header: str = "") -> dict[str, Any]:
    """Return the values of a table of TOML, checked; tables in it are left out."""
    if not isinstance(table, Mapping):
        raise _refusal("", header.strip("[]"), table, f"a table {header}")
    names = ["node" if one.name == "nodes" else one.name for one in fields(cls)]
    for key in table:
        if key not in names:
            raise ArgumentError(
                f"Cannot read the config: {_at(where)}{clean(repr(key))} is no key; there are {', '.join(names)}",
                _likely(key, names) or "Give one of these, or leave it out",
                "unknown-key",
                key=key,
            )
    for one in fields(cls):
        if one.default is one.default_factory is MISSING and one.name not in table:
            what = f"Cannot read the config: {_at(where)}{one.name} is missing"
            raise ArgumentError(what, f"Give {one.name}, {_KINDS[one.name].allowed}", "bad-config", key=one.name)
    return _read(cls, {key: value for key, value in table.items() if key not in {"placement", "node"}}, where)


def _place(number: int, node: Any) -> str:
    addr = node.get("addr") if isinstance(node, Mapping) else getattr(node, "addr", None)
    return f'node[{number}] "{clean(addr)}"' if isinstance(addr, str) else f"node[{number}]"


def _check_nodes(nodes: tuple[NodeConfig, ...], manual: bool) -> None:
    active = [one.addr for one in nodes if one.role == "active"]
    if not active:
        raise ArgumentError(
            "Cannot read the config: no node is active; a cluster needs one at least",
            'Give a [[node]] with role = "active"',
            "bad-config",
            key="node",
        )
    seen: set[str] = set()
    for number, one in enumerate(nodes, 1):
        where = _place(number, one)
        if one.addr in seen:
            step = "Give each node an addr of its own"
            raise _refusal(where, "addr", one.addr, "an addr that no other node has", step)
        seen.add(one.addr)
        if one.layers is not None and not manual:
            step = 'Give policy = "manual" in [placement], or leave layers out'
            raise _refusal(where, "layers", _colon(one.layers), 'none: only policy = "manual" reads it', step)
        if one.layers is not None and one.role == "standby":
            raise _refusal(where, "layers", _colon(one.layers), "none: a standby takes those of the node it stands for")
        if one.layers is None and manual and one.role == "active":
            raise _refusal(where, "layers", None, f'{_KINDS["layers"].allowed}, under policy = "manual"')
        if one.standby_for is not None and one.role != "standby":
            raise _refusal(where, "standby_for", one.standby_for, f'none for a node with role = "{one.role}"')
        if one.standby_for is not None and one.standby_for not in active:
            likely = _likely(one.standby_for, active)
            raise _refusal(where, "standby_for", one.standby_for, f"an active node: {', '.join(active)}", likely)


def _at(where: str) -> str:
    return f"{where}: " if where else ""


def _colon(layers: range) -> str:
    return f"{layers.start}:{layers.stop}"


def _likely(found: Any, allowed: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(found, list(allowed), 1) if isinstance(found, str) and len(found) <= 200 else []
    return f"Give {close[0]} if that was meant" if close else None


def _refusal(where: str, key: str, found: Any, allowed: str, step: str | None = None) -> ArgumentError:
    shown = "missing" if found is None else clean(_repr(found), 80)
    return ArgumentError(
        f"Cannot read the config: {_at(where)}{key} is {shown}; allowed is {allowed}",
        step or f"Give {key} an allowed value",
        "bad-config",
        key=key,
        found=found,
    )


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # a whole number of too many digits
        return "a number of too many digits"
