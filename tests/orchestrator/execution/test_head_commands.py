"""Commands on a cluster's head, below Ray: what is handed over, what comes back, and what a head says that cannot.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_head_commands.py
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import ClusterError, InputError
from orchestrator.execution import head_commands
from orchestrator.execution.head_commands import (
    MAX_UPLOAD_BYTES,
    HeadCommand,
    HeadOutcome,
    Streams,
    carry_out_on_head,
    given_words,
    job_command,
    refuse_password,
)
from orchestrator.execution.head_lease import renewed
from orchestrator.execution.job_client import Jobs
from orchestrator.execution.jobs import own_job_id
from orchestrator.settings import Settings
from tests.orchestrator.execution.job_cluster import Details, JobCluster, Status
from tests.waiting import wait_until

ADDRESS = "http://127.0.0.1:8265"
NOTHING_GIVEN = Settings.from_options(environ={})


def carried_out(
    command: HeadCommand, out: Callable[[bytes], object], err: Callable[[bytes], object] = lambda data: None
) -> HeadOutcome:
    return carry_out_on_head(command, NOTHING_GIVEN, ADDRESS, Streams(out, err))


def test_a_command_answers_as_if_it_ran_here(cluster: JobCluster) -> None:
    out: list[bytes] = []
    err: list[bytes] = []
    outcome = carried_out(HeadCommand(["runs", "show", "7f3a"]), out.append, err.append)
    assert (outcome, b"".join(out)) == (HeadOutcome(3), b"")
    assert b"".join(err) == b"Error: No run's id begins with '7f3a'; the registry has no run yet.\n"
    (job,) = cluster.submitted.values()
    assert job["metadata"] == {"job_name": "orchestrator runs show 7f3a", "role": "command"}
    assert job["runtime_env"] == {}
    assert cluster.stopped == []


def test_jobs_of_earlier_commands_are_forgotten_and_those_of_runs_are_not(cluster: JobCluster) -> None:
    """The command that is at work is an earlier one that somebody still waits for."""
    roles = {"ended": "command", "at-work": "command", "run": "run"}
    cluster.submitted |= {job_id: {"metadata": {"role": role}} for job_id, role in roles.items()}
    cluster.ends |= {"ended": Details(Status.FAILED, 1), "run": Details(Status.SUCCEEDED, 0)}
    assert carried_out(HeadCommand(["schema"]), lambda data: None).status == 0
    assert cluster.deleted == ["ended"]


def test_a_file_goes_along_and_a_file_comes_back(cluster: JobCluster) -> None:
    spec = b"kind: tokenizer\ncorpus: {files: [/nowhere/*.txt]}\n"
    outcome = carried_out(
        HeadCommand(["schema", "sweep", "-f", "csv", "-o", "s.csv"], {"s.yaml": spec}, "s.csv"), print
    )
    assert outcome.status == 0
    assert outcome.file is not None
    assert outcome.file.startswith(b"field,type,unit,default,role,about\n")
    ((_, job),) = cluster.submitted.items()
    assert job["files"] == {"s.yaml": spec.decode()}


def test_who_stops_reading_ends_the_command(cluster: JobCluster) -> None:
    def gone(data: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        carried_out(HeadCommand(["schema"]), gone)
    assert cluster.stopped == list(cluster.submitted)


def test_a_command_that_takes_long_is_renewed_by_small_jobs_that_are_deleted(cluster: JobCluster) -> None:
    jobs = Jobs(cluster, ADDRESS)
    with renewed(jobs, "/tmp/a lease", interval_s=0.001):
        wait_until(lambda: len(cluster.deleted) >= 2, "nothing is renewed")
    renewals = list(cluster.submitted)
    assert {job["entrypoint"] for job in cluster.submitted.values()} == {"touch -c '/tmp/a lease'"}
    assert {job["metadata"]["role"] for job in cluster.submitted.values()} == {"command"}
    assert cluster.deleted[:2] == renewals[:2]


def test_a_head_without_the_package_is_told_apart(cluster: JobCluster) -> None:
    cluster.path = "/usr/bin:/bin"
    with pytest.raises(ClusterError, match="no `orchestrator` command; install the package there"):
        carried_out(HeadCommand(["runs", "list"]), print)


def test_a_head_with_another_version_is_told_apart(cluster: JobCluster, tmp_path: Path) -> None:
    old = tmp_path / "old" / "orchestrator"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho \"Error: No such command 'relay'.\" >&2\nexit 2\n")
    old.chmod(0o755)
    cluster.path = f"{old.parent}:/usr/bin:/bin"
    with pytest.raises(ClusterError, match=r"install there the version that is here.*No such command 'relay'"):
        carried_out(HeadCommand(["runs", "list"]), print)


def test_a_head_of_another_version_that_understands_is_told_of(
    cluster: JobCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(head_commands, "__version__", "99.0")
    assert carried_out(HeadCommand(["schema"]), lambda data: None).status == 0
    assert re.search(r"the cluster's head has version \S+ of this package, here is 99.0", caplog.text)


def test_a_command_that_is_cut_off_says_so(cluster: JobCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Details(Status.STOPPED, None, "Job was intentionally stopped.")
    monkeypatch.setattr(cluster, "_carry_out", lambda job_id, *_: cluster.ends.update({job_id: stopped}))
    with pytest.raises(ClusterError, match=r"was cut off \(STOPPED\). It said: Job was intentionally stopped"):
        carried_out(HeadCommand(["runs", "list"]), print)


def test_data_are_not_uploaded(cluster: JobCluster) -> None:
    with pytest.raises(InputError, match=r"texts.jsonl would be an upload of 1,048,577 bytes, where 1,048,576"):
        carried_out(HeadCommand(["plan", "spec.yaml"], {"texts.jsonl": b"x" * (MAX_UPLOAD_BYTES + 1)}), print)
    assert not cluster.submitted


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


def test_a_password_of_the_environments_server_is_refused_too() -> None:
    with pytest.raises(InputError, match="file:PATH"):
        refuse_password(Settings.from_options(environ={"ORCHESTRATOR_REGISTRY": "postgresql://a:secret@h/db"}))


def test_a_password_in_the_dashboards_address_is_not_handed_over() -> None:
    assert "canary" not in job_command(["run", "spec.yaml"], NOTHING_GIVEN, "https://me:canary@proxy:8265")


@pytest.mark.parametrize("url", ["postgresql://a:secret@h/db", "postgresql://h/db?user=a&password=secret"])
def test_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InputError, match="file:PATH") as caught:
        refuse_password(Settings.from_options(registry=url, environ={}))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://a@h/db", "sqlite:///x.sqlite", "file:/mnt/url", "runs.sqlite"])
def test_a_url_without_a_password_may_be_shown(url: str, tmp_path: Path) -> None:
    settings = Settings.from_options(home=tmp_path, registry=url, environ={})
    refuse_password(settings)
    assert given_words(settings)[-1] == url


@pytest.mark.parametrize(
    ("config", "job_id"),
    [
        ('{"metadata": {"job_submission_id": "7f3a00000000-2"}}', "7f3a00000000-2"),
        ('{"metadata": {}}', None),
        ("no json", None),
        (None, None),
    ],
)
def test_a_driver_knows_its_job(config: str | None, job_id: str | None) -> None:
    assert own_job_id({} if config is None else {"RAY_JOB_CONFIG_JSON_ENV_VAR": config}) == job_id
