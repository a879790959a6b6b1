"""`verify-resume`: its table and exit status, and real runs (slow).

Run alone: pytest tests/orchestrator/cli/test_verifying.py
"""

import json
import random
from pathlib import Path

import pytest

from orchestrator.specs import PretrainSpec
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.pretraining.small_run import WORDS, make_tokenizer
from tests.orchestrator.small_specs import PRETRAIN, write_inputs
from tests.orchestrator.verification.fake_runs import SAME, FakeRuns


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
