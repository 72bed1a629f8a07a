"""Real workers that are killed, stopped, or fail: who is named how soon, who goes on, and that nothing stays behind."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from headway import account
from headway.cluster.cluster import Cluster
from headway.cluster.config import ClusterConfig
from headway.cluster.launch.launcher import Meeting
from headway.errors import ClusterError
from headway.sources import load

from unit.cluster.processes import LOOPBACK, listening, lives, until, workers_of
from unit.cluster.small_models import make

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")

HEARTBEAT_S = 1.5
SOON_S = 1.0
STEPS = 120
IDS = np.random.default_rng(0).integers(0, 96, (2, 7))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make(tmp_path_factory.mktemp("model"), num_hidden_layers=6, max_position_embeddings=2048)


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path, monkeypatch):
    """No test leaves a worker, a folder of output, or shared memory."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = Meeting.command  # workers say often how far they are, and are waited for as long as ever
    monkeypatch.setattr(Meeting, "command", lambda self, addr: command(replace(self, heartbeat_s=0.1), addr))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shared = shared_memory()
    yield
    until(lambda: not workers_of(os.getpid()))
    assert list(tmp_path.glob("headway-cluster-*")) == []
    assert shared_memory() <= shared


def shared_memory():
    """Return what there is of it, but for what a worker has none of: the locks of multiprocessing."""
    return {path for path in Path("/dev/shm").iterdir() if not path.name.startswith("sem.mp-")}


@dataclass
class Fault:
    """The `watch` of a cluster: once the drive is under way, something happens to workers."""

    act: object = None
    at_s: float | None = None
    later: list = field(default_factory=list)  # (condition, act): once the one before has happened

    def __call__(self, cluster):
        if self.act is not None and under_way(cluster):
            self.at_s, act, self.act = time.monotonic(), self.act, None
            act(cluster)
        elif self.at_s is not None and self.later and self.later[0][0](cluster):
            _, act = self.later.pop(0)
            act(cluster)


def under_way(cluster):
    return all(one.forwards > 2 for one in cluster.state() if one.layers is not None and one.doing == "driving")


def pid_of(cluster, addr):
    return cluster._coordinator.hub.hellos[addr].pid


def send(number, *addrs):
    def act(cluster):
        for addr in addrs:
            os.kill(pid_of(cluster, addr), number)

    return act


def config(model, tmp_path, nodes, **given):
    """Return the configuration of these nodes, ``name`` or ``name: standby_for`` or ``name: *`` each."""
    text = [f"model = {str(model)!r}\nlog_dir = {str(tmp_path / 'logs')!r}\nreserve_ram_gb = 0\nthreads = 1"]
    text += [f"{key} = {value!r}" for key, value in ({"heartbeat_s": HEARTBEAT_S, "timeout_s": 20.0} | given).items()]
    for node in nodes.split():
        addr, _, mirrored = node.partition(":")
        text.append(f"[[node]]\naddr = {addr!r}\nprecision = 'fp32'\nmax_ram_gb = 1.0")
        if mirrored:
            text.append("role = 'standby'" + ("" if mirrored == "*" else f"\nstandby_for = {mirrored!r}"))
    return ClusterConfig.from_toml("\n".join(text))


@contextlib.contextmanager
def launched(model, tmp_path, nodes, **given):
    """Launch a cluster whose workers a `Fault` befalls."""
    fault = [Fault()]
    with Cluster(config(model, tmp_path, nodes, **given), lambda it: fault[0](it)) as cluster:  # noqa: PLW0108 - changes
        cluster.plan({})
        cluster.launch()

        def drive(act=None, later=(), **more):
            fault[0] = Fault(act, later=list(later))
            try:
                return cluster.drive(IDS, steps=STEPS, **more)
            finally:
                drive.took_s = time.monotonic() - (fault[0].at_s or 0.0)
                assert fault[0].act is None, "the drive was over before"
                assert not fault[0].later

        yield cluster, drive


def same(run, other):
    return run.tokens == other.tokens and np.array_equal(run.logits, other.logits)


def balances(cluster):
    """Return the seconds of the run's log by category, which account for all of its time."""
    (run,) = load(cluster.log_root)
    seconds = account(run).seconds
    assert seconds.get("unaccounted", 0.0) < 0.01 * sum(seconds.values())
    return seconds


