"""Runs that fine-tune on a task over a space of recipes."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from itertools import product

from bert_core.config import CONFIG_FILE, BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.console import counted
from orchestrator.base.errors import InputError, SpecError
from orchestrator.base.results import SweepResult
from orchestrator.finetuning.search_space import build_search, check_space, listed_values, value_bounds
from orchestrator.finetuning.trial_journal import TrialJournal, drop_trials
from orchestrator.kinds import sweep_estimates
from orchestrator.kinds.base import DiskUse, Fact, Kind, MeasuredTime, Resources, RunContext
from orchestrator.kinds.checks import check_examples, check_layer_pooling, check_positions, check_vectors
from orchestrator.kinds.estimates import fine_tuning_disk, short_training_advice, task_facts
from orchestrator.kinds.resolved import Resolved, data_digests
from orchestrator.kinds.sweep_summary import sweep_summary
from orchestrator.kinds.trial_recording import trial_recording
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.specs import SweepSpec
from orchestrator.specs.recipe import RANDOM_FIELDS
from orchestrator.specs.references import RANDOM, Product
from orchestrator.storage import digest_file, join, moved_path
from orchestrator.tasks.feature_cache import FEATURES_VERSION

_TRAINING_VERSION = 1
"""Raised when the same trial would end with other weights, predictions or scores."""
logger = logging.getLogger(__name__)


def sweep_identity(spec: SweepSpec, inputs: Resolved) -> dict[str, str]:
    """Return what decides a trial's scores beside its recipe, by name, as the files are now.

    These are the data of each split, start models and tokenizers, torch, and the formats of this package.

    Raises: TaskDataError, CheckpointError, TokenizerError where one of them cannot be read.
    """
    task = inputs.task(spec.task)
    values = {
        f"task.files.{split}": f"{len(task.examples(split)):,} examples, {task.fingerprint(split)}"
        for split in task.splits
    }
    models = [str(name) for name in listed_values(spec, "init_from")]
    for name in models:
        if name != RANDOM:
            values[f"weights of {name}"] = inputs.content_digest("init_from", name)
            values[f"configuration of {name}"] = digest_file(join(inputs.folder("init_from", name), CONFIG_FILE))
            values[f"tokenizer of {name}"] = inputs.content_digest("tokenizer", inputs.folder("init_from", name))
    if RANDOM in models:
        for tokenizer in map(str, listed_values(spec, "tokenizer")):
            values[f"tokenizer {tokenizer}"] = inputs.content_digest("tokenizer", tokenizer)
    return values | {
        "torch": version("torch"),
        "features and training of this package": f"{FEATURES_VERSION}.{_TRAINING_VERSION}",
    }


class SweepKind(Kind[SweepSpec, SweepResult]):
    """Fine-tuning by Ray Tune, a trial for each point of the space, seed and fold."""

    spec = SweepSpec
    products = frozenset({Product.TOKENIZER, Product.ENCODER, Product.TASK_MODEL})
    resumes_midway = True

    def check(self, spec: SweepSpec, inputs: Resolved) -> None:
        task = inputs.task(spec.task)
        check_space(spec, task)
        for name in spec.recipe.changed(spec.axes):
            value = getattr(spec.recipe, name)
            inputs.warn(f"recipe.{name} {value!r} does not count: trials take the values of space.{name}")
        models = listed_values(spec, "init_from")
        start = next((model for model in models if model != RANDOM), None)
        for name in RANDOM_FIELDS if start else ():
            if name in spec.axes:
                raise SpecError(
                    f"space.{name} has no effect on the trials of init_from {start}, which brings its own; leave it "
                    "out, or sweep in two specs"
                )
        longest = int(value_bounds(spec, "max_seq_length")[1])
        check_positions("recipe.max_seq_length", longest, map(str, models), inputs)
        check_layer_pooling(listed_values(spec, "layer_pooling"), models, listed_values(spec, "size"), inputs)
        check_vectors(task, sweep_estimates.first_recipe(spec), models, listed_values(spec, "size"), inputs)
        check_examples(task, inputs)
        task.first_fold.read("train")  # enough texts for the folds

    def facts(self, spec: SweepSpec, inputs: Resolved) -> Iterator[Fact]:
        yield from task_facts(inputs.task(spec.task).first_fold)
        points = build_search(spec).num_points
        meaning = "" if spec.trials is None else "; `trials` in the spec counts points"
        folds = f" × {len(spec.folds)} folds" if len(spec.folds) > 1 else ""
        what = f"{counted(points, 'point')} × {counted(len(spec.seeds), 'seed')}{folds}{meaning}"
        yield "trials", f"{points * spec.trials_per_point:,} ({what})"
        yield from sweep_estimates.trial_facts(spec, inputs, list(self.model_configs(spec, inputs)))

    def disk(self, spec: SweepSpec, inputs: Resolved) -> Iterator[DiskUse]:
        at_a_time = min(_num_trials(spec), spec.execution.max_concurrent_trials or 1)
        num_parameters = sweep_estimates.most_parameters(list(self.model_configs(spec, inputs)))
        yield from fine_tuning_disk(num_parameters, at_a_time, 1 + at_a_time, keep=1)

    def resources(self, spec: SweepSpec) -> Resources:
        one = Resources.of_one_process(spec.execution.cpus_per_trial, spec.execution.gpus_per_trial)
        num_trials = _num_trials(spec)
        return replace(one, up_to=min(num_trials, spec.execution.max_concurrent_trials or num_trials))

    def measure_time(self, spec: SweepSpec, inputs: Resolved) -> MeasuredTime | None:
        return sweep_estimates.measure_trials(spec, inputs, _num_trials(spec))

    def check_more_points(self, recorded: SweepSpec, spec: SweepSpec) -> None:
        num_points = build_search(recorded).num_points
        if build_search(spec).num_points <= num_points:
            raise InputError(f"trials: the space has no more points than its {num_points}, which have been tried")

    def run(self, spec: SweepSpec, inputs: Resolved, context: RunContext) -> SweepResult:
        from orchestrator.finetuning.sweep import run_sweep  # Ray is loaded when a run starts

        task = inputs.task(spec.task)
        journal = begin_journal(spec, inputs, context)
        context.recorder.registry.trials.set_data(context.run_id, data_digests(task, task.splits))
        if journal.trials:
            logger.info(f"{counted(len(journal.trials), 'trial')} of an earlier attempt will not run again")
        if advice := short_training_advice(sweep_estimates.trial_schedules(spec, task.first_fold)[0]):
            logger.warning(f"trials of this sweep may have {advice}")
        with trial_recording(context, journal) as listener:
            return run_sweep(
                spec,
                task=task,
                run_folder=context.run_folder,
                storage=context.settings.storage,
                resolve_name=inputs.folder,
                listener=listener,
                finished=journal.trials,
                kept_models={
                    moved_path(model.folder, context.settings.storage)
                    for model in context.recorder.registry.models.of_run(context.run_id)
                },
                attempt=context.attempt,
            )

    def record(self, result: SweepResult, run_id: str, recorder: Recorder) -> RunOutcome:
        outcome, best = record_trials(result, run_id, recorder), result.best
        recorder.record_final_metrics(run_id, best.best_step, "test", result.test_metrics)
        recorder.record_final_metrics(run_id, best.best_step, "validation", best.metrics)
        if best.model is not None:
            recorder.record_model(run_id, best.model)
        return outcome

    def summary(self, run: RunRecord, registry: Registry) -> Iterator[str]:
        yield from sweep_summary(run, registry)

    def model_configs(self, spec: SweepSpec, inputs: Resolved) -> Iterator[BertConfig | None]:
        models = [str(name) for name in listed_values(spec, "init_from")]
        yield from (inputs.config(name) for name in models if name != RANDOM)
        if RANDOM in models:
            num_positions = max(512, int(value_bounds(spec, "max_seq_length")[1]))
            axes = (listed_values(spec, name) for name in ("size", "family", "tokenizer"))
            for size, family, tokenizer in product(*axes):
                vocab_size = inputs.vocab_size(str(tokenizer))
                changes = {"vocab_size": vocab_size, "max_position_embeddings": num_positions}
                yield None if vocab_size is None else BertConfig.from_size(str(size), str(family), **changes)

    def tokenizer_like(self, spec: SweepSpec, inputs: Resolved) -> Tokenizer | None:
        return sweep_estimates.first_tokenizer(sweep_estimates.first_recipe(spec), inputs)


def record_trials(result: SweepResult, run_id: str, recorder: Recorder) -> RunOutcome:
    """Write every trial, with the best one's test scores, and the data that they read."""
    for dataset in result.datasets:
        recorder.registry.datasets.record(run_id, dataset)
    recorder.registry.trials.set_metric(run_id, result.task, result.metric)
    recorder.registry.trials.record(run_id, result.trials)
    best = result.best
    recorder.record_final_metrics(run_id, best.best_step, "test", result.test_metrics, trial=best.key)
    return RunOutcome(best.model.folder if best.model else None, best.predictions_path)


def _num_trials(spec: SweepSpec) -> int:
    return build_search(spec).num_points * spec.trials_per_point


def begin_journal(spec: SweepSpec, inputs: Resolved, context: RunContext) -> TrialJournal:
    """Open the sweep's journal, whose trials have all read what the inputs are now.

    Raises: InputError where earlier ones have read something else, unless the context allows that; they are dropped
    then, and run again.
    """
    journal, identity = TrialJournal(context.run_folder), sweep_identity(spec, inputs)
    changes = journal.changes(identity)
    if changes:
        listed = "".join(f"\n  {change}" for change in changes)
        if not context.allow_drift:
            raise InputError(
                f"run {context.run_id} cannot go on: what its trials read has changed since it began, "
                f"and their scores would be ranked with others:{listed}\nPut the old back, or start a new run; "
                "`resume --allow-drift` goes on, and runs the trials that have ended again"
            )
        logger.warning("the trials that have ended are dropped, and run again on what there is now")
        context.mark_drift(0, changes)
        context.recorder.registry.trials.drop(context.run_id)
        journal = drop_trials(context.run_folder)
    journal.begin(identity)
    return journal
