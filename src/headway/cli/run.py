"""`headway run -- CMD`: run any training command, record how it went, restart it, and show the report.

The command learns run, attempt and folder from its environment, and where to leave word of what it
records. For a program that records nothing itself the launcher's own log says when it ran, how it
ended, and what a restart cost.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from headway.cli.main import say
from headway.clock import NS_PER_S, SYSTEM
from headway.errors import HeadwayError
from headway.events import Begin, Close, End, Exit, Open
from headway.record.eventlog import EventLog
from headway.record.faults import Faults
from headway.record.identity import Identity, identify, log_root, moment_name, safe_name
from headway.record.logfolder import EVENTS_FILE, make_folder
from headway.record.process import tell_launcher
from headway.units import show_seconds

BRIEF_NS: Final = 10 * NS_PER_S
"""A command that failed so soon, and recorded nothing, has no time to divide [ns]."""
_STOP: Final = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_PASSED_ON: Final = _STOP | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGTSTP}
_FROM_TERMINAL: Final = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP}
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
_UNRECORDED: Final = "custom:unrecorded"


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--run", "run_name", metavar="NAME", help="Name of the run. Default: $HEADWAY_RUN, else one of its own.")
@click.option(
    "--dir", "directory", metavar="DIR", help="Folder of all runs. Default: $HEADWAY_DIR, else ./headway-logs."
)
@click.option("--max-restarts", metavar="N", type=click.IntRange(min=0), default=0, show_default=True,
              help="Start the command again up to N times when it fails.")  # fmt: skip
@click.option("--no-report", is_flag=True, help="Do not show the report at the end.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def run(
    run_name: str | None, directory: str | None, max_restarts: int, no_report: bool, command: tuple[str, ...]
) -> int:
    """Run a training command and report where its time went.

    Exit code, signals and restarts are recorded also when the command records nothing itself. The
    exit code is the command's, or 128 and the number of the signal that ended it.
    """
    launcher = Launcher(command, run_name, directory)
    code = launcher.run(max_restarts)
    if not no_report:
        _show_end(launcher, code)
    return 128 - code if code < 0 else code


def _show_end(launcher: Launcher, code: int) -> None:
    """Print the report on stderr, as `time` does, so that the command's output stays clean."""
    from headway.cli.report import show

    recorded = launcher.recorded()
    if code and not any(recorded) and launcher.ran_ns < BRIEF_NS:
        if launcher.ran_ns:
            after = show_seconds(launcher.ran_ns / NS_PER_S)
            say(f"headway: the command failed: {_ending(code)} after {after}, nothing recorded")
        return
    try:
        if folders := launcher.run_folders(recorded):
            show(paths=folders, err=True)
    except HeadwayError as error:
        say(str(error))
    except (OSError, SystemExit):  # it cannot be written; rich leaves so where the reader has gone
        pass


