"""A registry with a pretraining and a sweep whose trials have histories, kept predictions and hostile names."""

import json
import math
from itertools import product
from pathlib import Path

from orchestrator.base.results import MetricEvent
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from tests.orchestrator.registry.samples import new_run, trial_result

HOSTILE = "</script><script>document.title='taken'</script>"
LABELS = ("good", "bad", HOSTILE)


def write_predictions(path: Path, num_examples: int = 90) -> str:
    """Kept predictions of a classifier that takes every fifth example for another class."""
    rows = []
    for number in range(num_examples):
        gold = LABELS[number % 3]
        predicted = LABELS[(number + 1) % 3] if number % 5 == 0 else gold
        rows.append({"id": f"e{number}", "prediction": predicted, "gold": gold, "correct": predicted == gold})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def add_pretraining(registry: Registry) -> str:
    """A completed pretraining of 1,000 steps; its id."""
    spec = {"kind": "pretrain", "name": "wiki"}
    run_id = new_run(registry, name="wiki", spec=spec)
    registry.metrics.record(
        run_id,
        [
            MetricEvent(step, "train", {"mlm_loss": 9.0 / math.log(step + 2), "tokens_per_s": 1e4})
            for step in range(0, 1001)
        ],
    )
    registry.metrics.record(
        run_id, [MetricEvent(s, "validation", {"mlm_loss": 9.5 / math.log(s + 2)}) for s in range(0, 1001, 100)]
    )
    registry.lifecycle.start_attempt(run_id)
    registry.lifecycle.finish(run_id, RunState.COMPLETED)
    return run_id


def add_sweep(registry: Registry, folder: Path) -> str:
    """A completed sweep: 3 learning rates × 2 batch sizes × 3 seeds, one trial failed; its id."""
    spec = {"kind": "sweep", "name": f"probe {HOSTILE}", "task": {"id": "own"}, "recipe": {"epochs": 3}}
    predictions = write_predictions(folder / "predictions.jsonl")
    run_id = new_run(registry, kind="sweep", name=spec["name"], spec=spec, task="own", metric="accuracy")
    trials, histories = [], {}
    for number, (rate, batch, seed) in enumerate(product((1e-5, 1e-4, 1e-3), (16, 32), (0, 1, 2))):
        score = 0.9 - 0.1 * abs(math.log10(rate) + 4) + 0.001 * batch / 16 + 0.01 * (seed - 1)
        state = RunState.FAILED if number == 7 else RunState.COMPLETED
        parameters = {"learning_rate": rate, "batch_size": batch}
        measured = {"accuracy": score, "baseline.accuracy": 0.5} if state == RunState.COMPLETED else {}
        values = {"number": number, "parameters": parameters, "state": state, "seed": seed, "metrics": measured}
        told = {"best_step": 30, "predictions_path": predictions, "seconds": 3.0}
        trials.append(trial_result(f"k{number}", **values, **told))
        histories[number] = [MetricEvent(step, "validation", {"accuracy": score - 1 / step}) for step in (10, 20, 30)]
    for number, trial_id in enumerate(registry.trials.record(run_id, trials)):
        registry.metrics.record(trial_id, histories[number])
    registry.metrics.record(
        run_id, [MetricEvent(30, "validation", {"accuracy": 0.91, "baseline.accuracy": 0.5})], final=True
    )
    registry.lifecycle.start_attempt(run_id)
    registry.lifecycle.finish(run_id, RunState.COMPLETED, predictions_path=predictions)
    return run_id
