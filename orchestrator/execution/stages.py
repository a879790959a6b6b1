"""One function per kind of spec: carry it out on the connected Ray, hand events to the recorder, return the result."""

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.errors import RunStoppedError
from orchestrator.execution.messages import comparison_line, dataset_lines, message_line, sweep_line, tokenizing_line
from orchestrator.execution.recorder import Recorder
from orchestrator.models.resolve import resolve_model, resolve_name, resolve_tokenizer
from orchestrator.pretraining.status import TrainingStatus
from orchestrator.progress import Progress, duration
from orchestrator.registry.trials import trial_id
from orchestrator.results import (
    DatasetResult,
    DistillResult,
    EvaluationResult,
    Event,
    MessageEvent,
    MetricEvent,
    ModelResult,
    PretrainResult,
    Result,
    SweepResult,
    TokenizerResult,
    TrialResult,
)
from orchestrator.settings import Settings
from orchestrator.specs import CorpusSpec, DistillSpec, EvaluateSpec, PretrainSpec, Spec, SweepSpec, TokenizerSpec
from orchestrator.specs.references import RANDOM
from orchestrator.storage import exists, join, local_copy, read_json, write_json

if TYPE_CHECKING:
    from orchestrator.pretraining.launch import PretrainRequest

FINISHED_TRIALS = "finished_trials.json"
_REPORTED = ("fertility", "unknown_rate")
"""What a tokenizer's line shows of its report; the registry has all of it."""


@dataclass(frozen=True)
class StageContext:
    """Where a stage works and whom it tells."""

    run_id: str
    attempt: int
    run_folder: str
    settings: Settings
    recorder: Recorder
    progress: Progress
    superseded: threading.Event
    """Set when a later attempt, on whatever machine, works on the same run."""

    def refuse_if_superseded(self) -> None:
        """Raise RunStoppedError when this attempt has been superseded: what it would still do is another's by now."""
        if self.superseded.is_set():
            raise RunStoppedError(f"another attempt has taken over run {self.run_id}; this one ends")


def run_stage(spec: Spec, context: StageContext) -> Result:
    """Carry out a spec of any kind but `pipeline`."""
    stage: Callable[[Any, StageContext], Result] = _STAGES[spec.kind]
    return stage(spec, context)


def _run_tokenizer(spec: TokenizerSpec, context: StageContext) -> TokenizerResult:
    from orchestrator.corpus.tokenizer_job import train_tokenizer

    context.progress.show(f"training a tokenizer of {spec.vocab_size:,} entries")
    result = train_tokenizer(spec, context.settings.storage)
    report = "".join(f"  {name} {value:.3f}" for name, value in result.report.items() if name in _REPORTED)
    context.progress.say(f"tokenizer: {result.vocab_size:,} entries{report}")
    return result


def _run_corpus(spec: CorpusSpec, context: StageContext) -> DatasetResult:
    from bert_core.text.tokenization import Tokenizer
    from orchestrator.corpus.build import build_token_store

    tokenizer = Tokenizer.load(local_copy(resolve_tokenizer(spec.tokenizer, context.settings)))
    result = build_token_store(
        spec.corpus,
        tokenizer,
        validation_fraction=spec.validation_fraction,
        shard_bytes=spec.shard_bytes,
        storage=context.settings.storage,
        num_cpus=spec.num_cpus,
        progress=_tokenizing(context),
    )
    _tell_dataset(result, context)
    return result


def _tokenizing(context: StageContext) -> Callable[[int, int], None]:
    return lambda done_bytes, total_bytes: context.progress.show(tokenizing_line(done_bytes, total_bytes))


def _tell_dataset(dataset: DatasetResult, context: StageContext) -> None:
    for line in dataset_lines(dataset):
        context.progress.say(line)


def _run_pretrain(spec: PretrainSpec, context: StageContext) -> PretrainResult:
    from orchestrator.pretraining.launch import run_pretraining

    return run_pretraining(_pretrain_request(spec, context), **_pretrain_callbacks(spec, context))


def _pretrain_request(spec: PretrainSpec, context: StageContext) -> "PretrainRequest":
    from bert_core.text.tokenization import Tokenizer
    from orchestrator.pretraining.launch import PretrainRequest

    settings = context.settings
    return PretrainRequest(
        spec=spec,
        storage=settings.storage,
        run_folder=context.run_folder,
        attempt=context.attempt,
        tokenizer=Tokenizer.load(local_copy(resolve_tokenizer(spec.tokenizer, settings))),
        init_folder=None if spec.init_from == RANDOM else resolve_name("init_from", spec.init_from, settings),
    )


def _pretrain_callbacks(spec: PretrainSpec, context: StageContext) -> dict[str, Callable[..., None]]:
    """Who is told of what happens, by the names of `run_pretraining`'s arguments."""
    status = TrainingStatus(spec.phase_steps())

    def on_event(event: Event) -> None:
        context.refuse_if_superseded()
        context.recorder.events(context.run_id, [event])
        if isinstance(event, MetricEvent):
            (context.progress.show if event.split == "train" else context.progress.say)(status.line(event))
        elif isinstance(event, MessageEvent):
            context.progress.say(message_line(event))

    def on_dataset(dataset: DatasetResult) -> None:
        context.recorder.dataset(context.run_id, dataset)
        _tell_dataset(dataset, context)
        context.progress.show("starting the training workers")

    return {"on_event": on_event, "on_dataset": on_dataset, "on_tokenizing": _tokenizing(context)}


