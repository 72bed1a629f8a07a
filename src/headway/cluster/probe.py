"""What a node can do, measured on it: memory, speed of one token and of many, speed of its disk.

A measurement that fails is None, which means no information, never 0.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter_ns
from typing import Annotated, Any, Final, Self

import msgspec

from headway.clock import NS_PER_S
from headway.cluster.config import ClusterConfig, NodeConfig
from headway.errors import ClusterError

SSH_TIMEOUT_S: Final = 120.0
"""How long a node may take to answer over ssh, its measurements included [s]."""

_ROUNDS: Final = 3
_ROUND_NS: Final = 30_000_000
_DECODE_WIDTH: Final = 4096  # 64 MiB of fp32: beyond the caches, as the weights of a layer are
_PREFILL_WIDTH: Final = 2048
_PREFILL_ROWS: Final = 512
_DISK_BYTES: Final = 64_000_000
_MOST_DISK_MB_S: Final = 20_000  # faster than disks are: its pages were in memory all the same
_LEAST_DISK_BYTES: Final = 1_000_000  # a shorter read tells of the system call and not of the disk
_NO_MEASURE: Final = (ImportError, MemoryError, OSError, RuntimeError, ValueError)

_Bytes = Annotated[int, msgspec.Meta(ge=0)] | None
_Rate = Annotated[float, msgspec.Meta(gt=0)] | None


@dataclass(frozen=True, kw_only=True)
class Device:
    """Something that computes.

    Attributes:
        device: What torch calls it, such as ``cpu`` or ``cuda:0``.
        name: What its maker calls it.
        memory_bytes: Its memory [bytes].
        available_bytes: Of that, what nothing else holds [bytes].
    """

    device: str
    name: str
    memory_bytes: _Bytes = None
    available_bytes: _Bytes = None


@dataclass(frozen=True, kw_only=True)
class NodeProbe:
    """What one node can do.

    Attributes:
        addr: The node.
        host: Its machine. Nodes of one host share its memory.
        os: Operating system and kind of processor.
        cores: Cores this process may use.
        threads: Threads the speed was measured with; None where the library chose.
        device: What the speed was measured on.
        devices: All there are, the CPU first.
        ram_bytes: Memory, or the limit of the control group where that is less [bytes].
        available_bytes: Of that, what can be taken [bytes].
        disk_free_bytes: Room on the disk of the checkpoint [bytes].
        gflops: Product of a matrix and a vector, fp32, as one decoded token needs it [GFLOP/s].
        gflops_prefill: Product of a matrix and one of 512 rows, fp32, as a prompt needs it [GFLOP/s].
        disk_mb_s: Reading of the checkpoint from pages that were not in memory [MB/s].

    Example:
        >>> probe = NodeProbe(addr="n0", host="h", os="Linux x86_64", ram_bytes=8 * 10**9)
        >>> NodeProbe.from_json(probe.to_json()) == probe
        True
    """

    addr: str
    host: str
    os: str
    cores: Annotated[int, msgspec.Meta(ge=1)] | None = None
    threads: Annotated[int, msgspec.Meta(ge=1)] | None = None
    device: str = "cpu"
    devices: tuple[Device, ...] = ()
    ram_bytes: _Bytes = None
    available_bytes: _Bytes = None
    disk_free_bytes: _Bytes = None
    gflops: _Rate = None
    gflops_prefill: _Rate = None
    disk_mb_s: _Rate = None

    def memory_of(self, device: str) -> tuple[int | None, int | None]:
        """Return memory and available memory of one of its devices [bytes]; (None, None) of one it does not have."""
        if device == "cpu":
            return self.ram_bytes, self.available_bytes
        for one in self.devices:
            if one.device == _numbered(device):
                return one.memory_bytes, one.available_bytes
        return None, None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON types."""
        return msgspec.json.decode(msgspec.json.encode(self))  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str | bytes) -> Self:
        """Return the probe that `to_json` gave; unknown keys are passed over.

        Args:
            data: The mapping, or its JSON text.

        Raises:
            ClusterError: It is no JSON object, or a field is missing or has a value it cannot have.
        """
        try:
            if isinstance(data, str | bytes):
                return msgspec.json.decode(data, type=cls)
            return msgspec.convert(dict(data), cls)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ClusterError(
                f"Cannot read the probe of a node: {error}",
                "Give what `headway cluster probe --json` printed, of the same version",
                "bad-probe",
            ) from error


