"""Runs as Ray jobs: what is handed over, what is refused, what a head answers, and one way through a real one.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_jobs.py
"""

import asyncio
import json
import os
import shlex
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from orchestrator.base.errors import ClusterError, InputError
from orchestrator.base.run_states import is_run_id
from orchestrator.base.settings import Settings
from orchestrator.execution import jobs as job_module
from orchestrator.execution.head_commands import ask_head
from orchestrator.execution.jobs import (
    Jobs,
    SubmittedJob,
    exit_status,
    follow,
    given_words,
    job_command,
    open_jobs,
    own_job_id,
    refuse_password,
    submit_resume,
    submit_run,
)
from orchestrator.execution.launch_folder import with_absolute_paths
from orchestrator.specs import CorpusSpec, EvaluateSpec, PipelineSpec
from orchestrator.specs.loading import parse_spec, spec_values
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
    with pytest.raises(InputError, match="files has a URI") as caught:
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
    text = {"files": ["a.txt", "none.txt", "*.jsonl", "s3://b/*.txt", "/x/y"], "text_field": "tok"}
    stages = {
        "tokens": {"kind": "corpus", "name": "a.txt", "corpus": text, "tokenizer": "tok"},
        "trials": {
            "kind": "sweep",
            "task": {"id": "own", "files": {"train": "a.txt"}},
            "recipe": {"tokenizer": "tok"},
            "space": {"init_from": ["tok", "@stage", "registered"]},
        },
    }
    spec = PipelineSpec.model_validate({"stages": stages})
    tokens, trials = spec_values(with_absolute_paths(spec))["stages"].values()
    files = [f"{tmp_path}/a.txt", "none.txt", f"{tmp_path}/*.jsonl", "s3://b/*.txt", "/x/y"]
    assert (tokens["corpus"]["files"], tokens["tokenizer"]) == (files, f"{tmp_path}/tok")
    assert (tokens["name"], tokens["corpus"]["text_field"]) == ("a.txt", "tok"), "neither is a path"
    assert trials["task"]["files"] == {"train": f"{tmp_path}/a.txt"}
    assert (trials["recipe"]["tokenizer"], trials["recipe"]["init_from"]) == (f"{tmp_path}/tok", "random")
    assert trials["space"] == {"init_from": [f"{tmp_path}/tok", "@stage", "registered"]}


def test_paths_of_an_upload_are_shown_as_they_are_meant_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = {"files": ["none.txt", "s3://b/x"]}
    store = CorpusSpec.model_validate({"corpus": text, "tokenizer": "registered"})
    values = spec_values(with_absolute_paths(store, even_missing=True))
    assert (values["corpus"]["files"], values["tokenizer"]) == ([f"{tmp_path}/none.txt", "s3://b/x"], "registered")
    scores = EvaluateSpec.model_validate({"model": "registered", "task": {"id": "sst2", "folder": "glue"}})
    assert with_absolute_paths(scores, even_missing=True).task.folder == f"{tmp_path}/glue"


def test_each_of_several_starts_is_a_path_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    recipe = {"init_from": "a | b | registered", "tokenizer": "words"}
    sweep = {"kind": "sweep", "task": {"id": "sst2", "folder": "glue"}, "recipe": recipe, "seeds": [0, 1, 2]}
    found = spec_values(with_absolute_paths(parse_spec(sweep)))["recipe"]["init_from"]
    assert found == f"{tmp_path}/a | {tmp_path}/b | registered"


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

    followed = orchestrator("runs", "logs", "--follow", "good", "--address", ray_head.address)
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


def test_a_command_answers_as_if_it_ran_here(cluster: JobCluster) -> None:
    answer = ask_head(["runs", "show", "7f3a"], NOTHING_GIVEN, ADDRESS)
    assert (answer.status, answer.out, answer.file) == (3, b"", None)
    assert b"7f3a" in answer.err
    (job,) = cluster.submitted.values()
    assert job["metadata"] == {"job_name": "orchestrator runs show 7f3a", "role": "command"}
    assert job["runtime_env"] == {}
    assert cluster.stopped == []


