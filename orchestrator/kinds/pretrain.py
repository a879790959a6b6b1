"""Runs that pretrain a model on a corpus."""

import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from bert_core.checkpoints.training_state import STATE_FILE
from bert_core.config import BertConfig
from bert_core.objectives import OBJECTIVES, TOKEN_OBJECTIVES, active_objectives
from bert_core.objectives.masked_lm import SpanBoundary
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.console import UNDER_WAY, duration
from orchestrator.base.errors import SpecError
from orchestrator.base.results import DatasetResult, Event, MetricEvent, PretrainResult, Split, WorkersEvent
from orchestrator.cluster.capacity import cluster_resources
from orchestrator.cluster.gpus import are_gpus_unusable, log_device
from orchestrator.corpus.input_files import find_files
from orchestrator.kinds import estimates
from orchestrator.kinds.base import DiskUse, Fact, Kind, MeasuredTime, Resources, RunContext
from orchestrator.kinds.checks import check_tokenizer
from orchestrator.kinds.corpus import log_dataset, report_tokenizing
from orchestrator.kinds.pretraining_estimates import measure_steps, passes_facts, step_facts
from orchestrator.kinds.resolved import Resolved
from orchestrator.pretraining import job
from orchestrator.pretraining.progress_line import TrainingStatus
from orchestrator.registry.costs import HOUR_S
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.specs import PretrainSpec
from orchestrator.specs.network import DROPOUT_FIELDS, build_config
from orchestrator.specs.references import RANDOM, Product
from orchestrator.storage import join, read_json
from orchestrator.training.checkpoints import Checkpoints, refuse_other_sizes

logger = logging.getLogger(__name__)


