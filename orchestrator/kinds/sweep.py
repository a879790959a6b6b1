"""Runs that fine-tune on a task over a space of recipes."""

import logging
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product

from bert_core.config import BertConfig
from orchestrator.finetuning.search_space import build_search, check_space, listed_values, value_bounds
from orchestrator.finetuning.sweep_progress import SweepListener
from orchestrator.kinds.base import Fact, Kind, Resources, RunContext
from orchestrator.kinds.facts import estimate_prefix, memory_text, task_facts
from orchestrator.kinds.resolved import Resolved
from orchestrator.kinds.start_checks import check_layer_pooling, check_positions
from orchestrator.models.parameter_counts import count_encoder_parameters, count_lstm_parameters
from orchestrator.progress import duration
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.trials import trial_id
from orchestrator.results import MetricEvent, ModelResult, SweepResult, TrialResult
from orchestrator.run_states import RunState
from orchestrator.specs import SweepSpec
from orchestrator.specs.references import RANDOM, Product
from orchestrator.storage import exists, join, read_json, write_json
from orchestrator.training.batch_order import Schedule

FINISHED_TRIALS = "finished_trials.json"
"""File in the run's folder: the results of the trials that need not run again."""

logger = logging.getLogger(__name__)


class SweepKind(Kind[SweepSpec, SweepResult]):
    """Fine-tuning by Ray Tune, a trial for each point of the space and each seed."""

    spec = SweepSpec
    products = frozenset({Product.TOKENIZER, Product.ENCODER, Product.TASK_MODEL})

    def check(self, spec: SweepSpec, inputs: Resolved) -> None:
        """Check that task and space go together, and that the models to start from fit every recipe of the space."""
        task = inputs.task(spec.task)
        check_space(spec, task.head, task.objective)
        models = listed_values(spec, "init_from")
        longest = int(value_bounds(spec, "max_seq_length")[1])
        check_positions("recipe.max_seq_length", longest, map(str, models), inputs)
        check_layer_pooling(listed_values(spec, "layer_pooling"), models, listed_values(spec, "size"), inputs)
        task.file("train")

    def facts(self, spec: SweepSpec, inputs: Resolved) -> Iterator[Fact]:
        """Yield the task, and the trials with their steps, parameters and memory."""
        task = inputs.task(spec.task)
        yield from task_facts(task)
        points = build_search(spec).num_points
        counted = "" if spec.trials is None else "; `trials` in the spec counts points"
        yield "trials", f"{points * len(spec.seeds):,} ({points:,} points × {len(spec.seeds)} seeds{counted})"
        yield from trial_facts(spec, inputs)

    def resources(self, spec: SweepSpec) -> Resources:
        """Return what one trial takes; more run at a time where there is room."""
        return Resources.of_one_process(spec.execution.cpus_per_trial, spec.execution.gpus_per_trial)

    def run(self, spec: SweepSpec, inputs: Resolved, context: RunContext) -> SweepResult:
        """Run the trials that no earlier attempt finished, and score the best one's model on the test split."""
        from orchestrator.finetuning.sweep import run_sweep  # Ray is loaded when a run starts

        task = inputs.task(spec.task)
        digests: dict[str, str] = {split: task.fingerprint(split)[:16] for split in task.splits if split != "test"}
        context.recorder.record_trial_data(context.run_id, digests)
        finished = read_finished_trials(context.run_folder)
        if finished:
            logger.info(f"{len(finished)} finished trials of an earlier attempt stand as they are")
        result = run_sweep(
            spec,
            task=inputs.task(spec.task),
            run_folder=context.run_folder,
            storage=context.settings.storage,
            resolve_name=inputs.folder,
            listener=build_listener(context, dict(finished)),
            finished=finished,
        )
        logger.info(_result_line(result))
        return result

    def record(self, result: SweepResult, run_id: str, recorder: Recorder) -> RunOutcome:
        """Write every trial, and the best one's scores and model as the sweep's own."""
        for dataset in result.datasets:
            recorder.record_dataset(run_id, dataset)
        recorder.record_ranking(run_id, result.task, result.metric)
        recorder.record_trials(run_id, result.trials)
        best = result.best
        for trial in (None, best.key):
            recorder.record_final_metrics(run_id, best.best_step, "test", result.test_metrics, trial=trial)
        recorder.record_final_metrics(run_id, best.best_step, "validation", best.metrics)
        if best.model is not None:
            recorder.record_model(run_id, best.model)
        return RunOutcome(best.model.folder if best.model else None, best.predictions_path)

    def model_configs(self, spec: SweepSpec, inputs: Resolved) -> Iterator[BertConfig | None]:
        """Yield the configuration of each model that a trial may start from, and so leave."""
        models = [str(name) for name in listed_values(spec, "init_from")]
        yield from (inputs.config(name) for name in models if name != RANDOM)
        if RANDOM in models:
            num_positions = max(512, int(value_bounds(spec, "max_seq_length")[1]))
            axes = (listed_values(spec, name) for name in ("size", "family", "tokenizer"))
            for size, family, tokenizer in product(*axes):
                vocab_size = inputs.vocab_size(str(tokenizer))
                changes = {"vocab_size": vocab_size, "max_position_embeddings": num_positions}
                yield None if vocab_size is None else BertConfig.from_size(str(size), str(family), **changes)


