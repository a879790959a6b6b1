"""Pairs of texts by objective. Alone: pytest tests/orchestrator/tasks/types/test_embedding.py"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import SpecError, TaskDataError
from orchestrator.specs import TaskSpec
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.types.classification import ClassPrediction
from orchestrator.tasks.types.embedding import MatchExample, MatchTable
from orchestrator.tasks.types.regression import ValuePrediction
from orchestrator.tasks.types.retrieval import RankingPrediction
from tests.orchestrator.tasks.definitions import (
    decode,
    define,
    examples_of,
    features_of,
    window_texts,
    write,
    write_records,
)


def test_a_pair_is_two_windows_with_one_label(tokenizer: Tokenizer) -> None:
    scored = [TextExample("0", "the house", "a river", label=0.5), TextExample("1", "the", "engine")]
    features = features_of("embedding", (), scored, tokenizer, max_seq_length=8, objective="cosine")
    assert features.example_index.tolist() == [0, 0, 1, 1]
    assert features.group_starts.tolist() == [0, 2, 4]
    np.testing.assert_array_equal(features.head_arrays.labels, np.array([0.5, np.nan], np.float32))
    classes = [TextExample("0", "the house", "a river", label="same")]
    features = features_of(
        "embedding", ("other", "same"), classes, tokenizer, max_seq_length=8, objective="classification"
    )
    assert features.head_arrays.labels.tolist() == [1]


def test_outputs_are_decoded_by_the_target_of_the_objective(tokenizer: Tokenizer) -> None:
    examples = [MatchExample("a", "the house", "a river"), MatchExample("b", "an engine", "the mill")]
    features = features_of("embedding", (), examples, tokenizer, max_seq_length=8, objective="in_batch_negatives")
    partners = define("embedding", objective="in_batch_negatives")
    rankings = decode(partners, features, examples, np.array([[1, 0], [0, 1]]))
    assert rankings == [RankingPrediction(("b", "a")), RankingPrediction(("a", "b"))]
    cosines = define("embedding", objective="cosine")
    assert decode(cosines, features, examples, np.array([0.25, -1.0])) == [ValuePrediction(0.25), ValuePrediction(-1.0)]
    classes = define("embedding", ("other", "same"), objective="classification")
    first, _ = decode(classes, features, examples, np.array([[-900.0, 900.0], [0.0, 0.0]]))
    assert first == ClassPrediction("same", (0.0, 1.0))


def test_equal_second_texts_are_one_document_and_all_partners_of_a_text_are_relevant() -> None:
    texts = [*((f"question {n}", "answer") for n in range(12)), ("cats", "rest"), ("cats", "purr")]
    examples = [MatchExample(str(n), *pair) for n, pair in enumerate(texts)]
    task = define("embedding", objective="in_batch_negatives")
    nearest = np.array([[*range(12), 12, 13]] * 12 + [[12, 13, *range(12)]] * 2)  # as of perfect vectors
    rankings = task.target.decode(task, examples, nearest, None)
    assert [ranking.documents for ranking in rankings[11:13]] == [("11", "12", "13"), ("12", "13", "0")]
    assert set(task.target.score(task, examples, rankings).values()) == {1.0}
    assert all(task.target.row(task, *pair)["found"] for pair in zip(examples, rankings, strict=True))
    others = task.target.score(task, examples, task.target.baseline(task, examples, examples))
    assert others["mrr_at_10"] == pytest.approx((12 + 2 / 2) / 14), "a partner is the second document"


def test_negatives_are_texts_or_lists_in_columns_of_their_own(tmp_path: Path) -> None:
    table = MatchTable(("query", "positive"), ("n", "m"))
    given: list[dict[str, Any]] = [{"n": ["x", " ", "y"], "m": None}, {"n": "x", "m": "y"}, {"n": [], "m": ""}]
    rows = write_records(tmp_path / "a.jsonl", *({"query": "q", "positive": "p"} | record for record in given))
    assert [example.negatives for example in examples_of(table, rows)] == [("x", "y"), ("x", "y"), ()]
    path = write(tmp_path / "a.csv", "query,positive,n,m\nq,p,\"['x', 'y']\",z\n")
    assert examples_of(table, path) == [MatchExample("0", "q", "p", negatives=("x", "y", "z"))]
    assert examples_of(table.without_labels(), path) == [MatchExample("0", "q", "p")]


@pytest.mark.parametrize("negatives", [5, ["x", None], {"x": 1}])
def test_negatives_of_another_kind_are_named(negatives: object, tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", {"query": "q", "positive": "p", "n": negatives})
    with pytest.raises(TaskDataError, match=r"line 1: n "):
        examples_of(MatchTable(("query", "positive"), ("n",)), path)


def test_each_negative_is_a_window_and_prompts_stand_before_the_texts(tokenizer: Tokenizer) -> None:
    examples = [MatchExample("0", "house", "river", negatives=("engine", "mill")), MatchExample("1", "engine", "mill")]
    features = features_of(
        "embedding", (), examples, tokenizer, objective="in_batch_negatives", query_prompt="the ", document_prompt="a "
    )
    texts = ["the house", "a river", "a engine", "a mill", "the engine", "a mill"]
    assert window_texts(features, tokenizer) == [f"[CLS] {text} [SEP]" for text in texts]
    assert features.example_index.tolist() == [0, 0, 0, 0, 1, 1]
    assert features.head_arrays.text_numbers.tolist() == [0, 1, 2, 3, 4, 3]
    assert features.windows_of(np.array([1, 0])).tolist() == [4, 5, 0, 1, 2, 3]
    assert features.group_lengths.sum() == len(features.input_ids)


REFUSED: dict[str, dict[str, Any]] = {
    r"task\.objective: .*cosine .*in_batch_negatives .*classification": {},
    r"task\.score_range: objective cosine needs": {"objective": "cosine"},
    r"task\.score_range .*: the least score comes first": {"objective": "cosine", "score_range": (5.0, 1.0)},
    r"task\.text_columns: name the two columns": {"objective": "cosine", "text_columns": ("a",)},
}


@pytest.mark.parametrize("complaint", REFUSED)
def test_a_spec_that_does_not_fit_the_objective_is_refused(complaint: str, tmp_path: Path) -> None:
    path = str(write_records(tmp_path / "a.jsonl", {"a": "x", "b": "y"}))
    values = {"id": "mine", "head": "embedding", "files": {"test": path}, "text_columns": ("a", "b")}
    with pytest.raises(SpecError, match=complaint):
        load_task(TaskSpec.model_validate(values | REFUSED[complaint]))
