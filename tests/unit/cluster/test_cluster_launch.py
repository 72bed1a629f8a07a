"""Ways to start workers, each for real on this machine: torchrun, Ray, ssh by a script that stands in for it."""

import contextlib
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from unit.cluster.small_models import prompts, run_whole, whole

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import headway  # noqa: E402
from headway.cluster.cluster import Cluster  # noqa: E402
from headway.cluster.config import ClusterConfig, NodeConfig  # noqa: E402
from headway.cluster.launch import launcher_of  # noqa: E402
from headway.cluster.launch.launcher import TOKEN, Meeting  # noqa: E402
from headway.cluster.launch.local import LocalLauncher  # noqa: E402
from headway.cluster.launch.torchrun import told  # noqa: E402
from headway.cluster.probe import NodeProbe  # noqa: E402
from headway.errors import ArgumentError, ClusterError  # noqa: E402

BIN = str(Path(sys.executable).parent)
MEETING = Meeting("127.0.0.1", 4711, "f00d", 5.0)
ANY = {"-": NodeProbe(addr="-", host="here", os="Linux", cores=1)}
"""A probe of no node: all that is needed is told."""
STRANGE = {
    "RANK": "7", "WORLD_SIZE": "9", "LOCAL_RANK": "7", "MASTER_ADDR": "nowhere", "MASTER_PORT": "1",
    "TORCHELASTIC_RUN_ID": "other", "TORCHELASTIC_RESTART_COUNT": "3", "SLURM_PROCID": "5", "SLURM_NTASKS": "6",
    "SLURM_JOB_ID": "88", "SLURM_STEP_ID": "0", "HEADWAY_RANK": "4", "HEADWAY_WORLD_SIZE": "8",
    "HEADWAY_RUN": "other", "HEADWAY_ATTEMPT": "other",
}  # fmt: skip
"""What the environment of a job says of another group than the cluster's."""
COORDINATOR = """
import sys
from headway.cluster.cluster import Cluster
from headway.cluster.config import ClusterConfig
from headway.cluster.probe import NodeProbe

def began(path):
    cluster = Cluster(ClusterConfig.from_path(path))
    cluster.plan({"-": NodeProbe(addr="-", host="here", os="Linux", cores=1)})
    cluster.launch()
    return cluster
"""


def wait_until(true, longest_s=20.0):
    end = time.monotonic() + longest_s
    while not (found := true()):
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)
    return found


def lives(pid):
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def toml(folder, path, *nodes, **given):
    """Write a config; each node is given as a dictionary."""
    top = {"model": str(folder), "reserve_ram_gb": 0, "threads": 1, "log_dir": str(path.parent / "logs")} | given

    def lines(table):
        return [f"{key} = {json.dumps(value)}" for key, value in table.items()]

    text = [*lines(top), "[placement]", "context = 40"]
    for node in nodes:
        text += ["[[node]]", *lines({"precision": "fp32", "max_ram_gb": 1} | node)]
    path.write_text("\n".join(text))
    return path


STAGES = ({"addr": "n 0"}, {"addr": "n1"}, {"addr": "s", "role": "standby", "standby_for": "n1"})


def printed_commands(text):
    """Return the token, and the command of each node, out of what the launcher printed."""
    joined = text.replace("\\\n", " ")
    commands = [line.strip() for line in joined.splitlines() if line.strip().startswith("torchrun --standalone ")]
    named = {shlex.split(command)[shlex.split(command).index("--addr") + 1]: command for command in commands}
    return re.search(rf"^  export {TOKEN}=(\w+)$", text, re.MULTILINE)[1], named


def test_the_commands_for_torchrun_hold_no_token_and_name_each_node():
    text = told(["n 0", "n1"], MEETING)
    token, commands = printed_commands(text)
    assert token == "f00d"
    assert text.count("f00d") == 1
    assert list(commands) == ["n 0", "n1"]
    assert shlex.split(commands["n 0"])[-8:] == [
        "cluster", "worker", "--coordinator", "127.0.0.1:4711", "--addr", "n 0", "--heartbeat", "5",
    ]  # fmt: skip


