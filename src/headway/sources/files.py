"""Files as they may turn up: opened only when they are regular, read in bounded pieces."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MAX_LINE: Final = 1 << 20
"""A longer line is no event and is passed over [bytes]."""
HEAD: Final = 1 << 16
"""How much of a file is looked at to recognise it [bytes]."""


class NotAFileError(OSError):
    """The path is a folder, a pipe or a device where a file is looked for."""


@contextmanager
def regular(path: Path) -> Iterator[int]:
    """Open a regular file for reading, and yield its descriptor; a pipe or a device is not touched.

    Raises:
        NotAFileError: It is no regular file.
        OSError: It cannot be opened.

    Example:
        >>> with regular(Path(__file__)) as fd:
        ...     os.pread(fd, 3, 0)
        b'\"\"\"'
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise NotAFileError(f"it is {kind_of(path)}, not a file")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotAFileError("it is no regular file")
        yield fd
    finally:
        os.close(fd)


def kind_of(path: Path) -> str:
    """Return in words what is at a path that exists.

    Example:
        >>> kind_of(Path("/")), kind_of(Path("/dev/null"))
        ('a folder', 'a device')
    """
    mode = path.stat().st_mode
    names = (
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for test, name in names if test(mode)), "a device")


def head(path: Path) -> bytes:
    """Return the beginning of a file, `HEAD` bytes at most.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with regular(path) as fd:
        return os.pread(fd, HEAD, 0)


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line, counted from 1; of an overlong one its beginning.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with regular(path) as fd, os.fdopen(fd, "rb", buffering=MAX_LINE, closefd=False) as file:
        number = 1
        while line := file.readline(MAX_LINE):
            yield number, line
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE)
            number += 1


def reason(error: OSError) -> str:
    """Return in words why a file could not be read.

    Example:
        >>> reason(FileNotFoundError(2, "No such file or directory"))
        'no such file or directory'
    """
    text = error.strerror or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]
