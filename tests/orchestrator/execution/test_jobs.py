"""Runs as Ray jobs: what is handed over, what is refused, and one whole way through a Ray head on this machine.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_jobs.py
"""

import json
import os
import shlex
import subprocess
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from orchestrator.errors import ClusterError, InputError
from orchestrator.execution.jobs import SubmittedJob, exit_status, follow, submit_resume, submit_run
from orchestrator.execution.origin import with_absolute_paths
from orchestrator.run_ids import is_run_id
from orchestrator.settings import Settings
from orchestrator.specs.loading import parse_spec
from tests.orchestrator.execution.job_cluster import Details, JobCluster, Status
from tests.orchestrator.execution.ray_head import RayHead
from tests.waiting import PATIENCE_S

ADDRESS = "http://127.0.0.1:8265"
RUN_ID = "7f3a90b1c2d4"
NOTHING_GIVEN = Settings.from_options(environ={})
SPEC = parse_spec({"kind": "tokenizer", "name": "words; rm -rf", "corpus": {"files": ["/nowhere/a.txt"]}})


@pytest.mark.parametrize(
    ("details", "status"),
    [
        (Details(Status.SUCCEEDED, 0), 0),
        (Details(Status.FAILED, 1), 1),
        (Details(Status.FAILED, 4), 4),
        (Details(Status.FAILED, 137), 1),
        (Details(Status.STOPPED, None), 1),
    ],
)
def test_the_exit_status_is_the_runs(details: Details, status: int) -> None:
    assert exit_status(details, "job") == status


def test_a_job_that_never_began_is_cluster_trouble() -> None:
    with pytest.raises(ClusterError, match="no such runtime"):
        exit_status(Details(Status.FAILED, None, "no such runtime"), "job")
    with pytest.raises(ClusterError, match="no `orchestrator` command"):
        exit_status(Details(Status.FAILED, 127), "job")


def test_a_run_and_its_job_have_one_id_and_the_spec_is_all_that_goes_along(cluster: JobCluster) -> None:
    job = submit_run(SPEC, RUN_ID, NOTHING_GIVEN, ADDRESS)
    assert (job.id, job.run_id) == (RUN_ID, RUN_ID)
    sent = cluster.runs[RUN_ID]
    assert shlex.split(sent["entrypoint"])[2:] == [
        "orchestrator", "run", "spec.yaml", "--name", "words; rm -rf", "--run-id", RUN_ID
    ]  # fmt: skip
    assert sent["metadata"] == {"job_name": "words; rm -rf", "kind": "tokenizer", "run_id": RUN_ID, "role": "run"}
    assert list(sent["files"]) == ["spec.yaml"]
    assert parse_spec(json.loads(sent["files"]["spec.yaml"])) == SPEC


def test_another_attempt_is_a_job_of_its_own_with_the_runs_id_in_front(cluster: JobCluster) -> None:
    submit_run(SPEC, RUN_ID, NOTHING_GIVEN, ADDRESS)
    metadata = {"job_name": "words", "kind": "tokenizer"}
    for number in (2, 3):
        job = submit_resume(RUN_ID, ["execution.num_workers=2"], metadata, True, NOTHING_GIVEN, ADDRESS)
        assert (job.id, job.run_id) == (f"{RUN_ID}-{number}", RUN_ID)
    sent = cluster.runs[f"{RUN_ID}-3"]
    assert sent["entrypoint"].endswith(f"orchestrator resume --allow-drift -- {RUN_ID} execution.num_workers=2")
    assert sent["metadata"] == {**metadata, "run_id": RUN_ID, "role": "run"}
    assert sent["files"] == {}


def test_a_spec_with_a_password_is_not_uploaded(cluster: JobCluster) -> None:
    spec = SPEC.model_copy(update={"corpus": SPEC.corpus.model_copy(update={"files": ("s3://me:canary@b/x.txt",)})})
    with pytest.raises(InputError, match=r"corpus\.files") as caught:
        submit_run(spec, RUN_ID, NOTHING_GIVEN, ADDRESS)
    assert "canary" not in str(caught.value)
    assert not cluster.submitted


def test_a_followed_log_comes_whole_and_with_its_end(cluster: JobCluster) -> None:
    cluster.logs["job"] = "a line\n" * 1000
    cluster.ends["job"] = Details(Status.FAILED, 4)
    log: list[str] = []
    assert follow(SubmittedJob("job", RUN_ID, ADDRESS), log.append).driver_exit_code == 4
    assert "".join(log) == cluster.logs["job"]