def test_one_command_for_every_host_tells_nodes_by_rank():
    command = next(
        line for line in told(["n 0", "n1"], MEETING).replace("\\\n", " ").splitlines() if "--nnodes" in line
    )
    assert shlex.split(command)[:3] == ["torchrun", "--nnodes", "2"]
    assert shlex.split(command)[-4:] == ["--nodes", "n 0,n1", "--heartbeat", "5"]
    assert "--nnodes" not in told(["n0"], MEETING)
    assert "--nnodes" not in told(["n,0", "n1"], MEETING)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("127.0.0.1", 'for others set listen = "<address>"'),
        ("::1", 'for others set listen = "<address>"'),
        ("0.0.0.0", "In place of 0.0.0.0 give an address"),
        ("10.0.0.5", None),
    ],
)
def test_what_other_hosts_need_is_said(host, said):
    text = told(["n0"], Meeting(host, 4711, "f00d", 5.0))
    assert said in text if said else "listen" not in text and "place of" not in text


def test_torchrun_on_each_host_is_the_cluster_and_outlives_a_killed_sibling(checkpoint_of, tmp_path, monkeypatch):
    folder = checkpoint_of("llama")
    config = ClusterConfig.from_path(toml(folder, tmp_path / "c.toml", *STAGES, launcher="torchrun"))
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    env = {name: value for name, value in os.environ.items() if name != TOKEN} | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    shells = {}
    with Cluster(config) as cluster:
        cluster.plan(ANY)
        launching = threading.Thread(target=cluster.launch)
        launching.start()
        try:
            wait_until(lambda: "--addr s" in said.getvalue())
            token, commands = printed_commands(said.getvalue())
            for addr, command in commands.items():
                out = (tmp_path / f"{addr}.out").open("wb")
                shells[addr] = subprocess.Popen(
                    ["sh", "-c", f"exec {command}"], env=env | {TOKEN: token}, stdout=out, stderr=out,
                    start_new_session=True,
                )  # fmt: skip
                out.close()
            launching.join(60)
            ids, model = prompts(2), whole(folder)
            wanted, tokens = run_whole(model, ids, 3)
            run = cluster.drive(ids, steps=3)
            assert np.abs(run.logits - wanted.numpy()).max() == 0.0
            assert run.tokens == tokens.tolist()
            os.kill(cluster._coordinator.hub.hellos["n1"].pid, signal.SIGKILL)
            began = time.monotonic()
            run = cluster.drive(ids, steps=3)
            assert time.monotonic() - began < 5
            assert run.recovered == ("n1 (layers 2..4) was lost: its connection ended; s took its place",)
            assert np.abs(run.logits - wanted.numpy()).max() == 0.0
            assert shells["n1"].wait(20) == 1
            assert [addr for addr, shell in shells.items() if shell.poll() is None] == ["n 0", "s"]
            cluster.close()
            assert [shells["n 0"].wait(20), shells["s"].wait(20)] == [0, 0]
        finally:
            for shell in shells.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGTERM)
                shell.wait(40)
    assert token not in "".join(path.read_text() for path in tmp_path.glob("*.out"))


