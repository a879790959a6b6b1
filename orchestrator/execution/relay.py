"""Relay: a command's output, exit status and written file, through the log of a job on the cluster's head.

    here: words ─► job `orchestrator relay MARK … -- words` ─► child process ─┬─ stdout ─► frames `MARK out …`
                                                                              └─ stderr ─► frames `MARK err …`

Ray merges both streams of a job into one log, and writes lines of its own into it. So each piece of output is a frame:
one line with a mark that was drawn for this command alone, the kind of the frame, and bytes as base64. What is not
marked is not the command's. A stream that is a terminal here is a terminal of the same size there, so that tables,
colors and status lines come out as if the command ran here.
"""

import base64
import fcntl
import json
import math
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from orchestrator import __version__
from orchestrator.settings import API_ADDRESS_VARIABLE

FrameKind = Literal["begin", "out", "err", "file", "exit"]
Size = tuple[int, int]
"""Columns and lines of a terminal."""

_COMMAND_LINE = (sys.executable, "-c", "from orchestrator.cli import main; main()")
_MAX_FRAME_BYTES = 9_000
"""Most bytes in a frame: its line is then shorter than the pieces that Ray cuts a log into."""
_LATE_OUTPUT_S = 1.0
"""Time for which output is still waited for after the command's end: what it left running may hold its stdout open."""


class FrameReader:
    """Reader of the frames in a job's log, which comes in pieces that begin and end anywhere."""

    def __init__(self, mark: str) -> None:
        self._frame = re.compile(rf"{mark} (begin|out|err|file|exit) ([A-Za-z0-9+/=]*)$")
        self._rest = ""

    def read(self, piece: str) -> Iterator[tuple[FrameKind, bytes]]:
        """Frames that a piece of the log completes, in order."""
        *lines, self._rest = (self._rest + piece).split("\n")
        for line in lines:
            found = self._frame.search(line)
            if found is not None:
                yield found[1], base64.b64decode(found[2])  # type: ignore[misc]


def relay_command(
    mark: str,
    words: Sequence[str],
    *,
    terminals: Mapping[str, Size],
    files: Sequence[str] = (),
    returned: str | None = None,
    lease_s: float = math.inf,
    write: Callable[[bytes], object] = lambda line: os.write(1, line),
) -> int:
    """Carry out a command line in a child process, in a folder of its own, and write what it does as frames.

    Args:
        mark: begins every frame.
        words: of the command line, after `orchestrator`.
        terminals: sizes of the streams, `out` and `err`, that are to be terminals.
        files: names of files in the current folder that the command reads.
        returned: name of a file that it writes, which goes back after the command has ended.
        lease_s: seconds after which the command is ended, unless somebody has touched the file that the first frame
            names: who asked for it may have gone, and nothing else would say so.
        write: takes each frame whole, so that nothing of the same log comes between.
    """

    def send(kind: FrameKind, data: bytes) -> None:
        for start in range(0, max(1, len(data)), _MAX_FRAME_BYTES):
            piece = base64.b64encode(data[start : start + _MAX_FRAME_BYTES]).decode()
            write(f"{mark} {kind} {piece}\n".encode())

    with TemporaryDirectory(prefix="orchestrator-relay-") as folder:
        for name in files:
            shutil.copy(name, folder)
        lease = Path(folder) / "lease"
        lease.touch()
        if lease_s < math.inf:
            send("begin", json.dumps({"version": __version__, "lease": str(lease)}).encode())

        def is_over() -> bool:
            return time.time() - lease.stat().st_mtime > lease_s

        status = _run([*_COMMAND_LINE, *words], folder, _environment(), terminals, send, is_over)
        path = Path(folder) / (returned or "")
        if returned and path.is_file():
            send("file", path.read_bytes())
    send("exit", str(status).encode())
    return status


def _environment() -> dict[str, str]:
    """The command's environment: that of the job, without what would send the command on to a cluster again."""
    return {name: value for name, value in os.environ.items() if name != API_ADDRESS_VARIABLE}


def _run(
    command: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    terminals: Mapping[str, Size],
    send: Callable[[FrameKind, bytes], None],
    is_over: Callable[[], bool],
) -> int:
    """Run a command and send its output on as it comes; returns its exit status, as a shell would give it.

    It is ended when its time is over.
    """
    out, out_end = _channel(terminals.get("out"))
    err, err_end = _channel(terminals.get("err"))
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out_end, stderr=err_end, cwd=folder, env=dict(environment)
    ) as child:
        os.close(out_end)
        os.close(err_end)
        kinds: dict[int, FrameKind] = {out: "out", err: "err"}
        try:
            while kinds:
                ready = select.select(list(kinds), [], [], _LATE_OUTPUT_S)[0]
                if not ready and child.poll() is not None:
                    break
                if is_over():
                    child.terminate()
                for stream in ready:
                    data = _read(stream)
                    if data:
                        send(kinds[stream], data)
                    else:
                        del kinds[stream]
            status = child.wait()
        except BaseException:
            child.terminate()
            raise
        finally:
            os.close(out)
            os.close(err)
    return status if status >= 0 else 128 - status


def _channel(size: Size | None) -> tuple[int, int]:
    """A stream's end to read from, and the command's: of a pipe, or of a terminal of a size."""
    if size is None:
        return os.pipe()
    reading, writing = os.openpty()
    tty.setraw(writing)  # line ends go through as they are; the terminal here makes its own of them
    columns, lines = size
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    return reading, writing


def _read(stream: int) -> bytes:
    """The next bytes of a stream; none at its end."""
    try:
        return os.read(stream, _MAX_FRAME_BYTES)
    except OSError:  # how the end of a terminal reads on Linux
        return b""