def test_a_connection_that_is_lost_while_following_is_cluster_trouble(
    cluster: JobCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(job_id: str) -> AsyncIterator[str]:
        yield "step 1\n"
        raise RuntimeError("WebSocket connection closed unexpectedly with close code 1006")

    monkeypatch.setattr(cluster, "tail_job_logs", lose)
    log: list[str] = []
    with pytest.raises(ClusterError, match="does not answer"):
        follow(SubmittedJob("job", RUN_ID, ADDRESS), log.append)
    assert log == ["step 1\n"]


def test_relative_paths_that_lead_somewhere_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    (tmp_path / "tok").mkdir()
    (tmp_path / "tok" / "config.json").touch()
    values = {
        "name": "a.txt",
        "corpus": {"files": ["a.txt", "none.txt", "*.jsonl", "s3://b/*.txt", "/x/y"], "text_field": "tok"},
        "tokenizer": "tok",
        "init_from": "random",
        "task": {"files": {"train": "a.txt"}},
        "space": {"init_from": ["tok", "@stage", "registered"]},
    }
    assert with_absolute_paths(values) == {
        "name": "a.txt",
        "corpus": {
            "files": [f"{tmp_path}/a.txt", "none.txt", f"{tmp_path}/*.jsonl", "s3://b/*.txt", "/x/y"],
            "text_field": "tok",
        },
        "tokenizer": f"{tmp_path}/tok",
        "init_from": "random",
        "task": {"files": {"train": f"{tmp_path}/a.txt"}},
        "space": {"init_from": [f"{tmp_path}/tok", "@stage", "registered"]},
    }


def test_paths_of_an_upload_are_shown_as_they_are_meant_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = {"corpus": {"files": ["none.txt", "s3://b/x"]}, "tokenizer": "registered", "task": {"folder": "glue"}}
    assert with_absolute_paths(values, even_missing=True) == {
        "corpus": {"files": [f"{tmp_path}/none.txt", "s3://b/x"]},
        "tokenizer": "registered",
        "task": {"folder": f"{tmp_path}/glue"},
    }


@pytest.mark.ray
@pytest.mark.core
def test_a_submitted_run_is_known_by_its_id_to_who_has_the_dashboards_address_alone(
    ray_head: RayHead, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("a tokenizer learns from words like these\n\n" * 300)
    (tmp_path / "good.yaml").write_text("kind: tokenizer\ncorpus: {files: [words.txt]}\nvocab_size: 120\n")
    (tmp_path / "bad.yaml").write_text("kind: tokenizer\ncorpus: {files: [missing.txt]}\n")

    orchestrator = partial(run_command, ray_head, tmp_path)
    done = orchestrator("submit", "good.yaml", "--address", ray_head.address)
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.strip()
    assert is_run_id(run_id)
    assert "completed" in done.stderr

    shown = orchestrator("runs", "show", run_id[:6], "-f", "json", "--address", ray_head.address)
    assert shown.returncode == 0, shown.stderr
    record = json.loads(shown.stdout)
    assert (record["id"], record["name"], record["state"]) == (run_id, "good", "COMPLETED")
    assert [start["job_id"] for start in record["starts"]] == [run_id]

    followed = orchestrator("runs", "logs", "-f", "good", "--address", ray_head.address)
    assert (followed.returncode, "completed" in followed.stdout) == (0, True), followed.stderr

    refused = orchestrator("submit", "bad.yaml", "--address", ray_head.address)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"{tmp_path}/missing.txt cannot be read" in refused.stderr
    assert refused.stderr.endswith("nothing was submitted\n")

    again = orchestrator("submit", "--resume", run_id, "--address", ray_head.address)
    assert (again.returncode, again.stdout) == (0, "")
    assert f"run {run_id} has completed" in again.stderr

    stranger = orchestrator("runs", "list", "--address", ray_head.address, RAY_AUTH_TOKEN_PATH=os.devnull)
    assert stranger.returncode == 5
    assert "token" in stranger.stderr


@pytest.mark.ray
def test_a_driver_with_a_wrong_token_is_told_of_the_token_and_of_nothing_else(
    ray_head: RayHead, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("a tokenizer learns from words like these\n\n" * 300)
    (tmp_path / "words.yaml").write_text("kind: tokenizer\ncorpus: {files: [words.txt]}\nvocab_size: 120\n")
    given = ["--home", "home", "--address", ray_head.driver_address, "run", "words.yaml"]
    done = run_command(ray_head, tmp_path, *given, RAY_AUTH_TOKEN="0" * 64, RAY_AUTH_TOKEN_PATH="")
    assert done.returncode == 5
    assert f"Ray at {ray_head.driver_address} refuses the token" in done.stderr.splitlines()[-1]
    assert "gcs_client" not in done.stderr


def run_command(head: RayHead, folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder, as somebody who has the head's token."""
    return subprocess.run(
        ["orchestrator", *arguments],
        env={**head.environment, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
