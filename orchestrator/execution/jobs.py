"""Runs as Ray jobs: a small upload with the whole spec, and `orchestrator run` on the cluster's head.

Settings that were given here travel in the job's command; for all others the cluster's own hold. Anyone who sees the
dashboard can read that command. So a registry URL with a password is refused; `file:PATH`, a file on the cluster, holds
one safely.
"""

import logging
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from orchestrator.cluster.addresses import check_listening
from orchestrator.errors import ClusterError, InputError
from orchestrator.execution.origin import with_absolute_paths
from orchestrator.settings import HOME_VARIABLE, Settings, has_password
from orchestrator.specs import AnySpec
from orchestrator.specs.loading import spec_values
from orchestrator.storage import write_json

API_ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"
_SPEC_FILE = "spec.yaml"
_POLL_S = 1.0
_CHATTY_LOGGERS = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)


class JobDetails(Protocol):
    """The part of Ray's record of a job that is read here."""

    status: Any
    message: str | None
    driver_exit_code: int | None


@dataclass(frozen=True)
class SubmittedJob:
    """A job that the cluster has accepted."""

    id: str
    address: str
    """Address of the cluster's dashboard."""


def submit_run(spec: AnySpec, settings: Settings) -> SubmittedJob:
    """Hand a spec to the cluster whose dashboard is at `settings.address` (or `RAY_API_SERVER_ADDRESS`).

    Raises: InputError for a registry URL with a password; ClusterError when the cluster cannot be reached or refuses.
    """
    refuse_password(settings.registry)
    address = dashboard_address(settings)
    with tempfile.TemporaryDirectory(prefix="orchestrator-job-") as folder:
        write_json(str(Path(folder) / _SPEC_FILE), with_absolute_paths(spec_values(spec)))  # JSON is YAML
        with _translated(address):
            job_id = _client(address).submit_job(
                entrypoint=entrypoint(spec, settings),
                runtime_env={"working_dir": folder, "env_vars": {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2"}},
                metadata={"name": spec.name, "kind": spec.kind},
            )
    return SubmittedJob(str(job_id), address)


def follow(job: SubmittedJob, write: Callable[[str], None]) -> int:
    """Pass the job's log on until it ends; returns the exit status that its run had. Raises: ClusterError."""
    import asyncio

    client = _client(job.address)

    async def tail() -> None:
        async for text in client.tail_job_logs(job.id):
            write(text)

    with _translated(job.address):
        asyncio.run(tail())
        details: JobDetails = client.get_job_info(job.id)
        while not details.status.is_terminal():
            time.sleep(_POLL_S)
            details = client.get_job_info(job.id)
    return exit_status(details, job.id)


def exit_status(details: JobDetails, job_id: str) -> int:
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
    return details.driver_exit_code if 0 < details.driver_exit_code < 6 else 1


def dashboard_address(settings: Settings) -> str:
    """The http(s) address to submit to. Raises: ClusterError."""
    given = settings.address or ""
    address = given if given.startswith("http") else os.environ.get(API_ADDRESS_VARIABLE, "")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ClusterError(
            "submit needs the address of a cluster's dashboard: --address http://127.0.0.1:8265 "
            f"or {API_ADDRESS_VARIABLE}; `ray dashboard cluster.yaml` opens a way to it"
        )
    return address.rstrip("/")


def refuse_password(registry: str) -> None:
    """Check that the registry's URL may be shown. Raises: InputError."""
    if has_password(registry):
        raise InputError(
            "the registry's URL has a password, which a job's command would show to everyone who sees the dashboard; "
            "put the URL into a file with mode 0600 on the cluster and give --registry file:PATH"
        )


def entrypoint(spec: AnySpec, settings: Settings) -> str:
    """The job's command: with the settings that were given here, and the cluster's own for the rest.

    A home that neither names is the user's on the cluster: the folder that a job begins in is deleted after it.
    """
    values = {"home": str(settings.home), "storage": settings.storage, "registry": settings.registry}
    options = [word for name, value in values.items() if name in settings.given for word in (f"--{name}", value)]
    command = shlex.join(["orchestrator", *options, "run", _SPEC_FILE, "--name", spec.name])
    home = "" if "home" in settings.given else f'{HOME_VARIABLE}="${{{HOME_VARIABLE}:-$HOME/.orchestrator}}" '
    return home + command


def _client(address: str) -> Any:
    os.environ[API_ADDRESS_VARIABLE] = address  # which Ray's client prefers to its own argument
    check_listening(address)
    with _translated(address):
        from ray.job_submission import JobSubmissionClient

        for name in _CHATTY_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        return JobSubmissionClient(address)


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
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ClusterError(f"the cluster at {address} did not answer as a Ray dashboard does: {reason}") from error
