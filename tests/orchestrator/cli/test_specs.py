"""`init`, from files to a spec that runs; `schema`, `plan`, and the way of a spec into `run` and `submit`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_specs.py
"""

import json
from pathlib import Path

import jsonschema
import pytest
import ray
import yaml

from orchestrator.specs import SPEC_KINDS, spec_class
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.drafting.made_files import write_reviews, write_sentences
from tests.orchestrator.small_specs import PRETRAIN, write_inputs


def test_init_says_what_it_found_and_what_comes_next(command: Command, tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.csv", delimiter=";")
    outcome = command("init", "reviews.csv")
    assert (outcome.status, outcome.out) == (0, "reviews.yaml\n")
    assert "data      reviews.csv: CSV, 60" in outcome.err
    assert "orchestrator run reviews.yaml" in outcome.err
    assert max(map(len, outcome.err.splitlines())) <= 80
    assert {path.name for path in tmp_path.iterdir()} >= {"reviews.yaml", "reviews.texts.txt"}


def test_a_second_init_writes_over_when_asked_only(command: Command, tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.csv")
    command("init", "reviews.csv")
    again = command("init", "reviews.csv")
    assert again.status == 2
    assert "reviews.texts.txt and reviews.yaml would be overwritten; give --force" in again.err
    assert command("init", "reviews.csv", "--force").status == 0


def test_the_data_itself_is_never_written_over(command: Command, tmp_path: Path) -> None:
    write_reviews(tmp_path / "drafted.texts.txt")
    outcome = command("init", "drafted.texts.txt", "--kind", "pretraining", "-o", "drafted.texts.txt", "--force")
    assert outcome.status == 2
    write_sentences(tmp_path / "drafted.texts.txt")
    outcome = command("init", "drafted.texts.txt", "-o", "drafted.yaml", "--force")
    assert (outcome.status, "it is the data itself" in outcome.err) == (2, True)


def test_what_cannot_be_read_leaves_nothing(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    outcome = command("init", "empty.csv")
    assert (outcome.status, [path.name for path in tmp_path.iterdir()]) == (2, ["empty.csv"])
    assert "empty.csv is empty; name a file that holds data" in outcome.err


def test_a_model_that_cannot_be_read_is_refused(command: Command, tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.csv")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "bert"}')
    outcome = command("init", "reviews.csv", "--model", "./model")
    assert outcome.status == 2
    assert "model.safetensors" in outcome.err
    assert not (tmp_path / "reviews.yaml").exists()


@pytest.mark.ray
@pytest.mark.training
@pytest.mark.runs
def test_a_drafted_spec_is_planned_and_runs_as_it_stands(command: Command, tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.csv", 40)
    assert command("init", "reviews.csv", "--minutes", "1").status == 0
    assert command("plan", "reviews.yaml").status == 0
    outcome = command("run", "reviews.yaml")
    assert outcome.status == 0, outcome.err
    assert "best of" in outcome.err


@pytest.mark.parametrize("kind", SPEC_KINDS)
def test_a_schema_fits_80_columns_and_names_every_field(command: Command, kind: str) -> None:
    lines = command("schema", kind).out.splitlines()
    assert max(map(len, lines)) <= 80
    named = {line.partition(":")[0] for line in lines if not line.startswith(" ")}
    assert set(spec_class(kind).model_fields) <= named


def test_the_json_schema_accepts_the_experiments(command: Command) -> None:
    schema = json.loads(command("schema", "sweep", "-f", "json").out)
    folder = Path(__file__).parents[3] / "experiments"
    jsonschema.validate(yaml.safe_load((folder / "sweep_mrpc.yaml").read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"kind": "sweep", "tsk": {}}, schema)
    assert [row["kind"] for row in json.loads(command("schema", "-f", "json").out)] == list(SPEC_KINDS)


@pytest.mark.parametrize("name", ["run", "plan", "submit"])
def test_a_broken_spec_is_refused_before_anything_starts(command: Command, tmp_path: Path, name: str) -> None:
    (tmp_path / "s.yaml").write_text("kind: tokenizer\ncorpus:\n  flies: [a.txt]\n")
    outcome = command(name, "s.yaml", "--address", "http://127.0.0.1:1")
    assert (outcome.status, outcome.out) == (2, "")
    assert "s.yaml:3: corpus.flies is no field of this spec; did you mean files?" in outcome.err
    assert not (tmp_path / "home").exists()


def test_a_plan_shows_steps_and_resources_and_starts_nothing(command: Command, spec: str) -> None:
    outcome = command("plan", spec, "-f", "json")
    assert outcome.status == 0, outcome.err
    assert "tokenizer" in outcome.out
    assert command("runs", "list", "-f", "json").out == "[]\n"


def test_a_plan_refuses_what_this_machine_could_not_carry(command: Command, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "p.yaml").write_text(json.dumps({**PRETRAIN, "steps": 1, "global_batch_size": 4096}))
    assert command("plan", "p.yaml").status == 0
    for place in ([], ["--address", "local"]):
        outcome = command("plan", "p.yaml", "execution.num_workers=4096", *place)
        assert outcome.status == 5
        assert "this machine cannot give what this needs: 8192 CPUs asked" in outcome.err


def test_a_plan_asks_the_cluster_that_is_named(command: Command, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # another test may have left one connected
    outcome = command("plan", spec, "--address", "127.0.0.1:1")
    assert outcome.status == 5
    assert "no Ray answers at 127.0.0.1:1" in outcome.err