def probe(config: ClusterConfig, timeout_s: float = SSH_TIMEOUT_S) -> dict[str, NodeProbe]:
    """Measure every node that may get layers, hosts side by side and the nodes of one host one after another.

    A host is measured once for each device and checkpoint folder that its nodes name, with as many threads as a
    worker gets there.

    Args:
        config: Its nodes; those that drain are left out.
        timeout_s: How long a host may take to answer over ssh [s].

    Returns:
        A probe by `addr`.

    Raises:
        ClusterError: A host cannot be reached, or answers something else.
    """
    hosts: dict[str | None, list[NodeConfig]] = {}
    for node in config.nodes:
        if node.role != "draining":
            hosts.setdefault(node.ssh, []).append(node)
    with ThreadPoolExecutor(max_workers=min(32, len(hosts) or 1)) as pool:
        measured = pool.map(lambda nodes: _probe_host(config, nodes, timeout_s), hosts.values())
        found = {one.addr: one for several in measured for one in several}
    return {node.addr: found[node.addr] for node in config.nodes if node.addr in found}


def probe_here(
    addr: str, folder: str | Path | None = None, threads: int | None = None, device: str = "cpu"
) -> NodeProbe:
    """Measure this machine.

    Args:
        addr: What the node is called.
        folder: Its checkpoint; None: its disk is not measured.
        threads: Threads of the products; None: all cores.
        device: What to measure, ``cpu``, ``cuda`` or ``cuda:N``.
    """
    threads = threads or _cores()
    multiplier = _torch_products if _has_torch() else _numpy_products
    ram_bytes, available_bytes = memory()
    cpu = Device(device="cpu", name=platform.machine(), memory_bytes=ram_bytes, available_bytes=available_bytes)
    return NodeProbe(
        addr=addr,
        host=_host(),
        os=f"{platform.system()} {platform.machine()}",
        cores=_cores(),
        threads=threads if multiplier is _torch_products else None,
        device=device,
        devices=(cpu, *(_attempt(_cuda) or ())),
        ram_bytes=ram_bytes,
        available_bytes=available_bytes,
        disk_free_bytes=_attempt(lambda: shutil.disk_usage(folder or ".").free),
        gflops=_attempt(lambda: multiplier(device, threads, 1)),
        gflops_prefill=_attempt(lambda: multiplier(device, threads, _PREFILL_ROWS)),
        disk_mb_s=None if folder is None else _attempt(lambda: _disk_rate(Path(folder))),
    )


