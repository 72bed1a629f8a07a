"""Files as they may turn up: opened only when they are regular, read in bounded pieces."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

MAX_LINE: Final = 1 << 20
"""A longer line is no event and is passed over [bytes]."""
MAX_UNPACKED: Final = 64 << 30
"""So much of a gzip is unpacked at most [bytes]."""
_BLOCK: Final = 1 << 18
"""So much of a file is looked at at once, or a line more [bytes]."""
_GZIP: Final = b"\x1f\x8b"
HEAD: Final = 1 << 16
"""How much of a file is looked at to recognise it [bytes]."""


LINK: Final = "it is a link, which is not followed"


class NotAFileError(OSError):
    """The path is a folder, a pipe or a device where a file is looked for."""


@contextmanager
def regular(path: Path, *, follow: bool = True) -> Iterator[int]:
    """Open a regular file for reading, and yield its descriptor; a pipe or a device is not touched.

    Args:
        path: Where it is.
        follow: Whether it may be a link: one that the reader gave may, one that was found may not.

    Raises:
        NotAFileError: It is no regular file.
        OSError: It cannot be opened.

    Example:
        >>> with regular(Path(__file__)) as fd:
        ...     os.pread(fd, 3, 0)
        b'\"\"\"'
    """
    if not follow and path.is_symlink():
        raise NotAFileError(LINK)
    if not stat.S_ISREG(path.stat().st_mode):
        raise NotAFileError(f"it is {kind_of(path)}, not a file")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
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


def why_not(path: Path) -> str:
    """Return why a file is not opened that lies below or beside what the reader gave; empty where it can be.

    Raises:
        FileNotFoundError: There is nothing.

    Example:
        >>> why_not(Path(__file__)), why_not(Path("/dev/null"))
        ('', 'it is a device, not a file')
    """
    try:
        with regular(path, follow=False):
            return ""
    except FileNotFoundError:
        raise
    except OSError as error:
        return reason(error)


def head(path: Path) -> bytes:
    """Return the beginning of a file, `HEAD` bytes at most; of one that is gzip, of what is in it.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    data = b""
    with plain(path) as file, suppress(TornError):
        while len(data) < HEAD and (piece := file.read1(HEAD - len(data))):
            data += piece
    if data:
        return data
    with regular(path) as fd:
        return os.pread(fd, HEAD, 0)


class TornError(OSError):
    """A gzip is torn or damaged: what came before can be read, and nothing after."""


class TooLargeError(OSError):
    """What a file unpacks to is beyond `MAX_UNPACKED`."""


@contextmanager
def plain(path: Path) -> Iterator[io.BufferedReader[Any]]:
    """Open a regular file for reading, and yield what is in it: unpacked where it is gzip.

    A read beyond `MAX_UNPACKED` of what is unpacked raises `TooLargeError`, and one of a torn or
    damaged gzip `TornError`, where it breaks.

    Raises:
        OSError: It cannot be opened, or is no regular file.

    Example:
        >>> with plain(Path(__file__)) as file:
        ...     file.read(3)
        b'\"\"\"'
    """
    with regular(path) as fd, io.BufferedReader(io.FileIO(fd, closefd=False), MAX_LINE) as file:
        if file.peek(2)[:2] != _GZIP:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked, io.BufferedReader(_Limited(unpacked), MAX_LINE) as reader:
            yield reader


class _Limited(io.RawIOBase):
    """What a gzip unpacks to, up to a limit."""

    def __init__(self, unpacked: gzip.GzipFile) -> None:
        self._unpacked = unpacked
        self._n_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._unpacked.read1(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TornError(f"its gzip is torn or damaged after {self._n_bytes} bytes unpacked") from error
        self._n_bytes += len(data)
        if self._n_bytes > MAX_UNPACKED:
            raise TooLargeError(f"it unpacks to more than {MAX_UNPACKED >> 30} GiB")
        buffer[: len(data)] = data
        return len(data)


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line, counted from 1; of an overlong one its beginning.

    A gzip is unpacked; one that is torn or damaged ends where it breaks, with `TornError`.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with plain(path) as file:
        number = 1
        while line := file.readline(MAX_LINE):
            yield number, line
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE)
            number += 1


def blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that `lines` yields, many together, each with the number of the first.

    Of an overlong line its beginning comes by itself, without a newline.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with plain(path) as file:
        number, rest, is_over = 1, b"", False
        while file.peek(1) and (piece := file.read1(_BLOCK)):
            if is_over:  # the beginning of this line was yielded
                _, newline, piece = piece.partition(b"\n")
                is_over = not newline
            block = rest + piece
            end = block.find(b"\n") + 1
            if end > MAX_LINE or (not end and len(block) >= MAX_LINE):
                yield number, block[:MAX_LINE]
                number, is_over, block = number + 1, not end, block[end:] if end else b""
            end = block.rfind(b"\n") + 1
            if end:
                yield number, block[:end]
                number += block.count(b"\n")
            rest = block[end:]
        if rest:
            yield number, rest


def piece(file: io.BufferedReader[Any], size: int) -> bytes:
    """Return the next bytes of what `plain` yields; fewer only at the end, or before where a gzip breaks.

    Raises:
        TornError: It breaks here.
        OSError: It cannot be read.
    """
    pieces: list[bytes] = []
    try:
        while size > 0 and (got := file.read1(size)):
            pieces.append(got)
            size -= len(got)
    except TornError:
        if not pieces:
            raise
    return b"".join(pieces)


def next_step(error: OSError | ValueError) -> str:
    """Return what to do about a file that could not be read.

    Example:
        >>> next_step(PermissionError(13, "Permission denied"))
        'Make it readable'
    """
    if isinstance(error, TooLargeError):
        return "Unpack it with gunzip and give that: only what is packed has a limit"
    return "Make it readable"


def reason(error: OSError) -> str:
    """Return in words why a file could not be read.

    Example:
        >>> reason(FileNotFoundError(2, "No such file or directory"))
        'no such file or directory'
    """
    text = error.strerror or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]
