"""Pairs for a reranker: relevant documents, and others drawn from what a first model finds.

Alone: .venv/bin/pytest tests/orchestrator/inference/test_mining.py
"""

import json
from pathlib import Path

import pytest

from orchestrator.base.errors import InputError
from orchestrator.inference.searching import mine_pairs
from orchestrator.specs import TaskSpec
from orchestrator.tasks.loading import load_task

TEXTS = {"a": "cats rest on the mat", "b": "wings lift planes", "d": "rain falls into a cold river"}


def mine(
    encoder: str, collection: TaskSpec, num_negatives: int, num_candidates: int
) -> dict[tuple[str, str], list[str]]:
    """Documents by query and by whether they are relevant."""
    found: dict[tuple[str, str], list[str]] = {}
    for pair in mine_pairs(
        encoder, load_task(collection), "validation", num_negatives, num_candidates, lambda line: None
    ):
        found.setdefault((pair["query"], pair["relevant"]), []).append(pair["document"])
    return found


def test_negatives_are_hits_that_are_not_relevant(encoder: str, collection: TaskSpec) -> None:
    found = mine(encoder, collection, num_negatives=5, num_candidates=3)
    assert found.keys() == {(query, answer) for query in ("a cold mat", "planes") for answer in ("yes", "no")}
    assert found["a cold mat", "yes"] == [TEXTS["a"]], "the other relevant document has no text"
    assert found["planes", "yes"] == [TEXTS["b"]]
    assert sorted(found["a cold mat", "no"]) == sorted([TEXTS["b"], TEXTS["d"]])
    assert sorted(found["planes", "no"]) == sorted([TEXTS["a"], TEXTS["d"]])


def test_negatives_are_as_many_as_asked_and_drawn_alike_again(encoder: str, collection: TaskSpec) -> None:
    found = mine(encoder, collection, num_negatives=1, num_candidates=3)
    assert {key: len(documents) for key, documents in found.items()} == dict.fromkeys(found, 1)
    assert mine(encoder, collection, num_negatives=1, num_candidates=3) == found


def test_rows_for_an_encoder_are_pairs_with_negatives_as_a_task_reads_them(
    encoder: str, collection: TaskSpec, tmp_path: Path
) -> None:
    rows = mine_pairs(encoder, load_task(collection), "validation", 5, 3, lambda line: None, for_encoder=True)
    (tmp_path / "hard.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"text_columns": ("query", "positive"), "negative_columns": ("negatives",)}
    files = {"validation": str(tmp_path / "hard.jsonl")}
    task = load_task(TaskSpec(id="hard", head="embedding", objective="in_batch_negatives", files=files, **columns))
    found = {(e.text, e.text_pair): sorted(e.negatives) for e in task.examples("validation")}
    assert found == {
        ("a cold mat", TEXTS["a"]): sorted([TEXTS["b"], TEXTS["d"]]),
        ("planes", TEXTS["b"]): sorted([TEXTS["a"], TEXTS["d"]]),
    }


def test_relevant_documents_need_not_be_found(encoder: str, collection: TaskSpec) -> None:
    found = mine(encoder, collection, num_negatives=5, num_candidates=1)
    assert {key: len(documents) for key, documents in found.items() if key[1] == "yes"} == {
        ("a cold mat", "yes"): 1,
        ("planes", "yes"): 1,
    }
    assert sum(len(documents) for key, documents in found.items() if key[1] == "no") <= 2


def test_a_text_that_a_collection_holds_twice_is_no_negative_of_its_own_query(
    encoder: str, collection: TaskSpec
) -> None:
    copies = [{"_id": f"copy {number}", "text": TEXTS[name]} for number, name in enumerate("aadd")]
    assert collection.folder is not None
    with (Path(collection.folder) / "corpus.jsonl").open("a") as file:
        file.writelines("\n" + json.dumps(copy) for copy in copies)
    found = mine(encoder, collection, num_negatives=5, num_candidates=9)
    assert sorted(found["a cold mat", "no"]) == sorted([TEXTS["b"], TEXTS["d"]])


def test_judgments_of_other_documents_are_told(encoder: str, collection: TaskSpec) -> None:
    assert collection.folder is not None
    (Path(collection.folder) / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tD17\t1\nq2\tc\t1\n")
    with pytest.raises(InputError, match=r"qrels\.tsv calls relevant has a text in .*corpus\.jsonl; check that both"):
        mine(encoder, collection, num_negatives=1, num_candidates=3)
