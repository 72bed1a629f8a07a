"""`headway run`: what it passes on, what it records, what it shows, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

import headway
from headway.errors import SourceError
from headway.events import Begin, End, Exit, Open
from headway.sources.native.launch import Pointer, pointers

from recorded import events, log_folders, reason, rows

PYTHON = sys.executable


def headway_run(root, *arguments, start=False, cwd=None, **environ):
    """Run `headway run` with its logs below that root."""
    command = [PYTHON, "-c", "from headway.cli.main import main; raise SystemExit(main())", "run", *map(str, arguments)]
    env = {key: value for key, value in os.environ.items() if not key.startswith("HEADWAY")}
    process = subprocess.Popen(
        command,
        env=env | {"HEADWAY_DIR": str(root)} | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=cwd,
    )
    if start:
        return process
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def python(code):
    return ("--", PYTHON, "-c", code)


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_code_is_the_commands(tmp_path, code):
    ended, out, _ = headway_run(tmp_path, "--no-report", *python(f"print('mine'); raise SystemExit({code})"))
    assert (ended, out) == (code, "mine\n")
    (folder,) = log_folders(tmp_path)
    assert folder.name.endswith("-launch")
    assert [event.code for event in events(folder, Exit)] == [code]
    assert reason(folder) == ("failed" if code else "finished")
    (begin,), (end,) = events(folder, Begin), events(folder, End)
    assert (begin.category, begin.id, end.ok) == ("custom:unrecorded", end.id, code == 0)
    assert end.at > begin.at


def test_a_signal_that_ends_the_command_is_128_and_its_number(tmp_path):
    code, _, _ = headway_run(tmp_path, "--no-report", *python("import os; os.kill(os.getpid(), 9)"))
    assert code == 128 + 9
    (folder,) = log_folders(tmp_path)
    assert [event.code for event in events(folder, Exit)] == [-9]
    assert reason(folder) == "signal"


def test_the_command_learns_run_attempt_and_folder(tmp_path):
    show = "import os; print(*(os.environ[k] for k in ('HEADWAY_RUN', 'HEADWAY_DIR', 'HEADWAY_ATTEMPT')), sep='|')"
    code, out, _ = headway_run(".", "--run", "my run", "--dir", tmp_path, "--no-report", *python(show))
    run, root, attempt = out.strip().split("|")
    (folder,) = log_folders(tmp_path)
    opened = events(folder, Open)[0]
    assert (code, run, root) == (0, "my run", str(tmp_path))
    assert (opened.run, opened.attempt, folder.name) == ("my run", attempt, f"{attempt}-launch")


def test_a_program_that_records_shares_run_and_attempt_with_its_launcher(tmp_path):
    code, _, _ = headway_run(tmp_path, "--no-report", *python("import headway\nfor x in headway.track([1, 2]): pass"))
    assert code == 0
    launch, rank = sorted(log_folders(tmp_path), key=lambda folder: not folder.name.endswith("-launch"))
    assert launch.parent == rank.parent
    assert rank.name == launch.name.replace("-launch", "-r0")
    assert len(rows(rank)) == 2


def test_options_behind_the_command_are_its_own(tmp_path):
    code, out, _ = headway_run(tmp_path, "--no-report", PYTHON, "-c", "import sys; print(sys.argv[1:])", "--run", "-x")
    assert (code, out) == (0, "['--run', '-x']\n")


def test_no_shell_reads_the_command(tmp_path):
    _, out, _ = headway_run(tmp_path, "--no-report", "--", "echo", "$HOME; *")
    assert out == "$HOME; *\n"


FAIL_TWICE = """
import os, sys, pathlib
count = pathlib.Path(os.environ['HEADWAY_DIR'], 'count')
n = int(count.read_text()) if count.exists() else 0
count.write_text(str(n + 1))
if n == 0: os.kill(os.getpid(), 15)
sys.exit(n == 1)
"""


def test_a_command_that_fails_is_started_again(tmp_path):
    code, _, err = headway_run(tmp_path, "--run", "r", "--max-restarts", 5, "--no-report", *python(FAIL_TWICE))
    folders = log_folders(tmp_path)
    assert code == 0
    assert [[event.code for event in events(folder, Exit)] for folder in folders] == [[-15], [1], [0]]
    assert [reason(folder) for folder in folders] == ["signal", "failed", "finished"]
    attempts = [events(folder, Open)[0].attempt for folder in folders]
    assert attempts == sorted(set(attempts))
    assert err.splitlines() == [
        "headway: ended by SIGTERM; restart 1 of 5",
        "headway: exit code 1; restart 2 of 5",
    ]


def test_restarts_end(tmp_path):
    code, _, _ = headway_run(tmp_path, "--max-restarts", 2, "--no-report", *python("raise SystemExit(4)"))
    assert code == 4
    assert len(log_folders(tmp_path)) == 3


@pytest.mark.parametrize(
    ("make", "code", "text"),
    [
        (lambda path: "no-such-command", 127, "cannot run no-such-command: no such command"),
        (lambda path: path, 126, "no executable file"),
        (lambda path: path.chmod(0o755) or path, 127, "cannot run"),
    ],
)
def test_what_cannot_be_run_says_why(tmp_path, make, code, text):
    path = tmp_path / "program"
    path.write_text("#!/no/such/interpreter\n")
    ended, out, err = headway_run(tmp_path / "logs", "--no-report", "--max-restarts", 3, "--", make(path))
    assert (ended, out) == (code, "")
    assert text in err
    assert err.count("\n") == 1


def test_where_no_log_can_be_written_the_command_runs_all_the_same(tmp_path):
    (tmp_path / "file").write_text("")
    code, out, _ = headway_run(tmp_path / "file", "--no-report", *python("print('trained')"))
    assert (code, out) == (0, "trained\n")


# --- signals --------------------------------------------------------------------------------

LISTEN = """
import signal, sys, time
got = []
def hear(number, frame):
    got.append(signal.Signals(number).name)
    print(got[-1], flush=True)
    if len(got) == {n}: sys.exit(5)
