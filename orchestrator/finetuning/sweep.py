"""A sweep from its spec to its result: data once, trials by Ray Tune, the best model, its one look at the test split.

Files, in the run's folder:
    trials.jsonl                     journal of the trials that have ended (`trial_journal`)
    points.jsonl                     what a search that learns from scores proposed, in order: tried again when resumed
    trials/<key>/predictions.jsonl   a row per validation example, of every completed trial
    leader.json                      score of the best trial so far: only a better one writes its weights (`leader`)
    trials/<key>/checkpoints.json    where a trial goes on that was interrupted or has failed
    trials/<key>/model               the weights of the best trial so far; those of others go as they are superseded
    ray                              what Tune writes while trials run, and nobody reads; deleted at the end
    predictions/test.jsonl           that model's predictions on the test split, where there is one
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.config import BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.console import UNDER_WAY
from orchestrator.base.errors import RunFailedError
from orchestrator.base.results import DatasetResult, Split, SweepResult, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.cluster.gpus import call_on_device, take_gpus
from orchestrator.cluster.torch_devices import SLOW_BF16, choose_device, has_bf16_cpu
from orchestrator.finetuning import trial
from orchestrator.finetuning.building import check_fit
from orchestrator.finetuning.evaluation import ScoredSplit, evaluate_model
from orchestrator.finetuning.search_space import TrialQueue, check_space, listed_values, most_evaluations
from orchestrator.finetuning.sweep_progress import SweepListener, SweepProgress, first_reason
from orchestrator.finetuning.trial_journal import POINTS, EndedTrial, write_leader
from orchestrator.finetuning.trial_slots import watch_trials
from orchestrator.finetuning.tune_run import run_with_tune
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.references import RANDOM
from orchestrator.storage import AppendLog, delete, exists, join, local_copy
from orchestrator.storage.attempts import marked_storage
from orchestrator.storage.model_folder import describe_model
from orchestrator.storage.uris import absolute
from orchestrator.tasks.feature_cache import dataset_result, unread_notes
from orchestrator.tasks.features import Features
from orchestrator.tasks.scoring import kept_rows, majority_baseline, write_prediction_rows
from orchestrator.tasks.task import Task
from orchestrator.training.checkpoints import delete_checkpoints

logger = logging.getLogger(__name__)


def run_sweep(
    spec: SweepSpec,
    *,
    task: Task,
    run_folder: str,
    storage: str,
    resolve_name: Callable[[str, str], str],
    listener: SweepListener,
    finished: Collection[EndedTrial] = (),
    kept_models: Collection[str] = (),
    attempt: int = 1,
) -> SweepResult:
    """Run a sweep's trials on the connected Ray.

    Every score is higher-is-better. The best trial is the completed one with the highest ranking score on the
    validation split, the earlier one of equals; pruned trials do not compete.

    Args:
        storage: for what runs share.
        resolve_name: the folder of a model or tokenizer that a recipe's field names, from field and name.
        finished: trials of an earlier attempt, in the order in which they ended; their results stand as they are.
        kept_models: model folders of an earlier attempt that stay, whichever trial is the best now.
        attempt: number of this attempt; what an earlier one still writes is refused.

    Raises: SpecError, TaskDataError, CheckpointError, TokenizerError before any trial runs; RunFailedError when no
        trial completes; ClusterError where trials find no place, or no storage of the driver's on their host;
        KeyboardInterrupt after a SIGINT.
    """
    begun_at = time.monotonic()
    gpus = take_gpus("each trial trains", spec.execution.gpus_per_trial)
    if not gpus and "bf16" in listed_values(spec, "precision") and not has_bf16_cpu():
        logger.warning(f"precision {SLOW_BF16}")
    spec = spec.model_copy(update={"execution": spec.execution.model_copy(update={"gpus_per_trial": gpus})})
    # Tune gives each trial a working folder of its own.
    run_folder, storage = absolute(run_folder), absolute(storage)
    check_space(spec, task)
    task = task.at_absolute_paths()
    task.file("train")  # a task without one cannot be learned
    with marked_storage(run_folder, attempt) as mark:
        cache = join(storage, "tasks")
        job, dataset = prepare_job(spec, task, run_folder, mark, cache, resolve_name)
        job = replace(job, attempt=attempt)
        progress = _run_trials(spec, job, listener, finished, kept_models)
    if progress.best is None:
        raise RunFailedError(
            f"none of the sweep's {len(progress.results)} trials completed; the first: {first_reason(progress.results)}"
        )
    best, test_metrics = _score_best(progress.best, spec, job)
    for result in progress.results.values():
        if result.state == RunState.FAILED:  # kept for an attempt that will not come
            delete_checkpoints(trial.trial_folder(run_folder, result.key))
    trials = sorted((best if r.key == best.key else r for r in progress.results.values()), key=lambda r: r.number)
    return SweepResult(task.id, task.metric, trials, best, test_metrics, [dataset], time.monotonic() - begun_at)


def _run_trials(
    spec: SweepSpec,
    job: trial.TrialJob,
    listener: SweepListener,
    finished: Collection[EndedTrial],
    kept_models: Collection[str],
) -> SweepProgress:
    """Run the trials that are not finished yet; returns what is known of all when the last one has ended."""

    def drop_weights(result: TrialResult) -> None:
        folder = join(trial.trial_folder(job.run_folder, result.key), "model")
        if folder not in kept_models:
            delete(folder)

    results = {trial.result.key: trial.result for trial in finished}
    points = AppendLog(join(job.run_folder, POINTS))
    progress = SweepProgress(
        queue=TrialQueue(spec, job.task.metric, results, proposed=points.read(), on_proposed=points.append),
        metric=job.task.metric,
        baseline=job.baseline,
        listener=listener,
        on_leading=lambda result: write_leader(job.run_folder, result, job.task.metric),
        on_superseded=drop_weights,
        on_ended=lambda result: delete_checkpoints(trial.trial_folder(job.run_folder, result.key)),
        results=dict(results),
    )
    watch = watch_trials(spec.execution, job.run_folder.rstrip("/").rpartition("/")[2])
    run_trial, most = partial(trial.run_trial, job), most_evaluations(spec)
    run_with_tune(spec, run_trial, progress, watch, job.run_folder, most, finished)
    return progress


def _score_best(best: TrialResult, spec: SweepSpec, job: trial.TrialJob) -> tuple[TrialResult, dict[str, float]]:
    """Describe the best trial's model, and score it on the test split where there is one.

    The test split is scored as the trial scored its validation split: in the arithmetic of its recipe.
    The model stays where its trial wrote it, and the result names that folder: object stores cannot move a folder in
    one piece, and an end in the middle would leave half of it in each place.
    """
    task, folder = job.task, join(trial.trial_folder(job.run_folder, best.key), "model")
    if not exists(folder):
        raise RunFailedError(f"the weights of the best trial, number {best.number}, are gone from {folder}")
    model = describe_model(folder, task.head)
    if "test" not in task.files:
        return replace(best, model=model), {}
    logger.info(f"scoring trial {best.number}, the best one, on the test split", extra=UNDER_WAY)
    recipe = spec.recipe.model_copy(update=dict(best.parameters))
    evaluate = partial(_score_on_test, folder, task, job.cache, recipe)
    problem = "the best trial's model was not scored on the test split"
    tested = call_on_device(evaluate, spec.execution.cpus_per_trial, job.gpus, problem)
    rows = kept_rows(tested.task, "test", tested.predictions)
    write_prediction_rows(join(job.run_folder, "predictions/test.jsonl"), rows)
    return replace(best, model=model), tested.metrics | trial.baseline_metrics(majority_baseline(task, "test"))


def _score_on_test(folder: str, task: Task, cache: str, recipe: RecipeSpec, device: str) -> ScoredSplit:
    chosen = choose_device(device, recipe.allow_tf32, recipe.precision)
    return evaluate_model(folder, task, "test", 64, cache, chosen, recipe.precision)


def prepare_job(
    spec: SweepSpec,
    task: Task,
    run_folder: str,
    mark: str,
    cache: str,
    resolve_name: Callable[[str, str], str],
) -> tuple[trial.TrialJob, DatasetResult]:
    """Find the models, tokenize the data; returns what all trials are given, and what is recorded of the data."""
    models, tokenizers = ([str(name) for name in listed_values(spec, field)] for field in ("init_from", "tokenizer"))
    named = {name: ("init_from", name) for name in models if name != RANDOM}
    if RANDOM in models:
        named |= {name: ("tokenizer", name) for name in tokenizers if name not in named}
    folders = {name: absolute(resolve_name(*field_and_name)) for name, field_and_name in named.items()}
    dataset = _prepare_data(spec, task.first_fold, folders, cache)
    gpus = spec.execution.gpus_per_trial
    assert gpus != "auto", "the sweep has looked at the cluster"
    job = trial.TrialJob(
        task=task,
        baseline=majority_baseline(task, "validation"),
        folders=folders,
        run_folder=run_folder,
        mark=mark,
        cache=cache,
        num_threads=spec.threads_per_trial,
        gpus=gpus,
        checkpoint_every_s=60 * spec.execution.checkpoint_every_minutes,
    )
    return job, dataset


def _prepare_data(spec: SweepSpec, task: Task, folders: Mapping[str, str], cache: str) -> DatasetResult:
    """Tokenize both splits for every tokenizer and length that the sweep lists, and see that models fit them.

    What a range or another fold adds is tokenized by the first trial that needs it.
    """
    logger.info(f"task {task.id}: reading and tokenizing", extra=UNDER_WAY)
    if "test" in task.files:
        task.read("test")  # what is wrong with it shows now, not after the trials
    features: dict[Split, Features[Any]] = {}
    names = ("init_from", "tokenizer", *task.type.options_type.window_fields())
    listed = [listed_values(spec, name) or (spec.axes[name].value_at(0.0),) for name in names]  # a range: its lower end
    for values in product(*listed):
        recipe = spec.recipe.model_copy(update=dict(zip(names, values, strict=True)))
        is_random = recipe.init_from == RANDOM
        folder = local_copy(folders[str(recipe.tokenizer) if is_random else recipe.init_from], skip=(WEIGHTS_FILE,))
        config = None if is_random else BertConfig.from_pretrained(folder)
        tokenizer = Tokenizer.load(folder)
        if config is not None:
            check_fit(config, recipe, tokenizer)
        for split in ("train", "validation"):
            made = trial.prepare_trial_features(task, split, recipe, tokenizer, cache)
            features.setdefault(split, made)
    result = dataset_result(task, features)
    counts = result.counts
    logger.info(
        f"task {task.id}: {counts['num_train_examples']} training and {counts['num_validation_examples']} "
        f"validation examples{', as tokenized before' if result.reused else ''}"
    )
    for split, made in features.items():
        for note in unread_notes(made):
            logger.info(f"task {task.id}, {split}: {note}")
    logger.info("starting the trials", extra=UNDER_WAY)
    return result
