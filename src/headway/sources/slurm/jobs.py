"""Jobs from the records of ``sacct`` and ``squeue``: one an attempt, steps not added to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from itertools import chain
from typing import Final

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.jobs import Jobs
from headway.sources.slurm import attempts as slurm_attempts
from headway.sources.slurm import clocks, fields, gpus
from headway.sources.slurm.aliases import Aliases
from headway.sources.slurm.arrays import Arrays, Waiting
from headway.sources.slurm.seen import Seen
from headway.sources.slurm.table import Row, number
from headway.sources.text import clean
from headway.units import show_seconds

DEVICES: Final = ("alloc_tres", "alloc_gres", "req_tres", "req_gres")
_WHOLE: Final = {
    "alloc_tres": "AllocTRES", "alloc_gres": "AllocGRES", "req_tres": "ReqTRES", "req_gres": "ReqGRES",
    "nodes": "NODES", "n_nodes": "NNodes",
}  # fmt: skip
"""Columns of which a cell that is cut tells something else."""
_CHANGES_NS: Final = frozenset({1800 * NS_PER_S, 3600 * NS_PER_S, 7200 * NS_PER_S})
"""By how much clocks are put forward or back [ns]."""
_FEW: Final = 1 << 16
"""So many records are kept before it is looked for those that tell of one attempt."""
_STEPS: Final = {"batch": 2, "0": 1, "extern": -1}
"""Whose state is a job's that has no record of its own: the highest counts."""


@dataclass(slots=True)
class _Steps:
    """What is known of a job from its steps."""

    milli: int
    begin_ns: int
    end_ns: int | None
    state: str
    rank: int
    whole: bool = False
    account: str = ""
    seen_ns: int = 0