for number in ({names},): signal.signal(number, hear)
print('ready', flush=True)
while True: time.sleep(0.05)  # a signal just before one long sleep would be heard after it
"""


def listening(tmp_path, *names, n=1, options=(), **environ):
    text = LISTEN.format(n=n, names=",".join(f"signal.{name}" for name in names))
    process = headway_run(tmp_path, "--no-report", *options, *python(text), start=True, **environ)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
def test_a_signal_to_stop_is_passed_on_and_ends_the_restarts(tmp_path, name):
    process = listening(tmp_path, name, options=("--max-restarts", "3"))
    process.send_signal(signal.Signals[name])
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (5, f"{name}\n")
    (folder,) = log_folders(tmp_path)
    assert reason(folder) == "signal"
    assert [event.code for event in events(folder, Exit)] == [5]


def test_other_signals_are_passed_on_and_stop_nothing(tmp_path):
    process = listening(tmp_path, "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGTERM", n=4)
    for name in ("SIGUSR1", "SIGUSR2", "SIGCONT", "SIGTERM"):
        process.send_signal(signal.Signals[name])
        assert process.stdout.readline() == f"{name}\n"
    assert process.wait(30) == 5
    process.communicate()


def test_a_signal_the_launcher_must_ignore_is_ignored(tmp_path):
    """As under nohup."""
    text = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    run = ("run", "--no-report", *python(text))
    main = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from headway.cli.main import main; main()"
    out = subprocess.check_output(
        [PYTHON, "-c", main, *run], env=os.environ | {"HEADWAY_DIR": str(tmp_path)}, text=True
    )
    assert out == "True\n"


def test_the_commands_signals_are_not_held_back(tmp_path):
    text = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    assert headway_run(tmp_path, "--no-report", *python(text))[1] == "set()\n"


def test_ctrl_c_reaches_the_command_once(tmp_path):
    """A terminal sends it to the whole group: passing it on as well would make it two."""
    pid, terminal = os.forkpty()
    if pid == 0:
        text = LISTEN.format(n=2, names="signal.SIGINT,signal.SIGUSR1")
        main = "from headway.cli.main import main; raise SystemExit(main())"
        os.environ["HEADWAY_DIR"] = str(tmp_path)
        os.execv(PYTHON, [PYTHON, "-c", main, "run", "--no-report", *python(text)])
    seen = b""
    try:
        seen = _read_until(terminal, seen, b"ready")
        os.write(terminal, b"\x03")
        seen = _read_until(terminal, seen, b"SIGINT")
        os.kill(pid, signal.SIGUSR1)  # behind it: a second SIGINT would have come first
        seen = _read_until(terminal, seen, b"SIGUSR1")
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    assert seen.count(b"SIGINT") == 1
    assert os.waitstatus_to_exitcode(status) == 5


def _read_until(terminal, seen, word):
    while word not in seen:
        seen += os.read(terminal, 4096)
    return seen


def test_a_stop_from_the_terminal_stops_the_launcher_too_and_goes_on(tmp_path):
    process = listening(tmp_path, "SIGUSR1")
    process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGUSR1)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (5, "SIGUSR1\n")


def test_a_killed_launcher_leaves_what_was_known(tmp_path):
    process = listening(tmp_path, "SIGTERM")
    child = int(subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(process.pid)], text=True))
    process.kill()
    os.kill(child, signal.SIGKILL)
    process.communicate(timeout=30)
    (folder,) = log_folders(tmp_path)
    assert len(events(folder, Begin)) == 1
    assert reason(folder) is None


# --- the report -----------------------------------------------------------------------------


def test_the_report_comes_last_and_on_stderr(tmp_path):
    code, out, err = headway_run(tmp_path, "--run", "r", *python("print('mine')"))
    assert (code, out) == (0, "mine\n")
    assert "unrecorded" in err
    assert err.startswith("r ·")


def test_the_report_is_of_the_run_that_the_command_named(tmp_path):
    text = "import headway\nwith headway.start('digits') as rec:\n  for x in rec.track(range(20)): pass"
    _, _, err = headway_run(tmp_path, *python(text))
    assert err.startswith("digits ·")
    assert "unrecorded" not in err


ELSEWHERE = """
import headway
with headway.start({run!r}, dir={dir}) as rec:
    for x in rec.track(range(20), quiet=True): pass