def trial_facts(spec: SweepSpec, inputs: Resolved) -> Iterator[Fact]:
    """Yield what a trial takes: steps, parameters, memory; and how many run at a time, where the spec says it."""
    task = inputs.task(spec.task)
    num_examples = len(task.examples("train"))
    (small, large), (short, long) = value_bounds(spec, "batch_size"), value_bounds(spec, "epochs")
    fewest, most = (
        Schedule(num_examples, int(batch_size), epochs, 1).num_steps
        for batch_size, epochs in ((large, short), (small, long))
    )
    yield "steps of a trial", f"{estimate_prefix(task)}{fewest:,}" + (f" to {most:,}" if most > fewest else "")
    num_parameters = most_parameters(spec, inputs)
    if num_parameters is not None:
        yield "parameters", f"{num_parameters:,}, and a small head"
        yield "memory of a trial", memory_text(num_parameters)
    if spec.execution.max_concurrent_trials:
        yield "trials at a time", f"at most {spec.execution.max_concurrent_trials}"


def most_parameters(spec: SweepSpec, inputs: Resolved) -> int | None:
    """Parameters of the largest encoder that a trial may have and of the LSTM layers on it; None where unknown."""
    configs = [config for config in SweepKind().model_configs(spec, inputs) if config is not None]
    counts = [count_encoder_parameters(config) + _most_lstm_parameters(config, spec) for config in configs]
    return max(counts, default=None)


def _most_lstm_parameters(config: BertConfig, spec: SweepSpec) -> int:
    num_layers = int(value_bounds(spec, "num_lstm_layers")[1])
    choices = product(listed_values(spec, "layer_pooling"), listed_values(spec, "lstm_hidden_size"))
    return max(
        (count_lstm_parameters(config, pooling, num_layers, size) for pooling, size in choices),  # type: ignore[arg-type]
        default=0,
    )


def build_listener(context: RunContext, finished: dict[str, TrialResult]) -> SweepListener:
    """Callbacks that record what trials do and show it; `finished` is added to and kept in the run's folder."""
    recorder, run_id = context.recorder, context.run_id

    def on_trial_event(key: str, event: MetricEvent) -> None:
        context.refuse_if_superseded()
        recorder.record_events(trial_id(run_id, key), [event])

    def on_result(result: TrialResult) -> None:
        context.refuse_if_superseded()
        recorder.record_trials(run_id, [result])
        if result.state == RunState.FAILED:
            logger.info(f"trial {result.number} failed: {result.error}")
            return
        if result.metrics.get("collapsed"):
            logger.info(
                f"trial {result.number} (seed {result.seed}) collapsed: it never left the majority baseline; "
                "other seeds, a longer warm-up or a lower learning rate may help"
            )
        finished[result.key] = result
        write_json(join(context.run_folder, FINISHED_TRIALS), [asdict(trial) for trial in finished.values()])

    return SweepListener(
        on_trial_started=lambda start: recorder.record_trial_start(run_id, start),
        on_trial_event=on_trial_event,
        on_trial_result=on_result,
        on_progress=context.progress.status,
    )


def read_finished_trials(run_folder: str) -> dict[str, TrialResult]:
    """The trials that an earlier attempt finished, by key."""
    path = join(run_folder, FINISHED_TRIALS)
    if not exists(path):
        return {}
    trials = []
    for values in read_json(path):
        state, model = RunState(values.pop("state")), values.pop("model")
        trials.append(TrialResult(**values, state=state, model=ModelResult(**model) if model else None))
    return {trial.key: trial for trial in trials}


def _result_line(result: SweepResult) -> str:
    """The best trial's score beside the baseline's."""
    best = result.best.metrics
    return (
        f"{result.task}: best of {len(result.trials)} trials has {result.metric} {best[result.metric]:.4f} "
        f"(baseline {best.get(f'baseline.{result.metric}', 0.0):.4f}) after {duration(result.seconds)}"
    )
