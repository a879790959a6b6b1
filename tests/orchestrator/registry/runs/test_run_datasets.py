"""Data that runs made or used.

pytest tests/orchestrator/registry/runs/test_run_datasets.py
"""

from orchestrator.registry import Registry
from orchestrator.results import DatasetResult, FileCount, TokenizerResult
from tests.orchestrator.registry.samples import everything, new_run


def test_data_used_by_two_runs_is_one_dataset(registry: Registry) -> None:
    dataset = DatasetResult("wiki", "corpus", "f" * 64, "path", {"num_tokens": 5}, [FileCount("a.txt", 3, 1, 1)])
    runs = [new_run(registry) for _ in range(2)]
    for run_id in runs:
        registry.datasets.record(run_id, dataset)
        (row,) = registry.datasets.frame(run_id).to_dict("records")
        assert (row["name"], row["counts"], row["files"][0]["num_bad_records"]) == ("wiki", {"num_tokens": 5}, 1)
    assert len(everything(registry)["datasets"]) == 1


def test_a_tokenizer_is_data_of_the_run_that_trained_it(registry: Registry) -> None:
    run_id = new_run(registry, kind="tokenizer")
    for _ in range(2):
        registry.datasets.record_tokenizer(run_id, TokenizerResult("folder", "f" * 64, 8_000))
    (row,) = registry.datasets.frame(run_id).to_dict("records")
    assert (row["kind"], row["name"], row["path"], row["counts"], row["files"]) == (
        "tokenizer", "tokenizer", "folder", {"vocab_size": 8_000}, []
    )  # fmt: skip
