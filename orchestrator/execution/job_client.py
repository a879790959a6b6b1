"""Jobs of a Ray cluster: what its dashboard is asked for, with messages for a person where it does not answer."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from orchestrator.cluster.addresses import check_listening
from orchestrator.errors import ClusterError
from orchestrator.execution.waiting import looks
from orchestrator.settings import API_ADDRESS_VARIABLE

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


class JobDetails(Protocol):
    """The part of Ray's record of a job that is read here."""

    submission_id: str | None
    metadata: Mapping[str, str] | None
    status: Any
    message: str | None
    driver_exit_code: int | None
    start_time: int | None
    """Milliseconds since 1970 by the head's clock."""
    end_time: int | None


class Jobs:
    """Jobs of the cluster whose dashboard is at an address. Each method raises ClusterError where it does not answer.

    Args:
        client: Ray's `JobSubmissionClient`.
        silence_s: seconds without a word of a log after which the dashboard is asked whether it is there.
    """

    def __init__(self, client: Any, address: str, silence_s: float = 15.0) -> None:
        self._client, self._address, self._silence_s = client, address, silence_s

    def submit(self, job_id: str, entrypoint: str, environment: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
        """Hand a job over: a command of the shell; an id that was used before is refused."""
        with _translated(self._address):
            self._client.submit_job(
                entrypoint=entrypoint,
                submission_id=job_id,
                runtime_env=dict(environment),
                metadata=dict(metadata),
            )

    def submitted(self) -> dict[str, JobDetails]:
        """All jobs that were submitted to the cluster, by their ids; drivers that connected are none of them."""
        with _translated(self._address):
            return {job.submission_id: job for job in self._client.list_jobs() if job.submission_id}

    def read_log(self, job_id: str, take: Callable[[str], bool]) -> None:
        """Pass a job's log on piece by piece, until the job has ended or `take` says that it has enough.

        While nothing comes, the dashboard is asked now and then whether it is there: a way that is cut says nothing.
        """

        async def read() -> None:
            pieces = self._client.tail_job_logs(job_id)
            while True:
                coming = asyncio.ensure_future(anext(pieces, None))
                try:
                    while not (await asyncio.wait({coming}, timeout=self._silence_s))[0]:
                        if self._details(job_id).status.is_terminal():
                            await asyncio.wait({coming}, timeout=self._silence_s)
                            break
                    if not coming.done():
                        return
                    with _translated(self._address):
                        piece = coming.result()
                finally:
                    coming.cancel()
                if piece is None or take(piece):
                    return

        asyncio.run(read())

    def log(self, job_id: str) -> str:
        """The whole log of a job."""
        with _translated(self._address):
            return str(self._client.get_job_logs(job_id))

    def wait(self, job_id: str) -> JobDetails:
        """Wait until a job has ended, and return what Ray says of it."""
        for _ in looks(None, _POLL_S):
            details = self._details(job_id)
            if details.status.is_terminal():
                break
        return details

    def _details(self, job_id: str) -> JobDetails:
        with _translated(self._address):
            details: JobDetails = self._client.get_job_info(job_id)
        return details

    def stop(self, job_id: str) -> None:
        """Ask a job to end."""
        with _translated(self._address):
            self._client.stop_job(job_id)

    def delete(self, job_id: str) -> None:
        """Forget a job that has ended."""
        with _translated(self._address):
            self._client.delete_job(job_id)


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
