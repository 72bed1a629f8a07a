"""The command `headway`: its subcommands, each loaded when it is asked for, and its exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TextIO

import click

import headway
from headway.errors import HeadwayError

COMMANDS: Final[Mapping[str, str]] = {
    "cluster": "Split a model over nodes, run it, and watch every node.",
    "demo": "Train a small classifier, kill it, resume it, and show the report.",
    "model": "Compute what goodput could be: what-if, sweeps, save intervals, simulation.",
    "report": "Show where the device-time of runs went, and what would return most.",
    "run": "Run a training command and report where its time went.",
}
"""By name, what each does; the command itself is in ``headway.cli.<name>``, under that name."""

EXIT_ERROR: Final = 2
"""Something cannot be done as asked: an option, a path, a file."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C, as shells give it."""


class LazyGroup(click.Group):
    """A group that imports a command when it runs, so that ``--help`` needs none of them.

    Args:
        table: By name, what each command does.
        home: The module and attribute that hold a command, with ``{}`` for its name.
    """

    def __init__(
        self, *args: Any, table: Mapping[str, str] = COMMANDS, home: str = "headway.cli.{0}:{0}", **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.table = table
        self._home = home

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name; None when there is none."""
        del ctx
        if cmd_name not in self.table:
            return None
        module, attribute = self._home.format(cmd_name).split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was asked for; of one that is not there, name the likeliest.

        Raises:
            UsageError: There is none of that name.
        """
        near = get_close_matches(args[0], self.table, n=1) if args[0] not in self.table else []
        if near:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(self.table.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(headway.__version__, "-V", "--version", prog_name="headway")
def cli() -> None:
    """Headway: where your accelerator time went, what each loss costs, and what would get it back."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: What follows the command's name; None takes them from the process.

    Example:
        >>> main(["--version"])
        headway, version 0.1.0
        0
    """
    _give_streams()
    try:
        return _run(arguments)
    finally:
        try:
            sys.stderr.flush()
        except OSError:  # at exit it would be tried again, and change the exit code
            _close_quietly(sys.stderr)


def say(text: str) -> None:
    """Print a line on stderr; one that cannot be written is lost, and changes nothing else.

    Example:
        >>> say("headway: exit code 1; restart 1 of 3")
    """
    with suppress(OSError):
        click.echo(text, err=True)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        result = cli.main(args=None if arguments is None else [*arguments], prog_name="headway", standalone_mode=False)
        sys.stdout.flush()
    except HeadwayError as error:
        return _fail(_in_lines(error))
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _close_quietly(sys.stdout)
        return 0
    except OSError as error:  # what reads and runs says its own; this is the output
        _close_quietly(sys.stdout)
        return _fail(f"cannot write the output: {error.strerror or error}")
    return result if isinstance(result, int) else 0


def _give_streams() -> None:
    """Take the place of a standard stream that was closed by one that goes nowhere, under its own number."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:
            mode = os.O_RDONLY if name == "stdin" else os.O_WRONLY
            nowhere = os.open(os.devnull, mode)  # the lowest free number: this one
            os.set_inheritable(nowhere, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _in_lines(error: HeadwayError) -> str:
    """Return the message of an error; where several declined, each with its reason on a line of its own."""
    reasons: Mapping[str, str] = error.details.get("reasons", {})
    if not reasons:
        return str(error)
    what = error.what.removesuffix("; " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
    width = max(map(len, reasons))
    lines = (f"\n  {name:<{width}}  {reason}" for name, reason in reasons.items())
    return f"{what}. {error.next_step}. [{error.slug}]{''.join(lines)}"


def _fail(message: str) -> int:
    say(f"headway: {message}")
    return EXIT_ERROR


def _close_quietly(stream: TextIO) -> None:
    """Who read the output has gone, or its disk is full: nothing more is written, at exit neither."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
