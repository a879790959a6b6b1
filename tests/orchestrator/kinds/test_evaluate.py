"""Evaluation as a kind of run: what it refuses, how it works, what it records.

pytest tests/orchestrator/kinds/test_evaluate.py
"""

import hashlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import InputError
from orchestrator.base.results import EvaluationResult
from orchestrator.base.settings import Settings
from orchestrator.inference.searching import Reranking, rank_queries
from orchestrator.kinds import evaluate as evaluate_module
from orchestrator.kinds import resolved_inputs
from orchestrator.kinds.evaluate import EvaluateKind
from orchestrator.kinds.resolved import data_digests
from orchestrator.registry.recorder import Recorder
from orchestrator.specs import EvaluateSpec, TaskSpec
from orchestrator.tasks.loading import load_task
from tests.orchestrator.kinds.contexts import Notebook, carry_out, context_of
from tests.orchestrator.kinds.samples import complete
from tests.orchestrator.registry.samples import model_result
from tests.orchestrator.small_specs import EVALUATE, SWEEP, check, plan


def test_a_reranker_of_a_task_without_hits(settings: Settings) -> None:
    score = {"kind": "evaluate", "model": "short", "task": SWEEP["task"], "rerank": "short", "relevant_label": "a"}
    with pytest.raises(InputError, match=r"stages\.score: .*rerank"):
        check(settings, score=score)


def test_an_evaluation_scores_its_split(recorder: Recorder) -> None:
    run = recorder.start({"kind": "evaluate", "task": {"id": "sst2"}}, "f")
    complete(recorder, run.id, "evaluate")
    assert recorder.registry.metrics.latest(run.id) == {"test.accuracy": 0.9, "test.num_examples": 1821.0}
    assert recorder.registry.run(run.id).predictions_path == "predictions.jsonl"


def evaluate(spec: EvaluateSpec, folder: Path, book: Notebook) -> EvaluationResult:
    """Carry an evaluation out, with a home in a folder."""
    settings = Settings.from_options(str(folder / "home"), None, None, None)
    return EvaluateKind().run(spec, resolved_inputs(spec, settings), context_of(settings, book))


def test_an_evaluation_embeds_documents_once(encoder: str, collection: TaskSpec, tmp_path: Path) -> None:
    spec, books = EvaluateSpec(model=encoder, task=collection, gpus=0), [Notebook(), Notebook()]
    results = [evaluate(spec, tmp_path, book) for book in books]
    assert results[0] == results[1]
    assert [any(line.startswith("embedding the documents") for line in book.shown) for book in books] == [True, False]


def test_an_evaluation_reranks_as_its_spec_says(
    encoder: str, classifier: str, collection: TaskSpec, tmp_path: Path
) -> None:
    spec = EvaluateSpec(
        model=encoder, task=collection, rerank=classifier, relevant_label="yes", precision="fp32", gpus=0
    )
    written = evaluate(spec, tmp_path, Notebook()).predictions_path
    assert written is not None
    rows = Path(written).read_text().splitlines()
    plain, reranked = (
        [
            list(ranking.documents)
            for ranking in rank_queries(encoder, load_task(collection), "validation", asked, print)[0]
        ]
        for asked in (None, Reranking(classifier, "yes"))
    )
    assert [json.loads(row)["prediction"] for row in rows] == reranked
    assert plain != reranked


def test_an_evaluation_records_which_data_and_weights_its_score_is_of(
    encoder: str, collection: TaskSpec, tmp_path: Path
) -> None:
    book = Notebook()
    evaluate(EvaluateSpec(model=encoder, task=collection, gpus=0), tmp_path, book)
    ((_, digests),) = [arguments for method, arguments in book.recorded if method == "trials.set_data"]
    weights = hashlib.sha256((Path(encoder) / "model.safetensors").read_bytes()).hexdigest()
    taken, _, file = load_task(collection).digests("validation")
    assert digests == {"validation": taken[:16], "validation_file": file[:16], "model": weights[:16]}


PAIRS = {"head": "classification", "text_columns": ("one", "other"), "labels": ("no", "yes")}
HEADER, *ROWS = ["one,other,label\n", "cats,mat,yes\n", "cats,river,no\n", "wings,planes,yes\n"]


