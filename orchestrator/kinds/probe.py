"""Runs that probe a pretraining: its snapshots are fine-tuned on a small task, and the scores make a learning curve.

Inside, a probe is a sweep over `init_from`, whose values are the snapshots: trials, their records and what an
interrupted probe goes on from are a sweep's. The probe's own measurements are means over the seeds, and their step is
the step of pretraining.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from bert_core.config import BertConfig
from orchestrator.base.console import counted
from orchestrator.base.console.tables import Column, plain_lines
from orchestrator.base.errors import SpecError
from orchestrator.base.metric_names import BASELINE
from orchestrator.base.results import MetricEvent, SweepResult, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.kinds.base import DiskUse, Fact, Kind, MeasuredTime, Resources, RunContext
from orchestrator.kinds.estimates import task_facts
from orchestrator.kinds.resolved import Resolved
from orchestrator.kinds.sweep import SweepKind, record_trials
from orchestrator.kinds.sweep_estimates import measure_trials, trial_facts
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.specs import SweepSpec
from orchestrator.specs.sweep import ProbeSpec

_SWEEP = SweepKind()
logger = logging.getLogger(__name__)


Curve = Mapping[int, Mapping[str, float]]
"""Means of each validation score over a snapshot's completed trials, by step of pretraining; empty without any.

Beside the score that ranks stand `baseline.NAME` and, of two or more trials, its standard deviation `sd.NAME`.
"""


@dataclass(frozen=True)
class ProbeResult:
    sweep: SweepResult
    curve: Curve


class ProbeKind(Kind[ProbeSpec, ProbeResult]):
    """Fine-tuning of a pretraining run's snapshots by Ray Tune, a trial for each snapshot and each seed."""

    spec = ProbeSpec

    def check(self, spec: ProbeSpec, inputs: Resolved) -> None:
        _SWEEP.check(_sweep_over(spec, inputs), inputs)

    def facts(self, spec: ProbeSpec, inputs: Resolved) -> Iterator[Fact]:
        snapshots, sweep = chosen_snapshots(spec, inputs), _sweep_over(spec, inputs)
        yield from task_facts(inputs.task(spec.task))
        yield "snapshots", f"of {'steps' if len(snapshots) > 1 else 'step'} {', '.join(f'{s:,}' for s in snapshots)}"
        num_trials = len(snapshots) * len(spec.seeds)
        yield "trials", f"{num_trials:,} ({counted(len(snapshots), 'snapshot')} × {counted(len(spec.seeds), 'seed')})"
        yield from trial_facts(sweep, inputs, list(_SWEEP.model_configs(sweep, inputs)))

    def measure_time(self, spec: ProbeSpec, inputs: Resolved) -> MeasuredTime | None:
        num_trials = len(chosen_snapshots(spec, inputs)) * len(spec.seeds)  # a stage's are all `@stage` in the sweep
        return measure_trials(_sweep_over(spec, inputs), inputs, num_trials)

    def disk(self, spec: ProbeSpec, inputs: Resolved) -> Iterator[DiskUse]:
        yield from _SWEEP.disk(_sweep_over(spec, inputs), inputs)

    def model_configs(self, spec: ProbeSpec, inputs: Resolved) -> Iterator[BertConfig | None]:
        yield from _SWEEP.model_configs(_sweep_over(spec, inputs), inputs)

    def resources(self, spec: ProbeSpec) -> Resources:
        """Return what one trial takes, and how many run at a time; without `steps`, those of one snapshot."""
        one = Resources.of_one_process(spec.execution.cpus_per_trial, spec.execution.gpus_per_trial)
        num_trials = len(spec.seeds) * len(spec.steps or (0,))
        return replace(one, up_to=min(num_trials, spec.execution.max_concurrent_trials or num_trials))

    def run(self, spec: ProbeSpec, inputs: Resolved, context: RunContext) -> ProbeResult:
        result = _SWEEP.run(_sweep_over(spec, inputs), inputs, context)
        curve = learning_curve(result.trials, chosen_snapshots(spec, inputs), result.metric)
        for line in curve_lines(curve, result.metric):
            logger.info(line)
        return ProbeResult(result, curve)

    def record(self, result: ProbeResult, run_id: str, recorder: Recorder) -> RunOutcome:
        outcome = record_trials(result.sweep, run_id, recorder)
        recorder.record_events(
            run_id, [MetricEvent(step, "validation", scores) for step, scores in result.curve.items()]
        )
        return outcome

    def input_identity(self, spec: ProbeSpec, inputs: Resolved) -> list[Any]:
        snapshots = chosen_snapshots(spec, inputs)
        digests = [[step, inputs.content_digest("init_from", folder)] for step, folder in snapshots.items()]
        return [*super().input_identity(spec, inputs), ["probed", digests]]


def chosen_snapshots(spec: ProbeSpec, inputs: Resolved) -> dict[int, str]:
    """The folders of the snapshots that a spec asks for, by step in rising order; `@stage` for what a stage will make.

    Raises: SpecError where the run does not keep them.
    """
    kept = inputs.snapshots(spec.run)
    if not kept:
        raise SpecError(
            f"run: {spec.run} has kept no snapshots; pretrain with execution.snapshot_steps, which lists the steps "
            "after which the model is kept"
        )
    missing = sorted(set(spec.steps or ()) - set(kept))
    if missing:
        raise SpecError(
            f"steps: {spec.run} has no snapshot of step {', '.join(map(str, missing))}; "
            f"it has those of {', '.join(map(str, kept))}"
        )
    return {step: folder for step, folder in kept.items() if spec.steps is None or step in spec.steps}


def _sweep_over(spec: ProbeSpec, inputs: Resolved) -> SweepSpec:
    return SweepSpec(
        kind="sweep",
        name=spec.name,
        task=spec.task,
        recipe=spec.recipe,
        space={"init_from": tuple(chosen_snapshots(spec, inputs).values())},
        seeds=spec.seeds,
        threads_per_trial=spec.threads_per_trial,
        execution=spec.execution,
    )


def learning_curve(trials: Sequence[TrialResult], snapshots: Mapping[int, str], metric: str) -> Curve:
    """Take the completed trials of each snapshot together; `metric` is the score that ranks."""
    completed = [trial for trial in trials if trial.state == RunState.COMPLETED]
    curve = {}
    for step, folder in snapshots.items():
        found = [trial.metrics for trial in completed if trial.parameters["init_from"] == folder]
        common = set.intersection(*map(set, found)) if found else set()
        # Of the baseline only the score that ranks, since it is the same at all steps.
        names = sorted(name for name in common if not name.startswith(BASELINE) or name == BASELINE + metric)
        spread = {f"sd.{metric}": stdev(scores[metric] for scores in found)} if len(found) > 1 else {}
        curve[step] = {name: fmean(scores[name] for scores in found) for name in names} | spread
    return curve


def curve_lines(curve: Curve, metric: str) -> list[str]:
    """The curve as the lines of a table, a snapshot each."""
    columns = {
        "step": [f"{step:,}" for step in curve],
        metric: [f"{scores[metric]:.4f}" if scores else "no trial completed" for scores in curve.values()],
        "sd": [f"{scores[f'sd.{metric}']:.4f}" if f"sd.{metric}" in scores else "–" for scores in curve.values()],
    }
    return plain_lines([Column(name, (name, *texts), is_number=True) for name, texts in columns.items()])