def test_a_run_outlives_its_workers_one_after_another(model, tmp_path, record_property):
    """The middle, the first and the last stage are lost: killed, stopped, and while nothing runs."""
    nodes = "n0 n1 n2 a:n1 b:n0 c:*"
    with launched(model, tmp_path, nodes) as (cluster, drive):
        pids = {addr: pid_of(cluster, addr) for addr in cluster._coordinator.hub.hellos}
        assert all(set(listening(pid)) <= {LOOPBACK} for pid in (os.getpid(), *pids.values()))
        reports = dict(cluster.reports)
        began = time.monotonic()
        undisturbed = drive(mode="pipelined", micro_batches=2)
        whole_s = time.monotonic() - began
        assert undisturbed.recovered == ()

        run = drive(send(signal.SIGKILL, "n1"), mode="pipelined", micro_batches=2)
        record_property("recovered_killed_s", drive.took_s - whole_s)
        layers = "{0.start}..{0.stop}".format(reports["n1"].layers)
        assert run.recovered == (f"n1 (layers {layers}) was lost: killed by SIGKILL; a took its place",)
        assert same(run, undisturbed)
        assert [one.addr for one in run.timings] == ["n0", "a", "n2"]
        assert [one.addr for one in cluster.state()] == ["n0", "a", "n2", "b", "c"]

        run = drive(send(signal.SIGSTOP, "n0"), mode="pipelined", micro_batches=2)
        record_property("recovered_stopped_s", drive.took_s - whole_s)
        (said,) = run.recovered
        assert said.endswith(f"was lost: hung: no sign of life for {HEARTBEAT_S:g} s; b took its place")
        assert same(run, undisturbed)
        assert not lives(pids["n0"])

        os.kill(pids["n2"], signal.SIGKILL)  # while nothing runs; its heir has built nothing yet
        run = drive(mode="pipelined", micro_batches=2)
        assert run.recovered[0].endswith("killed by SIGKILL; c took its place")
        assert same(run, undisturbed)

        # who was left did not build a second time, nor start
        assert {addr: pid_of(cluster, addr) for addr in pids} == pids
        assert {addr: cluster.reports[addr] for addr in reports} == reports
        assert same(drive(mode="pipelined", micro_batches=2), undisturbed)
        assert set(cluster._coordinator.lost) == {"n0", "n1", "n2"}
    seconds = balances(cluster)
    record_property("seconds", json.dumps(seconds))
    assert seconds["rework"] > 0


def test_losses_at_once_and_of_those_that_stand_in(model, tmp_path):
    nodes = "n0 n1 a:n0 b:* c:* d:n0"
    with launched(model, tmp_path, nodes) as (cluster, drive):
        undisturbed = drive()
        os.kill(pid_of(cluster, "d"), signal.SIGKILL)  # a standby, while nothing runs
        assert drive().recovered == ()

        def seated(addr):
            return lambda it: addr in it._seats()

        # both stages at once; one heir while the group forms, the other while it builds
        run = drive(send(signal.SIGKILL, "n0", "n1"), later=[(seated("a"), send(signal.SIGKILL, "a"))])
        assert same(run, undisturbed)
        assert sorted(one.partition(" ")[0] for one in run.recovered) == ["a", "n0", "n1"]
        assert sorted(one.addr for one in run.timings) == ["b", "c"]
        with pytest.raises(ClusterError, match=r"Cannot go on: lost b .*retire\(\"b\"\).*\[node-lost\]"):
            drive(send(signal.SIGKILL, "b"))
    balances(cluster)


