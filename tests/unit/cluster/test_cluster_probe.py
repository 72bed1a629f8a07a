"""A node's probe: memory within control groups, rates by the clock, ssh by a script that stands in for it."""

import builtins
import json
import os

import pytest

from headway.cluster import probe as probing
from headway.cluster.config import ClusterConfig, NodeConfig
from headway.cluster.probe import Device, NodeProbe, memory, probe, probe_here
from headway.errors import ClusterError

GIB = 1 << 30
CANNED = NodeProbe(addr="elsewhere", host="far", os="Linux", cores=8, ram_bytes=5, gflops=2.5).to_json()


@pytest.fixture
def quick(monkeypatch):
    """Products so small that they take no time; their rates mean nothing."""
    monkeypatch.setattr(probing, "_DECODE_WIDTH", 16)
    monkeypatch.setattr(probing, "_PREFILL_WIDTH", 16)
    monkeypatch.setattr(probing, "_ROUND_NS", 1000)


def system(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": f"MemTotal: {16 * GIB // 1024} kB\nMemFree: 1 kB\nMemAvailable: {12 * GIB // 1024} kB\n"}


def test_memory_is_that_of_the_machine_without_a_control_group(tmp_path):
    assert memory(system(tmp_path, MEMINFO)) == (16 * GIB, 12 * GIB)


def test_memory_is_within_the_limits_of_a_control_group_and_of_those_above_it(tmp_path):
    files = MEMINFO | {
        "proc/self/cgroup": "0::/pod/box\n",
        "sys/fs/cgroup/pod/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/pod/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/pod/memory.stat": f"anon 5\ninactive_file {GIB}\n",
        "sys/fs/cgroup/pod/box/memory.max": "max\n",
        "sys/fs/cgroup/pod/box/memory.current": "7\n",
    }
    assert memory(system(tmp_path, files)) == (4 * GIB, 2 * GIB)


def test_the_older_kind_of_control_group_counts_as_well(tmp_path):
    files = MEMINFO | {
        "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/not/seen/in/here\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}",
    }
    assert memory(system(tmp_path, files)) == (2 * GIB, GIB)
    (tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712")
    assert memory(tmp_path) == (16 * GIB, 12 * GIB)


def test_a_group_over_its_limit_has_nothing_left(tmp_path):
    files = MEMINFO | {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": "100",
        "sys/fs/cgroup/memory.current": "120",
    }
    assert memory(system(tmp_path, files)) == (100, 0)


def test_without_proc_the_system_is_asked_and_may_not_know(tmp_path, monkeypatch):
    whole, available = memory(tmp_path)
    assert (whole or 0) > 0
    assert available is None
    monkeypatch.setattr(probing.os, "sysconf_names", {})
    assert memory(tmp_path) == (None, None)


def test_this_machine_is_measured(tmp_path):
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(os.urandom(1000) * 2000)
    found = probe_here("n0", tmp_path, threads=1)
    assert (found.addr, found.device, found.devices[0].device) == ("n0", "cpu", "cpu")
    assert 0 < found.available_bytes <= found.ram_bytes
    assert found.gflops > 0
    assert found.gflops_prefill > 0
    assert found.disk_free_bytes > 0
    assert found.disk_mb_s is None or found.disk_mb_s > 0
    assert NodeProbe.from_json(json.dumps(found.to_json())) == found


def test_without_torch_numpy_measures_and_threads_are_unknown(monkeypatch, quick):
    real = builtins.__import__

    def no_torch(name, *args, **kwargs):
        if name == "torch":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_torch)
    found = probe_here("n0")
    assert found.gflops > 0
    assert found.threads is None
    assert [one.device for one in found.devices] == ["cpu"]
    assert probe_here("n0", device="cuda").gflops is None


def test_torch_gets_the_threads_and_its_own_back(quick):
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    assert probe_here("n0", threads=1).threads == 1
    assert torch.get_num_threads() == before


def test_a_file_that_stays_in_memory_tells_nothing_of_the_disk(tmp_path, monkeypatch):
    (tmp_path / "model.safetensors").write_bytes(bytes(2_000_000))
    monkeypatch.setattr(probing, "_MOST_DISK_MB_S", 1e-3)
    assert probing._disk_rate(tmp_path) is None
    monkeypatch.setattr(probing, "_MOST_DISK_MB_S", 1e12)
    assert probing._disk_rate(tmp_path) > 0


def test_what_cannot_be_measured_is_unknown(tmp_path, monkeypatch, quick):
    assert probe_here("n0").disk_mb_s is None
    assert probe_here("n0", tmp_path).disk_mb_s is None
    (tmp_path / "model.safetensors").write_bytes(b"short")
    assert probe_here("n0", tmp_path).disk_mb_s is None
    lost = probe_here("n0", tmp_path / "lost")
    assert (lost.disk_mb_s, lost.disk_free_bytes) == (None, None)

    def fails(*_):
        raise RuntimeError

    monkeypatch.setattr(probing, "_best_rate", fails)
    assert (probe_here("n0").gflops, probe_here("n0").gflops_prefill) == (None, None)


def test_the_best_of_three_rounds_counts(monkeypatch):
    """Work of 10 units: rounds of 4 x 10 ms, 1 x 50 ms and 3 x 12 ms, after one warm-up."""
    clock = iter([0, 0, 10, 20, 30, 100, 100, 150, 200, 200, 212, 224, 236])
    monkeypatch.setattr(probing, "perf_counter_ns", lambda: next(clock) * 1_000_000)
    calls = []
    assert probing._best_rate(10.0, lambda: calls.append(1)) == pytest.approx(1000.0)
    assert len(calls) == 1 + 3 + 1 + 3


def test_memory_of_a_device():
    card = Device(device="cuda:0", name="x", memory_bytes=9, available_bytes=8)
    found = NodeProbe(addr="a", host="h", os="x", ram_bytes=4, available_bytes=3, devices=(card,))
    assert [found.memory_of(one) for one in ("cpu", "cuda", "cuda:0", "cuda:1")] == [
        (4, 3),
        (9, 8),
        (9, 8),
        (None, None),
    ]


@pytest.mark.parametrize(
    "data",
    [
        *("", "[]", "{}", b"\xff", "[" * 100_000, {"addr": "a"}),
        *(CANNED | change for change in ({"gflops": 0}, {"gflops": "fast"}, {"ram_bytes": -1}, {"devices": 3})),
    ],
    ids=lambda data: str(data)[-30:],
)
def test_what_is_no_probe_is_refused(data):
    with pytest.raises(ClusterError, match="bad-probe"):
        NodeProbe.from_json(data)


def test_a_later_version_may_say_more():
    assert NodeProbe.from_json(CANNED | {"more": 1}).cores == 8


def config_of(*nodes, **told):
    return ClusterConfig(model="/some folder", nodes=tuple(NodeConfig(**node) for node in nodes), **told)


def stand_in(folder, monkeypatch, script):
    """Put a script in the place of ssh; it writes its arguments to a file."""
    path = folder / "ssh"
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {folder}/asked\n{script}\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "asked"


def test_a_node_with_ssh_answers_for_itself(tmp_path, monkeypatch):
    asked = stand_in(tmp_path, monkeypatch, f"echo Welcome; echo '{json.dumps(CANNED)}'")
    config = config_of({"addr": "a", "ssh": "me@far"}, {"addr": "b", "ssh": "me@far"}, threads=3)
    found = probe(config)
    assert [(addr, one.addr, one.host, one.gflops) for addr, one in found.items()] == [
        ("a", "a", "far", 2.5),
        ("b", "b", "far", 2.5),
    ]
    command = "headway cluster probe --here --json --device cpu --folder '/some folder' --threads 3"
    assert asked.read_text().splitlines() == ["-o", "BatchMode=yes", "me@far", command]


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("echo 'Permission denied' >&2; exit 255", "ssh ended with 255: Permission denied"),
        ("exit 127", "without a word"),
        ("echo hello", "its answer is no probe"),
        ("echo '{\"addr\": 3}'", "its answer is no probe"),
        ("exec sleep 20", "no answer within 0.2 s"),
    ],
)
def test_a_node_that_does_not_answer_is_named(tmp_path, monkeypatch, script, word):
    stand_in(tmp_path, monkeypatch, script)
    with pytest.raises(ClusterError, match="unreached-node") as caught:
        probe(config_of({"addr": "a", "ssh": "far"}), timeout_s=0.2 if "sleep" in script else 20)
    assert "the node a by ssh 'far'" in str(caught.value)
    assert word in str(caught.value)


