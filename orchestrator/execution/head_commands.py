"""Commands that are carried out on a cluster's head: a small job each, whose output comes back as if it ran here.

An outsider has the dashboard's address alone: the registry and the storage lie where the head reaches them. The job is
marked as a command's, so that lists of runs' jobs leave it out; the next command deletes it. A command that takes long
ends when whoever asked has gone: its time is renewed from here as long as this process lives.
"""

import json
import logging
import os
import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from orchestrator import __version__
from orchestrator.errors import ClusterError, InputError
from orchestrator.execution.head_lease import LEASE_S, renewed
from orchestrator.execution.job_client import ROLE_OF_COMMANDS, Jobs, open_jobs
from orchestrator.execution.relay import FrameReader, Size
from orchestrator.progress import is_terminal
from orchestrator.settings import ASKED_AT_VARIABLE, HOME_VARIABLE, Settings, has_password, without_password

logger = logging.getLogger(__name__)
MAX_UPLOAD_BYTES = 1 << 20
_END_TIMEOUT_S = 5.0
"""Time for which a job that has no more to say is waited for, to learn how it ended."""
_KEPT_MS = 10_000
"""Time after its end for which a job is kept. Ray's monitor looks at it once a second, and would write one that was
deleted before it had seen the end anew, as failed and without its metadata."""
_LOG_SHOWN = 600


@dataclass(frozen=True)
class HeadCommand:
    """A command line for the head."""

    words: Sequence[str]
    """Words after `orchestrator`, without settings."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Small files by name, which are uploaded for the command to read."""
    returned: str | None = None
    """Name of a file that the command writes, which comes back."""


@dataclass(frozen=True)
class HeadOutcome:
    """Exit status of a command on the head, and the file that came back."""

    status: int
    file: bytes | None = None
    """The file that was to come back; None where the command has written none."""


@dataclass(frozen=True)
class Streams:
    """Receivers of a command's output."""

    out: Callable[[bytes], object]
    err: Callable[[bytes], object]
    terminals: Mapping[str, Size] = field(default_factory=dict)
    """Sizes of the streams, `out` and `err`, that are terminals."""
    received: Callable[[int], object] = lambda num_bytes: None
    """Told how many bytes of the file that comes back are here."""


def carry_out_on_head(command: HeadCommand, settings: Settings, address: str, streams: Streams) -> HeadOutcome:
    """Carry out a command on the head of the cluster whose dashboard is at an address.

    An interruption here ends the command there.

    Raises: ClusterError when the cluster cannot be reached, or has no `orchestrator` that understands the command;
        InputError for files that are not to be uploaded.
    """
    jobs = open_jobs(address)
    mark, job_id = secrets.token_hex(8), f"command-{secrets.token_hex(6)}"
    title = shlex.join(["orchestrator", *command.words])
    with uploaded(command.files) as environment:
        jobs.submit(
            job_id,
            job_command(_relay_words(command, settings, mark, streams.terminals), settings, address),
            environment,
            {"job_name": title, "role": ROLE_OF_COMMANDS},
        )
    try:
        outcome = _read_outcome(jobs, job_id, mark, streams)
    except BaseException:
        with suppress(ClusterError):
            jobs.stop(job_id)
        raise
    _forget_earlier(jobs, job_id)
    return outcome


def _relay_words(command: HeadCommand, settings: Settings, mark: str, terminals: Mapping[str, Size]) -> list[str]:
    options = [word for name, size in terminals.items() for word in (f"--{name}", f"{size[0]}x{size[1]}")]
    options += [word for name in command.files for word in ("--file", name)]
    options += ["--returned", command.returned] if command.returned else []
    return ["relay", mark, f"--lease={LEASE_S:g}", *options, "--", *given_words(settings), *command.words]


def given_words(settings: Settings) -> list[str]:
    """Options of the settings that go along; for all others the cluster's own hold."""
    values = {"home": str(settings.home), "storage": settings.storage, "registry": settings.registry}
    return [word for name, value in values.items() if name in settings.sent for word in (f"--{name}", value)]


def job_command(words: Sequence[str], settings: Settings, address: str) -> str:
    """A job's command, as a shell takes it; `words` are those after `orchestrator`.

    It knows the address by which it was asked for. A home that neither the settings nor the cluster names is the user's
    on the head: the folder that a job begins in is deleted after it.
    """
    home = "" if "home" in settings.sent else f'{HOME_VARIABLE}="${{{HOME_VARIABLE}:-$HOME/.orchestrator}}" '
    return f"{ASKED_AT_VARIABLE}={shlex.quote(without_password(address))} {home}{shlex.join(['orchestrator', *words])}"


