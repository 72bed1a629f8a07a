"""`headway demo`: a real training run, killed in the middle and resumed, and the report of both attempts."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from headway.errors import HeadwayError

SCRIPT: Final = Path(__file__).with_name("train_digits.py")
KILL_AFTER_STEPS: Final = 235
"""Recorded steps after which the run is killed: well past a checkpoint, so that some are lost."""
PAUSE_S: Final = 1.5
"""What a launcher would take to notice and start again [s]."""
_POLL_S: Final = 0.05


@click.command()
@click.option("--dir", "directory", metavar="DIR", type=click.Path(path_type=Path),
              help="An empty or new folder for the run. Default: a new temporary one, which is kept.")  # fmt: skip
def demo(directory: Path | None) -> None:
    """Train a small classifier, kill it, resume it, and show the report.

    The training is real: images of handwritten digits, a neural network of scikit-learn,
    checkpoints. It takes half a minute, and is killed by SIGKILL in the middle.
    """
    from headway.cli.report import show

    require_sklearn()
    folder = _folder(directory)
    click.echo(f"1. Train a classifier of handwritten digits: {SCRIPT}")
    steps = _train_and_kill(folder)
    click.echo(f"2. Killed by SIGKILL after {steps} steps; waiting {PAUSE_S} s, as a scheduler would")
    time.sleep(PAUSE_S)
    click.echo("   Start it again: it resumes from its checkpoint")
    accuracy = _train_to_the_end(folder)
    click.echo(f"3. Finished: {accuracy}\n")
    sys.stdout.flush()
    show([str(folder / "logs")])
    click.echo(_next_commands(folder))


def require_sklearn(find: Callable[[str], object] = find_spec) -> None:
    """Check that what the demo trains with is installed.

    Args:
        find: How a module is looked up.

    Raises:
        HeadwayError: It is not.
    """
    if find("sklearn") is None:
        raise HeadwayError(
            "Cannot run the demo: scikit-learn is not installed",
            "Run: pip install scikit-learn",
            "missing-extra",
            extra="demo",
        )


def recorded_steps(logs: Path) -> int:
    """Return how many steps the logs under that folder hold so far."""
    from headway.sources.native.follow import Follower

    return sum(len(process.rows) for run in Follower(logs).poll() for process in run.processes)


def _folder(directory: Path | None) -> Path:
    try:
        if directory is None:
            return Path(tempfile.mkdtemp(prefix="headway-demo-"))
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise click.BadParameter(f"{directory} is not an empty folder; give a new one.", param_hint="--dir")
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise _no_folder(directory, error) from error
    return directory


def _no_folder(directory: Path | None, error: OSError) -> HeadwayError:
    shown = "a temporary folder" if directory is None else f"the folder {directory}"
    return HeadwayError(
        f"Cannot make {shown} for the demo: {error.strerror}",
        "Give --dir a new folder in a place that you can write",
        "no-folder",
        directory=str(directory),
    )


def _start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder)], stdout=subprocess.PIPE, text=True)


def _train_and_kill(folder: Path) -> int:
    """Start the training and kill it in the middle; what counts is the log, not the clock."""
    with _start(folder) as process:
        try:
            while process.poll() is None and recorded_steps(folder / "logs") < KILL_AFTER_STEPS:
                time.sleep(_POLL_S)
        finally:
            process.kill()
    if process.returncode >= 0:
        raise _failed(process.returncode)
    return recorded_steps(folder / "logs")


def _train_to_the_end(folder: Path) -> str:
    """Run the same training again and return what it prints."""
    with _start(folder) as process:
        try:
            output, _ = process.communicate()
        finally:
            process.kill()
    if process.returncode:
        raise _failed(process.returncode)
    return output.strip()


def _failed(code: int) -> HeadwayError:
    return HeadwayError(
        f"Cannot go on with the demo: the training ended with exit code {code}",
        "Its own message is above; repair what it names and run headway demo again",
        "demo-failed",
        code=code,
    )


def this_program(arguments: Sequence[str], which: Callable[[str], str | None] = shutil.which) -> str:
    """Return what to type for this program: its name where that is found, else how it was started.

    Args:
        arguments: As in ``sys.argv``.
        which: How a name is looked up on the path.

    Example:
        >>> this_program([".venv/bin/headway", "demo"], which=lambda name: None)
        '.venv/bin/headway'
    """
    if which("headway"):
        return "headway"
    if Path(arguments[0]).name == "headway":
        return shlex.quote(arguments[0])
    return f"{shlex.quote(sys.executable)} -m headway"


def _next_commands(folder: Path) -> str:
    program, logs = this_program(sys.argv), shlex.quote(str(folder / "logs"))
    return "\n".join(
        (
            "",
            f"The run lies in {folder}. Try on it:",
            f"  {program} report {logs} --by attempt",
            f"  {program} report {logs} --every 5s",
            f'  {program} report {logs} --price "2 USD/h" --json',
            "Your own training: put headway.track() round its loader, or run:",
            f"  {program} run -- python train.py",
        )
    )