def test_jobs_of_earlier_commands_are_forgotten_and_those_of_runs_are_not(cluster: JobCluster) -> None:
    """The command that is at work is an earlier one that somebody still waits for."""
    roles = {"ended": "command", "at-work": "command", "run": "run"}
    cluster.submitted |= {job_id: {"metadata": {"role": role}} for job_id, role in roles.items()}
    cluster.ends |= {"ended": Details(Status.FAILED, 1), "run": Details(Status.SUCCEEDED, 0)}
    assert ask_head(["schema"], NOTHING_GIVEN, ADDRESS).status == 0
    assert cluster.deleted == ["ended"]


def test_a_file_goes_along_and_a_file_comes_back(cluster: JobCluster) -> None:
    spec = b"kind: tokenizer\ncorpus: {files: [/nowhere/*.txt]}\n"
    words = ["runs", "list", "-f", "csv", "-o", "s.csv"]
    answer = ask_head(words, NOTHING_GIVEN, ADDRESS, files={"s.yaml": spec}, returned="s.csv")
    assert answer.status == 0
    assert answer.file is not None
    assert answer.file.startswith(b"id,name,kind,state,")
    ((_, job),) = cluster.submitted.items()
    assert job["files"] == {"s.yaml": spec.decode()}


def test_an_interruption_stops_the_job(cluster: JobCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(job_id: str) -> Details:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "get_job_info", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ask_head(["wait", "7f3a"], NOTHING_GIVEN, ADDRESS)
    assert cluster.stopped == list(cluster.submitted)


def test_a_head_without_the_package_is_told_apart(cluster: JobCluster) -> None:
    cluster.path = "/usr/bin:/bin"
    with pytest.raises(ClusterError, match="install the package"):
        ask_head(["runs", "list"], NOTHING_GIVEN, ADDRESS)


def test_a_command_that_is_cut_off_says_so(cluster: JobCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Details(Status.STOPPED, None, "Job was intentionally stopped.")
    monkeypatch.setattr(cluster, "_carry_out", lambda job_id, *_: cluster.ends.update({job_id: stopped}))
    with pytest.raises(ClusterError, match="intentionally stopped"):
        ask_head(["runs", "list"], NOTHING_GIVEN, ADDRESS)


def test_settings_that_were_given_travel_as_one_word_each(tmp_path: Path) -> None:
    settings = Settings.from_options(tmp_path / "my home", "s3://bucket", "file:/mnt/url", environ={})
    words = given_words(settings)
    assert words == ["--home", str(tmp_path / "my home"), "--storage", "s3://bucket", "--registry", "file:/mnt/url"]
    command = job_command(words, settings, ADDRESS)
    assert shlex.split(command) == [f"ORCHESTRATOR_ASKED_AT={ADDRESS}", "orchestrator", *words]


def test_what_the_environment_says_of_this_machine_stays_here(tmp_path: Path) -> None:
    """A server's registry is the same wherever it is asked; a file of that name on the head is another one."""
    here = {"ORCHESTRATOR_HOME": "/home/me/lab", "ORCHESTRATOR_STORAGE": "/home/me/storage"}
    url_file = tmp_path / "url"
    url_file.touch()
    for registry in ("/home/me/registry.sqlite", "sqlite:///registry.sqlite", f"file:{url_file}"):
        settings = Settings.from_options(environ={**here, "ORCHESTRATOR_REGISTRY": registry})
        assert given_words(settings) == []
        assert "ORCHESTRATOR_HOME:-$HOME/.orchestrator" in job_command([], settings, ADDRESS)
    server = Settings.from_options(environ={**here, "ORCHESTRATOR_REGISTRY": "postgresql://lab@db/lab"})
    assert given_words(server) == ["--registry", "postgresql://lab@db/lab"]


def test_a_password_in_the_dashboards_address_is_not_handed_over() -> None:
    assert "canary" not in job_command(["run", "spec.yaml"], NOTHING_GIVEN, "https://me:canary@proxy:8265")


@pytest.mark.parametrize("url", ["postgresql://a:secret@h/db", "postgresql://h/db?user=a&password=secret"])
def test_a_password_is_refused_and_not_repeated(url: str) -> None:
    for given in ({"registry": url, "environ": {}}, {"environ": {"ORCHESTRATOR_REGISTRY": url}}):
        with pytest.raises(InputError, match="file:PATH") as caught:
            refuse_password(Settings.from_options(**given))
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://a@h/db", "sqlite:///x.sqlite", "file:/mnt/url", "runs.sqlite"])
def test_a_url_without_a_password_may_be_shown(url: str, tmp_path: Path) -> None:
    settings = Settings.from_options(home=tmp_path, registry=url, environ={})
    refuse_password(settings)
    assert given_words(settings)[-1] == url


@pytest.mark.parametrize(
    ("config", "job_id"),
    [
        ('{"metadata": {"job_submission_id": "7f3a-2"}}', "7f3a-2"),
        ('{"metadata": {}}', None),
        ("no json", None),
        (None, None),
    ],
)
def test_a_driver_knows_its_job(config: str | None, job_id: str | None) -> None:
    assert own_job_id({} if config is None else {"RAY_JOB_CONFIG_JSON_ENV_VAR": config}) == job_id


@pytest.fixture(autouse=True)
def variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that opening a client sets, put back afterwards."""
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", ADDRESS)


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """Address at which somebody takes connections, and gives an answer or says nothing."""
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            held.append(connection)
            if answer is not None:
                connection.recv(65_536)
                connection.sendall(answer)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    for connection in held:
        connection.close()


def test_nothing_at_the_address_is_said_with_the_way_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ClusterError, match=r"cluster\.yaml"):
        open_jobs(address)


def test_a_dead_tunnel_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections, and nothing is behind it."""
    monkeypatch.setattr(job_module, "_TIMEOUT_S", (0.3, 0.3))
    with listening(None) as address, pytest.raises(ClusterError, match=f"the cluster at {address} does not answer any"):
        open_jobs(address)


def test_somebody_else_at_the_address_is_told() -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    with listening(page) as address, pytest.raises(ClusterError, match="did not answer"):
        open_jobs(address)


class ReadTimeout(Exception):  # noqa: N818
    """Error of the same name as one that `requests` raises."""


def hanging(cluster: JobCluster, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Jobs of a cluster whose logs say one word, and then nothing, not even that they end."""

    async def hang(job_id: str) -> AsyncIterator[str]:
        yield "step 1\n"
        await asyncio.Event().wait()

    monkeypatch.setattr(cluster, "tail_job_logs", hang)
    return Jobs(cluster, ADDRESS, silence_s=0.01)


def test_a_way_that_is_lost_while_following_says_so(cluster: JobCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(job_id: str) -> Details:
        raise ReadTimeout("read timed out")

    monkeypatch.setattr(cluster, "get_job_info", lost)
    log: list[str] = []
    with pytest.raises(ClusterError, match=r"cluster\.yaml"):
        hanging(cluster, monkeypatch).follow_log("job", log.append)
    assert log == ["step 1\n"]


def test_a_silent_job_is_followed_for_as_long_as_it_runs(cluster: JobCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    def running_for_a_while(job_id: str) -> Details:
        looks.append(job_id)
        return Details(Status.SUCCEEDED if len(looks) > 5 else Status.RUNNING)

    monkeypatch.setattr(cluster, "get_job_info", running_for_a_while)
    hanging(cluster, monkeypatch).follow_log("job", print)
    assert len(looks) == 6
