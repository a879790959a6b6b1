"""A spec and a result of each kind of run, and results recorded as the runner does it."""

from dataclasses import dataclass
from typing import Any

from orchestrator.base.results import (
    DatasetResult,
    DistillResult,
    EvaluationResult,
    PretrainResult,
    SweepResult,
    TokenizerResult,
    TrialResult,
)
from orchestrator.kinds import KINDS
from orchestrator.kinds.probe import ProbeResult
from orchestrator.registry.recorder import Recorder
from tests.orchestrator.registry.samples import model_result
from tests.orchestrator.small_specs import DISTILL, EVALUATE, PRETRAIN, PROBE, STORE, SWEEP, TOKENIZER, pipeline

CORPUS_RESULT = DatasetResult("wiki", "corpus", "c" * 64, "storage/corpora/c", {"num_documents": 3})
TRIALS = [
    TrialResult(
        key=f"k{number}",
        number=number,
        parameters={"learning_rate": rate},
        state="COMPLETED",
        seed=0,
        best_step=10 * (number + 1),
        metrics={"accuracy": score, "baseline.accuracy": 0.5},
        model=model_result(f"digest{number}"),
        predictions_path=f"predictions/{number}",
    )
    for number, (rate, score) in enumerate([(1e-4, 0.8), (2e-5, 0.9)])
]

SWEEP_RESULT = SweepResult("sst2", "accuracy", TRIALS, TRIALS[1], {"accuracy": 0.85}, [CORPUS_RESULT])


@dataclass(frozen=True)
class Sample:
    """A spec of a kind as plain values, over the inputs of `small_specs`, and a result."""

    spec: dict[str, Any]
    result: Any


SAMPLES = {
    "tokenizer": Sample(TOKENIZER, TokenizerResult("tokenizers/t", "t" * 64, 30522, {"fertility": 1.2})),
    "corpus": Sample(STORE, CORPUS_RESULT),
    "pretrain": Sample(
        PRETRAIN,
        PretrainResult(
            model_result(head="pretraining"),
            100,
            {"train.mlm_loss": 2.0, "validation.mlm_loss": 2.5, "validation.perplexity": 12.2},
            [CORPUS_RESULT],
        ),
    ),
    "sweep": Sample(SWEEP, SWEEP_RESULT),
    "probe": Sample(
        PROBE,
        ProbeResult(
            SWEEP_RESULT,
            {0: {"accuracy": 0.8}, 5: {}, 10: {"accuracy": 0.7}},
        ),
    ),
    "distill": Sample(
        DISTILL,
        DistillResult(
            task="own",
            metric="f1",
            model=model_result(head="ner"),
            best_step=30,
            metrics={"f1": 0.7, "teacher.f1": 0.8, "agreement": 0.9},
            test_metrics={"f1": 0.6},
            predictions_path="predictions.jsonl",
            datasets=[CORPUS_RESULT],
        ),
    ),
    "evaluate": Sample(EVALUATE, EvaluationResult("sst2", "test", {"accuracy": 0.9}, 1821, "predictions.jsonl")),
    "pipeline": Sample(pipeline(store=STORE, score=EVALUATE), None),
}
"""By the kind's name."""


def complete(recorder: Recorder, run_id: str, name: str) -> None:
    """Record the sample's result of a kind, and that the run has completed."""
    (kind,) = (kind for kind in KINDS if kind.name == name)
    outcome = kind.record(SAMPLES[name].result, run_id, recorder)
    recorder.complete(run_id, outcome)