@contextmanager
def uploaded(files: Mapping[str, bytes]) -> Iterator[dict[str, object]]:
    """Yield the runtime environment of a job with a few small files, and nothing else, in its folder.

    Raises: InputError for files that are too large to be specs: data belong on the cluster's storage.
    """
    num_bytes = sum(map(len, files.values()))
    if num_bytes > MAX_UPLOAD_BYTES:
        raise InputError(
            f"{', '.join(files)} would be an upload of {num_bytes:,} bytes, where {MAX_UPLOAD_BYTES:,} are allowed; "
            "put data on the cluster's storage, and name it by its path there"
        )
    if not files:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="orchestrator-job-") as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        yield {"working_dir": folder}


def refuse_password(settings: Settings) -> None:
    """Check that a registry's URL that goes along may be shown. Raises: InputError."""
    if "registry" in settings.sent and has_password(settings.registry):
        raise InputError(
            "the registry's URL has a password, which a job's command would show to everyone who sees the dashboard; "
            "put the URL into a file with mode 0600 on the cluster and give --registry file:PATH"
        )


def terminal_size(stream: TextIO | None) -> Size | None:
    """Size of a stream that is a terminal."""
    if not is_terminal(stream):
        return None
    with suppress(OSError):
        return os.get_terminal_size(stream.fileno())
    return shutil.get_terminal_size()


def terminals_here() -> dict[str, Size]:
    """Sizes of those streams of this process that are terminals."""
    sizes = {"out": terminal_size(sys.stdout), "err": terminal_size(sys.stderr)}
    return {name: size for name, size in sizes.items() if size is not None}


def _read_outcome(jobs: Jobs, job_id: str, mark: str, streams: Streams) -> HeadOutcome:
    with ExitStack() as renewing:

        def begin(said: Mapping[str, str]) -> None:
            renewing.enter_context(renewed(jobs, said["lease"]))
            if said["version"] != __version__:
                logger.warning(
                    f"the cluster's head has version {said['version']} of this package, here is {__version__}"
                )

        return _read_frames(jobs, job_id, mark, streams, begin)


def _read_frames(
    jobs: Jobs, job_id: str, mark: str, streams: Streams, begin: Callable[[Mapping[str, str]], None]
) -> HeadOutcome:
    reader, log = FrameReader(mark), ""
    file: list[bytes] = []
    status: list[int] = []

    def take(piece: str) -> bool:
        nonlocal log
        log = (log + piece)[-_LOG_SHOWN:]
        for kind, data in reader.read(piece):
            if kind == "begin":
                begin(json.loads(data))
            elif kind == "exit":
                status.append(int(data))
            elif kind == "file":
                file.append(data)
                streams.received(sum(map(len, file)))
            else:
                (streams.out if kind == "out" else streams.err)(data)
        return bool(status)

    jobs.read_log(job_id, take)
    if not status:
        raise ClusterError(_why_nothing(jobs, job_id, log))
    return HeadOutcome(status[0], b"".join(file) if file else None)


def _why_nothing(jobs: Jobs, job_id: str, log: str) -> str:
    """The reason for which a command's job has ended without the command's exit status."""
    details = jobs.wait(job_id, _END_TIMEOUT_S)
    said = " ".join((log or details.message or "nothing").split())
    if details.driver_exit_code == 127:
        return "the cluster's head has no `orchestrator` command; install the package there, in this version"
    if details.driver_exit_code == 2:
        return (
            "the `orchestrator` on the cluster's head did not understand the command; install there the version that "
            f"is here. It said: {said}"
        )
    return f"the command on the cluster's head was cut off ({details.status.value}). It said: {said}"


def _forget_earlier(jobs: Jobs, job_id: str) -> None:
    """Delete the jobs of commands that had ended some time before this one began: they are nobody's runs."""
    with suppress(ClusterError):  # the outcome stands, whatever becomes of the jobs
        known = jobs.submitted()
        began = known[job_id].start_time if job_id in known else None
        for other_id, job in known.items():
            is_command = (job.metadata or {}).get("role") == ROLE_OF_COMMANDS
            if is_command and began and job.end_time and job.end_time < began - _KEPT_MS:
                jobs.delete(other_id)