"""


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_run_that_the_program_names_itself_is_the_one_that_is_shown(tmp_path, elsewhere):
    own, root = tmp_path / "own", tmp_path / "logs"
    _, _, err = headway_run(root, *python(ELSEWHERE.format(run="digits", dir=repr(str(own)) if elsewhere else None)))
    assert err.startswith("digits ·")
    assert "unrecorded" not in err
    notes = [*root.glob("*/*-launch/recorded-*.json")]
    assert [json.loads(note.read_text())["run"] for note in notes] == ["digits"] * (1 if elsewhere else 2)
    if elsewhere:
        with pytest.raises(SourceError, match=r"lies elsewhere, in .*own/digits\. .*\[recorded-elsewhere\]"):
            headway.load(root)
    else:
        assert [run.name for run in headway.load(root)] == ["digits"]
    assert headway.load(own if elsewhere else root)[0].warnings == ()


def test_an_attempt_that_recorded_nothing_is_shown_beside_those_that_did(tmp_path):
    text = FAIL_TWICE.replace(
        "count.write_text", "import headway\nif n: headway.start('digits', dir='own')\ncount.write_text"
    )
    root = tmp_path / "logs"
    root.mkdir()
    _, _, err = headway_run(root, "--run", "r", "--dir", root, "--max-restarts", 2, *python(text), cwd=tmp_path)
    assert "digits ·" in err
    assert "r · 1 attempt" in err


@pytest.mark.parametrize("name", ["recorded-1.json", "recorded-x.json"])
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"path": 3}', b'{"path": "relative"}', b'{"path":"/a\\u0000b"}', b"[" * 9999, b"\xff" * 99],
)
def test_a_note_that_makes_no_sense_is_none(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert pointers(tmp_path) == []


def test_a_note_is_a_file_in_that_folder(tmp_path):
    outside = tmp_path / "outside.json"
    outside.write_text('{"path": "/x/digits/a0-r0"}')
    folder = tmp_path / "a0-launch"
    folder.mkdir()
    (folder / "recorded-1.json").symlink_to(outside)
    (folder / "recorded-2.json").mkdir()
    os.mkfifo(folder / "recorded-3.json")
    assert pointers(folder) == []
    (folder / "recorded-4.json").write_bytes(outside.read_bytes())
    assert pointers(folder) == [Pointer("/x/digits/a0-r0")]


def test_what_an_outer_launcher_told_is_not_passed_on(tmp_path):
    (tmp_path / "file").write_text("")
    text = "import os; print(os.environ.get('HEADWAY_LAUNCH'))"
    _, out, err = headway_run(tmp_path / "file", "--no-report", *python(text), HEADWAY_LAUNCH="/outer")
    assert out == "None\n"
    assert "give --dir a folder" in err
    assert str(tmp_path / "file") in err


def test_the_time_before_and_after_the_log_is_the_commands(tmp_path):
    text = (
        "import os, headway\nrec = headway.start()\n"
        "for x in rec.track(range(5), quiet=True): pass\nos.kill(os.getpid(), 9)"
    )
    headway_run(tmp_path, "--no-report", *python(text))
    launch, rank = sorted(log_folders(tmp_path), key=lambda folder: not folder.name.endswith("-launch"))
    ((process,),) = [run.processes for run in headway.load(tmp_path)]
    began, ended = events(launch, Open)[0], events(launch, Exit)[0]
    assert process.open.mono_ns == began.mono_ns
    held = headway.account(headway.load(tmp_path))
    assert held.held_ns == ended.at - began.mono_ns
    assert held.amounts_ns["startup"] > events(rank, Open)[0].mono_ns - began.mono_ns


def test_a_command_that_fails_at_once_is_not_told_to_record(tmp_path):
    code, _, err = headway_run(tmp_path, "--max-restarts", 1, *python("raise SystemExit(3)"))
    assert code == 3
    assert re.fullmatch(
        r"headway: exit code 3; restart 1 of 1\nheadway: the command failed: exit code 3 after [\d.]+ m?s, "
        r"nothing recorded\n",
        err,
    )


def test_an_option_that_is_misspelt_is_no_command(tmp_path):
    code, _, err = headway_run(tmp_path, "--max-restart", 2, "--", "true")
    assert code == 2
    assert "--max-restarts" in err
    assert not log_folders(tmp_path)


def test_ranks_of_one_launch_have_launch_logs_of_their_own(tmp_path):
    for rank in range(2):
        ids = {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
        assert headway_run(tmp_path, "--run", "r", "--no-report", "--", "true", **ids)[0] == 0
    opens = [events(folder, Open)[0] for folder in log_folders(tmp_path)]
    assert sorted((opened.attempt, opened.rank, opened.world_size) for opened in opens) == [
        ("slurm7-0000", 0, 2),
        ("slurm7-0000", 1, 2),
    ]
    assert all(folder.name.endswith("-launch") for folder in log_folders(tmp_path))


def test_a_run_recorded_elsewhere_begins_and_ends_with_its_launch(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys, headway\n"
        "rec = headway.start('mine', dir=sys.argv[1])\n"
        "for _ in rec.track(range(9), quiet=True): pass\n"
        "rec.saved(3)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-m", "headway", "run", "--dir", tmp_path / "logs", "--", sys.executable, script]
    done = subprocess.run([*command, tmp_path / "other"], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + 9
    assert "mine" in done.stderr
    ledger = headway.account(headway.load(tmp_path / "other"))
    assert ledger.parts[0].ended == "signal"
    assert (ledger.steps.executed, ledger.steps.retained) == (9, 4)
    assert ledger.amounts_ns["startup"] > ledger.amounts_ns["productive"]


def runs_of(root):
    return {(run.name, process.open.attempt) for run in headway.load(root) for process in run.processes}


def test_another_run_of_the_same_attempt_is_let_alone(tmp_path):
    job = {"SLURM_JOB_ID": "7"}
    text = "import headway\nwith headway.start() as rec:\n  for x in rec.track(range(9), quiet=True): pass"
    headway_run(tmp_path, "--run", "A", "--no-report", *python(text), **job)
    before = sorted(path.name for path in (tmp_path / "A").rglob("*"))
    _, _, err = headway_run(tmp_path, "--run", "B", *python(text + "\nraise SystemExit(3)"), **job)
    assert sorted(path.name for path in (tmp_path / "A").rglob("*")) == before
    assert err.startswith("B ·")
    assert "A ·" not in err
    assert headway.load(tmp_path / "A")[0].warnings == ()


@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_command_that_names_its_own_attempt_is_counted_once(tmp_path, name, elsewhere):
    root, own = tmp_path / "logs", tmp_path / "own"
    where = repr(str(own)) if elsewhere else None
    text = f"import headway\nwith headway.start({name!r}, attempt='mine', dir={where}) as rec: pass"
    _, _, err = headway_run(root, "--run", "x", *python(text))
    assert err.startswith(f"{name} · 1 attempt")
    assert runs_of(own if elsewhere else root) == {(name, "mine")}
    assert not elsewhere or list(own.glob("*/*-launch/recorded-*.json"))


@pytest.mark.parametrize("text", ["import headway\nheadway.start('x').close()", "import headway\nheadway.start()", ""])
def test_a_launcher_that_a_launcher_runs_is_counted_once(tmp_path, text):
    inner = (PYTHON, "-m", "headway", "run", "--no-report", *python(text))
    code, _, err = headway_run(tmp_path, "--run", "r", "--", *inner)
    assert code == 0
    assert len(runs_of(tmp_path)) == 1
    assert err.startswith("x · 1 attempt" if "'x'" in text else "r · 1 attempt")


def test_every_run_of_a_program_is_shown(tmp_path):
    text = "import headway\nfor name in 'abc': headway.start(name, dir='own').close()"
    _, _, err = headway_run(tmp_path / "logs", "--dir", tmp_path / "logs", *python(text), cwd=tmp_path)
    assert [name for name in "abc" if f"{name} · 1 attempt" in err] == ["a", "b", "c"]
    assert sorted(name for name, _ in runs_of(tmp_path / "own")) == ["a", "b", "c"]


def test_what_was_recorded_and_is_gone_is_as_if_nothing_was(tmp_path):
    text = (
        "import headway, tempfile\nwith tempfile.TemporaryDirectory() as d, headway.start('t', dir=d) as rec:\n"
        "  for x in rec.track(range(9), quiet=True): pass"
    )
    code, _, err = headway_run(tmp_path, "--run", "r", *python(text))
    assert (code, err[:3]) == (0, "r ·")
    assert [name for name, _ in runs_of(tmp_path)] == ["r"]


def test_a_second_copy_lies_beside_the_first(tmp_path):
    text = "import headway\nheadway.start('own', dir='own').close()"
    for run in "ab":
        _, _, err = headway_run(
            tmp_path / "logs", "--run", run, "--dir", tmp_path / "logs", *python(text), cwd=tmp_path, SLURM_JOB_ID="7"
        )
        assert "headway:" not in err
    assert len([*(tmp_path / "own" / "own").glob("*-launch")]) == 2
    assert len(headway.load(tmp_path / "own")[0].processes) == 2


@pytest.mark.parametrize("broken", ["full", "gone"])
@pytest.mark.parametrize(("options", "code"), [((), 0), (("--max-restarts", "2"), 3), (("--max-restart", "2"), 2)])
def test_what_cannot_be_said_changes_nothing(tmp_path, broken, options, code):
    env = {key: value for key, value in os.environ.items() if not key.startswith("HEADWAY")}
    if broken == "full":
        stderr = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, stderr = os.pipe()
        os.close(reader)
    done = subprocess.run(
        [PYTHON, "-m", "headway", "run", *options, "--", "sh", "-c", f"echo ran; exit {code}"],
        env=env | {"HEADWAY_DIR": str(tmp_path)}, stderr=stderr, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(stderr)
    assert (done.returncode, done.stdout) == (code, "ran\n" * {0: 1, 3: 3, 2: 0}[code])
