"""`mine`: pairs for a reranker from the command line, on a tiny encoder with random weights.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_mining.py
"""

import json
from pathlib import Path

from orchestrator.specs import TaskSpec
from orchestrator.tasks import load_task
from tests.orchestrator.cli.laboratory import Command


def test_mine_writes_pairs_that_a_sweep_reads(command: Command, encoder: str, collection: TaskSpec) -> None:
    task = ["own", "head=retrieval", f"folder={collection.folder}", "--split", "validation"]
    shown = command("mine", encoder, *task)
    assert {tuple(json.loads(line)) for line in shown.out.splitlines()} == {("query", "document", "relevant")}
    assert command("mine", encoder, *task, "--num-negatives", "2", "-o", "pairs.jsonl").status == 0
    files = {"train": "pairs.jsonl", "validation": "pairs.jsonl"}
    columns = {"text_columns": ["query", "document"], "label_column": "relevant"}
    pairs = load_task(TaskSpec.model_validate({"id": "pairs", "head": "classification", "files": files, **columns}))
    assert (pairs.labels, len(pairs.examples("train"))) == (("no", "yes"), 6)


def test_a_task_without_documents_is_refused(command: Command, encoder: str) -> None:
    Path("dev.tsv").write_text("sentence\tlabel\nthe cat\t1\n")
    outcome = command("mine", encoder, "sst2", "files.validation=dev.tsv")
    assert (outcome.status, outcome.out) == (2, "")
    assert "task sst2 is no retrieval: it has no documents to find" in outcome.err