RAY = (
    COORDINATOR
    + """
import json, os, signal, time
from pathlib import Path
import numpy as np

before = dict(os.environ)
cluster = began(sys.argv[1])
assert dict(os.environ) == before, set(os.environ) ^ set(before)
ids = json.loads(sys.argv[2])
launcher, hellos = cluster._coordinator.launcher, cluster._coordinator.hub.hellos
first = cluster.drive(ids, steps=3)
assert [os.getpriority(os.PRIO_PROCESS, hello.pid) for hello in hellos.values()] == [os.nice(0)] * 3
os.kill(hellos["n1"].pid, signal.SIGKILL)
began_s = time.monotonic()
second = cluster.drive(ids, steps=3)
took_s = time.monotonic() - began_s
launcher.start(["later"], cluster._coordinator.meeting)
while "later" not in hellos:
    assert launcher.ended("later") is None
    time.sleep(0.05)
launcher.kill("s")
while launcher.ended("s") is None:  # Ray kills from another process: a short run could end before it
    time.sleep(0.01)
try:
    last = cluster.drive(ids).recovered
except RuntimeError as error:
    last = str(error)
cluster.close()
cluster.close()
left = [pid for pid in os.listdir("/proc") if pid.isdigit() and pid != str(os.getpid())
        and str(launcher.folder).encode() in Path("/proc", pid, "cmdline").read_bytes()]
gone = {addr: not Path(f"/proc/{hello.pid}").exists() for addr, hello in hellos.items()}
print(json.dumps({"same": bool((first.logits == second.logits).all()), "tokens": first.tokens, "took_s": took_s,
                  "recovered": second.recovered, "last": last, "left": left, "gone": gone,
                  "folder": launcher.folder.exists()}))
np.save(sys.argv[3], first.logits)
"""
)


@pytest.mark.slow
def test_ray_actors_are_the_cluster_and_leave_nothing(checkpoint_of, tmp_path):
    pytest.importorskip("ray")
    folder = checkpoint_of("llama")
    path = toml(folder, tmp_path / "c.toml", *STAGES, {"addr": "later", "role": "draining"}, launcher="ray")
    ids = prompts(2)
    env = os.environ | STRANGE | {"HOME": str(tmp_path), "RAY_ADDRESS": "local"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RAY, str(path), json.dumps(ids.tolist()), str(tmp_path / "logits.npy")],
        env=env, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    wanted, tokens = run_whole(whole(folder), ids, 3)
    assert np.abs(np.load(tmp_path / "logits.npy") - wanted.numpy()).max() == 0.0
    assert (said["same"], said["tokens"]) == (True, tokens.tolist())
    assert said["recovered"][0].startswith("n1 (layers 2..4) was lost: Worker unexpectedly exits")
    assert "killed by `ray.kill`" in said["last"]
    assert said["took_s"] < 5
    assert (said["left"], said["folder"]) == ([], False)
    assert all(said["gone"].values())
    assert not (tmp_path / ".ray").exists()
    ranks = {(one.open.rank, one.open.world_size) for run in headway.load(tmp_path / "logs") for one in run.processes}
    assert ranks == {(0, 2), (1, 2)}


def test_ray_that_is_not_installed_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r'Run: pip install "headway\[ray\]". \[missing-extra\]'):
        launcher_of(ClusterConfig(model="m", launcher="ray", nodes=(NodeConfig(addr="n0"),)))


def test_which_gpu_a_worker_has_is_for_ray_to_say():
    nodes = (NodeConfig(addr="n0", device="cuda:1"),)
    with pytest.raises(ArgumentError, match='Give device = "cuda"'):
        launcher_of(ClusterConfig(model="m", launcher="ray", nodes=nodes))


def test_a_ray_that_is_gone_is_named_at_once(monkeypatch, tmp_path):
    """By the address that was given, and by the one that `ray start` left behind."""
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        gone = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", gone)
    for _ in range(2):
        launcher = launcher_of(ClusterConfig(model="m", launcher="ray", nodes=(NodeConfig(addr="n0"),)))
        with pytest.raises(ClusterError, match=rf"Cannot reach Ray at {gone}: .*refused.*RAY_ADDRESS=local"):
            launcher.start(["n0"], MEETING)
        launcher.close()
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        (tmp_path / "ray").mkdir(exist_ok=True)
        (tmp_path / "ray" / "ray_current_cluster").write_text(gone)


