"""Power that was metered beside an MLPerf run: node logs of ``:::MLLOG`` lines, and readings of SPEC's PTDaemon."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from headway.clock import NS_PER_S
from headway.errors import SourceError
from headway.events import Notice, Open, Span
from headway.ledger.history import Process, Run
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.columns import BOUND
from headway.sources.intervals import Interval
from headway.sources.mllog import MARK, NS_PER_MS, time_ns
from headway.sources.mlperfpower import ptdaemon
from headway.sources.text import Complaints, clean
from headway.units import show_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

READING: Final = "power_reading"
ESTIMATE: Final = "interconnect_power_est"
EFFICIENCY: Final = "conversion_eff"
_KEYS: Final = (READING, ESTIMATE, "power_measurement_start", "power_measurement_stop")
_MARK: Final = MARK[1:]
"""Some writers lose a colon."""
_MOST_W: Final = 1e10
_LAST_MS: Final = BOUND // NS_PER_MS
_HOLE: Final = 10
"""A gap of so many usual ones between two readings is a hole, if it is longer than `_SHORT_NS` too."""
_SHORT_NS: Final = 30 * NS_PER_S
_BLOCK: Final = 1 << 18
LEFT_OUT: Final = "power beside it is left out, and its energy is unknown"
"""How a warning begins of power logs that lie beside a training log and cannot be read."""
MISSING: Final = 0.05
"""So much of the window may lie in holes of a meter; beyond it the energy is not known [fraction]."""


class _Record(msgspec.Struct):
    key: str
    time_ms: int | float | str | None = None
    value: Any = None
    metadata: Any = None


_decode: Final = msgspec.json.Decoder(_Record).decode


def is_power(head: bytes) -> bool:
    r"""Return whether this is the beginning of a power log, and not of a training log.

    Example:
        >>> is_power(b'Time,03-01-2021 16:00:01.123,Watts,22.95,Volts,228.39\n')
        True
        >>> is_power(b':::MLLOG {"key": "run_start", "time_ms": 5}')
        False
    """
    if _MARK in head:
        quoted = [f'"{key}"'.encode() for key in (*_KEYS, "init_start", "run_start")]
        return any(key in head for key in quoted[:-2]) and not any(key in head for key in quoted[-2:])
    lines = head.lstrip(b"\xef\xbb\xbf").splitlines()[:50]
    return any(line.startswith(ptdaemon.BEGINS) and b",Watts," in line for line in lines)


class MLPerfPower:
    """The source of power logs given without their training log: it says what it is missing."""

    name = "mlperfpower"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no power log, or None when it is one."""
        return None if is_power(head) else "there are no power readings at its beginning"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return a run without a step: how long it was metered, and the energy.

        Raises:
            SourceError: There is no reading in it.
        """
        meters, warnings = read(path, asked.zone)
        ends = [int(at) for meter in meters if len(times := meter.sorted()[0]) for at in (times[0], times[-1])]
        if not ends:
            why = "".join("; " + text.removeprefix(f"{clean(path.name)}: ") for text in warnings[:1])
            raise SourceError(
                f"Cannot read {clean(str(path), 4096)}: there is no power reading in it{why}",
                "Give the log of a node, with its power_reading lines",
                "no-runs",
                path=str(path),
            )
        begin, end = min(ends), max(ends)
        title = clean(path.stem)
        opened = Open(wall_ns=begin, mono_ns=begin, run=title, devices=asked.devices or 1, phases=(), rows="block")
        events = (Span(category="unaccounted", start=begin, end=end), Notice(name="log_end", at=end))
        why = "it is a power log: give the training log that it lies beside, in power/<name of that log>/"
        run = Run(title, self.name, (Process(opened, events),), clean(str(path), 4096), (why,), {"R": why})
        energy, more = _energy(meters, begin, end)
        return [replace(run, energy_j=energy, warnings=(*run.warnings, *warnings, *more))]


def attach(run: Run, power_paths: Sequence[Path], zone: tzinfo | None = None) -> Run:
    r"""Return a run with the energy that was metered while it ran.

    The window is the training run's, as MLPerf counts it: from ``run_start``, without the init before it, to its end;
    of a run with several attempts from the first one's. Each meter is summed by trapezoids, times its
    ``conversion_eff``; all meters are added. Where readings are missing for more than `MISSING` of the window, the
    energy is not known, and a warning says why. A run whose energy is known keeps it: its own power logs lay beside it.
    So does one whose own cannot all be read: the others alone tell too little.

    Args:
        run: A training run.
        power_paths: The power logs of all its nodes and switches; one given twice counts once.
        zone: The zone of PTDaemon's local times, None: UTC; ``time_ms`` needs none.

    Raises:
        OSError: A power log cannot be read.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "node_0.txt"
        >>> line = ':::MLLOG {"key": "power_reading", "value": 500.0, "time_ms": %d, "metadata": {"host": "n0"}}'
        >>> _ = path.write_text("\n".join(line % ms for ms in range(0, 61_000, 1000)))
        >>> opened = Open(wall_ns=10 * NS_PER_S, mono_ns=0)
        >>> attach(Run("r", "mlperf", [Process(opened, [Notice(name="log_end", at=20 * NS_PER_S)])]), [path]).energy_j
        10000.0
    """
    if run.energy_j is not None or any(text.startswith(LEFT_OUT) for text in run.warnings):
        return run
    meters: list[Meter] = []
    warnings: list[str] = []
    span = window(run)
    for path in dict.fromkeys(path.resolve() for path in power_paths):
        found, said = read(path, zone, span)
        meters += found
        warnings += said
    return with_energy(run, meters, warnings)


def with_energy(run: Run, meters: Sequence[Meter], warnings: Sequence[str]) -> Run:
    """Return a run with the energy that meters tell of its window, and the warnings of reading them."""
    span = window(run)
    if not meters or span is None:
        warnings = [*warnings, "no power reading belongs to it: its energy is unknown"]
        return replace(run, warnings=(*run.warnings, *warnings))
    energy, more = _energy(meters, *span)
    return replace(run, energy_j=energy, warnings=(*run.warnings, *warnings, *more))


def window(run: Run) -> tuple[int, int] | None:
    """Return when a run trained [ns since the Unix epoch]: without MLPerf's init; None for a run without a process."""
    edges: list[tuple[int, int]] = []
    for process in run.processes:
        opened = process.open
        spans = [event for event in process.events if isinstance(event, Span)]
        at = [*(int(getattr(event, "at", opened.mono_ns)) for event in process.events), *(span.end for span in spans)]
        starts = [span.start for span in spans]
        if len(process.rows):
            starts.append(int(process.rows.start.min()))
            at.append(int(process.rows.end.max()))
        begin = min(starts) if run.source == "mlperf" and starts else opened.mono_ns
        shift = opened.wall_ns - opened.mono_ns
        edges.append((begin + shift, max([begin, *at]) + shift))
    return (min(edge[0] for edge in edges), max(edge[1] for edge in edges)) if edges else None