class PretrainKind(Kind[PretrainSpec, PretrainResult]):
    """Pretraining by Ray Train, from random weights or from another model."""

    spec = PretrainSpec
    products = frozenset({Product.TOKENIZER, Product.ENCODER, Product.SNAPSHOTS})
    resumes_midway = True

    def check(self, spec: PretrainSpec, inputs: Resolved) -> None:
        if spec.execution.snapshot_optimizer and not spec.execution.snapshot_steps:
            raise SpecError(
                "execution.snapshot_optimizer keeps the optimizer beside snapshots, and execution.snapshot_steps names "
                "none; give it steps, or leave both out"
            )
        config = pretraining_config(spec, inputs)
        active = () if config is None else active_objectives(spec.chosen_objectives, config)
        if SpanBoundary.name in active and spec.mask_unit != "span":
            raise SpecError(
                f"mask_unit is {spec.mask_unit}, and {spec.init_from} has model.span_boundary_objective, which "
                "predicts spans; set mask_unit to span, or start from another model"
            )
        if spec.init_from != RANDOM:
            check_tokenizer(spec.init_from, spec.tokenizer, inputs)
        find_init_state(spec, inputs)

    def facts(self, spec: PretrainSpec, inputs: Resolved) -> Iterator[Fact]:
        if spec.init_from != RANDOM and (others := spec.model.model_fields_set - DROPOUT_FIELDS):
            names = ", ".join(f"model.{name}" for name in sorted(others))
            yield "network", f"that of {spec.init_from}; not used: {names}"
        yield from step_facts(spec)
        yield from passes_facts(spec, inputs)
        if spec.execution.is_elastic:
            yield (
                "workers",
                f"{spec.execution.min_workers} to {spec.execution.max_workers}, as there is room; every step has the "
                "same batch, and weights differ in the last bits from those of another number of workers; the "
                "resources below are those of the fewest",
            )
        config = pretraining_config(spec, inputs)
        yield from estimates.precision_facts([spec.precision], spec.execution.device, [config])
        if config is not None:
            num_parameters = estimates.count_pretraining_parameters(spec, config)
            yield "parameters", f"{num_parameters:,}"
            yield "memory of a worker", estimates.memory_text(num_parameters)

    def disk(self, spec: PretrainSpec, inputs: Resolved) -> Iterator[DiskUse]:
        config = pretraining_config(spec, inputs)
        num_parameters = None if config is None else estimates.count_pretraining_parameters(spec, config)
        yield from estimates.pretraining_disk(spec, num_parameters, inputs)

    def resources(self, spec: PretrainSpec) -> Resources:
        """Resources of the fewest workers where their number follows the cluster; `up_to` leads to the most."""
        execution, num_workers = spec.execution, spec.execution.min_workers
        total = {"CPU": num_workers * (execution.cpus_per_worker + execution.data_cpus)}
        up_to = execution.max_workers / num_workers
        on_cpus = Resources(total, [job.worker_processes(spec, use_gpu=False)], up_to=up_to)
        on_gpus = Resources(
            total | {"GPU": float(num_workers)}, [job.worker_processes(spec, use_gpu=True)], up_to=up_to
        )
        if execution.device == "auto":
            return replace(on_cpus, with_gpus=on_gpus)
        return on_gpus if execution.device == "gpu" else on_cpus

    def measure_time(self, spec: PretrainSpec, inputs: Resolved) -> MeasuredTime | None:
        return measure_steps(spec, inputs, pretraining_config(spec, inputs))

    def check_resume(self, spec: PretrainSpec, run_folder: str) -> None:
        """Refuse text of another size than the newest checkpoint's; a worker would, once all of it is tokenized."""
        saved = Checkpoints(run_folder).newest_extra()
        # Where only the first documents are read, more text behind them changes nothing.
        if saved is not None and spec.corpus.max_documents is None:
            step, extra = saved
            refuse_other_sizes(extra.get("details", {}), job.text_sizes(find_files(spec.corpus)), step)

    def run(self, spec: PretrainSpec, inputs: Resolved, context: RunContext) -> PretrainResult:
        from orchestrator.pretraining.launch import run_pretraining  # Ray is loaded when a run starts

        logger.info("reading the corpus", extra=UNDER_WAY)
        spec = with_chosen_steps(spec, context)
        return run_pretraining(build_request(spec, inputs, context), build_listener(spec, context))

    def record(self, result: PretrainResult, run_id: str, recorder: Recorder) -> RunOutcome:
        for dataset in result.datasets:
            recorder.registry.datasets.record(run_id, dataset)
        splits: dict[Split, dict[str, float]] = {"train": {}, "validation": {}, "test": {}}
        for name, value in result.metrics.items():
            split, _, plain = name.partition(".")
            if split not in splits or not plain:
                split, plain = "validation", name
            splits[split][plain] = value  # type: ignore[index]
        for split, values in splits.items():
            recorder.record_final_metrics(run_id, result.num_steps, split, values)
        recorder.record_model(run_id, result.model)
        return RunOutcome(model_folder=result.model.folder)

    def summary(self, run: RunRecord, registry: Registry) -> Iterator[str]:
        """Yield steps, seconds from start to end, speed of training alone, and losses on held-out text."""
        speeds = registry.metrics.history(run.id, "train.tokens_per_s").values("value")
        speed = f"; {median(speeds):,.0f} tokens/s while training" if len(speeds) else ""
        first_step, last_step = run.spec.get("init_step") or 0, registry.metrics.last_step(run.id) or 0
        latest = registry.metrics.latest(run.id)
        held_out = [objective for objective in OBJECTIVES.values() if objective.loss_name in latest]
        scores = "".join(f", {each.metric_prefix} {latest[each.loss_name]:.3f}" for each in held_out)
        took = f"{duration(run.seconds or 0.0)} from start to end"
        which = f", {first_step + 1:,} to {last_step:,}," if first_step else ""
        yield f"{last_step - first_step:,} steps{which} in {took}{speed}{scores and f'; held out{scores[1:]}'}"

    def model_configs(self, spec: PretrainSpec, inputs: Resolved) -> Iterator[BertConfig | None]:
        yield pretraining_config(spec, inputs)

    def vocab_size(self, spec: PretrainSpec, inputs: Resolved) -> int | None:
        return inputs.vocab_size(spec.tokenizer)

    def tokenizer_like(self, spec: PretrainSpec, inputs: Resolved) -> Tokenizer | None:
        return inputs.tokenizer_like(spec.tokenizer)


def pretraining_config(spec: PretrainSpec, inputs: Resolved) -> BertConfig | None:
    """Configuration of the model that a spec pretrains; None where only the run decides it.

    Raises: SpecError where the model has no positions for the spec's phases.
    """
    if spec.init_from != RANDOM:
        config = inputs.config(spec.init_from)
    else:
        vocab_size = inputs.vocab_size(spec.tokenizer)
        config = None if vocab_size is None else build_config(spec.model, vocab_size)
    is_causal = TOKEN_OBJECTIVES[spec.token_objective].is_causal
    return None if config is None else replace(job.fitted(spec, config), causal_attention=is_causal)