def memory(root: Path = Path("/")) -> tuple[int | None, int | None]:
    """Return the memory of this machine and what of it can be taken, within the limits of the control group [bytes].

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    total, available = _machine_memory(root)
    for limit, used in _group_limits(root):
        total = limit if total is None else min(total, limit)
        if used is not None:
            left = limit - min(used, limit)
            available = left if available is None else min(available, left)
    return total, available


def _machine_memory(root: Path) -> tuple[int | None, int | None]:
    lines = (_text(root / "proc/meminfo") or "").splitlines()
    kib = {words[0]: int(words[1]) for line in lines if len(words := line.split()) > 1 and words[1].isdecimal()}
    if "MemTotal:" in kib:
        available = kib.get("MemAvailable:")
        return kib["MemTotal:"] * 1024, None if available is None else available * 1024
    names = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")
    pages, size = (os.sysconf(name) if name in os.sysconf_names else -1 for name in names)
    return (pages * size if pages > 0 and size > 0 else None), None


def _group_limits(root: Path) -> Iterator[tuple[int, int | None]]:
    """Yield limit and use of the control group and of each above it [bytes]; pages of files that can go aside."""
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds == "":
            base, limit, used, idle = "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in kinds.split(","):
            base, limit, used = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            idle = "total_inactive_file"
        else:
            continue
        parts = [part for part in path.split("/") if part not in {"", "..", "."}]
        for depth in range(len(parts), -1, -1):
            group = (root / base).joinpath(*parts[:depth])
            most, now = (_text(group / name) or "" for name in (limit, used))
            if most.strip().isdecimal():
                stat = dict(
                    line.split()[:2] for line in (_text(group / "memory.stat") or "").splitlines() if " " in line
                )
                yield int(most), int(now) - int(stat.get(idle, 0)) if now.strip().isdecimal() else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeError):
        return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _host() -> str:
    """Return a name of this machine that no other has: names alone are often equal."""
    boot = (_text(Path("/proc/sys/kernel/random/boot_id")) or "").strip()
    return f"{socket.gethostname()}/{boot[:8]}" if boot else socket.gethostname()


def _attempt(measure: Callable[[], Any]) -> Any:
    """Return what a measurement gives; None if it fails."""
    try:
        return measure()
    except _NO_MEASURE:
        return None


def _has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def _numbered(device: str) -> str:
    return "cuda:0" if device == "cuda" else device


def _cuda() -> tuple[Device, ...]:
    import torch

    found = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, whole = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        found.append(Device(device=f"cuda:{number}", name=name, memory_bytes=whole, available_bytes=free))
    return tuple(found)


def _best_rate(amount: float, work: Callable[[], Any]) -> float:
    """Return the highest of three rates, each over 30 ms at least [amount / s]; what came before is warm-up."""
    work()
    rates = []
    for _ in range(_ROUNDS):
        began, times = perf_counter_ns(), 0
        while (took := perf_counter_ns() - began) < _ROUND_NS or not times:
            work()
            times += 1
        rates.append(amount * times / took * NS_PER_S)
    return max(rates)


def _torch_products(device: str, threads: int, rows: int) -> float:
    """Return the rate of ``(rows, n) @ (n, n)`` with torch [GFLOP/s]."""
    import torch

    width = _width(rows)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        weight, inputs = torch.ones(width, width, device=device), torch.ones(rows, width, device=device)

        def multiply() -> None:
            torch.nn.functional.linear(inputs, weight)
            if device != "cpu":
                torch.cuda.synchronize(device)

        with torch.inference_mode():
            return _best_rate(2e-9 * rows * width * width, multiply)
    finally:
        torch.set_num_threads(before)


def _numpy_products(device: str, _threads: int, rows: int) -> float:
    """Return the rate of ``(rows, n) @ (n, n)`` with NumPy, whose library chooses its threads [GFLOP/s]."""
    import numpy as np

    if device != "cpu":
        raise ValueError(device)
    width = _width(rows)
    weight, inputs = np.ones((width, width), np.float32), np.ones((rows, width), np.float32)
    return _best_rate(2e-9 * rows * width * width, lambda: inputs @ weight.T)


def _width(rows: int) -> int:
    return _DECODE_WIDTH if rows == 1 else _PREFILL_WIDTH


def _disk_rate(folder: Path) -> float | None:
    """Return how fast the largest weight file is read after its pages were given up [MB/s]."""
    if not hasattr(os, "posix_fadvise"):
        return None
    path = max(folder.glob("*.safetensors"), key=lambda one: one.stat().st_size)
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, _DISK_BYTES, os.POSIX_FADV_DONTNEED)
        began, n_read = perf_counter_ns(), 0
        while n_read < _DISK_BYTES and (part := file.read(1 << 20)):
            n_read += len(part)
        rate = n_read / 1e6 / ((perf_counter_ns() - began) / NS_PER_S)
    return rate if n_read >= _LEAST_DISK_BYTES and rate <= _MOST_DISK_MB_S else None


def _probe_host(config: ClusterConfig, nodes: list[NodeConfig], timeout_s: float) -> list[NodeProbe]:
    """Return a probe for each node of one host, measured once for each device and folder."""
    measured: dict[tuple[str, str], NodeProbe] = {}
    found = []
    for node in nodes:
        key = _numbered(node.device), node.ckpt_dir or config.model
        if key not in measured and node.ssh is None:
            threads = config.threads or max(1, _cores() // len(nodes))
            measured[key] = probe_here(node.addr, key[1], threads, key[0])
        elif key not in measured:
            measured[key] = _probe_over_ssh(node, key[1], config.threads, timeout_s)
        found.append(replace(measured[key], addr=node.addr))
    return found


def _probe_over_ssh(node: NodeConfig, folder: str, threads: int | None, timeout_s: float) -> NodeProbe:
    """Return what Headway on another machine says of it."""
    host = node.ssh or ""
    if not host or host.startswith("-"):
        raise _unreached(node, "a host that ssh can reach does not begin with a dash")
    asked = ["headway", "cluster", "probe", "--here", "--json", "--device", node.device, "--folder", folder]
    asked += [] if threads is None else ["--threads", str(threads)]
    command = ["ssh", "-o", "BatchMode=yes", host, shlex.join(asked)]
    try:
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise _unreached(node, f"no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise _unreached(node, f"ssh cannot be started ({error.strerror})") from error
    if answer.returncode:
        words = answer.stderr.decode(errors="replace").split()
        raise _unreached(node, f"ssh ended with {answer.returncode}: {' '.join(words)[-200:] or 'without a word'}")
    try:
        return NodeProbe.from_json(answer.stdout[max(answer.stdout.find(b"{"), 0) :])
    except ClusterError as error:
        raise _unreached(node, f"its answer is no probe ({error.what.partition(': ')[2]})") from error


def _unreached(node: NodeConfig, found: str) -> ClusterError:
    return ClusterError(
        f"Cannot probe the node {node.addr} by ssh {node.ssh!r}: {found}",
        f"Make `ssh -o BatchMode=yes {node.ssh} headway --version` work, with this version of Headway there",
        "unreached-node",
        addr=node.addr,
        ssh=node.ssh,
    )
