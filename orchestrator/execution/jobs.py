"""Runs as Ray jobs: `orchestrator run`, or `resume`, on the cluster's head. The job of a run is called as the run.

A run's id is drawn where it is submitted, and is the id of its job; its later attempts' jobs are ID-2, ID-3, …. What is
uploaded is the spec alone: what it names must lie where the cluster reaches it. Settings that were given here travel in
the job's command; the cluster has its own for all others. Anyone who sees the dashboard can read that command. So a
registry URL with a password is refused; `file:PATH`, a file on the cluster, holds one safely.
"""

import asyncio
import json
import logging
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.base.errors import ClusterError, InputError, NotFoundError, SeveralRunsError
from orchestrator.base.settings import (
    API_ADDRESS_VARIABLE,
    ASKED_AT_VARIABLE,
    HOME_VARIABLE,
    Settings,
    has_password,
    without_password,
)
from orchestrator.cluster.connection import check_listening
from orchestrator.execution.launch_folder import with_absolute_paths
from orchestrator.execution.waiting import poll
from orchestrator.specs import AnySpec
from orchestrator.specs.loading import spec_values
from orchestrator.specs.references import replace_texts

if TYPE_CHECKING:
    from ray.dashboard.modules.job.pydantic_models import JobDetails

_POLL_S = 0.2
_TIMEOUT_S = (5.0, 30.0)
"""Longest waits for a connection to the dashboard, and for its next byte."""
_LOST = ("ConnectTimeout", "ReadTimeout", "ConnectionError", "ClientConnectorError", "ServerDisconnectedError")
"""Names of what Ray's HTTP libraries raise where the way to a dashboard is gone."""
_CHATTY_LOGGERS = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
ROLE_OF_RUNS = "run"
"""Value of the metadata `role` of a run's job."""
SPEC_FILE = "spec.yaml"
_JOB_CONFIG_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray for the command of a job: what it says of the job, as JSON."""


class Jobs:
    """Jobs of the cluster whose dashboard is at an address. Each method raises ClusterError where it does not answer.

    Args:
        client: Ray's `JobSubmissionClient`.
        silence_s: seconds without a word of a log after which the dashboard is asked whether it is there.
    """

    def __init__(self, client: Any, address: str, silence_s: float = 15.0) -> None:
        self._client, self._address, self._silence_s = client, address, silence_s

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of Ray's client."""
        with _translated(self._address):
            return getattr(self._client, method)(*arguments, **options)

    def submit(self, job_id: str, entrypoint: str, environment: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
        """Submit a command of the shell as a job; an id that was used before is refused."""
        options = {"runtime_env": dict(environment), "metadata": dict(metadata)}
        self.ask("submit_job", entrypoint=entrypoint, submission_id=job_id, **options)

    def submitted(self) -> "dict[str, JobDetails]":
        """All jobs that were submitted to the cluster, by their ids; drivers that connected are none of them."""
        return {job.submission_id: job for job in self.ask("list_jobs") if job.submission_id}

    def follow_log(self, job_id: str, take: Callable[[str], object]) -> None:
        """Pass a job's log on piece by piece, until the job has ended.

        While nothing comes, the dashboard is asked now and then whether it is there: a way that is cut says nothing.
        """

        async def read() -> None:
            pieces = self._client.tail_job_logs(job_id)
            while True:
                coming = asyncio.ensure_future(anext(pieces, None))
                try:
                    while not (await asyncio.wait({coming}, timeout=self._silence_s))[0]:
                        if self.ask("get_job_info", job_id).status.is_terminal():
                            await asyncio.wait({coming}, timeout=self._silence_s)
                            break
                    if not coming.done():
                        return
                    with _translated(self._address):
                        piece = coming.result()
                finally:
                    coming.cancel()
                if piece is None:
                    return
                take(piece)

        asyncio.run(read())

    def wait(self, job_id: str) -> "JobDetails":
        """Wait until a job has ended, and return what Ray says of it."""
        for _ in poll(None, _POLL_S):
            details: JobDetails = self.ask("get_job_info", job_id)
            if details.status.is_terminal():
                break
        return details


def open_jobs(address: str) -> Jobs:
    """Connect to the dashboard at an address. Raises: ClusterError."""
    return Jobs(_client(address), address)


def _client(address: str) -> Any:
    os.environ[API_ADDRESS_VARIABLE] = address  # which Ray's client prefers to its own argument
    check_listening(address)
    with _translated(address):
        from ray.job_submission import JobSubmissionClient

        class PatientClient(JobSubmissionClient):  # type: ignore[misc]
            """Ray's client, which would wait for ever for an answer that does not come."""

            def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
                return super()._do_request(method, endpoint, **{"timeout": _TIMEOUT_S, **options})

        for name in _CHATTY_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        return PatientClient(address)


@contextmanager
def _translated(address: str) -> Iterator[None]:
    """Turn what Ray's HTTP client raises in the block into ClusterErrors."""
    try:
        yield
    except ClusterError:
        raise
    except Exception as error:
        if type(error).__name__ == "AuthenticationError":
            raise ClusterError(
                f"the cluster at {address} asks for its token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH "
                "to a file with it (`ray get-auth-token` on the head)"
            ) from error
        if type(error).__name__ in _LOST or "WebSocket" in str(error):
            raise ClusterError(
                f"the cluster at {address} does not answer any more: the connection is lost, or an answer takes longer "
                f"than {_TIMEOUT_S[1]:g} s. Look whether the way there is open: `ray dashboard cluster.yaml` opens one"
            ) from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ClusterError(f"the cluster at {address} did not answer as a Ray dashboard does: {reason}") from error


@dataclass(frozen=True)
class SubmittedJob:
    """A job that the cluster has accepted."""

    id: str
    run_id: str
    address: str
    """Address of the cluster's dashboard."""


def spec_files(spec: AnySpec) -> dict[str, bytes]:
    """The upload of a spec: one file, in which relative paths are absolute as they are meant here.

    Raises: InputError for a password in it, which everyone who sees the cluster's storage of uploads could read.
    """
    values = spec_values(with_absolute_paths(replace_texts(spec, _refuse_secret), even_missing=True))
    return {SPEC_FILE: json.dumps(values, indent=2, ensure_ascii=False).encode()}  # JSON is YAML


def _refuse_secret(field: str, text: str) -> str:
    if "://" in text and has_password(text):
        raise InputError(
            f"{field} has a URI with a password ({without_password(text)}), which everyone who sees the dashboard "
            "could read; leave it out, and set it on every node as FSSPEC_…_PASSWORD, or in a file of ~/.config/fsspec "
            "with mode 0600"
        )
    return text


def submit_run(spec: AnySpec, run_id: str, settings: Settings, address: str) -> SubmittedJob:
    """Hand a spec to the cluster whose dashboard is at an address, as a run of that id.

    Raises: InputError for a password; ClusterError when the cluster cannot be reached or refuses.
    """
    refuse_password(settings)
    words = ["run", SPEC_FILE, "--name", spec.name, "--run-id", run_id]
    metadata = {"job_name": spec.name, "kind": spec.kind}
    return _submit(run_id, run_id, words, spec_files(spec), metadata, settings, address)


def submit_resume(
    run_id: str,
    overrides: Sequence[str],
    metadata: Mapping[str, str],
    allow_drift: bool,
    settings: Settings,
    address: str,
) -> SubmittedJob:
    """Hand another attempt at a run to the cluster; its job is the first of ID-2, ID-3, … that there is not yet.

    Args:
        metadata: name and kind of the run, as its first job has them.

    Raises: as `submit_run`.
    """
    refuse_password(settings)
    known = open_jobs(address).submitted()
    number = next(number for number in range(2, len(known) + 3) if f"{run_id}-{number}" not in known)
    options = ["--allow-drift"] if allow_drift else []
    words = ["resume", *options, "--", run_id, *overrides]
    return _submit(f"{run_id}-{number}", run_id, words, {}, metadata, settings, address)


def _submit(
    job_id: str,
    run_id: str,
    words: Sequence[str],
    files: Mapping[str, bytes],
    metadata: Mapping[str, str],
    settings: Settings,
    address: str,
) -> SubmittedJob:
    command = job_command([*given_words(settings), *words], settings, address)
    with uploaded(files) as folder:
        open_jobs(address).submit(job_id, command, folder, {**metadata, "run_id": run_id, "role": ROLE_OF_RUNS})
    return SubmittedJob(job_id, run_id, address)


def find_job(run: str, address: str) -> SubmittedJob:
    """Find the newest job of a run by the run's name, else by the beginning of its id.

    Raises: NotFoundError; SeveralRunsError; ClusterError.
    """
    jobs = [(job.start_time or 0, job_id, job.metadata or {}) for job_id, job in open_jobs(address).submitted().items()]
    of_runs = sorted((job for job in jobs if job[2].get("role") == ROLE_OF_RUNS), key=lambda job: job[:2])
    named = [job for job in of_runs if job[2]["job_name"] == run]
    found = named or [job for job in of_runs if job[2]["run_id"].startswith(run)]
    if not found:
        raise NotFoundError(
            f"no run {run!r} was submitted to {address}, so that there is no job to follow; without --follow the log "
            "of any run is printed as it stands"
        )
    ids = {metadata["run_id"] for _, _, metadata in found}
    if len(ids) > 1 and not named:
        raise SeveralRunsError(f"{run!r} is the beginning of {len(ids)} submitted runs' ids: {', '.join(sorted(ids))}")
    _, job_id, metadata = found[-1]
    return SubmittedJob(job_id, metadata["run_id"], address)


def follow(job: SubmittedJob, write: Callable[[str], None]) -> "JobDetails":
    """Pass the job's log on until it ends; returns what Ray says of its end. Raises: ClusterError."""
    jobs = open_jobs(job.address)
    jobs.follow_log(job.id, write)
    return jobs.wait(job.id)


def exit_status(details: "JobDetails", job_id: str) -> int:
    """The exit status of the run inside the job. Raises: ClusterError when the job ended before its run could begin."""
    status = str(details.status.value)
    if status == "SUCCEEDED":
        return 0
    if status == "STOPPED":
        return 1
    if details.driver_exit_code is None:
        raise ClusterError(f"job {job_id} could not start: {details.message or status}")
    if details.driver_exit_code == 127:
        raise ClusterError(f"job {job_id}: the cluster has no `orchestrator` command; install the package on its nodes")
    return int(details.driver_exit_code) if 0 < details.driver_exit_code < 6 else 1


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
    """Yield the runtime environment of a job with a few small files, and nothing else, in its folder."""
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


def own_job_id(environ: Mapping[str, str] = os.environ) -> str | None:
    """Id of the job that this process is the driver of; None outside of a submitted job."""
    try:
        job_id = json.loads(environ.get(_JOB_CONFIG_VARIABLE, "{}"))["metadata"]["job_submission_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return str(job_id)