class _Told(Faults):
    """Faults of the launcher's own log, said as a command says what is wrong."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root
        self._said: set[str] = set()

    def tell(self, what: str, message: str, about: str = "") -> None:
        """Print it on stderr, with the folder and the next step where no folder could be made."""
        if what == "folder":
            message = (
                f"The launch has no log: {self.errors.get(what)}. The command runs all the same; "
                f"give --dir a folder that you can write, not {self._root}"
            )
        if f"{what}{about}" not in self._said:
            self._said.add(f"{what}{about}")
            say(f"headway: {message}. [{what}]")


class Launcher:
    """Runs one command, again where it fails, and writes the launch log of each attempt.

    Args:
        command: The program and its arguments; no shell reads them.
        run_name: The run's name; by default the environment's, else the script's with the time.
        directory: The folder of all runs.

    Attributes:
        attempts: Their names.
        folders: The folders of their launch logs; empty where none could be made.
        ran_ns: How long the command ran, over all attempts [ns].
    """

    def __init__(self, command: tuple[str, ...], run_name: str | None = None, directory: str | None = None) -> None:
        self.command = command
        self.root = log_root(directory)
        self.attempts: list[str] = []
        self.folders: list[str] = []
        self.ran_ns = 0
        self._faults = _Told(self.root)
        self._me = identify(run_name, script=_script_of(command), faults=self._faults)
        self._stopped = False

    def run(self, max_restarts: int) -> int:
        """Run the command and return its exit code; negative is the number of the signal that ended it."""
        if (problem := _problem(self.command[0])) is not None:
            return problem
        with _signals_held() as (held, mask):
            code = self._attempt(held, mask)
            for restart in range(1, max_restarts + 1):
                if code == 0 or self._stopped or code in {_NOT_FOUND, _NOT_EXECUTABLE}:
                    break
                say(f"headway: {_ending(code)}; restart {restart} of {max_restarts}")
                code = self._attempt(held, mask)
        return code

    def recorded(self) -> list[list[str]]:
        """Return for each attempt the folders of the runs that its processes recorded, wherever they lie."""
        return [_runs_of(folder) for folder in self.folders]

    def run_folders(self, recorded: list[list[str]]) -> list[str]:
        """Return the folders to report on; for an attempt that recorded nothing it is the launcher's own."""
        own = [os.path.join(self.root, safe_name(self._me.run))]  # noqa: PTH118
        each = [there or (own if folder else []) for there, folder in zip(recorded, self.folders, strict=True)]
        return sorted({folder for there in each for folder in there})

    def _attempt(self, held: set[signal.Signals], mask: set[signal.Signals]) -> int:
        me, log = self._begin()
        began = SYSTEM.monotonic_ns()
        try:
            code = self._wait(subprocess.Popen(
                self.command,
                env=self._environ(me),
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),  # noqa: PLW1509 - no threads here
            ), held)  # fmt: skip
            self.ran_ns += SYSTEM.monotonic_ns() - began
        except OSError as error:
            code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
            say(f"headway: cannot run {self.command[0]}: {error.strerror}")
        self._end(log, code)
        return code

    def _environ(self, me: Identity) -> dict[str, str]:
        """Return the command's environment: who it is, and where it leaves word of what it records."""
        mine = {"HEADWAY_RUN": me.run, "HEADWAY_DIR": self.root, "HEADWAY_ATTEMPT": me.attempt}
        if self.folders[-1]:
            mine["HEADWAY_LAUNCH"] = self.folders[-1]
        outer = {name: value for name, value in os.environ.items() if name != "HEADWAY_LAUNCH"}
        return outer | mine

    def _begin(self) -> tuple[Identity, EventLog | None]:
        """Begin the launch log of the next attempt; its name is the launcher's, and then tells the restarts apart."""
        me, number = self._me, len(self.attempts)
        wanted = f"{me.attempt}-restart{number:03d}" if number else me.attempt
        ending = f".r{me.rank}-launch" if me.rank else "-launch"
        me, path = make_folder(
            self.root, Identity(me.run, wanted, me.rank, me.world_size, me.host), ending, self._faults
        )
        self.attempts.append(me.attempt)
        self.folders.append(path)
        if not path:
            return me, None
        tell_launcher(path, me.run, me.attempt, me.rank)
        log = EventLog(os.path.join(path, EVENTS_FILE), self._faults)  # noqa: PTH118
        now = SYSTEM.monotonic_ns()
        log.write(
            Open(wall_ns=SYSTEM.wall_ns(), mono_ns=now, run=me.run, attempt=me.attempt, rank=me.rank,
                 world_size=me.world_size, host=me.host, pid=os.getpid(), phases=())
        )  # fmt: skip
        log.write(Begin(id=1, category=_UNRECORDED, at=now))
        return me, log

    def _end(self, log: EventLog | None, code: int) -> None:
        if log is None:
            return
        now = SYSTEM.monotonic_ns()
        log.write(End(id=1, at=now, ok=code == 0))
        log.write(Exit(code=code, at=now))
        reason = "finished" if code == 0 else "signal" if code < 0 or self._stopped else "failed"
        log.write(Close(at=now, reason=reason))
        log.close()
        self._tell_runs(Path(log.path))

    def _tell_runs(self, log: Path) -> None:
        """Leave a copy of a launch's log with each run it recorded elsewhere: how that began and ended."""
        notes = sorted(log.parent.glob("recorded-*.json"))
        for folder in map(Path, _runs_of(str(log.parent))):
            try:
                if not log.parent.parent.samefile(folder):
                    copy = _new_folder(folder, log.parent.name)
                    for path in (*notes, log):  # the log last: without the notes it would stand in for a process
                        shutil.copyfile(path, copy / path.name)
            except OSError as error:
                say(f"headway: {folder} gets no copy of the launch's log, how it began and ended: {error.strerror}")

    def _wait(self, process: subprocess.Popen[bytes], held: set[signal.Signals]) -> int:
        """Wait for the command and pass on what signals come; return its exit code."""
        while process.poll() is None:
            number, from_terminal = _next_signal(held)
            self._stopped = self._stopped or number in _STOP
            if number in _PASSED_ON and not from_terminal:
                process.send_signal(number)
            if number == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)
        self._stopped = self._stopped or bool(signal.sigpending() & _STOP)
        return process.returncode


def _runs_of(folder: str) -> list[str]:
    """Return the folders of the runs that a launch's processes recorded, as the notes in its folder say."""
    from headway.sources.native.launch import recorded

    return sorted({str(path.parent) for path in recorded(Path(folder), moved=False)}) if folder else []


def _new_folder(parent: Path, name: str) -> Path:
    """Make a folder for the copy of a launch's log, beside one of that name."""
    try:
        (parent / name).mkdir()
    except FileExistsError:
        name = f"{name.removesuffix('-launch')}.{moment_name(SYSTEM.wall_ns(), os.getpid())}-launch"
        (parent / name).mkdir()
    return parent / name


def _next_signal(held: set[signal.Signals]) -> tuple[int, bool]:
    """Return the next signal, and whether the terminal sent it: then the command, of the same group, has it too."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(held)
        return info.si_signo, info.si_signo in _FROM_TERMINAL and info.si_code > 0
    number = signal.sigwait(held)
    return number, number in _FROM_TERMINAL and sys.stdin.isatty()


@contextmanager
def _signals_held() -> Iterator[tuple[set[signal.Signals], set[signal.Signals]]]:
    """Hold back the signals that are passed on, so that none is lost; yield them, and the mask from before."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    held = {number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN} | {signal.SIGCHLD}
    before = {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, held)}
    try:
        yield held, before
    finally:
        while signal.sigpending() & held:
            signal.sigwait(held)  # what came after the command's end is answered by its end
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _problem(program: str) -> int | None:
    """Say why a program cannot be run and return the exit code a shell gives; ``None`` when it can."""
    if shutil.which(program):
        return None
    if os.path.exists(program):  # noqa: PTH110
        say(f"headway: cannot run {program}: it is no executable file. Try: chmod +x {program}")
        return _NOT_EXECUTABLE
    say(f"headway: cannot run {program}: no such command. Check the name, or give its path.")
    return _NOT_FOUND


def _script_of(command: tuple[str, ...]) -> str:
    """Return the script a command runs, for the run's name.

    Example:
        >>> _script_of(("python", "-u", "train.py", "--lr", "0.1")), _script_of(("bin/train", "x"))
        ('train.py', 'bin/train')
    """
    return next((part for part in command if part.endswith((".py", ".sh"))), command[0])


def _ending(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