def _run_sweep(spec: SweepSpec, context: StageContext) -> SweepResult:
    from orchestrator.finetuning.sweep import run_sweep
    from orchestrator.finetuning.sweep_progress import SweepListener
    from orchestrator.tasks import load_task

    recorder, run_id, progress = context.recorder, context.run_id, context.progress
    finished = _finished_trials(context.run_folder)
    if finished:
        progress.say(f"{len(finished)} finished trials of an earlier attempt stand as they are")

    def on_trial_event(key: str, event: MetricEvent) -> None:
        context.refuse_if_superseded()
        recorder.events(trial_id(run_id, key), [event])

    def on_result(result: TrialResult) -> None:
        context.refuse_if_superseded()
        recorder.trial(run_id, result)
        if result.state == "FAILED":
            progress.say(f"trial {result.number} failed: {result.error}")
            return
        if result.metrics.get("collapsed"):
            progress.say(
                f"trial {result.number} (seed {result.seed}) collapsed: it never left the majority baseline; "
                "other seeds, a longer warm-up or a lower learning rate may help"
            )
        finished[result.key] = result
        write_json(join(context.run_folder, FINISHED_TRIALS), [asdict(trial) for trial in finished.values()])

    result = run_sweep(
        spec,
        load_task(spec.task),
        run_folder=context.run_folder,
        storage=context.settings.storage,
        resolve_name=partial(resolve_name, settings=context.settings),
        listener=SweepListener(
            on_trial_started=lambda start: recorder.trial_started(run_id, start),
            on_trial_event=on_trial_event,
            on_trial_result=on_result,
            on_progress=progress.show,
        ),
        finished=dict(finished),
    )
    progress.say(sweep_line(result))
    return result


def _run_distill(spec: DistillSpec, context: StageContext) -> DistillResult | PretrainResult:
    if spec.pretraining is not None:
        return _distill_on_corpus(spec, spec.pretraining, context)
    from orchestrator.distillation.launch import run_distillation
    from orchestrator.tasks import load_task

    def on_event(event: Event) -> None:
        context.refuse_if_superseded()
        context.recorder.events(context.run_id, [event])
        if isinstance(event, MetricEvent) and event.split == "validation":
            scores = "  ".join(f"{name} {value:.4f}" for name, value in event.values.items())
            context.progress.show(f"step {event.step:,}  {scores}")
        elif isinstance(event, MessageEvent):
            context.progress.say(message_line(event))

    context.progress.show("the teacher answers the training split")
    assert spec.task is not None, "the spec asks for a task or pretraining"
    result = run_distillation(
        spec,
        load_task(spec.task),
        run_folder=context.run_folder,
        attempt=context.attempt,
        storage=context.settings.storage,
        resolve_name=partial(resolve_name, settings=context.settings),
        on_event=on_event,
    )
    found, metric = result.metrics, result.metric
    scores = f"the student has {metric} {found[metric]:.4f}, its teacher {found[f'teacher.{metric}']:.4f}"
    context.progress.say(f"{result.task}: {scores}; {comparison_line(found)}; after {duration(result.seconds)}")
    return result


def _distill_on_corpus(spec: DistillSpec, pretraining: PretrainSpec, context: StageContext) -> PretrainResult:
    from orchestrator.distillation.masked_tokens import distill_on_corpus

    result = distill_on_corpus(
        spec,
        _pretrain_request(pretraining, context),
        resolve_name("teacher", spec.teacher, context.settings),
        **_pretrain_callbacks(pretraining, context),
    )
    if "agreement" in result.metrics:
        context.progress.say(f"the student beside its teacher: {comparison_line(result.metrics)}")
    return result


def _run_evaluate(spec: EvaluateSpec, context: StageContext) -> EvaluationResult:
    from orchestrator.inference.scoring import evaluate
    from orchestrator.tasks import load_task

    reranking = None
    if spec.rerank is not None:
        from orchestrator.retrieval.reranking import Reranking

        reranking = Reranking(resolve_name("rerank", spec.rerank, context.settings), spec.relevant, spec.candidates)
    result = evaluate(
        resolve_model(spec.model, context.settings),
        load_task(spec.task),
        spec.split,
        context.settings.storage,
        spec.batch_size,
        join(context.run_folder, f"predictions/{spec.split}.jsonl"),
        reranking=reranking,
        on_progress=context.progress.show,
    )
    scores = "  ".join(f"{name} {value:.4f}" for name, value in result.metrics.items())
    context.progress.say(f"{result.task} ({result.split}, {result.num_examples:,} examples): {scores}")
    return result


_STAGES: dict[str, Callable[[Any, StageContext], Result]] = {
    "tokenizer": _run_tokenizer,
    "corpus": _run_corpus,
    "pretrain": _run_pretrain,
    "sweep": _run_sweep,
    "distill": _run_distill,
    "evaluate": _run_evaluate,
}


def _finished_trials(run_folder: str) -> dict[str, TrialResult]:
    """The trials that an earlier attempt finished, by key."""
    path = join(run_folder, FINISHED_TRIALS)
    if not exists(path):
        return {}
    trials = []
    for values in read_json(path):
        model = values.pop("model")
        trials.append(TrialResult(**values, model=ModelResult(**model) if model else None))
    return {trial.key: trial for trial in trials}
