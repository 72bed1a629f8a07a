"""Workers on this machine, a process and a file of output each; those with ``ssh`` on another."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from headway.cluster.config import ClusterConfig
from headway.cluster.launch.launcher import TOKEN, Meeting
from headway.errors import ClusterError
from headway.sources.text import clean

_GRACE_S: Final = 3.0
_TAIL: Final = 2000


class LocalLauncher:
    """Starts processes on this machine, the default; no other service is needed.

    Workers have a session of their own, so that Ctrl-C reaches the coordinator alone, and die with
    it: by the end of their connection, and where the kernel can by its signal.

    A forked child of this process has a copy of it, which ends no worker and removes nothing.

    Attributes:
        folder: Where the workers' output goes, a file each; removed by `close`.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._nodes = {node.addr: node for node in config.nodes}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="headway-cluster-"))
        self._pid = os.getpid()
        self._remove = weakref.finalize(self, _remove, self.folder, self._pid)  # without a close, too
        # the kernel's death signal goes by the thread that started a process: this one lives as long as the launcher
        self._starter = ThreadPoolExecutor(1, "headway-start")

    def start(self, addrs: list[str], meeting: Meeting) -> None:
        """Start a worker for each of these nodes."""
        for addr in addrs:
            self._processes[addr] = self._starter.submit(self._start, addr, meeting).result()

    def _start(self, addr: str, meeting: Meeting) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "headway", *meeting.command(addr), "--with-parent", str(os.getpid())]
        environ = {**os.environ, TOKEN: meeting.token}
        given = None
        if (ssh := self._nodes[addr].ssh) is not None:
            # the token goes in by standard input: a command line can be read by everyone on both machines
            remote = shlex.join(["headway", *meeting.command(addr), "--token-stdin"])
            command, given, environ = ["ssh", "-o", "BatchMode=yes", "--", ssh, remote], meeting.token, dict(os.environ)
        with self._output(addr).open("wb") as output:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environ,
                    start_new_session=True,
                )
            except OSError as error:
                raise ClusterError(
                    f"Cannot start the worker of {addr}: {error.strerror or error}",
                    "Install what the message names, or leave ssh out",
                    "no-start",
                ) from error
        if given is not None and process.stdin is not None:
            with contextlib.suppress(OSError), process.stdin as pipe:
                pipe.write(given.encode() + b"\n")
        return process

    def ended(self, addr: str) -> str | None:
        """Return how a worker's process has ended, with the last line it wrote; None while it runs."""
        process = self._processes.get(addr)
        if process is None:
            return None
        code = process.poll()
        if code is None:
            return None
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        last = self.said(addr)
        return how if not last or last.startswith("serving on ") else f"{how} ({last})"

    def said(self, addr: str) -> str:
        """Return the last line that a worker wrote."""
        with contextlib.suppress(OSError):
            with self._output(addr).open("rb") as output:
                output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL))
                tail = output.read(_TAIL).decode(errors="replace")
            return clean(tail.strip().rpartition("\n")[2])
        return ""

    def kill(self, addr: str) -> None:
        """End a worker at once, stopped or not."""
        process = self._processes.get(addr)
        if process is not None and os.getpid() == self._pid and process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """End all workers: those that do not by themselves are killed."""
        if os.getpid() != self._pid:
            return
        end = time.monotonic() + _GRACE_S
        try:
            for process in self._processes.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, end - time.monotonic()))
        finally:  # also when the wait is interrupted
            for addr in list(self._processes):
                self.kill(addr)
            self._starter.shutdown()
            self._remove()

    def _output(self, addr: str) -> Path:
        place = list(self._nodes).index(addr)
        return self.folder / f"worker-{place}.log"


def _remove(folder: Path, pid: int) -> None:
    """Remove a folder, in the process that made it alone: what ends a forked child comes here, too."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