class Attempts:
    """Jobs as they are read, each attempt once, in any order.

    Attributes:
        kept: Those that were read; an attempt can be there more than once before `all` returns it.
        moments: What read their moments; it knows whether they had a zone.
        seen: When lists were made, and up to when their jobs were seen to run.
        timed: Whether a record named a beginning or an end.
        sliced: Whether a record named slices of devices.
        others: Which resources that are no GPUs were named where no GPU is.
        aliases: What tells raw numbers of jobs from those that are shown.
    """

    def __init__(self, devices: int | None = None, zone: tzinfo | None = None, *, several: bool = True) -> None:
        self.moments = fields.Moments(zone)
        self.seen = Seen()
        self.timed = False
        self.sliced = False
        self.others: set[str] = set()
        self.kept = Jobs()
        self.aliases = Aliases(wanted=several)
        self.devices = devices
        self._next = self._next_of_list = _FEW
        self._going: list[_Steps] = []
        self._steps: dict[str, _Steps] = {}
        self._arrays = Arrays()
        self._later = clocks.Later()
        self._left_out: set[str] = set()
        self.last = ""
        self.cluster: str | None = None
        self.word = fields.Short(clean).__getitem__
        self.counts = dict.fromkeys(
            ("repeated", "moved", "early", "bare", "sized", "gpus", "others", "records", "raw"), 0
        )
        self.early_ns = 0

    def see(self, text: str) -> None:
        """Note the moment at which all jobs were looked at.

        Raises:
            ValueError: It is none.
        """
        seen = self.moments.read(text)
        if seen is not None:
            self.seen.note(seen)

    def add(self, row: Row) -> str:
        """Take one record, and return why it cannot be used; nothing where it can.

        Args:
            row: What it says.

        Raises:
            CutError: Its number or its resources are cut to the width of a column.
        """
        ident = number(row)
        base, dot, step = ident.partition(".")
        if not base[:1].isdecimal() or not base.isascii():
            return f"{ident[:40] or 'nothing'} is no number of a job"
        if not dot:
            fields.whole(base, "JobID")
        try:
            if not dot:
                self.last = base
                self._left_out.add(ident := clean(base, 80))
                self._add_job(self.key(base, row.get("cluster", "")), row)
                self._left_out.remove(ident)
            elif base != self.last:
                self._add_step(clean(base, 80), step, row)
        except ValueError as error:
            return str(error)
        return ""

    def key(self, ident: str, cluster: str) -> str:
        """Return a job's number, with its cluster where that is not the first one."""
        if self.cluster is None and cluster:
            self.cluster = cluster
        ident = clean(ident, 80)
        return f"{clean(cluster, 60)}/{ident}" if cluster and cluster != self.cluster else ident

    def _add_job(self, key: str, row: Row) -> None:
        for name, column in _WHOLE.items():
            fields.whole(row.get(name, ""), column)
        state = self.state(row.get("state", ""))
        submit = self.moments.read(row.get("submit", ""))
        start, end = self._held(row, state, submit)
        if self.moments.zone is not None:
            self._later.add(key, self.moments.read(row.get("start", "")), start)
        milli = self._milli(row)
        if start is not None and submit is not None:
            eligible = self.moments.read(row.get("eligible", ""))
            if eligible is not None and eligible > submit and milli:
                self.counts["early"] += 1
                self.early_ns += min(eligible, max(start, submit)) - submit
        user, account, partition, name = (
            self.word(row.get(column, "")) for column in ("user", "account", "partition", "name")
        )
        labels = (state, user, account, partition)
        if (raw := row.get("raw", "")).isdecimal() and raw.isascii() and raw != number(row):
            self.aliases.add(self.key(raw, row.get("cluster", "")), key)
        if state in fields.WAITING and "_[" in key:
            self._arrays.add(Waiting(key, milli, submit, labels, name).of(number(row)))
            return
        self.kept.add(key, milli, (submit, start, end), labels, name)
        self.rest()

    def state(self, text: str) -> str:
        """Return what the state of a job is called."""
        return fields.state(text) or self.word(text.lower()) or "unknown"

    def _held(self, row: Row, state: str, submit: int | None = None) -> tuple[int | None, int | None]:
        """Return when a job got its devices and gave them back, as `Seen` has it [ns since the Unix epoch]."""
        start, end = self.moments.read(row.get("start", "")), self.moments.read(row.get("end", ""))
        elapsed = _elapsed(row)
        self.timed |= start is not None or end is not None
        if state in fields.WAITING:
            return None, None
        if "start" not in row and elapsed:
            end = elapsed if end is None else end
            start = end - elapsed
        else:
            starts = self.moments.readings(row.get("start", ""), start)
            start, end = clocks.held(starts, self.moments.readings(row.get("end", ""), end), submit, elapsed)
        if start is None:
            return None, end
        if end is None:
            return start, self._going_on(start, elapsed, state)
        if end < start and (elapsed is None or abs(end - start - elapsed) not in _CHANGES_NS):
            raise ValueError("it ends before it starts")
        if start == end and _never_allocated(row):
            return None, end
        return start, self._checked(start, end, elapsed)

    def _going_on(self, start: int, elapsed: int | None, state: str) -> int | None:
        """Return when a job ended that has no End; less than none, or None, where it still goes on."""
        if state in fields.LIVE or state == "unknown":
            if elapsed is None:
                return None
            self.seen.note(start + elapsed)
            return -(start + elapsed)
        if elapsed is None:
            raise ValueError(f"it is {state}, and no End says since when")
        return start + elapsed

    def _checked(self, start: int, end: int, elapsed: int | None) -> int:
        """Return when a job ended, where Elapsed says otherwise than End."""
        if elapsed is None or abs(end - start - elapsed) <= clocks.SLACK_NS:
            return end
        self.counts["moved"] += 1
        return start + elapsed if abs(end - start - elapsed) in _CHANGES_NS else end

    def _milli(self, row: Row) -> int:
        """Return how many devices a job has or asked for, or each task of an array, in thousandths."""
        self.counts["records"] += 1
        if not any(name in row for name in DEVICES):
            return 1000 * (self.devices or 1)
        self.counts["sized"] += 1
        found, bare, sliced, others = self.size(row)
        self.sliced |= sliced
        self.counts["gpus"] += found > 0
        self.counts["bare"] += bare
        self.counts["others"] += bool(others)
        self.others |= others
        return found

    def size(self, row: Row) -> tuple[int, bool, bool, frozenset[str]]:
        """Return the devices that a record tells, in thousandths.

        Beside them, whether it names no resource at all, or slices of devices, and of one without GPUs what others.

        Raises:
            CutError: A list of resources is cut.
            ValueError: What it says cannot be read.
        """
        named = [gpus.milli(row[name]) for name in ("alloc_tres", "req_tres") if name in row]
        found = next((count for count in named if count), 0)
        if not found:
            for name in ("alloc_gres", "req_gres"):
                if name in row and not found:
                    named.append(gpus.asked(row[name], _n_nodes(row) if "gpu" in row[name] else 1))
                    found = named[-1] or 0
        if found > 1000 * fields.MOST_DEVICES:
            raise ValueError(f"{gpus.shown(found)} GPUs are more than any machine has")
        sliced = any(gpus.sliced(row.get(name, "")) for name in DEVICES)
        others = frozenset[str]()
        if not found:
            others = others.union(*(gpus.others(row.get(name, "")) for name in DEVICES))
        return found, not found and all(count is None for count in named), sliced, others

    def _add_step(self, key: str, step: str, row: Row) -> None:
        """Note a step, in case its job has no record of its own."""
        start, end = self._held(row, state := fields.state(row.get("state", "")) or "unknown")
        if start is None:
            return
        end = None if (end or 0) < 0 else end
        milli = 1000 * (self.devices or 1)
        if any(name in row for name in DEVICES):
            self.sliced |= gpus.sliced(row.get("alloc_tres", ""))
            milli = gpus.milli(row.get("alloc_tres", "")) or 0
        new = _Steps(milli, start, end, state, _STEPS.get(step, 0), step == "extern", self.word(row.get("account", "")))
        old = self._steps.setdefault(key, new)
        if end is None:
            self._going.append(old)
        if old is new:
            return
        old.milli = max(old.milli, new.milli)
        if new.whole or not old.whole:
            old.begin_ns = new.begin_ns if new.whole else min(old.begin_ns, new.begin_ns)
            both = (old.end_ns, new.end_ns)
            old.end_ns = new.end_ns if new.whole else (None if None in both else max(end for end in both if end))
            old.whole = new.whole
        if new.rank > old.rank:
            old.state, old.rank = new.state, new.rank

    def rest(self) -> None:
        """Leave each attempt of a list once, where there are twice as many records as when that was done last."""
        if len(self.kept) - self.seen.first >= self._next_of_list:
            self.seen.look(self.kept)
            self._once(self.seen.first)
            self._next_of_list = max(_FEW, 2 * (len(self.kept) - self.seen.first))

    def end_list(self) -> None:
        """Note that what follows is another list, of a moment of its own."""
        moment = self.seen.end(self.kept)
        for steps in self._going:
            steps.seen_ns = max(steps.seen_ns, moment)
        self._going, self._next_of_list = [], _FEW
        if len(self.kept) >= self._next:
            self._once()
            self._next = max(_FEW, 2 * len(self.kept))
            self.seen.first = len(self.kept)

    def all(self) -> Jobs:
        """Return the jobs in the order in which they came; then arrays in the queue; then what only steps tell."""
        while self._once():
            pass  # of two records that are now one, another may tell too
        known, (self.kept, n_in_arrays) = self.kept, self.aliases.shown(self.kept, self._arrays)
        self.counts["repeated"] += n_in_arrays
        if self._later.correct(self.kept) or self.kept is not known:
            while self._once():
                pass
        for array, n_tasks in list(self._arrays.left(self.kept, [*self._steps, *self._left_out])):
            milli = min(n_tasks * array.milli, 1000 * fields.MOST_DEVICES)
            self.kept.add(array.id, milli, (array.submit_ns, None, None), array.labels, array.name)
        self.counts["repeated"] += self._arrays.n_repeated
        for key, steps in self._steps.items():
            seen = -steps.seen_ns if steps.seen_ns else None
            moments = (None, steps.begin_ns, seen if steps.end_ns is None else steps.end_ns)
            self.kept.add(key, steps.milli, moments, (steps.state, "", steps.account, ""))
        self.seen.close(self.kept)
        return self.kept

    def _once(self, first: int = 0) -> bool:
        """Leave each attempt once of the jobs from a place on, and return whether one was there again.

        The steps of jobs that have a record are forgotten, also of one that was left out.
        """
        part = self.kept.take(np.arange(first, len(self.kept))) if first else self.kept
        left, n_repeated = slurm_attempts.once(part)
        if n_repeated and left is not None:
            self.kept = self.kept.take(np.concatenate([np.arange(first), left + first]))
            self.counts["repeated"] += n_repeated
        if self._steps:
            steps: dict[str, list[str]] = {}
            for key in self._steps:
                steps.setdefault(key.removesuffix("+0"), []).append(key)
            for ident in chain(self.kept.ids, self._left_out):
                for key in steps.pop(ident.rpartition("/")[2].removesuffix("+0"), ()):
                    del self._steps[key]
        return n_repeated > 0

    def warnings(self) -> Iterator[str]:
        """Yield what the jobs cannot say."""
        counts = self.counts
        if self._steps:
            named = ", ".join(sorted(self._steps)[:3]) + (", …" if len(self._steps) > 3 else "")
            yield f"jobs that have no record of their own and are told by their steps: {len(self._steps)} ({named})"
        if counts["repeated"]:
            yield f"records of an attempt that another record tells too, so that it counts once: {counts['repeated']}"
        if counts["sized"] < counts["records"]:
            each = f"{self.devices} devices" if self.devices else "one device"
            yield (
                f"no column tells the devices of jobs: each counts as {each}, so that device-time is the wall time of "
                "jobs; add AllocTRES (and ReqTRES) to the columns"
            )
        if counts["sized"] and not counts["gpus"] and not any(steps.milli for steps in self._steps.values()):
            yield "no job has a GPU in AllocTRES, ReqTRES or their like: what jobs held is nothing"
        if counts["bare"]:
            yield f"jobs that name no resources at all and count as without devices: {counts['bare']}"
        if counts["others"]:
            yield (
                f"jobs that have no GPU but other resources ({gpus.listed(self.others)}), which count as no devices: "
                f"{counts['others']}"
            )
        yield from self.seen.warnings()
        yield from self._arrays.warnings()
        yield from self.aliases.warnings()
        if counts["moved"]:
            yield (
                f"{counts['moved']} jobs end elsewhere than Start and Elapsed say; where clocks were put forward or "
                "back, Elapsed counts, else End"
            )
        if counts["early"]:
            yield (
                f"waits are counted from Submit; {counts['early']} jobs were not eligible at first (a dependency, a "
                f"hold, a time to begin), for {show_seconds(self.early_ns / NS_PER_S)} in all"
            )
        if self.moments.local and self.moments.zone is None:
            yield (
                "moments have no zone and are read as UTC; a job over a change to or from daylight saving time may be "
                "an hour too long or too short: give the zone with --zone, or set SLURM_TIME_FORMAT="
                "'%Y-%m-%dT%H:%M:%S%z' for the command"
            )


