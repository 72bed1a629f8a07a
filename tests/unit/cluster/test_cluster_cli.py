"""`headway cluster`: its screens at 80 columns, its JSON, its live view, and whole runs with workers."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

pytest.importorskip("safetensors")

from headway.cli import clusterview
from headway.cli.cluster_demo import LAYERS, STEPS, VOCAB, write_checkpoint
from headway.cli.cluster_run import PromptIds
from headway.cli.clustertext import command_of, draw_command, draw_run, gb, needs_engine, require_engine
from headway.cli.clusterview import ClusterView
from headway.cli.main import cli, main
from headway.cluster.cluster import Cluster, NodeState
from headway.cluster.config import ClusterConfig
from headway.cluster.probe import Device, NodeProbe
from headway.cluster.report import ClusterRun, NodeReport, StageTiming
from headway.errors import ClusterError
from headway.record.identity import safe_name
from headway.report.sheet import Sheet

GB = 10**9
TWO = """
model = "llama"
reserve_ram_gb = 0
seq = 4
[placement]
context = 64
[[node]]
addr = "n0"
precision = "fp32"
[[node]]
addr = "n1"
precision = "fp32"
"""
STANDBY = '[[node]]\naddr = "spare"\nrole = "standby"\nprecision = "fp32"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("cluster")
    write_checkpoint(made / "llama")
    return made


@pytest.fixture
def config(folder):
    def write(text=TWO, name="cluster.toml"):
        (folder / name).write_text(text)
        return str(folder / name)

    return write


@pytest.fixture
def measured(monkeypatch):
    """Probes that are always the same."""

    def probe(config, *_):
        gpu = Device(device="cuda:0", name="NVIDIA H200", memory_bytes=143 * GB, available_bytes=139 * GB)
        known = {"cores": 8, "threads": 4, "ram_bytes": 32 * GB, "available_bytes": 30 * GB, "disk_free_bytes": GB}
        fast = {"gflops": 12.34, "gflops_prefill": 1234.5, "disk_mb_s": 1800.0, "devices": (gpu,)}
        return {
            node.addr: NodeProbe(addr=node.addr, host="h", os="Linux x86_64", **known, **(fast if at == 0 else {}))
            for at, node in enumerate(config.nodes)
        }

    monkeypatch.setattr("headway.cluster.probe.probe", probe)
    monkeypatch.setattr("headway.cluster.cluster.probe", probe)


def shown(*arguments):
    result = CliRunner().invoke(cli, ["cluster", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if not line.startswith("{"))
    return result.stdout


def refused(capsys, *arguments):
    assert main(["cluster", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_nodes_are_measured_and_what_is_not_known_is_a_dash(config, measured):
    screen = shown("probe", config())
    lines = [line.split() for line in screen.splitlines()]
    assert ["n0", "Linux", "x86_64", "8", "32.00", "GB", "30.00", "GB", "1.00", "GB"] in lines
    assert ["n0", "cpu", "4", "12.3", "GFLOP/s", "1,234", "GFLOP/s", "1,800", "MB/s"] in lines
    assert ["n1", "cpu", "4", "-", "-", "-"] in lines
    assert ["n0", "cuda:0", "NVIDIA", "H200", "143.00", "GB", "139.00", "GB"] in lines
    told = json.loads(shown("probe", config(), "--json"))
    assert (told["schema"], [one["addr"] for one in told["nodes"]]) == (1, ["n0", "n1"])
    assert told["nodes"][1]["gflops"] is None


def test_this_machine_answers_as_a_coordinator_asks_it(folder):
    asked = ["probe", "--here", "--json", "--device", "cpu", "--folder", folder / "llama", "--threads", "1"]
    probe = NodeProbe.from_json(shown(*asked))
    assert (probe.device, probe.threads) == ("cpu", 1)
    assert probe.gflops > 0
    assert probe.disk_mb_s is None or probe.disk_mb_s > 0


def test_this_machine_and_a_config_are_not_measured_together(config, capsys):
    assert "leave CONFIG out" in refused(capsys, "probe", config(), "--here")


def test_the_plan_is_shown(config, measured):
    screen = shown("plan", config(TWO + STANDBY))
    lines = [line.split() for line in screen.splitlines()]
    assert any(line[:4] == ["n0", "0..4", "cpu", "fp32"] and line[-1] == "us" for line in lines)
    assert any(line[:2] == ["n1", "4..8"] and line[-1] == "-" for line in lines)
    assert "Standby spare can take the stage of n0 or n1; its budget is 10.00 GB." in " ".join(screen.split())
    assert "No standby for" not in screen
    assert screen.endswith(f"\n  Next:\n    headway cluster run {shlex.quote(config(TWO + STANDBY))}\n")
    told = json.loads(shown("plan", config(TWO + STANDBY), "--json"))
    assert [stage["layers"] for stage in told["plan"]["stages"]] == [{"start": 0, "end": 4}, {"start": 4, "end": 8}]
    assert [one["addr"] for one in told["nodes"]] == ["n0", "n1", "spare"]


def test_the_plan_says_who_has_no_standby_and_who_drains(config, measured):
    drains = '[[node]]\naddr = "d"\nrole = "draining"\n'
    screen = shown("plan", config(TWO + STANDBY + 'standby_for = "n1"\n' + drains))
    assert "  No standby for n0.\n  d drains: no layers.\n" in screen


def test_a_command_to_be_copied_is_one_line_and_relative_where_it_can_be(tmp_path, monkeypatch, capsys):
    deep = tmp_path / ("x" * 90) / "my logs"
    monkeypatch.chdir(tmp_path)
    draw_command(Sheet(sys.stdout, width=72), "Next:", "headway", "report", deep)
    assert capsys.readouterr().out == f"\n  Next:\n    headway report '{'x' * 90}/my logs'\n"
    monkeypatch.chdir("/")
    assert command_of("headway", Path("/elsewhere/r")) == "headway elsewhere/r"
    monkeypatch.chdir(tmp_path)
    assert command_of("headway", Path("/elsewhere/r")) == "headway /elsewhere/r"


def test_the_plan_says_how_the_ladder_went(config, measured):
    text = TWO.replace("context = 64", 'context = 64\nprecision_ladder = ["fp32", "bf16"]')
    tight = text.replace('precision = "fp32"', "max_ram_gb = 0.012")
    screen = " ".join(shown("plan", config(tight)).split())
    assert "fp32 does not fit: it needs 31 of 24 MB." in screen
    assert "bf16 fits: it needs 15 of 24 MB." in screen


def test_a_plan_without_room_is_one_line_with_the_totals(config, measured, capsys):
    (line,) = refused(capsys, "plan", config(TWO.replace("reserve_ram_gb = 0", "reserve_ram_gb = 40"))).splitlines()
    assert line.startswith("headway: Cannot place 8 layers: the model needs 31")
    assert line.endswith("[no-room]")


def test_long_names_fold(config, measured):
    assert "x" * 14 in shown("plan", config(TWO.replace("n0", "x" * 150)))


@pytest.mark.parametrize("command", ["probe", "plan", "run"])
def test_a_config_that_cannot_be_read_is_one_line(command, config, capsys, tmp_path):
    (line,) = refused(capsys, command, config(TWO.replace("seq", "sequence"))).splitlines()
    assert "'sequence' is no key" in line
    assert line.endswith("[unknown-key]")
    assert refused(capsys, command, tmp_path / "none.toml").endswith("[no-such-path]\n")


def test_without_the_extra_a_run_says_what_to_install(config, capsys, monkeypatch):
    with pytest.raises(ClusterError, match=r"torch, transformers, safetensors are not installed.*\[missing-extra\]"):
        require_engine(find=lambda _: None)
    with pytest.raises(ClusterError, match=r"on this machine: torch is not installed"):
        require_engine(find=lambda name: None if name == "torch" else name)
    monkeypatch.setattr(require_engine, "__defaults__", (lambda _: None,))
    assert "pip install 'headway[cluster]'" in refused(capsys, "run", config())
    assert "pip install 'headway[cluster]'" in refused(capsys, "demo")


def test_without_the_extra_nodes_are_measured_and_planned(config):
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'safetensors', 'ray']))\n"
        "from headway.cli.main import main\n"
        f"path = {config()!r}\n"
        "sys.exit([main(['cluster', *args, path]) for args in (['probe'], ['plan', '--json'], ['run'])] != [0, 0, 2])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.endswith("Run: pip install 'headway[cluster]'. [missing-extra]")


def test_a_screen_of_ascii_is_ascii(config, measured):
    runner = CliRunner(charset="ascii")
    assert runner.invoke(cli, ["cluster", "plan", config()], catch_exceptions=False).exit_code == 0
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        run = ClusterRun([timing("n\N{SNOWMAN}", "0:4")], 100.0, recovered=["\N{SNOWMAN}"])
        draw_run(Sheet(stream, width=80), run, (1, 1), table=True)
    stream.flush()
    assert b"n?" in stream.buffer.getvalue()


def test_where_no_worker_is_started_here_the_extra_is_not_needed():
    def needs(top="", node=""):
        return needs_engine(ClusterConfig.from_toml(f'model = "m"\n{top}\n[[node]]\naddr = "n0"\n{node}'))

    assert needs()
    assert not needs(top='launcher = "torchrun"')
    assert not needs(node='ssh = "user@host"')


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("1,x", "it is no list of token ids"),
        ("", "it is no list of token ids"),
        ("-1", "it is no list of token ids"),
        ("@none.json", "No such file or directory. Check the path."),
        ("@text.json", "it is no JSON"),
        ("@flat.json", "it holds no list of lists"),
        ("@empty.json", "it holds no list of lists"),
        ("@bool.json", "it holds no list of lists"),
    ],
)
def test_prompts_that_cannot_be_read_are_one_line(given, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in {"text": "x", "flat": "[1, 2]", "empty": "[[]]", "bool": "[[true]]"}.items():
        (tmp_path / f"{name}.json").write_text(text)
    (line,) = refused(capsys, "run", "none.toml", "--prompt-ids", given).splitlines()
    assert message in line
    assert line.endswith("[bad-prompt]")


def test_prompts_are_ids_or_a_file_of_them(tmp_path):
    (tmp_path / "p.json").write_text("[[1, 2], [3, 4]]")
    read = PromptIds()
    assert [read(given) for given in ("1,2,3", " 1  2, 3 ", f"@{tmp_path}/p.json")] == [
        [[1, 2, 3]], [[1, 2, 3]], [[1, 2], [3, 4]],
    ]  # fmt: skip


def test_random_and_given_prompts_are_not_driven_together(capsys):
    assert "--batch is of random prompts" in refused(capsys, "run", "none.toml", "--prompt-ids", "1", "--batch", "2")


def timing(addr, layers, forward_ms=100.0, **given):
    return StageTiming(addr, layers, "cpu", 10.0, forward_ms, GB, **given)


def test_a_drive_is_shown(capsys):
    run = ClusterRun(
        [timing("n0", "0:4"), timing("n1", "4:8", 250.0, predicted_ms=200.0, budget_bytes=2 * GB, precision="int8")],
        350.0, wall_ms=400.0, prefill_ms=100.0, decode_ms=300.0, tokens=[[10_000_000 + at for at in range(21)]] * 10,
        recovered=["n2 was lost"],
    )  # fmt: skip
    draw_run(Sheet(sys.stdout, width=80), run, (10, 8), table=True)
    screen = capsys.readouterr().out
    assert run.table() in screen
    assert all(len(line) <= 80 for line in screen.splitlines() if not line.startswith("reduce:"))
    for line in (
        "straggler n1, 2.50 times that of the other",
        "n2 was lost",
        "Prompts: 80 tokens in 100 ms, 800 tokens/s.",
        "Decoded: 200 tokens in 300 ms, 667 tokens/s.",
        "  and 2 prompts more (--json has all)",
    ):
        assert line in screen
    generated = screen.partition("Generated\n\n")[2].splitlines()
    assert generated[:2] == [
        "  0: 10000000 10000001 10000002 10000003 10000004 10000005 10000006 10000007",
        "     10000008 10000009 10000010 10000011 and 9 more (--json has all)",
    ]
    assert len(generated) == 2 * 8 + 1


def test_a_single_token_is_one(capsys):
    draw_run(Sheet(sys.stdout, width=80), ClusterRun([timing("n0", "0:4")], 1.0, prefill_ms=1.0, tokens=[[7]]), (1, 1))
    screen = capsys.readouterr().out
    assert "Prompts: 1 token in 1 ms, 1,000 tokens/s." in screen
    assert "reduce:" not in screen


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["--prompt-ids", f"1,{VOCAB}"],
            f"of a vocabulary of {VOCAB}. Give ids from 0 to {VOCAB - 1}",
        ),
        (["--prompt-ids", "1", "--prompt-ids", "2,3"], "the prompts of --prompt-ids differ in length"),
        (["--micro-batches", 2, "--batch", 2], "--micro-batches is 2, and relay has one. Give --mode pipelined"),
        (
            ["--mode", "pipelined", "--micro-batches", 2, "--batch", 3],
            "--micro-batches is 2, and no divisor of a",
        ),
        (["--steps", 62], "65 tokens exceed the context of 64"),
    ],
)
def test_what_cannot_be_driven_is_refused_before_a_launch(given, said, config, measured, capsys, monkeypatch):
    monkeypatch.setattr(Cluster, "launch", lambda _: pytest.fail("launched"))
    (line,) = refused(capsys, "run", config(), *given).splitlines()
    assert said in line
    assert line.endswith("[bad-drive]")


def test_after_an_error_the_log_is_named(folder, config, measured, capsys, monkeypatch):
    def launch(cluster):
        folder.joinpath("logs", safe_name(cluster.run)).mkdir(parents=True)
        raise ClusterError("Cannot launch: no", "Give up", "no-start")

    monkeypatch.setattr(Cluster, "launch", launch)
    monkeypatch.chdir(folder)
    log, error = refused(capsys, "run", config('log_dir = "logs"\n' + TWO), "--json").splitlines()
    assert log == "headway: where the time went: headway report logs/cluster-llama"
    assert error == "headway: Cannot launch: no. Give up. [no-start]"


def test_sizes_for_a_person():
    assert [gb(size) for size in (None, 0, 99_000_000, 100_000_000, -5 * GB)] == [
        "-", "0 kB", "99 MB", "100 MB", "-5.00 GB",
    ]  # fmt: skip


class Screen(io.StringIO):
    def isatty(self):
        return True


class States:
    """A cluster that goes from state to state."""

    placement = None

    def __init__(self, *doing, lost=None):
        self.left = list(doing)
        self.lost = lost or {}

    def state(self):
        doing = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return [
            NodeState("n0", range(4), doing, 12.0, 3, GB, 2 * GB, 0.1, pid=7), NodeState("spare", None, "standby")
        ]  # fmt: skip


@pytest.fixture
def every_time(monkeypatch):
    monkeypatch.setattr(clusterview, "_REDRAW_S", 0.0)


def test_without_a_terminal_each_change_is_a_line(every_time, capsys):
    with ClusterView() as view:
        for cluster in [States("building", "building", "driving")] * 3:
            view(cluster)
    assert capsys.readouterr().err.splitlines() == [
        "headway: n0 (layers 0..4, process 7): building",
        "headway: spare: standby",
        "headway: n0 (layers 0..4, process 7): driving",
    ]


LOST = ["headway: n0 lost: killed by SIGKILL", "headway: spare takes layers 0..4 of n0"]


def of_a_loss():
    """A cluster in the moment after a loss, and in the one after the standby took over."""
    cluster = States("driving", lost={"n0": "killed by SIGKILL"})
    yield cluster
    cluster.placement = SimpleNamespace(
        retired={"n0": "spare", "n9": None}, stage_of=lambda _: SimpleNamespace(layers=range(4))
    )
    yield cluster


def test_a_loss_is_said_at_once_and_who_takes_over(every_time, capsys):
    with ClusterView() as view:
        for cluster, line in zip(of_a_loss(), LOST, strict=True):
            view(cluster)
            assert line in capsys.readouterr().err.splitlines()
            view(cluster)
            assert capsys.readouterr().err == ""


def test_a_loss_after_the_last_look_is_said_at_the_end(capsys):
    with ClusterView() as view:
        *_, cluster = of_a_loss()
        lost, cluster.lost = cluster.lost, {}
        view(cluster)
        cluster.lost = lost
        assert LOST[0] not in capsys.readouterr().err
    assert LOST[0] in capsys.readouterr().err


def test_on_a_terminal_a_loss_stays_above_the_table(every_time, monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with ClusterView() as view:
        view(States("driving"))
        for cluster in of_a_loss():
            view(cluster)
        assert "lost: killed by" in screen.getvalue()
    assert all(line in screen.getvalue() for line in LOST)


def test_on_a_terminal_a_table_is_redrawn_and_gone_at_the_end(every_time, monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with ClusterView() as view:
        for _ in range(3):
            view(States("driving"))
        drawn = screen.getvalue()
        assert "1.00 GB/2.00 GB" in drawn
        assert "\x1b[?25l" in drawn
    assert screen.getvalue().endswith("\x1b[2K")
    assert "\x1b[?25h" in screen.getvalue()


def test_it_is_redrawn_eight_times_a_second_at_most(capsys):
    cluster = SimpleNamespace(state=lambda: pytest.fail("asked too often"), lost={}, placement=None)
    with ClusterView() as view:
        view(States("building"))
        view(cluster)


def test_a_quiet_view_shows_nothing(every_time, capsys):
    with ClusterView(quiet=True) as view:
        view(States("building"))
    assert capsys.readouterr() == ("", "")


def test_a_name_cannot_steer_the_terminal():
    from rich.console import Console

    stream = io.StringIO()
    state = NodeState("n\x1b[2J\u202e[bold]", None, "driving")
    lost = {state.addr: "killed by\x1b[31m SIGKILL " + "x" * 200}
    Console(file=stream, width=80, color_system=None).print(clusterview.state_table([state], lost))
    stream.write("\n".join(clusterview.news(SimpleNamespace(lost={"n": "\x1b[2J"}, placement=None))))
    assert not {"\x1b", "\u202e"} & set(stream.getvalue())
    assert all(len(line) <= 80 for line in stream.getvalue().splitlines())


def test_each_launch_is_a_run_of_its_own(config, measured, monkeypatch):
    monkeypatch.setattr("headway.cluster.cluster.Coordinator", lambda *_: pytest.fail("far enough"))
    cluster = Cluster.from_path(config())
    names = set()
    for _ in range(2):
        with pytest.raises(pytest.fail.Exception, match="far enough"):
            cluster.launch()
        names.add(cluster.run)
    assert len(names) == 2
    assert all(name.startswith("cluster-llama-2") for name in names)


def test_who_has_not_come_is_starting_and_who_only_waits_is_a_standby(folder, config, measured):
    cluster = Cluster.from_path(config(TWO + STANDBY))
    cluster.plan()
    hub = SimpleNamespace(hellos={}, beat=lambda _: None, silent_s=lambda _: 0.0, connected=lambda: set(hub.hellos))
    cluster._coordinator = SimpleNamespace(hub=hub, lost={"n1": "killed by SIGKILL"})
    cluster._doing = "building"
    assert [one.doing for one in cluster.state()] == ["starting", "killed by SIGKILL", "starting"]
    hub.hellos |= {addr: SimpleNamespace(pid=at) for at, addr in enumerate(["n0", "n1", "spare"])}
    assert [one.doing for one in cluster.state()] == ["building", "killed by SIGKILL", "building"]
    cluster._doing = "driving"
    assert [one.doing for one in cluster.state()] == ["driving", "killed by SIGKILL", "standby"]
    assert cluster.pids() == {one.addr: one.pid for one in cluster.state()} == {"n0": 0, "n1": 1, "spare": 2}
    assert cluster.lost == {"n1": "killed by SIGKILL"}
    cluster._coordinator = None
    assert cluster.pids() == cluster.lost == {}


@pytest.fixture
def home(tmp_path):
    """An empty folder to work in, and an environment whose temporary folder is empty."""
    (tmp_path / "home").mkdir()
    (tmp_path / "tmp").mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    return SimpleNamespace(
        path=tmp_path / "home", tmp=tmp_path / "tmp", env={**environ, "TMPDIR": str(tmp_path / "tmp")}
    )


def left_in(folder):
    return [path.name for path in folder.iterdir() if not path.name.startswith("torchinductor")]  # torch's own cache


def headway(home, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "headway", *map(str, arguments)],
        cwd=home.path, env=home.env, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.slow
def test_a_model_is_run_over_two_workers(home, config):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    prompts = ["--prompt-ids", "1,2,3", "--prompt-ids", "4 5 6"]
    done = headway(home, "cluster", "run", config(), *prompts, "--steps", 3, "--repeat", 2, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert [NodeReport.from_json(one).addr for one in told["nodes"]] == ["n0", "n1"]
    first, second = map(ClusterRun.from_json, told["runs"])
    assert [one.addr for one in first.timings] == ["n0", "n1"]
    assert first.tokens == second.tokens
    assert [len(row) for row in first.tokens] == [3, 3]
    assert re.fullmatch(rf"{re.escape(str(home.path))}/headway-logs/cluster-llama-[0-9]{{8}}T[0-9.-]+", told["log"])
    report = json.loads(headway(home, "report", told["log"], "--json").stdout)
    assert report["runs"][0]["steps"]["retained"] == 2 * 2 * 3
    assert left_in(home.tmp) == []


@pytest.mark.slow
def test_an_interrupt_ends_the_workers(home, config):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    command = [sys.executable, "-m", "headway", "cluster", "run", config(TWO.replace("context = 64", "context = 9999"))]
    with subprocess.Popen(
        [*command, "--steps", "9000"], cwd=home.path, env=home.env, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            said = []
            while not any("driving" in line for line in said):
                said.append(process.stderr.readline())
                assert said[-1], said
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
        finally:
            process.kill()
    assert left_in(home.tmp) == []


@pytest.mark.slow
def test_the_demo_kills_a_worker_and_goes_on(home):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    done = headway(home, "cluster", "demo")
    assert done.returncode == 0, done.stderr
    assert "right (layers 4..8) was lost: killed by SIGKILL; spare took its place" in done.stdout
    assert "\nheadway: right lost: killed by SIGKILL\n" in done.stderr
    assert "\nheadway: spare takes layers 4..8 of right\n" in done.stderr
    assert f"The {2 * (8 + STEPS - 1) * VOCAB:,} logits of both drives are equal" in done.stdout
    assert f"{LAYERS} layers on 2 nodes" in done.stdout
    assert "2 attempts · 2 ranks" in done.stdout
    assert not any(home.path.iterdir())
    assert left_in(home.tmp) == []


def test_the_demo_keeps_out_of_a_folder_in_use(tmp_path, capsys):
    (tmp_path / "mine").write_text("")
    assert "is not an empty folder" in refused(capsys, "demo", "--keep", tmp_path)
    assert refused(capsys, "demo", "--keep", "/proc/x").endswith("[no-folder]\n")
