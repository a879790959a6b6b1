"""A cluster's job service without Ray: commands' jobs run on this machine, runs' jobs are only kept."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
_PIECE = 997
"""Length of the pieces in which a log is given: lines are cut anywhere."""


class Status(Enum):
    """States of jobs, as Ray calls them."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    def is_terminal(self) -> bool:
        return self is not Status.RUNNING


@dataclass
class Details:
    """Description of a job, as Ray returns it."""

    status: Status
    driver_exit_code: int | None = None
    message: str | None = None
    submission_id: str | None = None
    metadata: dict[str, str] | None = None
    start_time: int | None = None
    end_time: int | None = None


@dataclass
class JobCluster:
    """Stands for Ray's job client, and for the head behind it.

    Args:
        folder: of the cluster's own; the home of the head's user.
        path: `PATH` of the head's shell; with the `orchestrator` of this interpreter when left out.
    """

    folder: Path
    path: str = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    submitted: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Jobs that were submitted, by their ids, with the uploaded files as texts."""
    logs: dict[str, str] = field(default_factory=dict)
    ends: dict[str, Details] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    def submit_job(self, **job: Any) -> str:
        job_id: str = job["submission_id"]
        assert job_id not in self.submitted
        uploaded = Path(job["runtime_env"].get("working_dir", os.devnull))
        files = {path.name: path.read_text() for path in uploaded.iterdir()} if uploaded.is_dir() else {}
        self.submitted[job_id] = {**job, "files": files}
        if job["metadata"]["role"] == "command":
            self._carry_out(job_id, job["entrypoint"], uploaded if files else None)
        return job_id

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        """Jobs that were submitted as runs."""
        return {job_id: job for job_id, job in self.submitted.items() if job["metadata"]["role"] == "run"}

    def _carry_out(self, job_id: str, entrypoint: str, uploaded: Path | None) -> None:
        place = self.folder / job_id
        shutil.copytree(uploaded, place) if uploaded else place.mkdir(parents=True)
        environment = {"PATH": self.path, "HOME": str(self.folder), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
        done = subprocess.run(
            ["bash", "-c", entrypoint],
            cwd=place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        noise = f"Running entrypoint for job {job_id}: {entrypoint}\n"
        self.logs[job_id] = noise + done.stdout
        status = Status.FAILED if done.returncode else Status.SUCCEEDED
        self.ends[job_id] = Details(status, done.returncode, None, job_id)

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        log = self.logs.get(job_id, "")
        for start in range(0, len(log), _PIECE):
            yield log[start : start + _PIECE]

    def get_job_logs(self, job_id: str) -> str:
        return self.logs.get(job_id, "")

    def get_job_info(self, job_id: str) -> Details:
        return self.ends.get(job_id, Details(Status.RUNNING, submission_id=job_id))

    def list_jobs(self) -> list[Details]:
        """All jobs, a minute between any two, and a driver that was not submitted."""
        jobs = []
        for number, (job_id, job) in enumerate(self.submitted.items()):
            end = self.ends.get(job_id, Details(Status.RUNNING))
            began = 60_000 * number
            ended = began + 1_000 if end.status.is_terminal() else None
            jobs.append(replace(end, submission_id=job_id, metadata=job["metadata"], start_time=began, end_time=ended))
        return [*jobs, Details(Status.RUNNING)]

    def stop_job(self, job_id: str) -> bool:
        self.stopped.append(job_id)
        return True

    def delete_job(self, job_id: str) -> bool:
        self.deleted.append(job_id)
        return True
