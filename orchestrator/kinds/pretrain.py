"""Runs that pretrain a model on a corpus."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from bert_core.config import BertConfig
from orchestrator.cluster.capacity import Processes
from orchestrator.kinds.base import Fact, Kind, Resources, RunContext
from orchestrator.kinds.facts import BYTES_PER_SAVED_PARAMETER, memory_text, size_text, step_facts
from orchestrator.kinds.messages import message_line, report_dataset, report_tokenizing
from orchestrator.kinds.resolved import Resolved
from orchestrator.kinds.start_checks import check_positions, check_tokenizer
from orchestrator.models.config import build_config
from orchestrator.models.sizes import count_pretraining_parameters
from orchestrator.pretraining.status import TrainingStatus
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.results import DatasetResult, Event, MessageEvent, MetricEvent, PretrainResult, Split
from orchestrator.specs import PretrainSpec
from orchestrator.specs.references import RANDOM, Product

if TYPE_CHECKING:
    from orchestrator.pretraining.launch import PretrainRequest

_ANY_VOCAB_SIZE = 30522


class PretrainKind(Kind[PretrainSpec, PretrainResult]):
    """Pretraining by Ray Train, from random weights or from another model."""

    spec = PretrainSpec
    products = frozenset({Product.TOKENIZER, Product.ENCODER, Product.SNAPSHOTS})

    def check(self, spec: PretrainSpec, inputs: Resolved) -> None:
        """See that the model's numbers fit together, and that the model to continue from fits data and tokenizer."""
        build_config(spec.model, _ANY_VOCAB_SIZE)
        check_positions("phases.max_seq_length", longest_sequence(spec), [spec.init_from], inputs)
        if spec.init_from != RANDOM:
            check_tokenizer(spec.init_from, spec.tokenizer, inputs)

    def facts(self, spec: PretrainSpec, inputs: Resolved) -> Iterator[Fact]:
        """Yield steps, tokens, parameters, memory and disk."""
        yield from step_facts(spec)
        config = pretraining_config(spec, inputs)
        if config is not None:
            num_parameters = count_pretraining_parameters(config)
            yield "parameters", f"{num_parameters:,}"
            yield "memory of a worker", memory_text(num_parameters)
            kept = spec.execution.keep_checkpoints * num_parameters * BYTES_PER_SAVED_PARAMETER
            yield "disk", f"{size_text(kept)} of checkpoints, and the token store (about the text's size)"
            if snapshots := spec.execution.snapshot_steps:
                yield "snapshots", f"{len(snapshots)}, {size_text(len(snapshots) * 4 * num_parameters)} of disk"

    def resources(self, spec: PretrainSpec) -> Resources:
        """Return the CPUs of workers and of their data pipelines, and a GPU for each worker where the spec asks."""
        execution, is_gpu = spec.execution, spec.execution.device == "gpu"
        total = {"CPU": execution.num_workers * (execution.cpus_per_worker + execution.data_cpus)}
        worker = {"CPU": execution.cpus_per_worker} | ({"GPU": 1.0} if is_gpu else {})
        return Resources(
            total | ({"GPU": float(execution.num_workers)} if is_gpu else {}),
            [Processes(execution.num_workers, worker)],
        )

    def run(self, spec: PretrainSpec, inputs: Resolved, context: RunContext) -> PretrainResult:
        """Pretrain, from the run's last checkpoint where there is one."""
        from orchestrator.pretraining.launch import run_pretraining  # Ray is loaded when a run starts

        return run_pretraining(build_request(spec, inputs, context), **training_callbacks(spec, context))

    def record(self, result: PretrainResult, run_id: str, recorder: Recorder) -> RunOutcome:
        """Write the corpus, the last scores of each split, and the model."""
        for dataset in result.datasets:
            recorder.record_dataset(run_id, dataset)
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

    def model_configs(self, spec: PretrainSpec, inputs: Resolved) -> Iterator[BertConfig | None]:
        """Yield the configuration of the one model."""
        yield pretraining_config(spec, inputs)

    def vocab_size(self, spec: PretrainSpec, inputs: Resolved) -> int | None:
        """Return the size of the tokenizer's vocabulary."""
        return inputs.vocab_size(spec.tokenizer)

    def snapshot_steps(self, spec: PretrainSpec) -> tuple[int, ...]:
        """Return the steps that the spec lists."""
        return spec.execution.snapshot_steps


def longest_sequence(spec: PretrainSpec) -> int:
    """Tokens of the longest sequence in any phase."""
    return max(phase.max_seq_length for phase in spec.phases)


def pretraining_config(spec: PretrainSpec, inputs: Resolved) -> BertConfig | None:
    """Configuration of the model that a spec pretrains; None where only the run decides it."""
    if spec.init_from != RANDOM:
        return inputs.config(spec.init_from)
    vocab_size = inputs.vocab_size(spec.tokenizer)
    return None if vocab_size is None else build_config(spec.model, vocab_size)


def build_request(spec: PretrainSpec, inputs: Resolved, context: RunContext) -> "PretrainRequest":
    """What `run_pretraining` is given for one attempt."""
    from orchestrator.pretraining.launch import PretrainRequest  # Ray is loaded when a run starts

    return PretrainRequest(
        spec=spec,
        storage=context.settings.storage,
        run_folder=context.run_folder,
        attempt=context.attempt,
        tokenizer=inputs.tokenizer(spec.tokenizer),
        init_folder=None if spec.init_from == RANDOM else inputs.folder("init_from", spec.init_from),
    )


def training_callbacks(spec: PretrainSpec, context: RunContext) -> dict[str, Callable[..., None]]:
    """The callbacks of `run_pretraining`, by its arguments' names: they record what happens and show it."""
    status = TrainingStatus(spec.phase_steps())

    def on_event(event: Event) -> None:
        context.refuse_if_superseded()
        context.recorder.record_events(context.run_id, [event])
        if isinstance(event, MetricEvent):
            (context.progress.status if event.split == "train" else context.progress.log)(status.line(event))
        elif isinstance(event, MessageEvent):
            context.progress.log(message_line(event))

    def on_dataset(dataset: DatasetResult) -> None:
        context.recorder.record_dataset(context.run_id, dataset)
        report_dataset(dataset, context.progress)
        context.progress.status("starting the training workers")

    return {
        "on_event": on_event,
        "on_dataset": on_dataset,
        "on_tokenizing": report_tokenizing(context.progress),
    }
