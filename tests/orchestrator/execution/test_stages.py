"""What a stage says of its data, and an evaluation that reranks.

Run alone: pytest tests/orchestrator/execution/test_stages.py
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.execution.messages import dataset_lines
from orchestrator.execution.stages import run_stage
from orchestrator.results import DatasetResult
from orchestrator.retrieval.reranking import Reranking
from orchestrator.retrieval.searching import rank_queries
from orchestrator.settings import Settings
from orchestrator.specs import EvaluateSpec, TaskSpec
from orchestrator.tasks import load_task
from tests.orchestrator.retrieval.conftest import classifier, collection, documents, encoder

__all__ = ["classifier", "collection", "documents", "encoder"]


@pytest.mark.parametrize(("num_held_out", "warned"), [(0, True), (3, False)])
def test_an_empty_held_out_set_is_warned_of(num_held_out: int, warned: bool) -> None:
    counts = {
        "num_train_documents": 10,
        "num_train_tokens": 100,
        "num_held_out_documents": num_held_out,
        "num_bad_records": 0,
    }
    said = dataset_lines(DatasetResult("a.txt", "corpus", "f" * 64, "store", counts, ()))
    assert any(line.startswith("warning:") and "validation_fraction" in line for line in said) is warned


def evaluation_context(folder: Path, said: list[str]) -> Any:
    settings = Settings.from_options(str(folder / "home"), None, None, None)
    progress = SimpleNamespace(log=said.append, status=said.append)
    return SimpleNamespace(run_folder=str(folder / "run"), settings=settings, progress=progress)


def test_an_evaluation_embeds_documents_once(encoder: str, collection: TaskSpec, tmp_path: Path) -> None:
    said: list[list[str]] = [[], []]
    results = [run_stage(EvaluateSpec(model=encoder, task=collection), evaluation_context(tmp_path, s)) for s in said]
    assert results[0] == results[1]
    assert [any(line.startswith("embedding the documents") for line in lines) for lines in said] == [True, False]


def test_an_evaluation_reranks_as_its_spec_says(
    encoder: str, classifier: str, collection: TaskSpec, tmp_path: Path
) -> None:
    spec = EvaluateSpec(model=encoder, task=collection, rerank=classifier, relevant="yes")
    run_stage(spec, evaluation_context(tmp_path, []))
    rows = (tmp_path / "run" / "predictions" / "validation.jsonl").read_text().splitlines()
    plain, reranked = (
        [
            list(ranking.documents)
            for ranking in rank_queries(encoder, load_task(collection), "validation", asked, print)[0]
        ]
        for asked in (None, Reranking(classifier, "yes"))
    )
    assert [json.loads(row)["prediction"] for row in rows] == reranked
    assert plain != reranked


@pytest.mark.parametrize("idle", [{"relevant": "yes"}, {"candidates": 20}])
def test_how_to_rerank_needs_a_model_that_does(idle: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="there is no rerank; name the model that does"):
        EvaluateSpec.model_validate({"model": "m", "task": {"id": "cranfield"}, **idle})