def test_without_a_standby_a_loss_is_named_at_once_and_retiring_goes_on(model, tmp_path, record_property):
    with launched(model, tmp_path, "n0 n1 n2 n3") as (cluster, drive):
        undisturbed = drive()
        layers = "{0.start}..{0.stop}".format(cluster.reports["n1"].layers)

        killed = pid_of(cluster, "n1")
        with pytest.raises(ClusterError, match=r"\[node-lost\]") as first:
            drive(send(signal.SIGKILL, "n1"))
        record_property("named_killed_s", drive.took_s)
        assert drive.took_s < SOON_S
        assert str(first.value) == (
            f"Cannot go on: lost n1 (layers {layers}): killed by SIGKILL; no standby holds these layers. "
            'Add a [[node]] with role = "standby" and standby_for = "n1", or go on without it: give it '
            'role = "draining", or in Python call cluster.retire("n1"). [node-lost]'
        )
        began = time.monotonic()
        with pytest.raises(ClusterError) as second:
            drive()
        assert str(second.value) == str(first.value)
        assert time.monotonic() - began < 0.1
        assert not lives(killed)
        cluster.retire("n1")
        assert same(drive(), undisturbed)

        # one that is stopped for less than a heartbeat is none the worse
        slow = pid_of(cluster, "n2")
        stopped = []

        def is_over(_):
            return time.monotonic() - stopped[0] > HEARTBEAT_S / 3

        def stop(it):
            stopped.append(time.monotonic())
            send(signal.SIGSTOP, "n2")(it)

        run = drive(stop, later=[(is_over, send(signal.SIGCONT, "n2"))])
        assert same(run, undisturbed)
        assert run.recovered == ()

        with pytest.raises(ClusterError, match=r"lost n2 \(.*\): hung: no sign of life for 1.5 s"):
            drive(send(signal.SIGSTOP, "n2"))
        record_property("named_stopped_s", drive.took_s)
        assert HEARTBEAT_S * 0.7 < drive.took_s < HEARTBEAT_S + 1.5
        assert not lives(slow)
        cluster.retire("n2")
        assert same(drive(), undisturbed)

        os.kill(pid_of(cluster, "n3"), signal.SIGKILL)  # while nothing runs
        began = time.monotonic()
        with pytest.raises(ClusterError, match=r"lost n3 \(.*\): killed by SIGKILL"):
            drive()
        record_property("named_idle_s", time.monotonic() - began)
        assert time.monotonic() - began < SOON_S
        cluster.retire("n3")
        run = drive()
        assert same(run, undisturbed)
        assert [one.addr for one in run.timings] == ["n0"]

        with pytest.raises(ClusterError, match=r"lost n0 \(layers 0..6\)"):
            drive(send(signal.SIGKILL, "n0"))
        with pytest.raises(ClusterError, match=r"\[no-room\]"):
            cluster.retire("n0")
    cluster.close()
    balances(cluster)


def test_retiring_drops_lost_standbys_and_starts_whom_the_new_plan_needs(model, tmp_path):
    told = config(model, tmp_path, "n0 n1 spare s:n0")
    n0, n1, spare, standby = told.nodes
    told = replace(told, nodes=(n0, n1, replace(spare, max_ram_gb=0.02), standby))
    with Cluster(told) as cluster:
        cluster.plan({})
        cluster.launch()
        assert set(cluster._coordinator.hub.hellos) == {"n0", "n1", "s"}
        undisturbed = cluster.drive(IDS, steps=5)
        os.kill(pid_of(cluster, "s"), signal.SIGKILL)
        until(lambda: "s" not in cluster._coordinator.hub.connected())
        cluster.retire("n1")
        assert same(cluster.drive(IDS, steps=5), undisturbed)
        cluster.retire("n0")
        run = cluster.drive(IDS, steps=5)
        assert same(run, undisturbed)
        assert [one.addr for one in run.timings] == ["spare"]


BROKEN = """
import sys
if "mute" in sys.argv:
    import time
    time.sleep(3600)
if "worker" in sys.argv:
    import headway.cluster.worker as worker
    drive, build = worker._Worker.drive, worker._Worker.build

    def refuse(*_, **__):
        raise AssertionError("an object was pickled")

    def faulty_drive(self, order):
        import torch.distributed.distributed_c10d as engine
        engine._object_to_tensor = engine._tensor_to_object = refuse  # tensors alone go between stages
        if self.addr != "n1" or order.steps < 1000:
            return drive(self, order)
        if order.steps == 1000:
            raise MemoryError("no room for the keys and values")
        if order.steps == 1001:
            def fail(*_, **__):
                raise MemoryError("no room for the activations")
            self.stage.forward = fail
            try:
                return drive(self, order)
            finally:
                del self.stage.forward
        if order.steps == 1002:
            import time
            time.sleep(3600)  # beats all the same
        if order.steps == 1003:
            import os
            os.write(1, bytes(range(256)) * 4096)
            os.write(2, b"\\n\\x1b[2J\\x1b]0;gone\\x07 the last words\\r\\n")
            os._exit(7)

    def faulty_build(self, order):
        if self.addr == "full":
            raise MemoryError("no room for the weights")
        return build(self, order)

    worker._Worker.drive, worker._Worker.build = faulty_drive, faulty_build
"""


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    """Have the workers fail in the ways of `BROKEN`."""
    folder = tmp_path / "faulty"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