@pytest.mark.parametrize(
    ("rows", "changes", "origin"),
    [(ROWS, {}, "partly trained"), (ROWS, {"on_bad_record": "skip"}, "same file"), (ROWS[2:], {}, "apart")],
    ids=["the whole file", "the file read another way", "the rest of it in a file of its own"],
)
@pytest.mark.heavy
def test_an_evaluation_on_a_file_of_whose_first_rows_its_model_learned(
    recorder: Recorder, classifier: str, tmp_path: Path, rows: list[str], changes: dict[str, Any], origin: str
) -> None:
    files = {"train": ROWS, "validation": ["rain,river,yes\n"], "test": rows}
    for split, own in files.items():
        (tmp_path / f"{split}.csv").write_text("".join([HEADER, *own]))
    paths = {split: str(tmp_path / f"{split}.csv") for split in files}
    learned = {**PAIRS, "id": "pairs", "files": {split: paths[split] for split in ("train", "validation")}}
    sweep = recorder.start({"kind": "sweep", "task": {**learned, "max_train_examples": 2}}, "f", metric="accuracy")
    task = load_task(TaskSpec(**learned, max_train_examples=2))
    recorder.registry.trials.set_data(sweep.id, data_digests(task, task.splits))
    weights = hashlib.sha256((Path(classifier) / "model.safetensors").read_bytes()).hexdigest()
    recorder.record_model(sweep.id, model_result(weights, folder=classifier))

    scored = TaskSpec(**PAIRS, id="pairs", files={"test": paths["test"]}, **changes)
    spec = EvaluateSpec(model=classifier, task=scored, split="test", gpus=0)
    settings = Settings.from_options(str(tmp_path / "home"), None, None, None)
    run_id = carry_out(EvaluateKind(), spec, settings, recorder)
    (row,) = recorder.registry.leaderboard().records
    assert row["origin"] == origin
    assert (row["mean"] is None) == (run_id in recorder.registry.test_refusals([run_id])) == (origin[:6] == "partly")


def test_an_evaluation_on_a_gpu_travels_and_scores_as_here(
    encoder: str, classifier: str, collection: TaskSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"model": os.path.relpath(encoder), "rerank": os.path.relpath(classifier), "relevant_label": "yes"}
    spec = EvaluateSpec(task=collection.model_copy(update={"folder": "collection"}), gpus=0, **names)
    here = evaluate(spec, tmp_path, Notebook())
    asked: list[float] = []

    def call_elsewhere(work: Any, num_cpus: float, num_gpus: float, *problem: str) -> EvaluationResult:
        asked.extend((num_cpus, num_gpus))
        monkeypatch.chdir("/")
        result: EvaluationResult = pickle.loads(pickle.dumps(work))("cpu")
        return result

    monkeypatch.setattr(evaluate_module, "call_on_device", call_elsewhere)
    book = Notebook()
    assert evaluate(spec.model_copy(update={"gpus": 0.5}), tmp_path, book) == here
    assert asked == [1.0, 0.5]
    assert book.shown == [], "the status line stays here"


def test_an_evaluation_takes_a_gpu_where_there_is_one(settings: Settings) -> None:
    assert plan(settings, EVALUATE) == {"kind": "evaluate", "resources": "1 CPU, and 1 GPU if available"}
    kind, spec = EvaluateKind(), EvaluateSpec.model_validate(EVALUATE)
    assert kind.resources(spec).on({"CPU": 4.0}).total == {"CPU": 1.0}
    assert kind.resources(spec).on({"CPU": 4.0, "GPU": 1.0}).total == {"CPU": 1.0, "GPU": 1.0}
    on_cpus = spec.model_copy(update={"gpus": 0.0})
    assert kind.resources(on_cpus).on({"CPU": 4.0, "GPU": 1.0}).total == {"CPU": 1.0}


@pytest.mark.parametrize("idle", [{"relevant_label": "yes"}, {"num_candidates": 20}])
def test_how_to_rerank_needs_a_model_that_does(idle: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="rerank"):
        EvaluateSpec.model_validate({"model": "m", "task": {"id": "cranfield"}, **idle})