def find_init_state(spec: PretrainSpec, inputs: Resolved) -> str | None:
    """Folder of the training state that a spec goes on from; `@stage` where a stage will leave it; None without one.

    Raises: SpecError where the run has kept none of that step, or the state is of another optimizer.
    """
    if spec.init_step is None:
        return None
    found = inputs.training_states(spec.init_from)
    if spec.init_step not in found:
        kept = f"it has kept those of {', '.join(map(str, found))}" if found else "it has kept none"
        raise SpecError(
            f"init_step: {spec.init_from} has no training state of step {spec.init_step}; {kept}. A run keeps that of "
            "its last step until `gc`, and for good those of execution.snapshot_steps with "
            "execution.snapshot_optimizer: true"
        )
    folder, stage = found[spec.init_step], inputs.stage_pretraining(spec.init_from)
    of_stage = None if stage is None else {"details": {"spec": stage.identity_values()}}
    job.check_init_state(spec, of_stage or read_json(join(folder, STATE_FILE))["extra"])
    return folder


def build_request(spec: PretrainSpec, inputs: Resolved, context: RunContext) -> job.PretrainRequest:
    """Build the request for one attempt on the connected Ray, and record the device that it trains on."""
    use_gpu, has_checkpoint = decide_device(spec), Checkpoints(context.run_folder).newest_extra() is not None
    left_s = math.inf
    if spec.steps == "auto":
        spent_s = context.recorder.registry.run(context.run_id).seconds or 0.0
        left_s = HOUR_S * (spec.execution.max_hours or 0.0) - spent_s
    context.recorder.record_device(context.run_id, "gpu" if use_gpu else "cpu")
    return job.PretrainRequest(
        spec=spec,
        storage=context.settings.storage,
        run_folder=context.run_folder,
        attempt=context.attempt,
        tokenizer=inputs.tokenizer(spec.tokenizer),
        init_folder=None if spec.init_from == RANDOM else inputs.folder("init_from", spec.init_from),
        init_state=None if has_checkpoint else find_init_state(spec, inputs),
        left_s=left_s,
        use_gpu=use_gpu,
        allow_drift=context.allow_drift,
    )


def with_chosen_steps(spec: PretrainSpec, context: RunContext) -> PretrainSpec:
    """The spec with the number of steps that an earlier attempt has chosen for `auto`; the spec itself without one."""
    steps = context.recorder.registry.run(context.run_id).spec["steps"] if spec.steps == "auto" else spec.steps
    return spec.model_copy(update={"steps": steps})


def decide_device(spec: PretrainSpec) -> bool:
    """Decide, for all workers alike, whether each gets a GPU of the connected Ray, and log what `auto` took.

    `auto` takes the CPU where torch can use none of the GPUs; with `gpu` the workers end with torch's reason.
    """
    asked, have = spec.execution.device, cluster_resources()
    resources = PretrainKind().resources(spec)
    if note := resources.unused_gpus(have):
        logger.warning(note)
    use_gpu = "GPU" in resources.on(have).total
    if use_gpu and asked == "auto" and are_gpus_unusable("training", spec.execution.node_labels):
        return False
    if asked == "auto" and (use_gpu or not have.get("GPU")):  # GPUs that are too few have been told of
        log_device("training", float(spec.execution.min_workers if use_gpu else 0))
    return use_gpu


def build_listener(spec: PretrainSpec, context: RunContext) -> job.PretrainListener:
    status = None if spec.steps == "auto" else TrainingStatus(spec.phase_steps())

    def on_steps(num_steps: int) -> None:
        """Put the number of steps that was chosen into the run's record, which later attempts go by."""
        nonlocal status
        context.refuse_if_superseded()
        registry, settled = context.recorder.registry, spec.with_steps(num_steps)
        values = {**registry.run(context.run_id).spec, "steps": num_steps}
        registry.lifecycle.replace_spec(context.run_id, values, settled.fingerprint())
        logger.info(f"{num_steps:,} steps fit into execution.max_hours {spec.execution.max_hours:g}")
        status = TrainingStatus(settled.phase_steps())

    def on_event(event: Event) -> None:
        context.take_event(event)
        if isinstance(event, MetricEvent) and status is not None:
            line = status.line(event)
            context.progress.show(status.view)
            if status.is_for_the_log(event):
                logger.info(line)
        elif isinstance(event, WorkersEvent) and spec.execution.is_elastic:
            logger.info(f"from step {event.first_step:,} on: {event}")

    def on_dataset(dataset: DatasetResult) -> None:
        context.recorder.registry.datasets.record(context.run_id, dataset)
        log_dataset(dataset)
        logger.info("starting the training workers", extra=UNDER_WAY)

    tokenizing = report_tokenizing(context.progress)
    return job.PretrainListener(on_event, on_dataset, tokenizing, on_steps, context.refuse_if_superseded)
