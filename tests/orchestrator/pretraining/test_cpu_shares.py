"""A run that is given exactly the CPUs that it asks for, in fractions: nothing in it waits for a whole one besides.

Run alone: pytest tests/orchestrator/pretraining/test_cpu_shares.py
"""

from pathlib import Path

import pytest
import ray

from orchestrator.execution.runner import run_spec
from orchestrator.settings import Settings
from orchestrator.specs import PretrainSpec
from orchestrator.training.event_queue import EventQueue
from tests.orchestrator.pretraining.small_run import WORDS, make_tokenizer


def write_spec(folder: Path) -> PretrainSpec:
    """A pretraining of a few steps, with its text and tokenizer, that takes 1.5 CPUs and half of one for its data."""
    make_tokenizer().save(folder / "tokenizer")
    lines = [" ".join(WORDS[(3 * n + k) % len(WORDS)] for k in range(7)) + "." for n in range(100)]
    (folder / "text.txt").write_text("\n\n".join("\n".join(lines[n : n + 5]) for n in range(0, len(lines), 5)))
    return PretrainSpec.model_validate(
        {
            "corpus": {"files": [str(folder / "text.txt")]},
            "tokenizer": str(folder / "tokenizer"),
            "model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
            "steps": 3,
            "phases": [{"max_seq_length": 48}],
            "global_batch_size": 4,
            "execution": {"num_workers": 1, "cpus_per_worker": 1.5, "data_cpus": 0.5, "max_wait_minutes": 10},
        }
    )


@pytest.mark.ray
@pytest.mark.training
def test_a_run_on_two_cpus_takes_one_and_a_half_for_its_worker_and_half_of_one_for_its_data(
    ray_cluster: None, tmp_path: Path
) -> None:
    others = ray.remote(num_cpus=4)(EventQueue).remote()
    ray.get(others.num_put.remote())
    try:
        record = run_spec(write_spec(tmp_path), settings=Settings.from_options(home=str(tmp_path / "home"), environ={}))
    finally:
        ray.kill(others)
    assert record.state == "COMPLETED"
