"""How many GPUs Slurm's lists of resources name, in thousandths: a slice of one is a share of it."""

from __future__ import annotations

import re
from typing import Final

from headway.sources.slurm.fields import MOST_DEVICES, Short, nothing, whole

_GPU: Final = re.compile(r"(?:gres[/:])?gpu(?:[:=](?!\d+$)([^:=]+))?(?::no_consume)?(?:([:=])(\d+))?", re.ASCII)
_OTHER: Final = re.compile(
    r"(?:(?:gres|license|bb|fs|ic|interconnect)[/:])?(?!gpu(?:[:=]|$)|PER_)[\w.@-]+(?::[\w.-]+)?(?:[:=][\d.]+\w{0,2})?",
    re.ASCII,
)
"""A resource that is no GPU, though its name may have one in it."""
_PER: Final = re.compile(r"PER_([A-Z]+):(.*)", re.ASCII | re.DOTALL)
_IN_BRACKETS: Final = re.compile(r"\([^)]*\)?")
_SLICE: Final = re.compile(r"(?<![A-Za-z0-9])([1-7])g\.(\d{1,3})gb(?![A-Za-z0-9])", re.ASCII | re.IGNORECASE)
_SEVENTHS: Final = 7
_INSTANCES: Final = {
    ("1", "6"): 4, ("2", "12"): 4, ("4", "24"): 4, ("2", "48"): 4, ("4", "96"): 4, ("1", "16"): 2, ("2", "32"): 2,
}  # fmt: skip
"""Slices and gigabytes that tell a device of fewer than seven: an A30, an RTX PRO 6000, an RTX PRO 4500.

Source: NVIDIA MIG User Guide, Supported GPUs and Supported MIG Profiles; NVIDIA vGPU types (2026-11).
"""
_NAMED: Final = {"a30": 4, "pro6000": 4, "pro5000": 2, "pro4500": 2}
"""Into how many slices devices can be divided whose names have this in them; of all others, seven."""
_NAME: Final = re.compile(r"(?<![a-z0-9])(?:a30|pro[ _-]?(?:6000|5000|4500))(?![a-z0-9])", re.IGNORECASE)
_KIND: Final = re.compile(r"(gres[/:])?([A-Za-z]\w{0,30})(?:[:=]|$)", re.ASCII)
_NO_DEVICES: Final = frozenset(
    {"gpu", "gpumem", "gpuutil", "nvme", "ssd", "disk", "tmp", "tmpdisk", "tmpfs", "scratch", "lscratch", "localtmp"}
    | {"nic", "hca", "craynetwork", "bandwidth", "VramPerGpu", "none", "N"}
)
"""Generic resources that are no devices, or are told of GPUs."""
_PARTS: Final = 28
"""A seventh, a quarter and a half are whole numbers of such parts of a device."""


def milli(text: str) -> int | None:
    """Return how many GPUs a list of resources names [1/1000]; None where it names no resource at all.

    A total such as ``gres/gpu=8`` counts, else its kinds such as ``gres/gpu:h100=8`` are added up. Slices (MIG) are
    one device each in a total; where kinds say which are slices, one of N g is N/7 of a device, of an A30 or RTX PRO
    6000 N/4, of smaller ones N/2, rounded down, so that jobs never have more of a device than there is.

    Raises:
        CutError: The list is cut.
        ValueError: There are more than any machine has, or what is said of GPUs cannot be read.

    Example:
        >>> milli("billing=97,gres/gpu=8,gres/gpu:h100=8"), milli("gpu:ampere:8(S:0-1)"), milli("cpu=4"), milli("")
        (8000, 8000, 0, None)
        >>> milli("gres/gpu=3,gres/gpu:a100=2,gres/gpu:a100_3g.20gb=1"), milli("gpu:1g.5gb:7"), milli("gpu:2g.12gb:1")
        (2428, 1000, 500)
    """
    return _MILLI[text]