def test_a_missing_ssh_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="ssh cannot be started"):
        probe(config_of({"addr": "a", "ssh": "far"}))


def test_a_host_that_looks_like_an_option_is_never_given_to_ssh():
    node = NodeConfig(addr="a", ssh="far")
    object.__setattr__(node, "ssh", "-oProxyCommand=touch x")
    with pytest.raises(ClusterError, match="dash"):
        probing._probe_over_ssh(node, "m", None, 1.0)


def test_nodes_of_this_machine_are_measured_once_for_each_device(monkeypatch):
    calls = []

    def measured(addr, folder, threads, device):
        calls.append((folder, threads, device))
        return NodeProbe(addr=addr, host="here", os="x", device=device)

    monkeypatch.setattr(probing, "probe_here", measured)
    monkeypatch.setattr(probing, "_cores", lambda: 9)
    nodes = [{"addr": "a"}, {"addr": "b"}, {"addr": "c", "device": "cuda"}, {"addr": "d", "device": "cuda:0"}]
    found = probe(config_of(*nodes, {"addr": "e", "role": "draining"}))
    assert {addr: one.device for addr, one in found.items()} == {"a": "cpu", "b": "cpu", "c": "cuda:0", "d": "cuda:0"}
    assert calls == [("/some folder", 2, "cpu"), ("/some folder", 2, "cuda:0")]