@dataclass
class Meter:
    """The readings of one meter, in any order.

    Attributes:
        name: The file and the host, for messages.
        times: When [ns since the Unix epoch].
        watts: How much [W].
        efficiency: What a reading is multiplied by.
        constant_w: A power that was estimated once for the whole run, such as a switch's [W]; None: none.
    """

    name: str
    times: array[int] = field(default_factory=lambda: array("q"))
    watts: array[float] = field(default_factory=lambda: array("d"))
    efficiency: float = 1.0
    constant_w: float | None = None

    def sorted(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the readings in the order of time; of several at one time their mean."""
        times = np.frombuffer(self.times, np.int64) if self.times else np.zeros(0, np.int64)
        if np.all(times[1:] > times[:-1]):
            return times, np.frombuffer(self.watts, np.float64) if self.watts else np.zeros(0)
        times, where = np.unique(times, return_inverse=True)
        watts = np.bincount(where, np.array(self.watts, np.float64)) / np.bincount(where)
        return times, watts

    def energy(self, begin: int, end: int) -> tuple[float, int]:
        """Return the energy in a window [J], and how much of the window no reading is near [ns].

        Between two readings power is taken to change evenly; a reading stands for the usual time between two before
        the first and after the last; in a hole it is the mean of the rest.
        """
        times, watts = self.sorted()
        if self.constant_w is not None and not len(times):
            return self.constant_w * (end - begin) / NS_PER_S * self.efficiency, 0
        if not len(times) or end <= begin:
            return 0.0, end - begin
        usual = int(np.median(np.diff(times), overwrite_input=True)) if len(times) > 1 else 0
        joules, covered = 0.0, 0
        for first in range(-1, len(times), _BLOCK):
            some = np.arange(first, min(first + _BLOCK, len(times)) + 1)
            near = np.clip(some, 0, len(times) - 1)
            at = times[near] + (some - near) * usual
            more, length = _trapezoids(at, watts[near], (begin, end), usual)
            joules, covered = joules + more, covered + length
        if not covered:
            return 0.0, end - begin
        return joules * (end - begin) / covered * self.efficiency, end - begin - covered


def _trapezoids(
    times: NDArray[np.int64], watts: NDArray[np.float64], within: Interval, usual: int
) -> tuple[float, int]:
    """Return the energy between readings inside a window, holes left out [J], and how much of it that is [ns]."""
    apart = np.diff(times)
    low, high = np.clip(times[:-1], *within), np.clip(times[1:], *within)
    good = (high > low) & ((apart <= _HOLE * usual) | (apart <= _SHORT_NS))
    low, high, first = low[good], high[good], np.flatnonzero(good)
    slope = (watts[first + 1] - watts[first]) / apart[first]
    middle = watts[first] + slope * ((low - times[first]) + (high - times[first])) / 2
    return float(np.sum(middle * ((high - low) / NS_PER_S))), int((high - low).sum())


def _energy(meters: Sequence[Meter], begin: int, end: int) -> tuple[float | None, list[str]]:
    warnings = []
    total, known = 0.0, True
    for meter in meters:
        joules, missing = meter.energy(begin, end)
        total += joules
        gap, whole = show_seconds(missing / NS_PER_S), show_seconds((end - begin) / NS_PER_S)
        if missing > MISSING * (end - begin):
            known = False
            warnings.append(
                f"{meter.name}: for {gap} of the run's {whole} "
                "there is no power reading: its energy is unknown; see that both clocks are of one zone"
            )
        elif missing > 0:
            warnings.append(f"{meter.name}: for {gap} of the run there is no power reading: its mean power is taken")
    return (total if known and math.isfinite(total) else None), warnings


def read(path: Path, zone: tzinfo | None = None, near: Interval | None = None) -> tuple[list[Meter], list[str]]:
    """Return the meters in a power log, one a host, and what could not be read, a sentence each.

    Args:
        path: A file of ``:::MLLOG`` lines, or of PTDaemon's ``Time,…,Watts,…`` lines.
        zone: The zone of PTDaemon's local times; None: UTC, with a warning.
        near: When the run was [ns since the Unix epoch]: it decides of PTDaemon's dates that may be of either order.

    Raises:
        OSError: It cannot be read.
    """
    (meters, warnings), clock = _read(path, zone)
    if clock.is_otherwise or (clock.is_either and near is not None and not _has_in(meters, near)):
        (others, said), _ = _read(path, zone, is_day_first=True)
        if clock.is_otherwise or _has_in(others, near):
            return others, [*said, f"{clean(path.name)}: its dates are read with the day before the month"]
    if clock.is_either and near is None:
        warnings.append(f"{clean(path.name)}: its dates may be of either order: the month is read before the day")
    return meters, warnings


def _has_in(meters: Sequence[Meter], near: Interval | None) -> bool:
    """Return whether there are readings in a window."""
    times = [np.frombuffer(meter.times, np.int64) for meter in meters if meter.times]
    return near is not None and any(bool(np.any((at >= near[0]) & (at <= near[1]))) for at in times)


def _read(
    path: Path, zone: tzinfo | None, is_day_first: bool = False
) -> tuple[tuple[list[Meter], list[str]], ptdaemon.Clock]:
    """Return the meters, what could not be read, and the clock of PTDaemon's lines."""
    bad = Complaints(clean(path.name))
    log = _Log(clean(path.name), ptdaemon.Clock(zone or UTC, is_day_first))
    broken: list[str] = []
    try:
        for number, line in files.lines(path):
            try:
                log.take(line)
            except ValueError as error:
                bad.add("no power reading, left out", number, str(error))
    except files.TornError:
        broken = [f"{clean(path.name)}: it is cut or damaged, and what follows there is left out"]
    warnings = [*bad.sentences(), *broken]
    if log.clock.n_lines and zone is None:
        warnings.append(f"{clean(path.name)}: its times name no zone; they are read as UTC; give theirs with --zone")
    for meter in log.meters.values():
        meter.efficiency = log.efficiency
    meters = [meter for _, meter in sorted(log.meters.items()) if len(meter.times) or meter.constant_w is not None]
    return (meters, warnings), log.clock


@dataclass
class _Log:
    """The state of reading one power log."""

    name: str
    clock: ptdaemon.Clock
    meters: dict[str, Meter] = field(default_factory=dict)
    efficiency: float = 1.0

    def take(self, line: bytes) -> None:
        """Keep what a line says.

        Raises:
            ValueError: It looks like a reading and cannot be one.
        """
        if line.startswith(b"\xef\xbb\xbf"):
            line = line[3:]
        if line.startswith(ptdaemon.BEGINS):
            self._add("", self.clock.ns(line), _possible(ptdaemon.watts(line)))
        elif _MARK in line:
            for text in line.split(_MARK)[1:]:
                self._record(text)

    def _record(self, text: bytes) -> None:
        found = _decode(text[text.find(b"{") : text.rfind(b"}") + 1])
        if found.key == READING:
            at = found.time_ms
            # The usual kind of number needs no further look.
            at_ns = at * NS_PER_MS if type(at) is int and 0 <= at < _LAST_MS else time_ns(at)
            self._add(_host(found.metadata), at_ns, _watts(found.value))
        elif found.key == EFFICIENCY:
            value = _watts(found.value)
            if not 0 < value <= 100:
                raise ValueError(f"its conversion_eff, {value:g}, cannot be")
            self.efficiency = value
        elif found.key == ESTIMATE:
            meter = self._meter(_host(found.metadata))
            meter.constant_w = max(_watts(found.value), meter.constant_w or 0.0)

    def _meter(self, host: str) -> Meter:
        meter = self.meters.get(host)
        if meter is None:
            meter = self.meters[host] = Meter(f"{self.name}, {clean(host, 60)}" if host else self.name)
        return meter

    def _add(self, host: str, at: int, watts: float) -> None:
        meter = self._meter(host)
        meter.times.append(at)
        meter.watts.append(watts)


def _watts(value: object) -> float:
    """Return the power that a value is, or spells [W].

    Raises:
        ValueError: It is none.
    """
    if type(value) is not float:
        if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > 40:
            raise ValueError("its value is no number")
        value = float(value)
    return _possible(value)


def _possible(watts: float) -> float:
    if not 0 <= watts < _MOST_W:
        raise ValueError(f"{watts:g} W cannot be")
    return watts


def _host(metadata: object) -> str:
    host = metadata.get("host") if isinstance(metadata, dict) else None
    return host if isinstance(host, str) else ""
