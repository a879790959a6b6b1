"""Commands on a cluster's head, below Ray: what is handed over, what comes back, and what a head says that cannot.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_head_commands.py
"""

import shlex
from pathlib import Path

import pytest

from orchestrator.errors import ClusterError, InputError
from orchestrator.execution.head_commands import ask_head
from orchestrator.execution.jobs import given_words, job_command, own_job_id, refuse_password
from orchestrator.settings import Settings
from tests.orchestrator.execution.job_cluster import Details, JobCluster, Status

ADDRESS = "http://127.0.0.1:8265"
NOTHING_GIVEN = Settings.from_options(environ={})


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
    words = ["schema", "sweep", "-f", "csv", "-o", "s.csv"]
    answer = ask_head(words, NOTHING_GIVEN, ADDRESS, files={"s.yaml": spec}, returned="s.csv")
    assert answer.status == 0
    assert answer.file is not None
    assert answer.file.startswith(b"field,type,unit,default,role,about\n")
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
