"""`embed`, `search` and the evaluation of retrieval from the command line, on tiny models with random weights.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_searching.py
"""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from orchestrator.specs import TaskSpec
from orchestrator.tasks.loading import load_task
from tests.orchestrator.cli.laboratory import Command


def test_embed_writes_json_lines_or_a_matrix(command: Command, encoder: str, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('cats rest\n\n{"id": 7, "text": "rain falls"}\n')
    outcome = command("embed", encoder, "texts.jsonl")
    assert outcome.status == 0, outcome.err
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [(row["text"], row.get("id")) for row in rows] == [("cats rest", None), ("rain falls", 7)]
    assert command("embed", encoder, "texts.jsonl", "-o", "rows.jsonl").out == ""
    assert (tmp_path / "rows.jsonl").read_text() == outcome.out
    matrix = command("embed", encoder, "texts.jsonl", "-o", "rows.npy")
    assert "2 vectors of 16 numbers" in matrix.err
    np.testing.assert_allclose(np.load(tmp_path / "rows.npy"), [row["embedding"] for row in rows], atol=1e-6)


def test_search_shows_the_hits_of_each_query(command: Command, encoder: str, documents: str) -> None:
    outcome = command("search", encoder, "a cold mat", "planes", "--documents", documents, "--top-k", "2", "-f", "json")
    assert outcome.status == 0, outcome.err
    rows = json.loads(outcome.out)
    assert [(row["query"], row["rank"]) for row in rows] == [(q, n) for q in ("a cold mat", "planes") for n in (1, 2)]
    assert "not in the index: 1 document without text" in outcome.err
    table = command("search", encoder, "planes", "--documents", documents).out.splitlines()
    assert table[0].split() == ["rank", "id", "score", "text"]
    assert len(table) == 4


def test_search_reads_queries_from_stdin(
    command: Command, encoder: str, documents: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = io.TextIOWrapper(io.BytesIO(b'cats\n\n{"text": "planes"}\n'))
    monkeypatch.setattr("sys.stdin", asked)
    outcome = command("search", encoder, "--documents", documents, "--index", "index", "-f", "csv", "--top-k", "1")
    assert outcome.status == 0, outcome.err
    assert [row["query"] for row in csv.DictReader(io.StringIO(outcome.out))] == ["cats", "planes"]
    assert command("search", encoder, "cats", "--index", "index").status == 0


@pytest.mark.parametrize("output", ["old.jsonl", "old.npy"])
def test_embed_that_breaks_off_leaves_the_old_file(output: str, command: Command, encoder: str, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes(b"cats rest\n" * 2500 + b"caf\xe9\n")
    (tmp_path / output).write_text("old")
    outcome = command("embed", encoder, "texts.txt", "-o", output)
    assert (outcome.status, (tmp_path / output).read_text()) == (2, "old")
    assert "texts.txt: line 2501 is not UTF-8" in outcome.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [output, "texts.txt"]


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (["search", "MODEL", "cats"], 2, "--documents"),
        (["search", "MODEL", "cats", "--documents", "none.txt"], 2, "none.txt"),
        (["search", "MODEL", "cats", " ", "--documents", "DOCUMENTS"], 2, "query 2"),
        (["embed", "MODEL", "DOCUMENTS", "-o", "x.csv"], 2, "x.csv"),
        (["search", "MODEL", "cats", "--documents", "DOCUMENTS", "--relevant-label", "yes"], 2, "--rerank"),
        (["search", "nothing", "cats", "--documents", "DOCUMENTS"], 3, "nothing"),
        (["evaluate", "MODEL", "sst2", "folder=SST-2", "--rerank", "MODEL"], 2, "sst2"),
    ],
)
def test_what_cannot_be_done_is_said(
    command: Command,
    encoder: str,
    documents: str,
    tmp_path: Path,
    arguments: list[str],
    status: int,
    named: str,
) -> None:
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "dev.tsv").write_text("sentence\tlabel\nthe cat\t1\n")
    names = {"MODEL": encoder, "DOCUMENTS": documents}
    outcome = command(*[names.get(word, word) for word in arguments])
    assert (outcome.status, outcome.out) == (status, "")
    assert named in outcome.err


def test_evaluate_scores_rankings_and_reranked_ones(
    command: Command, encoder: str, scorer: str, classifier: str, collection: TaskSpec, tmp_path: Path
) -> None:
    task = [encoder, "own", "head=retrieval", f"folder={collection.folder}", "-f", "json"]
    record = json.loads(command("evaluate", *task, "-o", "p.jsonl").out)
    assert (record["num_examples"], record["num_documents"], record["num_empty_documents"]) == (2, 3, 1)
    assert record["recall_at_10"] == pytest.approx((1 / 2 + 1) / 2)
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    mrr = [1 / (row["prediction"].index(name) + 1) for row, name in zip(rows, "ab", strict=True)]
    assert record["mrr_at_10"] == pytest.approx(sum(mrr) / 2)
    for options in (["--rerank", scorer], ["--rerank", classifier, "--relevant-label", "yes", "--num-candidates", "2"]):
        again = json.loads(command("evaluate", *task, *options).out)
        assert again["recall_at_10"] == record["recall_at_10"]


def test_search_writes_pairs_that_a_sweep_reads(command: Command, encoder: str, collection: TaskSpec) -> None:
    task = ["own", "head=retrieval", f"folder={collection.folder}", "--split", "validation"]
    shown = command("search", encoder, *task, "--pairs", "-")
    assert {tuple(json.loads(line)) for line in shown.out.splitlines()} == {("query", "document", "relevant")}
    assert command("search", encoder, *task, "--num-negatives", "2", "--pairs", "pairs.jsonl").status == 0
    files = {"train": "pairs.jsonl", "validation": "pairs.jsonl"}
    columns = {"text_columns": ["query", "document"], "label_column": "relevant"}
    pairs = load_task(TaskSpec.model_validate({"id": "pairs", "head": "classification", "files": files, **columns}))
    assert (pairs.labels, len(pairs.examples("train"))) == (("no", "yes"), 6)