@pytest.mark.usefixtures("faulty")
def test_what_fails_in_a_drive_is_named_and_the_next_drive_runs(model, tmp_path):
    with launched(model, tmp_path, "n0 n1 n2 full:*") as (cluster, drive):
        undisturbed = drive()
        pids = {addr: pid_of(cluster, addr) for addr in ("n0", "n1", "n2")}
        for steps, said in ((1000, "keys and values"), (1001, "activations")):
            with pytest.raises(
                ClusterError, match=rf"Cannot drive on n1: MemoryError: no room for the {said}.*\[worker-failed\]"
            ):
                cluster.drive(IDS, steps=steps)
            assert same(drive(), undisturbed)

        def interrupt(_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            drive(interrupt)
        assert same(drive(), undisturbed)  # not what the one before would have given
        assert {addr: pid_of(cluster, addr) for addr in pids} == pids
        assert cluster._coordinator.lost == {}

        for _ in range(2):  # nor can the standby
            with pytest.raises(ClusterError, match=r"Cannot build on full: MemoryError: no room for the weights"):
                cluster.drive(IDS, steps=1003)
        why = cluster._coordinator.lost["n1"]
        assert re.fullmatch(r"ended with status 7 \(.*the last words\)", why)
        assert why.isprintable()
        cluster.retire("full")
        assert same(drive(), undisturbed)
    balances(cluster)


@pytest.mark.usefixtures("faulty")
def test_a_drive_that_gets_nowhere_ends_though_all_live(model, tmp_path):
    with launched(model, tmp_path, "n0 n1", timeout_s=2.0) as (cluster, _):
        began = time.monotonic()
        with pytest.raises(ClusterError, match=r"Cannot drive: n1 says that it lives, but n0 waited.*\[too-slow\]"):
            cluster.drive(IDS, steps=1002)
        with pytest.raises(
            ClusterError, match=r"Cannot give up: n1 did not answer within 7 s; each says that it lives"
        ):
            cluster.drive(IDS)
        assert time.monotonic() - began < HEARTBEAT_S + 15
    assert time.monotonic() - began < HEARTBEAT_S + 20  # what does not end by itself is killed


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("absent", "copy"),
        ("other", "is another checkpoint than the coordinator's"),
        ("cut", "model.safetensors"),
        ("full", "MemoryError: no room for the weights"),
    ],
)
def test_a_stage_that_cannot_be_built_is_named(model, tmp_path, what, said):
    copy = tmp_path / "copy"
    if what != "absent":
        shutil.copytree(model, copy)
    if what == "other":
        make(copy, num_hidden_layers=6, max_position_embeddings=2048, intermediate_size=40)
    if what == "cut":
        whole = (copy / "model.safetensors").read_bytes()
        (copy / "model.safetensors").write_bytes(whole[:-1000])
    addr = "full" if what == "full" else "n0"
    told = config(model, tmp_path, addr)
    told = replace(told, nodes=(replace(told.nodes[0], ckpt_dir=str(copy)),))
    cluster = Cluster(told)
    cluster.plan({})
    with pytest.raises(ClusterError, match=rf"Cannot launch on {addr}: .*{said}.*\[worker-failed\]"):
        cluster.launch()
    assert workers_of(os.getpid()) == []
    with pytest.raises(ClusterError, match=r"\[not-launched\]"):
        cluster.drive(IDS)
    cluster.close()


def test_a_loss_while_stages_are_built_is_named_and_nothing_stays(model, tmp_path):
    def kill(it):
        if "n1" in it._coordinator.hub.hellos and act:
            os.kill(pid_of(it, act.pop()), signal.SIGKILL)

    act = ["n1"]
    cluster = Cluster(config(model, tmp_path, "n0 n1"), kill)
    cluster.plan({})
    with pytest.raises(ClusterError, match=r"Cannot launch: lost n1 \(layers 3..6\): killed by SIGKILL\. Look"):
        cluster.launch()
    assert workers_of(os.getpid()) == []