SSH = """#!{python}
import json, os, subprocess, sys
*options, host, command = sys.argv[1:]
with open({told!r}, "a") as file:
    print(json.dumps([options, host, command]), file=file)
if host == "far":
    sys.exit("ssh: connect to host far port 22: Connection refused")
kept = {{"PATH": {path!r} + os.environ["PATH"], "HOME": os.environ["HOME"]}}
far = subprocess.Popen(["sh", "-c", command], env=kept, start_new_session=True)  # it does not end with this process
sys.exit(far.wait())
"""


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """Put a script in the place of ssh; return the file that it tells its arguments."""
    bin_, asked = tmp_path / "bin", tmp_path / "asked"
    bin_.mkdir()
    (bin_ / "ssh").write_text(SSH.format(python=sys.executable, told=str(asked), path=f"{BIN}:"))
    (bin_ / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    return asked


def test_a_worker_over_ssh_has_its_token_by_standard_input(ssh, checkpoint_of, tmp_path):
    folder = checkpoint_of("llama")
    config = ClusterConfig.from_path(toml(folder, tmp_path / "c.toml", {"addr": "n 0", "ssh": "me@near"}))
    with Cluster(config) as cluster:
        cluster.plan(ANY)
        cluster.launch()
        ids = prompts(2)
        run = cluster.drive(ids, steps=2)
        assert np.abs(run.logits - run_whole(whole(folder), ids, 2)[0].numpy()).max() == 0.0
        token, pid = cluster._coordinator.meeting.token, cluster._coordinator.hub.hellos["n 0"].pid
    assert not lives(pid)
    options, host, command = json.loads(ssh.read_text())
    assert (options, host) == (["-o", "BatchMode=yes", "--"], "me@near")
    assert shlex.split(command)[-3:] == ["--heartbeat", "5", "--token-stdin"]
    assert "n 0" in shlex.split(command)
    assert token not in command


def test_a_host_that_ssh_cannot_reach_is_named_with_the_word_of_ssh(ssh, checkpoint_of, tmp_path):
    path = toml(checkpoint_of("llama"), tmp_path / "c.toml", {"addr": "n0", "ssh": "far"})
    with Cluster(ClusterConfig.from_path(path)) as cluster:
        cluster.plan(ANY)
        with pytest.raises(ClusterError, match="ssh: connect to host far port 22: Connection refused"):
            cluster.launch()


FORKED = """
import os, subprocess, sys
from headway.cluster.config import ClusterConfig, NodeConfig
from headway.cluster.launch.local import LocalLauncher

launcher = LocalLauncher(ClusterConfig(model="m", nodes=(NodeConfig(addr="n0"),)))
sleep = ["sleep", "60"]
worker = launcher._starter.submit(subprocess.Popen, sleep, start_new_session=True).result()
launcher._processes["n0"] = worker
child = os.fork()
if child == 0:
    launcher.kill("n0")
    launcher.close()
    sys.exit(0)  # by the exit handlers
print(os.waitpid(child, 0)[1], launcher.folder.exists(), worker.poll())
launcher.kill("n0")
launcher.close()
print(launcher.folder.exists(), worker.poll())
"""


def test_a_forked_child_leaves_workers_and_folder_to_its_parent():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["0 True None", "False -9"], done.stderr


def test_a_host_that_would_be_an_option_of_ssh_is_refused():
    with pytest.raises(ArgumentError, match="does not begin with a dash"):
        NodeConfig(addr="n0", ssh="-oProxyCommand=x")


KILLED = (
    COORDINATOR
    + """
cluster = began(sys.argv[1])
print(*(hello.pid for hello in cluster._coordinator.hub.hellos.values()), flush=True)
sys.stdin.read()
"""
)


def test_no_worker_outlives_a_killed_coordinator(ssh, checkpoint_of, tmp_path):
    """One here, one here that is stopped, and one over ssh."""
    nodes = [{"addr": "here"}, {"addr": "stopped"}, {"addr": "near", "ssh": "near"}]
    path = toml(checkpoint_of("llama"), tmp_path / "c.toml", *nodes)
    # a folder for what a killed process cannot remove
    coordinator = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    with coordinator:
        pids = [int(pid) for pid in coordinator.stdout.readline().split()]
        assert len(pids) == 3
        assert len({os.getsid(pid) for pid in [*pids, coordinator.pid]}) == 4
        assert os.getsid(coordinator.pid) == os.getsid(0)
        os.kill(pids[1], signal.SIGSTOP)
        coordinator.kill()
    try:
        wait_until(lambda: not any(map(lives, pids)))
    finally:
        for pid in filter(lives, pids):
            os.kill(pid, signal.SIGKILL)


DRIVEN = (
    COORDINATOR
    + """
with began(sys.argv[1]) as cluster:
    cluster.drive(batch=2, steps=3)
"""
)


def test_the_launch_of_a_job_around_it_does_not_confuse_the_logs(checkpoint_of, tmp_path):
    """Under `headway run`, with the variables of every launcher there is."""
    path = toml(checkpoint_of("llama"), tmp_path / "c.toml", {"addr": "n0"}, {"addr": "n1"})
    (tmp_path / "script.py").write_text(DRIVEN)
    here = tmp_path / "here"
    here.mkdir()
    (here / "torch.py").write_text(
        "raise SystemExit('the folder that a coordinator is started in is no place of modules')"
    )
    done = subprocess.run(
        [f"{BIN}/headway", "run", "--dir", str(tmp_path / "outer"), "--", sys.executable, "../script.py", str(path)],
        cwd=here, env=os.environ | STRANGE, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = headway.load(tmp_path / "logs")
    assert run.name.startswith("cluster-" + Path(ClusterConfig.from_path(path).model).name)
    opens = {one.open.rank: one.open for one in run.processes}
    assert sorted(opens) == [0, 1]
    assert {one.world_size for one in opens.values()} == {2}
    assert len({one.attempt for one in opens.values()}) == 1
    assert "other" not in next(iter(opens.values())).attempt
    assert run.name in done.stdout + done.stderr


def test_the_output_of_workers_is_for_their_user_alone_and_nothing_is_left(monkeypatch, tmp_path):
    sleeper = tmp_path / "sleeper"
    sleeper.write_text("#!/bin/sh\necho said\nexec sleep 60\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(sleeper))
    addrs = [f"n/{n}" for n in range(20)]

    def open_files():
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    launcher = LocalLauncher(ClusterConfig(model="m", nodes=tuple(NodeConfig(addr=addr) for addr in addrs)))
    launcher.start(addrs, MEETING)
    assert open_files() == before
    assert launcher.folder.stat().st_mode & 0o777 == 0o700
    wait_until(lambda: all(launcher.said(addr) == "said" for addr in addrs))
    pids = [process.pid for process in launcher._processes.values()]
    for addr in addrs:
        launcher.kill(addr)
    assert {launcher.ended(addr) for addr in addrs} == {"killed by SIGKILL (said)"}
    launcher.close()
    launcher.close()
    assert not any(map(lives, pids))
    assert not launcher.folder.exists()
    assert open_files() == before


def test_a_worker_without_a_package_says_which(checkpoint_of, tmp_path, monkeypatch):
    (tmp_path / "transformers.py").write_text("raise ModuleNotFoundError(\"No module named 'transformers'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = toml(checkpoint_of("llama"), tmp_path / "c.toml", {"addr": "n0"})
    with Cluster(ClusterConfig.from_path(path)) as cluster:
        cluster.plan(ANY)
        with pytest.raises(ClusterError, match="on n0: ModuleNotFoundError: No module named 'transformers'"):
            cluster.launch()


def test_a_checkpoint_that_is_not_there_on_a_node_is_named(checkpoint_of, tmp_path):
    path = toml(checkpoint_of("llama"), tmp_path / "c.toml", {"addr": "n0", "ckpt_dir": str(tmp_path / "none")})
    with Cluster(ClusterConfig.from_path(path)) as cluster:
        cluster.plan(ANY)
        with pytest.raises(
            ClusterError, match=r"on n0: Cannot open the checkpoint .*/none: there is no such folder \[no-checkpoint\]"
        ):
            cluster.launch()
