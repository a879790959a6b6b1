"""`doctor`: what is wrong with a machine or a cluster; `verify-resume`: its table and exit status, real runs (slow).

Alone: .venv/bin/pytest tests/orchestrator/cli/test_maintenance.py
"""

import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.base.errors import ClusterError
from orchestrator.base.settings import Settings
from orchestrator.execution import doctor as doctor_module
from orchestrator.execution.doctor import Finding
from orchestrator.specs import PretrainSpec
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.execution.fake_runs import SAME, FakeRuns
from tests.orchestrator.pretraining.small_run import WORDS, make_tokenizer
from tests.orchestrator.small_specs import PRETRAIN, write_inputs


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


def test_the_command_shows_a_table_and_fails_where_something_differs(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRuns(monkeypatch)
    write_inputs(tmp_path)
    (tmp_path / "spec.yaml").write_text(json.dumps(PRETRAIN))
    good = command("verify-resume", "spec.yaml", "--steps", "3", "--workers", "4")
    assert good.status == 0
    lines = [line.split() for line in good.out.splitlines()]
    assert [*["killed", "after", "step", "3,", "resumed", "weights", "yes"], "b" * 12, "b" * 12] in lines
    assert [*["4", "workers", "batches", "yes"], "a" * 12, "a" * 12] in lines
    fake.outcomes = {"killed": SAME | {"weights": "e" * 64}}
    bad = command("verify-resume", "spec.yaml", "seed=1")
    assert bad.status == 1
    assert "the runs are kept in" in bad.err
    killed = fake.specs["killed"]
    assert isinstance(killed, PretrainSpec)
    assert killed.seed == 1


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.training
def test_a_real_run_that_is_killed_and_resumed_ends_at_the_same_bits(command: Command, tmp_path: Path) -> None:
    generator = random.Random(0)
    make_tokenizer().save(tmp_path / "words")
    documents = ["\n".join(" ".join(generator.sample(WORDS, 6)) + "." for _ in range(5)) for _ in range(200)]
    (tmp_path / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    model = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    values = {"phases": [{"max_seq_length": 32}], "global_batch_size": 8, "validation_fraction": 0.1, "model": model}
    (tmp_path / "spec.yaml").write_text(json.dumps({**PRETRAIN, **values}))
    outcome = command("verify-resume", "spec.yaml", "-f", "json")
    assert outcome.status == 0, outcome
    rows = json.loads(outcome.out)
    assert [(row["run"], row["what"], row["equal"]) for row in rows] == [
        ("killed after step 5, resumed", "batches", True),
        ("killed after step 5, resumed", "weights", True),
        ("killed after step 5, resumed", "optimizer", True),
        ("2 workers", "batches", True),
        ("killed after step 5, resumed with 2 workers", "batches", True),
    ]
    assert all(len(row["straight"]) == 64 for row in rows)
