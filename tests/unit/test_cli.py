"""The command line: options, exit codes, and one clear line where something cannot be done."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from headway.cli import main as entry
from headway.cli.main import COMMANDS, cli, main
from headway.clock import SystemClock

WALL_S = 1_700_000_000
S = 10**9


@pytest.fixture
def log(tmp_path):
    """A run of two attempts: 10 steps of 1 s, 20 s of nothing, 10 steps more from step 8 on."""
    for attempt, first, begin in (("a0", 0, 0), ("a1", 8, 30)):
        folder = tmp_path / "r1" / f"{attempt}-r0"
        folder.mkdir(parents=True)
        lines = [{
            "kind": "open", "schema": 1, "run": "r1", "attempt": attempt,
            "wall_ns": (WALL_S + begin) * S, "mono_ns": 0, "devices": 2,
        }]  # fmt: skip
        lines += [
            {"kind": "step", "step": first + n, "start": n * S, "end": (n + 1) * S, "phases": {"source": S // 10}}
            for n in range(10)
        ]
        lines += [{"kind": "saved", "step": first + 7, "at": 9 * S}]
        lines += [{"kind": "close", "at": 10 * S, "reason": "finished"}] if attempt == "a1" else []
        (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "r1"


def report(*arguments):
    result = CliRunner().invoke(cli, ["report", *map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_whole_run(log):
    (run,) = report(log)["runs"]
    assert (run["run"], run["source"], run["attempts"], run["ranks"], run["devices"]) == ("r1", "native", 2, 1, 2)
    assert run["held_s"] == 80.0
    assert run["categories_s"]["recovery"] == 40.0
    assert run["categories_s"]["rework"] == 4.0
    assert run["steps"] == {"executed": 20, "retained": 18, "uncommitted": run["steps"]["uncommitted"]}


@pytest.mark.parametrize("until", [WALL_S + 5.5, "2023-11-14T22:13:25.5Z", "2023-11-14 23:13:25.5+01:00"])
def test_until_ends_the_window_to_the_nanosecond(log, until):
    (run,) = report(log, "--until", until)["runs"]
    assert run["held_s"] == 11.0


def test_last_is_a_window_before_the_end(log):
    (run,) = report(log, "--last", "5s")["runs"]
    assert run["held_s"] == 10.0
    assert run["window"]["start_s"] == WALL_S + 35


def test_last_before_until(log):
    (run,) = report(log, "--last", "5s", "--until", WALL_S + 25)["runs"]
    assert run["categories_s"] == {"recovery": 10.0} or run["held_s"] == 10.0


def test_every_gives_windows_that_add_to_the_whole(log):
    (run,) = report(log, "--every", "15s")["runs"]
    assert [window["held_s"] for window in run["windows"]] == [30.0, 30.0, 20.0]
    (run,) = report(log, "--every", "2s", "--last", "5s")["runs"]
    assert [window["held_s"] for window in run["windows"]] == [4.0, 4.0, 2.0]


def test_devices_are_what_is_said_where_the_log_is_silent(log):
    (run,) = report(log, "--devices", "8")["runs"]
    assert run["devices"] == 8


def test_by_attempt_adds_to_the_whole(log):
    (run,) = report(log, "--by", "attempt")["runs"]
    assert list(run["by"]["attempt"]) == ["a0", "a1"]
    assert sum(piece["held_s"] for piece in run["by"]["attempt"].values()) == run["held_s"]


def test_paths_keep_their_order_and_are_summed(log, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"kind":"open","run":"a","attempt":"a0","wall_ns":0,"mono_ns":0}\n{"kind":"close","at":9}\n')
    document = report(log, other, "--price", "$2/h")
    assert [run["run"] for run in document["runs"]] == ["r1", "a"]
    assert document["total"]["held_s"] == sum(run["held_s"] for run in document["runs"])
    assert document["total"]["cost"]["currency"] == "USD"


def test_an_attempt_counts_once_however_often_it_is_named(log):
    (run,) = report(log / "a1-r0", log, log / "a0-r0" / "events.jsonl")["runs"]
    assert run == report(log)["runs"][0]
    assert report(log / "a0-r0")["runs"][0]["attempts"] == 1


def test_until_now_counts_the_time_since(log, monkeypatch):
    monkeypatch.setattr(SystemClock, "wall_ns", lambda self: (WALL_S + 100) * S)
    (log / "a1-r0" / "events.jsonl").write_text(
        (log / "a1-r0" / "events.jsonl").read_text().split('{"kind": "close"')[0]
    )
    (run,) = report(log, "--until", "now")["runs"]
    assert run["categories_s"]["silent"] == 120.0


@pytest.mark.parametrize("options", [["--until", "2020-01-01"], ["--until", "2030-01-01", "--last", "5m"]])
def test_a_window_without_the_run_says_when_the_run_was(log, options):
    (run,) = report(log, *options)["runs"]
    assert run["held_s"] == 0
    said = "nothing of the run lies in this window: it was from 2023-11-14 22:13:20 to 2023-11-14 22:14:00 UTC"
    assert said in run["warnings"]
    assert said not in report(log)["runs"][0]["warnings"]


def test_a_command_that_is_misspelt_is_named(capsys):
    assert main(["reprot"]) == 2
    assert "Did you mean 'report'?" in capsys.readouterr().err
    assert main(["nonsense"]) == 2
    assert "Did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [[], ["--by", "rank"], ["--every", "10s"], ["--price", "2 EUR/h"], ["--last", "9s"]]
)
def test_the_page_has_every_option(log, options, capsys):
    assert main(["report", str(log), *options]) == 0
    shown = capsys.readouterr().out
    assert "productive" in shown
    assert "What would return most" in shown
    assert ("EUR" in shown) == ("EUR" in str(options))
    assert ("window from" in shown) == ("--every" in options)


def test_show_can_write_to_stderr(log, capsys):
    from headway.cli.report import show

    show([str(log)], err=True)
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "productive" in streams.err


@pytest.mark.parametrize(
    ("options", "slug"),
    [
        (["--until", "yesterday"], "bad-time"),
        (["--every", "1"], "bad-duration"),
        (["--every", "0s"], "bad-duration"),
        (["--last", "-5m"], "bad-duration"),
        (["--every", "1ms"], "too-many-windows"),
        (["--price", "cheap"], "bad-price"),
    ],
)
def test_nonsense_is_one_clear_line_and_2(log, options, slug, capsys):
    assert main(["report", str(log), *options]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    (line,) = streams.err.splitlines()
    assert line.startswith("headway: Cannot ")
    assert line.endswith(f"[{slug}]")


@pytest.mark.parametrize("arguments", [
    ["report", "x", "--devices", "0"], ["report", "x", "--by", "colour"], ["report", "x", "--nonsense"],
    ["nonsense"], ["run"],
])  # fmt: skip
def test_a_wrong_use_says_so_and_is_2(arguments, capsys):
    assert main(arguments) == 2
    assert "Error: " in capsys.readouterr().err


def test_a_path_that_is_not_there(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert "[no-such-path]" in capsys.readouterr().err


def test_without_a_path_it_is_the_folder_of_all_runs(log, monkeypatch, capsys):
    monkeypatch.setenv("HEADWAY_DIR", str(log.parent))
    assert main(["report"]) == 0
    assert "r1" in capsys.readouterr().out


def test_without_a_path_and_without_runs_it_says_the_next_step(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("HEADWAY_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 2
    assert "headway demo" in capsys.readouterr().err


def test_ctrl_c_is_130(monkeypatch):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(entry.cli, "main", interrupted)
    assert main(["report"]) == 130


def test_each_command_says_what_the_table_says():
    for name, text in COMMANDS.items():
        assert cli.get_command(None, name).get_short_help_str(limit=100) == text
    assert cli.get_command(None, "nonsense") is None


def python(code, **kwargs):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **kwargs)


def test_help_and_version_load_no_command():
    code = "import sys; from headway.cli.main import main; main(['--help']); print(sorted(sys.modules))"
    result = python(code)
    for name in ("numpy", "rich.console", "headway.cli.report", "headway.cli.demo", "headway.record.recorder"):
        assert f"'{name}'" not in result.stdout


def test_python_m_headway(log):
    result = subprocess.run(
        [sys.executable, "-m", "headway", "report", str(log)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "productive" in result.stdout


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_has_gone_is_no_error(log, options):
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "headway", "report", str(log), *options],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert result.stderr == b""


def process(command, *, check=False, **options):
    return subprocess.run(
        f"{sys.executable} -m headway {command}", shell=True, capture_output=True, text=True, check=check, **options
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("flag", ["", "--json"])
def test_an_output_that_cannot_be_written_is_one_line(log, flag):
    done = process(f"report {log} {flag} >/dev/full")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "cannot write the output" in done.stderr


def test_a_closed_output_keeps_the_exit_code(log):
    assert process("run --no-report -- sh -c 'exit 7' >&-").returncode == 7
    assert process(f"report {log} --json >&-").returncode == 0


def test_a_narrow_screen_cuts_no_figure_short(log):
    done = process(f'report {log} --price "3 USD/h"', check=True, env=os.environ | {"COLUMNS": "30"})
    assert "USD" in done.stdout
    assert max(map(len, done.stdout.splitlines())) == 72 or "100.0 %" in done.stdout


@pytest.mark.parametrize("option", [("--last", "9" * 400 + "h"), ("--price", "9" * 330 + " USD/h")])
def test_a_number_without_end_is_a_clear_error(log, option):
    done = process(f"report {log} --json {option[0]} '{option[1]}'")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_what_no_source_knows_says_why_each_declined_on_a_line_of_its_own(tmp_path, capsys):
    (tmp_path / "notes.md").write_text("what we did; and why\n")
    assert main(["report", str(tmp_path / "notes.md")]) == 2
    first, *lines = capsys.readouterr().err.splitlines()
    assert first.endswith("no source knows it. See docs/sources.md for what can be read. [unknown-source]")
    assert lines[1].split(maxsplit=1) == ["mlperf", "no line in it holds :::MLLOG"]


def test_what_can_be_split_is_and_the_rest_is_whole(log, tmp_path, capsys):
    told = "1|ana|COMPLETED|2024-01-01T00:00:00|2024-01-01T01:00:00|gres/gpu=8"
    (tmp_path / "jobs").write_text(f"JobID|User|State|Start|End|AllocTRES\n{told}\n")
    run, pool = report(log, tmp_path / "jobs", "--by", "user")["runs"]
    assert ("by" in run, list(pool["by"]["user"])) == (False, ["ana"])
    run, pool = report(log, tmp_path / "jobs", "--by", "rank")["runs"]
    assert ("rank" in run["by"], list(pool["by"])) == (True, ["state"])
    assert main(["report", str(log), "--by", "user"]) == 2
    assert "[bad-split]" in capsys.readouterr().err


def test_an_option_that_is_of_nothing_that_was_read_is_said(log, capsys):
    assert main(["report", str(log), "--slo", "ttft:500ms", "--capacity", "8", "--mapping", "m.toml", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["runs"][0]["run"] == "r1"
    assert [line.split(" changes nothing: what was read is ") for line in said.err.splitlines()] == [
        ["warning: --slo", "no test of a server"],
        ["warning: --capacity", "no pool"],
        ["warning: --mapping", "no table"],
    ]
    assert main(["report", str(log), "--devices", "2", "--by", "rank", "--every", "1h", "--price", "1 EUR/h"]) == 0
    assert capsys.readouterr().err == ""


def test_who_held_a_pool_is_shown_with_the_waits_of_their_jobs(tmp_path, capsys):
    rows = [
        "1|ana|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:30:00|2024-01-01T01:30:00|gres/gpu=8|gres/gpu=8",
        "2|bo|PENDING|2024-01-01T01:00:00|Unknown|Unknown||gres/gpu=8",
    ]
    (tmp_path / "jobs").write_text("\n".join(["JobID|User|State|Submit|Start|End|AllocTRES|ReqTRES", *rows]) + "\n")
    (pool,) = report(tmp_path / "jobs", "--by", "user")["runs"]
    ana, bo = pool["by"]["user"]["ana"], pool["by"]["user"]["bo"]
    assert (ana["jobs"], ana["queue"]["n_ran"], "jobs" in bo, bo["queue"]["n_ran"]) == (1, 1, False, 0)
    assert main(["report", str(tmp_path / "jobs"), "--by", "user"]) == 0
    page = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["user", "held", "share", "jobs", "mean", "wait", "never", "ran"] in page
    assert ["bo", "0.0", "s", "0.0", "%", "0", "-", "1"] in page


@pytest.mark.parametrize("until", ["253402300800", "1741082480000", "9999-12-31T23:59:59"])
def test_an_end_that_no_calendar_has_is_refused(log, until, capsys):
    assert main(["report", str(log), "--until", until]) == 2
    assert "[bad-time]" in capsys.readouterr().err


def test_until_without_an_offset_is_of_the_zone(log):
    at = datetime.fromtimestamp(WALL_S + 35, UTC)
    for zone, hours in (("+02:00", 2), ("Europe/Zurich", 1)):
        said = (at + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S")
        (run,) = report(log, "--until", said, "--zone", zone)["runs"]
        assert run["window"]["end_s"] == WALL_S + 35
