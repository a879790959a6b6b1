"""`corpus`, `tokenizer`, `schema`, `doctor`, and the way of a spec into `run`, `plan` and `resume`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_text_and_upkeep.py
"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import ray
import yaml

from orchestrator.cluster import doctor as doctor_module
from orchestrator.cluster.doctor import Finding
from orchestrator.errors import ClusterError
from orchestrator.settings import Settings
from orchestrator.specs.kinds import SPEC_KINDS, spec_class
from orchestrator.storage import write_bytes
from tests.orchestrator.cli.laboratory import Command, RecordedSweep

DOCUMENTS = "The cat sat on the mat. It was warm.\nAll was well.\n\nThe dog sat on the log.\n\n" * 30


def test_inspect_counts_each_file_and_all(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(DOCUMENTS)
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "One. Two."}\n{"text": \xff}\n')
    table = command("corpus", "inspect", "a.txt", "b.jsonl")
    assert table.status == 0
    assert table.out.splitlines()[-1].split()[0] == "all"
    assert "line 2" in table.err
    first, second = json.loads(command("corpus", "inspect", "a.txt", "b.jsonl", "-f", "json").out)
    assert (first["num_documents"], first["num_sentences"], first["num_bad_records"]) == (60, 120, 0)
    assert (second["num_documents"], second["num_bad_records"]) == (1, 1)


def test_inspect_counts_a_file_that_cannot_be_read_and_goes_on(command: Command, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"body": ["A"]}), tmp_path / "a.parquet")
    (tmp_path / "b.txt.gz").write_text("not packed")
    (tmp_path / "c.jsonl").write_text('{"body": "A"}\n')
    (tmp_path / "d.txt").write_text(DOCUMENTS)
    outcome = command("corpus", "inspect", "a.parquet", "b.txt.gz", "c.jsonl", "d.txt", "-f", "json")
    assert outcome.status == 0
    *bad, good = json.loads(outcome.out)
    assert [(row["num_documents"], row["num_bad_records"]) for row in bad] == [(0, 1)] * 3
    parquet, packed, lines = [row["first_problem"] for row in bad]
    assert "is not compressed" in packed
    assert "--text-field" in parquet
    assert "--text-field" in lines
    assert good["num_documents"] == 60


def test_a_tokenizer_is_trained_saved_and_reported_on(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(DOCUMENTS)
    trained = command("tokenizer", "train", "a.txt", "-o", "tok", "--vocab-size", "120", "-f", "json")
    assert trained.status == 0, trained.err
    assert json.loads(trained.out)["folder"] == "tok"
    assert {"tokenizer.json", "vocab.txt"} <= {path.name for path in (tmp_path / "tok").iterdir()}
    report = json.loads(command("tokenizer", "report", "tok", "a.txt", "-f", "json").out)
    assert report["fertility"] >= 1
    assert report["unknown_rate"] == 0
    assert command("tokenizer", "report", "tok", "a.txt", "--max-documents", "1").status == 0
    (tmp_path / "tok").rename(tmp_path / "kept")
    for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json"):
        write_bytes(f"memory://tok/{name}", (tmp_path / "kept" / name).read_bytes())
    again = json.loads(command("tokenizer", "report", "memory://tok", "a.txt", "-f", "json").out)
    assert again["fertility"] == report["fertility"]


def test_a_tokenizer_that_is_not_there_or_text_without_words_is_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(DOCUMENTS)
    (tmp_path / "empty.txt").write_text("\n\n")
    assert command("tokenizer", "report", "none", "a.txt").status == 3
    assert command("corpus", "inspect", "none.txt").status == 2
    assert command("tokenizer", "train", "a.txt", "-o", ".").status == 2
    command("tokenizer", "train", "a.txt", "-o", "tok", "--vocab-size", "120")
    for arguments in (["report", "tok", "empty.txt"], ["train", "empty.txt", "-o", "new"]):
        outcome = command("tokenizer", *arguments)
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err.splitlines()[-1].startswith("Error: ")
    assert not (tmp_path / "new").exists()


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


def test_doctor_has_a_remedy_for_each_problem_and_says_so_by_its_status(command: Command, tmp_path: Path) -> None:
    well = command("doctor", "-f", "json")
    findings = {finding["part"]: finding for finding in json.loads(well.out)}
    assert well.status == 0
    assert {"python", "torch", "ray", "storage", "registry", "memory", "disk", "gpu"} <= set(findings)
    assert all(finding["remedy"] for finding in findings.values() if finding["state"] != "ok")
    assert findings["registry"]["found"] == f"{tmp_path}/home/registry.sqlite: empty; the first run makes its tables"
    attention = findings["attention"]["found"]
    assert "cpu: training takes grouped, scoring takes grouped; varlen runs on CUDA only" in attention

    (tmp_path / "file").write_text("in the way")
    broken = command("doctor", "-f", "json", "--storage", str(tmp_path / "file"), "--registry", str(tmp_path / "file"))
    states = {finding["part"]: finding["state"] for finding in json.loads(broken.out)}
    assert broken.status == 1
    assert (states["storage"], states["registry"]) == ("problem", "problem")


@pytest.mark.parametrize("name", ["run", "plan", "submit"])
def test_a_broken_spec_is_refused_before_anything_starts(command: Command, tmp_path: Path, name: str) -> None:
    (tmp_path / "s.yaml").write_text("kind: tokenizer\ncorpus:\n  flies: [a.txt]\n")
    outcome = command(name, "s.yaml", "--address", "http://127.0.0.1:1")
    assert (outcome.status, outcome.out) == (2, "")
    assert "s.yaml:3: corpus.flies is no field of this spec; did you mean files?" in outcome.err
    assert not (tmp_path / "home").exists()


def test_a_plan_shows_steps_and_resources_and_starts_nothing(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(DOCUMENTS)
    (tmp_path / "t.yaml").write_text("kind: tokenizer\ncorpus: {files: [a.txt]}\n")
    for arguments in (["plan", "t.yaml", "-f", "json"],):
        outcome = command(*arguments)
        assert outcome.status == 0, outcome.err
        assert "tokenizer" in outcome.out
    assert command("runs", "list", "-f", "json").out == "[]\n"


def test_a_plan_refuses_what_this_machine_could_not_carry(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(DOCUMENTS)
    command("tokenizer", "train", "a.txt", "-o", "tok", "--vocab-size", "120")
    spec = "kind: pretrain\ncorpus: {files: [a.txt]}\ntokenizer: tok\nsteps: 1\nglobal_batch_size: 4096\n"
    (tmp_path / "p.yaml").write_text(spec)
    assert command("plan", "p.yaml").status == 0
    for place in ([], ["--address", "local"]):
        outcome = command("plan", "p.yaml", "execution.num_workers=4096", *place)
        assert outcome.status == 5
        assert "this machine cannot give what this needs: 8192 CPUs asked" in outcome.err


def test_a_plan_asks_the_cluster_that_is_named(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # another test may have left one connected
    (tmp_path / "a.txt").write_text(DOCUMENTS)
    (tmp_path / "t.yaml").write_text("kind: tokenizer\ncorpus: {files: [a.txt]}\n")
    outcome = command("plan", "t.yaml", "--address", "127.0.0.1:1")
    assert outcome.status == 5
    assert "no Ray answers at 127.0.0.1:1" in outcome.err


def test_resume_of_a_completed_run_leaves_it_as_it_is(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("resume", recorded_sweep.run_id[:8])
    assert (outcome.status, outcome.out) == (0, recorded_sweep.run_id + "\n")


NODES = [
    {"node": "10.77.0.11", "cpu": "60/64", "gpu": "7/8", "memory": "120/256G", "disk": "812G"},
    {"node": "10.77.0.12", "cpu": "0.5/2", "gpu": "0/0"},
]
SILENT = Finding("node 10.77.0.12", "problem", "no answer within 30 s", "look whether the host is up")


@pytest.fixture
def address() -> Iterator[str]:
    """An address at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_each_node_has_a_row_and_each_problem_a_line(
    command: Command, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_module, "survey_nodes", lambda settings: (NODES, [SILENT]))
    shown = command("doctor", "--address", address)
    assert shown.status == 1
    assert "no answer within 30 s" in shown.out
    table = shown.out.partition("\nnodes: ")[2].splitlines()[2:]
    assert [line.split()[:3] for line in table] == [["10.77.0.11", "60/64", "7/8"], ["10.77.0.12", "0.5/2", "0/0"]]
    rows = json.loads(command("doctor", "-f", "json", "--address", address).out)[-3:]
    assert [(row["part"], row["state"]) for row in rows] == [
        ("node 10.77.0.12", "problem"),
        ("node 10.77.0.11", "ok"),
        ("node 10.77.0.12", "ok"),
    ]
    assert rows[1]["found"] == NODES[0]


def test_a_cluster_that_refuses_is_a_problem_with_its_own_remedy(
    command: Command, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: Settings) -> None:
        raise ClusterError("Ray at 10.0.0.1:6379 cannot be used: no token; set RAY_AUTH_MODE=token")

    monkeypatch.setattr(doctor_module, "survey_nodes", refuse)
    shown = command("doctor", "-f", "json", "--address", address)
    (row,) = (row for row in json.loads(shown.out) if row["part"] == "nodes")
    assert (row["state"], row["remedy"], shown.status) == ("problem", "set RAY_AUTH_MODE=token", 1)