@pytest.mark.usefixtures("faulty")
def test_a_worker_that_never_comes_ends_the_launch(model, tmp_path):
    cluster = Cluster(config(model, tmp_path, "mute", launch_timeout_s=0.5))
    cluster.plan({})
    with pytest.raises(
        ClusterError, match=r"mute did not answer within 0.5 s; no word ever from mute.*launch_timeout_s.*\[too-slow\]"
    ):
        cluster.launch()
    assert workers_of(os.getpid()) == []


COORDINATOR = """
import json, os, sys, tempfile
from headway.cluster.config import ClusterConfig, NodeConfig
from headway.cluster.coordinator import Coordinator

config = ClusterConfig(model="m", nodes=(NodeConfig(addr="n0"), NodeConfig(addr="n1")), port=int(sys.argv[2]))
it = Coordinator(config)
it.start({"n0": None, "n1": None})
print(json.dumps({"workers": [hello.pid for hello in it.hub.hellos.values()], "port": it.hub.port}), flush=True)
"""
ENDS = {
    "exception": "raise ValueError",
    "exit": "os._exit(5)",
    "close": "it.close()",
    "waits": "import time\nwhile True:\n    time.sleep(0.05)",
}


def start(script, tmp_path, *args):
    """Start a program that prints its workers; return it with what it printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    return process, json.loads(process.stdout.readline())


def assert_all_ended(process, told):
    process.stdout.close()
    until(lambda: not any(lives(pid) for pid in told["workers"]))
    process.wait(5.0)
    with socket.create_server(("127.0.0.1", told["port"])):
        pass


@pytest.mark.parametrize("end", ["exception", "exit", "close"])
def test_workers_end_with_a_program_however_it_ends(tmp_path, end):
    process, told = start(COORDINATOR + ENDS[end], tmp_path, end, "0")
    assert_all_ended(process, told)
    if end == "exit":  # nothing of the program runs after that
        for folder in tmp_path.glob("headway-cluster-*"):
            shutil.rmtree(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("stopped", [False, True])
def test_workers_end_with_a_program_that_a_signal_ends(tmp_path, number, stopped):
    process, told = start(COORDINATOR + ENDS["waits"], tmp_path, "waits", "0")
    if stopped:
        os.kill(told["workers"][0], signal.SIGSTOP)
    os.killpg(process.pid, number)
    assert_all_ended(process, told)
    if number != signal.SIGINT:
        for folder in tmp_path.glob("headway-cluster-*"):
            shutil.rmtree(folder)


DRIVE = """
import json, os, sys
from headway.cluster.cluster import Cluster
from headway.cluster.config import ClusterConfig
from headway.cluster.launch.launcher import Meeting

told = []
def watch(it):
    states = it.state()
    if not told and all(one.forwards > 2 for one in states) and states[0].doing == "driving":
        told.append(1)
        hub = it._coordinator.hub
        print(json.dumps({"workers": [hello.pid for hello in hub.hellos.values()], "port": hub.port}), flush=True)

with Cluster(ClusterConfig.from_path(sys.argv[1]), watch) as it:
    it.plan({})
    it.launch()
    it.drive([[1, 2, 3]], steps=2000, logits="none")
"""


@pytest.mark.parametrize(("number", "stopped"), [(signal.SIGKILL, True), (signal.SIGINT, False)])
def test_workers_end_with_a_program_that_drives(model, tmp_path, number, stopped):
    told = tmp_path / "c.toml"
    told.write_text(
        f"model = {str(model)!r}\nreserve_ram_gb = 0\nthreads = 1\nlog_dir = 'logs'\n"
        "[[node]]\naddr = 'n0'\nmax_ram_gb = 1\n[[node]]\naddr = 'n1'\nmax_ram_gb = 1\n"
    )
    process, told = start(DRIVE, tmp_path, str(told))
    if stopped:
        os.kill(told["workers"][0], signal.SIGSTOP)
    os.killpg(process.pid, number)
    assert_all_ended(process, told)
    if number == signal.SIGKILL:
        for folder in tmp_path.glob("headway-cluster-*"):
            shutil.rmtree(folder)