def _milli(text: str) -> int | None:
    if "gpu" not in whole(text):
        return None if nothing(text) else 0
    total, kinds, n_slices, parts = None, 0, 0, 0
    for item in _IN_BRACKETS.sub("", text).replace("::", ":").split(","):
        if "gpu" not in item:
            continue
        if not (match := _GPU.fullmatch(item.strip())):
            if not _OTHER.fullmatch(item.strip()):
                raise ValueError(f"{item.strip()[:40]} is no number of GPUs")
            continue
        kind, sign, count = match.groups()
        if count and (len(count) > 8 or int(count) > MOST_DEVICES):
            raise ValueError(f"{count[:40]} GPUs are more than any machine has")
        if sign == "=" and not kind:
            total = int(count)
        elif share := _share(kind or ""):
            n_slices += int(count or 1)
            parts += int(count or 1) * share
        else:
            kinds += int(count or 1)
    n_whole = kinds if total is None else max(total - n_slices, 0)
    return 1000 * n_whole + 1000 * parts // _PARTS


_MILLI: Final = Short(_milli)


def _share(kind: str) -> int:
    """Return which share of a device a kind is [1/28]; 0 where it is none of slices."""
    match = _SLICE.search(kind)
    if not match:
        return 0
    named = _NAME.search(kind)
    n_of = _NAMED[re.sub("[ _-]", "", named[0].lower())] if named else _INSTANCES.get((match[1], match[2]), _SEVENTHS)
    return min(int(match[1]), n_of) * _PARTS // n_of


def sliced(text: str) -> bool:
    """Return whether a list of resources names slices of devices.

    Example:
        >>> sliced("gres/gpu:a100_1g.5gb=1"), sliced("gpu:a100:1,mem=5g")
        (True, False)
    """
    return "g." in text and "gpu" in text and _SLICE.search(text) is not None


def others(text: str) -> frozenset[str]:
    """Return the kinds of generic resources that a list names beside GPUs, other than disks and networks.

    Example:
        >>> sorted(others("cpu=8,gres/npu:910b=8,gres/dcu=4,gres/gpumem=9,gres/shard=0,node=1"))
        ['dcu', 'npu']
        >>> sorted(others("npu:8(S:0-1),lscratch:100")), sorted(others("(null)"))
        (['npu'], [])
    """
    bare = "=" not in text
    if not bare and "gres" not in text:
        return frozenset()
    found = set()
    for item in _IN_BRACKETS.sub("", text).split(","):
        name, zeros = item.strip(), item.strip().rstrip("0")
        match = _KIND.match(name)
        if match and (match[1] or (bare and ":" in name)) and (zeros == name or zeros[-1:] not in {":", "="}):
            found.add(match[2])
    return frozenset(found) - _NO_DEVICES


def listed(kinds: set[str]) -> str:
    """Return some kinds of resources as words: the first few of them.

    Example:
        >>> listed({"npu", "dcu"}), listed(set("abcdefg"))
        ('dcu, npu', 'a, b, c, d, e, …')
    """
    return ", ".join(sorted(kinds)[:5]) + ", …" * (len(kinds) > 5)


def shown(amount: int) -> str:
    """Return thousandths of a device as devices.

    Example:
        >>> shown(8000), shown(2428)
        ('8', '2.428')
    """
    return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")


def asked(text: str, n_nodes: int) -> int | None:
    """Return how many GPUs a list names that is of each node (``PER_NODE:gpu:4``) or of the job [1/1000].

    Raises:
        CutError: The list is cut.
        ValueError: What is said of GPUs cannot be read, or is of each task or socket.

    Example:
        >>> asked("gres:gpu:4", 2), asked("PER_NODE:gpu:4", 2), asked("PER_JOB:gpu:8", 2), asked("N/A", 2)
        (8000, 8000, 8000, None)
    """
    if "PER_" not in text:
        count = milli(text)
        return None if count is None else count * n_nodes
    by: dict[str, list[str]] = {}
    scope = "NODE"
    for item in whole(text).split(","):
        if match := _PER.fullmatch(item.strip()):
            scope = match[1]
        by.setdefault(scope, []).append(match[2] if match else item)
    counts = {scope: milli(",".join(items)) or 0 for scope, items in by.items()}
    for scope, count in counts.items():
        if count and scope not in {"NODE", "JOB"}:
            raise ValueError(f"{text[:40]}: how many that is in all is not told")
    return counts.get("JOB", 0) or counts.get("NODE", 0) * n_nodes
