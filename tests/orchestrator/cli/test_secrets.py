"""A canary for the database's password: no run, however it ends, no job and no report writes it anywhere.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_secrets.py
"""

import logging
from pathlib import Path
from typing import Any

import pytest

import orchestrator.execution.runner
from orchestrator.base.results import TokenizerResult
from orchestrator.cli.entry import Interrupted, run_command_line
from orchestrator.kinds.corpus import TokenizerKind
from orchestrator.registry import Registry
from tests.orchestrator.cli.laboratory import Command, Outcome
from tests.orchestrator.execution.job_cluster import JobCluster
from tests.orchestrator.registry.samples import everything

CANARY = "canary-7f3a"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def secret_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A registry's URL with the canary as its password; SQLite ignores it, and so does a server that trusts all."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/home/registry.sqlite?password={CANARY}"
    url: str = request.getfixturevalue("postgres_location")
    return url.replace("://tester@", f"://tester:{CANARY}@") + f"&sslpassword={CANARY}"


def places_of_canary(folder: Path) -> list[str]:
    """Files with the canary in their name or in any of their bytes."""
    return [
        str(path)
        for path in folder.rglob("*")
        if CANARY in path.name or (path.is_file() and CANARY.encode() in path.read_bytes())
    ]


def assert_silent(outcomes: list[Outcome], secret_url: str, folder: Path) -> None:
    assert not [outcome for outcome in outcomes if CANARY in outcome.out + outcome.err]
    assert places_of_canary(folder) == []
    with Registry(secret_url) as registry:
        assert CANARY not in repr(everything(registry))


@pytest.mark.parametrize("ending", [None, RuntimeError("the tokenizer broke"), Interrupted(15)])
@pytest.mark.parametrize("given_by", ["option", "environment"])
@pytest.mark.heavy
@pytest.mark.core
def test_a_run_and_what_reads_it_write_no_password(
    command: Command,
    no_cluster: None,
    spec: str,
    secret_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ending: BaseException | None,
    given_by: str,
) -> None:
    def work(*arguments: Any) -> TokenizerResult:
        if ending is not None:
            raise ending
        return TokenizerResult("storage/tokenizer", "f", 100)

    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(TokenizerKind, "run", work)
    option = ["--registry", secret_url] if given_by == "option" else []
    if given_by == "environment":
        monkeypatch.setenv("ORCHESTRATOR_REGISTRY", secret_url)
    run = command("run", spec, "--debug", *option)
    assert run.status == {type(None): 0, RuntimeError: 1, Interrupted: 143}[type(ending)]
    outcomes = [run, command("resume", run.out.strip(), *option)]
    for words in (
        ("runs", "list"), ("runs", "show", run.out.strip(), "-f", "json"), ("runs", "logs", run.out.strip()),
        ("runs", "export", "-o", "runs.csv"), ("query", "state = 'nothing'"), ("query", "no.such = 1", "--debug"),
        ("leaderboard",), ("models", "list"), ("db", "check"), ("runs", "show", "zzz"), ("plan", spec),
    ):  # fmt: skip
        outcomes.append(command(*words, *option))
    assert_silent(outcomes, secret_url, tmp_path)
    assert CANARY not in caplog.text


def test_a_password_that_was_typed_is_masked_with_advice(
    command: Command, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        orchestrator.execution.runner, "run_spec", lambda *words, on_started, **settings: on_started("id-of-words")
    )
    said = command("run", spec, "--registry", f"postgresql://lab:{CANARY}@db/lab").err
    assert "--registry 'postgresql://lab:***@db/lab' runs show id-of-words" in said
    assert "file with mode 0600 and give --registry file:PATH" in said


@pytest.mark.parametrize("words", [("runs", "list"), ("db", "upgrade"), ("doctor",), ("run", "words.yaml")])
@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_a_server_that_cannot_be_reached_costs_no_password(
    command: Command,
    no_cluster: None,
    spec: str,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    debug: tuple[str, ...],
) -> None:
    monkeypatch.setattr("orchestrator.registry.database.PATIENCE_S", 0.0)
    url = f"postgresql://me:{CANARY}@127.0.0.1:1/lab?sslpassword={CANARY}"
    outcome = command(*words, *debug, "--registry", url)
    assert outcome.status in (1, 4)
    assert CANARY not in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("url", "status"), [(f"postgresql://me:{CANARY}/@db/lab", 2), (f"postgresql://me@db/lab?password={CANARY}", 2)]
)
@pytest.mark.parametrize("given_by", ["option", "environment"])
def test_a_job_is_refused_rather_than_shown_a_password(
    command: Command,
    spec: str,
    cluster: JobCluster,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    status: int,
    given_by: str,
) -> None:
    words = ["submit", spec, "--no-wait", "--address", "http://127.0.0.1:8265"]
    if given_by == "environment":
        monkeypatch.setenv("ORCHESTRATOR_REGISTRY", url)
    outcome = command(*words, *(["--registry", url] if given_by == "option" else []))
    assert (outcome.status, cluster.submitted) == (status, {})
    assert CANARY not in outcome.out + outcome.err


@pytest.mark.heavy
def test_a_job_gets_the_name_of_the_file_that_holds_the_password(
    command: Command, spec: str, tmp_path: Path, cluster: JobCluster
) -> None:
    """The jobs of the check, of the run and of a command, with their names, metadata and uploads."""
    url = tmp_path / "url"
    url.touch(mode=0o600)
    url.write_text(f"sqlite:///{tmp_path}/registry.sqlite?password={CANARY}")
    options = ["--address", "http://127.0.0.1:8265", "--registry", f"file:{url}"]
    outcome = command("submit", spec, "--no-wait", *options)
    assert outcome.status == 0, outcome.err
    assert f"--registry file:{url}" in cluster.runs[outcome.out.strip()]["entrypoint"]
    assert len(cluster.submitted) == 2
    assert CANARY not in repr(cluster) + outcome.err


@pytest.mark.ray
def test_a_run_on_ray_writes_no_password(
    ray_cluster: None, spec: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import ray

    url = f"sqlite:///{tmp_path}/home/registry.sqlite?password={CANARY}"
    status = run_command_line(["run", spec, "--registry", url])
    assert_silent([Outcome(status, *capfd.readouterr())], url, tmp_path)
    assert status == 0
    logs = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    assert any(logs.iterdir())
    assert places_of_canary(logs) == []