def _n_nodes(row: Row) -> int:
    """Return on how many nodes a job is; 1 where nobody says.

    Raises:
        CutError: Their list is cut.
    """
    for name in ("nodes", "n_nodes"):
        text = row.get(name, "")
        if text.isdecimal() and text.isascii() and 0 < len(text) < 8 and int(text):
            return int(text)
    return 1 if "nodes" in row or "n_nodes" in row else _N_LISTED[row.get("node_list", "")]


def _n_listed(text: str) -> int:
    """Return how many nodes a list names, of which a reason may stand behind it, or in its place; 1 for none."""
    names = fields.whole(text).partition(" ")[0].partition("(")[0]
    return 1 if fields.nothing(names) else max(fields.n_nodes(names), 1)


_N_LISTED: Final = fields.Short(_n_listed)


def _elapsed(row: Row) -> int | None:
    """Return how long a job had its devices, also while it was suspended [ns]; None where nobody says."""
    elapsed = fields.length(row.get("elapsed_raw", ""))
    if elapsed is None:
        elapsed = fields.length(row.get("elapsed", ""))
    if elapsed is None:
        return None
    elapsed += fields.length(row.get("suspended", "")) or 0
    if elapsed > fields.LONGEST_NS:
        raise ValueError("it and its suspension are longer than 100 years")
    return elapsed


def _never_allocated(row: Row) -> bool:
    """Return whether a job of no length is one that left the queue without having run."""
    told = [row[name] for name in ("alloc_tres", "node_list") if name in row]
    return bool(told) and all(fields.nothing(text) for text in told)
