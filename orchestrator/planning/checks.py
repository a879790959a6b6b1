"""What a spec needs and does, found out before anything is started; what could not run is refused here."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bert_core.errors import BertCoreError
from orchestrator.cluster.capacity import Processes
from orchestrator.corpus.input_files import find_files
from orchestrator.errors import OrchestratorError
from orchestrator.inference.scoring import check_reranks
from orchestrator.models.config import build_config
from orchestrator.models.resolve import content_digest, resolve_name
from orchestrator.planning.facts import stage_facts, text_sources
from orchestrator.planning.model_sizes import Networks
from orchestrator.settings import Settings
from orchestrator.specs import (
    DistillSpec,
    EvaluateSpec,
    PipelineSpec,
    PretrainSpec,
    Spec,
    SweepSpec,
    TaskSpec,
)
from orchestrator.specs.references import STAGE_MARK, check_references, names_of


@dataclass(frozen=True)
class PlanRow:
    """One fact of a plan."""

    stage: str
    what: str
    value: str


def check_inputs(spec: Spec, settings: Settings) -> None:
    """See that every file, tokenizer and model that a spec names is there and fits, as far as that is known yet.

    Raises: SpecError, ConfigError, CorpusError, TaskDataError, TokenizerError, NotFoundError, each naming what is
        missing or wrong, and the stage.
    """
    stages = _stages(spec)
    check_references(stages)
    for name, stage in stages.items():
        with _naming_stage(spec, name):
            _check_stage(stage, Networks(stages, settings))


@contextmanager
def _naming_stage(spec: Spec, name: str) -> Iterator[None]:
    """What is wrong with a stage of a pipeline is said with its name."""
    try:
        yield
    except (OrchestratorError, BertCoreError) as error:
        if not isinstance(spec, PipelineSpec):
            raise
        raise type(error)(f"stages.{name}: {error}") from error


def _check_stage(spec: Spec, networks: Networks) -> None:
    if isinstance(spec, DistillSpec) and spec.pretraining is not None:
        _check_stage(spec.pretraining, networks)
    for source in text_sources(spec):
        find_files(source)
    for field, name in _names(spec):
        resolve_name(field, name, networks.settings)
    if isinstance(spec, PretrainSpec):
        build_config(spec.model, vocab_size=30522)  # any vocabulary: it is the other numbers that must fit together
    if isinstance(spec, SweepSpec):
        from orchestrator.finetuning.search_space import check_space
        from orchestrator.tasks import load_task

        learnt = load_task(spec.task)
        check_space(spec, learnt.head, learnt.objective)
    if isinstance(spec, PretrainSpec | SweepSpec | DistillSpec):
        networks.check_start(spec)
    if isinstance(spec, DistillSpec):
        networks.check_student(spec)
    for task in _tasks(spec):
        from orchestrator.tasks import load_task

        loaded = load_task(task)
        loaded.file(spec.split if isinstance(spec, EvaluateSpec) else "train")
        if isinstance(spec, EvaluateSpec) and spec.rerank is not None:
            check_reranks(loaded)
        for path in spec.unlabeled if isinstance(spec, DistillSpec) else ():
            loaded.without_labels(path)


def _stages(spec: Spec) -> Mapping[str, Spec]:
    """The stages of a pipeline, or the one that a spec is."""
    return spec.stages if isinstance(spec, PipelineSpec) else {spec.name or spec.kind: spec}


def input_identity(spec: Spec, settings: Settings) -> list[Any]:
    """What tells one state of a spec's input files from another."""
    identity: list[Any] = []
    for source in text_sources(spec):
        identity += [[file.path, file.num_bytes, file.version] for file in find_files(source)]
    for task in _tasks(spec):
        from orchestrator.tasks import load_task

        loaded = load_task(task)
        identity += [[split, loaded.fingerprint(split)] for split in loaded.splits]
        unlabeled = spec.unlabeled if isinstance(spec, DistillSpec) else ()
        identity += [["unlabeled", loaded.without_labels(path).fingerprint("train")] for path in unlabeled]
    identity += [content_digest(field, name, settings) for field, name in _names(spec)]
    return identity


def needed_resources(spec: Spec) -> dict[str, float]:
    """The Ray resources that a spec holds at once."""
    if isinstance(spec, PipelineSpec):
        needs = [needed_resources(stage) for stage in spec.stages.values()]
        return {name: max(need.get(name, 0.0) for need in needs) for name in {name for need in needs for name in need}}
    if isinstance(spec, PretrainSpec):
        execution = spec.execution
        needed = {"CPU": execution.num_workers * (execution.cpus_per_worker + execution.data_cpus)}
        return needed | ({"GPU": float(execution.num_workers)} if execution.device == "gpu" else {})
    if isinstance(spec, SweepSpec):
        needed = {"CPU": spec.execution.cpus_per_trial}
        return needed | ({"GPU": spec.execution.gpus_per_trial} if spec.execution.gpus_per_trial else {})
    if isinstance(spec, DistillSpec):
        if spec.pretraining is not None:
            return needed_resources(spec.pretraining)
        return {"CPU": spec.execution.cpus} | ({"GPU": spec.execution.gpus} if spec.execution.gpus else {})
    return {"CPU": 1.0}


def needed_processes(spec: Spec) -> list[Processes]:
    """The processes that hold a spec's resources: training workers, or one trial at least."""
    if isinstance(spec, PipelineSpec):
        return [processes for stage in spec.stages.values() for processes in needed_processes(stage)]
    if isinstance(spec, DistillSpec) and spec.pretraining is not None:
        return needed_processes(spec.pretraining)
    if isinstance(spec, PretrainSpec):
        execution = spec.execution
        gpu = {"GPU": 1.0} if execution.device == "gpu" else {}
        return [Processes(execution.num_workers, {"CPU": execution.cpus_per_worker} | gpu)]
    return [Processes(1, needed_resources(spec))]


def plan_rows(spec: Spec, settings: Settings) -> list[PlanRow]:
    """The plan of a spec, stage by stage. Raises: TaskDataError for a task's file that cannot be read, and the like."""
    stages = _stages(spec)
    rows = []
    for stage, inner in stages.items():
        with _naming_stage(spec, stage):
            facts = [*stage_facts(inner, Networks(stages, settings))]
        facts.append(("resources", _resources_text(needed_resources(inner))))
        rows += [PlanRow(stage, what, value) for what, value in facts]
    return rows


def _tasks(spec: Spec) -> list[TaskSpec]:
    task = spec.task if isinstance(spec, SweepSpec | DistillSpec | EvaluateSpec) else None
    return [] if task is None else [task]


def _names(spec: Spec) -> list[tuple[str, str]]:
    """Models and tokenizers that a spec names, without other stages' results."""
    return [(field, name) for field, name in names_of(spec) if not name.startswith(STAGE_MARK)]


def _resources_text(needed: dict[str, float]) -> str:
    return ", ".join(f"{count:g} {name}" for name, count in needed.items())
