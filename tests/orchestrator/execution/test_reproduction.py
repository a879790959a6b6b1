"""What `runs reproduce` tells of runs. Alone: pytest tests/orchestrator/execution/test_reproduction.py"""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.base.errors import NotFoundError
from orchestrator.base.results import DatasetResult, FileCount
from orchestrator.base.settings import Settings
from orchestrator.execution.reproduction import changed_inputs, kept_diff, reproduction_facts, spec_text
from orchestrator.provenance.capture import Provenance
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.records import RunRecord
from orchestrator.specs.loading import parse_spec, spec_values
from orchestrator.specs.task import task_of
from orchestrator.tasks.loading import load_task
from tests.orchestrator.registry.samples import made_with, model_result

SWEEP = {"kind": "sweep", "name": "tuned", "task": {"id": "sst2", "folder": "data"}, "recipe": {"tokenizer": "words"}}


@pytest.fixture
def registry(recorder: Recorder) -> Registry:
    return recorder.registry


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "text.txt"
    path.write_text("words\n" * 10)
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    return path


def tokenizer(text: Path, **changes: Any) -> dict[str, Any]:
    return {"kind": "tokenizer", "name": "words", "corpus": {"files": [str(text)]}, "vocab_size": 200, **changes}


def record(registry: Registry, spec: dict[str, Any], make: Provenance | None = None, *tags: str) -> RunRecord:
    """A completed run."""
    parsed = parse_spec(spec)
    recorder = Recorder(registry, made_with=make)
    run = recorder.start(spec_values(parsed) | {"tags": [*parsed.tags, *tags]}, parsed.fingerprint())
    recorder.complete(run.id, RunOutcome())
    return registry.run(run.id)


def test_code_command_and_versions_are_told_as_they_were(registry: Registry, settings: Settings, text: Path) -> None:
    environment = {"versions": {"torch": "1.0.0"}}
    make = replace(made_with("a" * 40, "+x = 1"), command="orchestrator run a.yaml", environment=environment)
    run = record(registry, tokenizer(text), make)
    facts = reproduction_facts(run, registry, settings)
    assert (facts["command"], facts["commit"], facts["changed_inputs"]) == ("orchestrator run a.yaml", "a" * 40, [])
    assert f"runs reproduce {run.id} --show diff" in facts["uncommitted_changes"]
    assert facts["versions"] == {"torch": "1.0.0"}
    assert kept_diff(run, registry) == "+x = 1"
    with pytest.raises(NotFoundError):
        kept_diff(record(registry, tokenizer(text), made_with("a" * 40)), registry)


def test_the_command_is_the_one_that_began_the_run(registry: Registry, settings: Settings, text: Path) -> None:
    """A command that resumed it makes nothing again."""
    begun, resumed = (
        replace(made_with("a" * 40), command=f"orchestrator {words}") for words in ("run a.yaml", "resume x")
    )
    run = registry.lifecycle.create(kind="tokenizer", name="words", fingerprint="f", spec=tokenizer(text))
    for make in (begun, resumed):
        registry.lifecycle.start_attempt(run, made_with=make)
    assert reproduction_facts(registry.run(run), registry, settings)["command"] == "orchestrator run a.yaml"


def test_changes_that_were_not_kept_or_held_secrets_are_told(
    registry: Registry, settings: Settings, text: Path
) -> None:
    make = made_with("a" * 40, "+x = 1")
    masked = replace(make, code=replace(make.code, has_masked_secrets=True))
    lost = replace(make, code=replace(make.code, diff=None))
    runs = [record(registry, tokenizer(text), each) for each in (masked, lost)]
    of_both = [reproduction_facts(run, registry, settings) for run in runs]
    assert "secrets" in of_both[0]["uncommitted_changes"]
    assert of_both[1]["uncommitted_changes"].startswith("not kept")


def test_the_spec_that_is_printed_makes_the_same_run(registry: Registry, text: Path) -> None:
    run = record(registry, tokenizer(text, tags=["paper"]), None, "pipeline:x", "inputs:y")
    assert parse_spec(yaml.safe_load(spec_text(run, registry))) == parse_spec(tokenizer(text, tags=["paper"]))


@pytest.mark.parametrize(
    ("change", "is_told"),
    [
        (lambda path: path.unlink(), True),
        (lambda path: path.write_text("x"), True),
        (lambda path: os.utime(path, (time.time() + 60, time.time() + 60)), True),
        (lambda path: None, False),
    ],
    ids=["gone", "another size", "written again", "unchanged"],
)
def test_text_that_has_changed_is_told(
    registry: Registry, settings: Settings, text: Path, change: Any, is_told: bool
) -> None:
    run = record(registry, tokenizer(text))
    data = DatasetResult("text", "corpus", "c" * 64, "/c", {}, [FileCount(str(text), 60, 10)])
    registry.datasets.record(run.id, data)
    change(text)
    assert [str(text) in line for line in changed_inputs(registry, run, settings)] == [True] * is_told


def test_a_pipelines_inputs_are_those_of_its_stages(registry: Registry, settings: Settings, text: Path) -> None:
    pipeline = Recorder(registry).start({"kind": "pipeline", "name": "life"}, "f")
    stage = record(registry, tokenizer(text), None, f"pipeline:{pipeline.id}")
    data = DatasetResult("text", "corpus", "c" * 64, "/c", {}, [FileCount(str(text), 60, 10)])
    registry.datasets.record(stage.id, data)
    text.write_text("x")
    assert len(changed_inputs(registry, pipeline, settings)) == 1


def test_a_split_that_has_changed_is_told(registry: Registry, settings: Settings, text: Path) -> None:
    folder = text.parent / "data"
    folder.mkdir()
    for split in ("train", "dev", "test"):
        (folder / f"{split}.tsv").write_text("sentence\tlabel\ngood\t1\nbad\t0\n")
    run = record(registry, SWEEP)
    task = load_task(task_of(parse_spec(SWEEP)))  # type: ignore[arg-type]
    registry.trials.set_data(run.id, {split: task.fingerprint(split)[:16] for split in ("train", "validation")})
    of_data = [line for line in changed_inputs(registry, run, settings) if line.startswith("data")]
    assert of_data == []
    (folder / "train.tsv").write_text("sentence\tlabel\ngood\t0\nbad\t0\n")
    (line,) = [line for line in changed_inputs(registry, run, settings) if line.startswith("data")]
    assert "train split of sst2" in line


def test_a_model_that_is_gone_is_told(registry: Registry, settings: Settings, text: Path) -> None:
    registry.models.register("start", model_result(), record(registry, tokenizer(text)).id)
    spec = {"kind": "pretrain", "tokenizer": "start@1", "init_from": "start@1", "steps": 2}
    run = record(registry, spec | {"corpus": {"files": [str(text)]}})
    assert any(line.startswith("init_from: ") for line in changed_inputs(registry, run, settings))


def test_a_spec_that_this_code_does_not_read_is_told(registry: Registry, settings: Settings) -> None:
    run = Recorder(registry).start({"kind": "juggle", "name": "old"}, "f")
    (line,) = changed_inputs(registry, run, settings)
    assert "only its own code" in line
