"""A pipeline whose registry is away for a moment: at its n-th use, for n = 1, 2, 3 … until there is no n-th use.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_registry_outages.py
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from orchestrator.base.errors import RegistryError, RegistryUnavailableError, RunFailedError, RunStoppedError
from orchestrator.base.results import TokenizerResult
from orchestrator.base.settings import Settings
from orchestrator.execution import runner
from orchestrator.execution.runner import run_spec
from orchestrator.kinds.corpus import TokenizerKind
from orchestrator.registry import Registry, database
from orchestrator.registry.database import Database
from orchestrator.registry.recorder import Recorder
from orchestrator.specs.loading import parse_spec

PIPELINE = {
    "kind": "pipeline",
    "name": "both",
    "stages": {name: {"kind": "tokenizer", "corpus": {"files": [f"{name}.txt"]}} for name in ("small", "large")},
}


@pytest.fixture
def laboratory(tmp_path: Path, no_cluster: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two text files; tokenizers are trained in no time, without a Ray."""
    for name in ("small", "large"):
        (tmp_path / f"{name}.txt").write_text("text\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(database, "RETRY_S", 0.0)

    def train(self: Any, spec: Any, inputs: Any, context: Any) -> TokenizerResult:
        folder = Path(context.run_folder) / "tokenizer"
        folder.mkdir(parents=True, exist_ok=True)
        return TokenizerResult(str(folder), spec.corpus.files[0], 100)

    monkeypatch.setattr(TokenizerKind, "run", train)
    return tmp_path


class Outage:
    """Stands for `Database.connection`: the n-th one finds no database, or hears no answer to its commit."""

    def __init__(self, n: int, *, is_committed: bool) -> None:
        self.num_left = n
        self._is_committed = is_committed
        self._session = Database.connection

    def as_method(self) -> Callable[..., AbstractContextManager[Connection]]:
        @contextmanager
        def session(database: Database, *, writing: bool) -> Iterator[Connection]:
            self.num_left -= 1
            if self.num_left or self._is_committed:
                with self._session(database, writing=writing) as opened:
                    yield opened
            if not self.num_left:
                raise RegistryUnavailableError("The registry cannot be reached.")

        return session


@pytest.mark.runs
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_pipeline_outlives_an_outage_at_any_of_its_uses(
    laboratory: Path, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    with Registry(str(laboratory / "empty.sqlite")) as registry:
        registry.open()  # once, since it takes long
    for n in count(1):
        settings = Settings.from_options(home=laboratory, registry=str(laboratory / f"{n}.sqlite"), environ={})
        shutil.copy(laboratory / "empty.sqlite", settings.registry)
        outage = Outage(n, is_committed=is_committed)
        with monkeypatch.context() as patched:
            patched.setattr(Database, "connection", outage.as_method())
            record = run_spec(parse_spec(PIPELINE), settings=settings)
        assert record.state == "COMPLETED"
        with Registry(settings.registry) as registry:
            runs = registry.runs()
            assert sorted(runs["name"]) == ["both", "both/large", "both/small"], n
            assert set(runs["state"]) == {"COMPLETED"}
            assert {len(registry.attempts(run_id)) for run_id in runs["id"]} == {1}
        if outage.num_left > 0:
            break
    assert n > 20


def test_a_registry_that_is_away_at_the_start_is_refused_at_once(
    laboratory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[int] = []
    monkeypatch.setattr(runner, "connect", lambda *arguments, **options: connected.append(1))
    settings = Settings.from_options(
        home=str(laboratory / "home"), registry="postgresql://me@127.0.0.1:1/lab", environ={}
    )
    with pytest.raises(RegistryUnavailableError, match=r"127.0.0.1"):
        run_spec(parse_spec(PIPELINE), settings=settings)
    assert connected == []


def test_what_ended_a_run_is_said_where_the_registry_cannot_record_it(
    laboratory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def run_out_of_memory(*arguments: object) -> TokenizerResult:
        monkeypatch.setattr(Recorder, "fail", refuse)
        raise RunFailedError("memory ran out")

    def refuse(*arguments: object) -> None:
        raise RegistryError("the registry's disk is full")

    monkeypatch.setattr(TokenizerKind, "run", run_out_of_memory)
    settings = Settings.from_options(home=laboratory / "home", environ={})
    with pytest.raises(RunFailedError, match="memory ran out"):
        run_spec(parse_spec(PIPELINE["stages"]["small"]), settings=settings)
    assert "ended is not recorded: the registry's disk is full" in caplog.text


def test_an_attempt_that_another_one_has_superseded_is_no_completed_run(
    laboratory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = TokenizerKind.run

    def be_overtaken(self: Any, spec: Any, inputs: Any, context: Any) -> TokenizerResult:
        context.recorder.registry.lifecycle.start_attempt(context.run_id, number=2)
        return train(self, spec, inputs, context)

    monkeypatch.setattr(TokenizerKind, "run", be_overtaken)
    settings = Settings.from_options(home=laboratory / "home", environ={})
    with pytest.raises(RunStoppedError, match="superseded by another attempt"):
        run_spec(parse_spec(PIPELINE["stages"]["small"]), settings=settings)
    with Registry(settings.registry) as registry:
        assert list(registry.runs()["state"]) == ["RUNNING"]
