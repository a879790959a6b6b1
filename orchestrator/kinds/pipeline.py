"""Runs of a pipeline: its stages are runs of other kinds, which use one another's results and finished earlier runs."""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from bert_core.errors import CheckpointError
from orchestrator.base.errors import RegistryError, SpecError
from orchestrator.base.run_states import RunState
from orchestrator.cluster.own_errors import OWN_ERRORS
from orchestrator.kinds.base import AnyKind, DiskUse, Kind, Resources, RunContext
from orchestrator.kinds.resolved import Resolved
from orchestrator.registry.database import retry_while_unavailable
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.registry.tables import INPUTS, PIPELINE
from orchestrator.specs import PipelineSpec, Spec
from orchestrator.specs.loading import parse_spec
from orchestrator.specs.precision import asks_auto, possible_fingerprints, with_precision
from orchestrator.specs.pretrain import pretraining_of
from orchestrator.specs.references import NAME_FIELDS, STAGE_MARK, names_of, resolve_references
from orchestrator.storage import exists
from orchestrator.training.checkpoints import saved_states

_MAX_CANDIDATES = 10
"""Earlier runs of a stage whose files are looked for."""
logger = logging.getLogger(__name__)


class PipelineKind(Kind[PipelineSpec, None]):
    """Stages in order. A stage that a completed run has done already, on the same inputs, is not done again.

    Args:
        kinds: of the stages.
    """

    spec = PipelineSpec

    def __init__(self, kinds: Sequence[AnyKind]) -> None:
        self._kinds = {kind.name: kind for kind in kinds}

    def _kind(self, spec: Spec) -> AnyKind:
        return self._kinds[spec.kind].for_spec(spec)

    def preflight(self, spec: PipelineSpec, inputs: Resolved) -> None:
        """Refuse a pipeline with a line for each stage that cannot run; what several stages share is told once.

        Raises: an error of the first one's class.
        """
        self._check_references(spec)
        found: dict[str, tuple[str, Exception]] = {}
        for name, stage in spec.stages.items():
            try:
                self._kind(stage).preflight(stage, inputs)
            except OWN_ERRORS as error:
                found.setdefault(str(error), (f"stages.{name}: {error}", error))
            inputs.drop_examples()
        if found:
            lines, errors = zip(*found.values(), strict=True)
            raise type(errors[0])("\n".join(lines)) from errors[0]

    def _check_references(self, spec: PipelineSpec) -> None:
        """Check that each `@name` names an earlier stage that makes what the field needs. Raises: SpecError."""
        earlier: dict[str, AnyKind] = {}
        for stage, asked in spec.stages.items():
            for field, name in names_of(asked):
                if not name.startswith(STAGE_MARK):
                    continue
                kind = earlier.get(name.removeprefix(STAGE_MARK))
                if kind is None:
                    listed = ", ".join(earlier) or "there is none"
                    raise SpecError(f"stages.{stage}: {name} names no earlier stage; earlier ones: {listed}")
                if NAME_FIELDS[field] not in kind.products:
                    makers = [maker.name for maker in self._kinds.values() if NAME_FIELDS[field] in maker.products]
                    raise SpecError(
                        f"stages.{stage}: {field} {name} is a stage of kind {kind.name}; name one of kind "
                        f"{' or '.join(makers)}"
                    )
            earlier[stage] = self._kind(asked)

    def disk(self, spec: PipelineSpec, inputs: Resolved) -> Iterator[DiskUse]:
        """Yield what the stages yet to be done write; files that several of them read and one writes come once."""
        shared, completed = set(), self._completed_stages(spec, inputs)
        for name, stage in spec.stages.items():
            with naming_stage(name):
                for use in self._kind(stage).disk(stage, inputs) if name not in completed else ():
                    if use.shared_as not in shared:
                        yield use
                    if use.shared_as is not None:
                        shared.add(use.shared_as)
            inputs.drop_examples()

    def _completed_stages(self, spec: PipelineSpec, inputs: Resolved) -> dict[str, str]:
        """Outputs of the stages that completed runs can stand for, by stage."""
        outputs: dict[str, str] = {}
        with suppress(RegistryError), Registry(inputs.settings.registry, read_only=True) as registry:
            for name, asked in inputs.pin(spec).stages.items():
                if any(of.startswith(STAGE_MARK) and of[1:] not in outputs for _, of in names_of(asked)):
                    continue
                ready = resolve_references(asked, outputs)
                # Before weights are read for the digest, and fetched from the hub.
                if registry.newest_completed(possible_fingerprints(ready)) is None:
                    continue
                for settled in _in_each_precision(ready):
                    whole = self._input_tags(settled, inputs)[1]
                    if (record := _completed_run([whole], _wanted_states(spec, name), registry)) is not None:
                        outputs[name] = _output(record, registry)
                        break
                inputs.drop_examples()
        return outputs

    def resources(self, spec: PipelineSpec) -> Resources:
        """Nothing: each stage is a run that takes its own."""
        return Resources({}, [])

    def settle_precision(self, spec: PipelineSpec, inputs: Resolved) -> PipelineSpec:
        """Nothing is put in: each stage is a run, with devices of its own."""
        return spec

    def input_identity(self, spec: PipelineSpec, inputs: Resolved) -> list[Any]:
        return [self._kind(stage).input_identity(stage, inputs) for stage in spec.stages.values()]

    def run(self, spec: PipelineSpec, inputs: Resolved, context: RunContext) -> None:
        """Carry the stages out in order; each is a run, tagged with the pipeline's id and its inputs' digest."""
        outputs: dict[str, str] = {}
        for number, (name, asked) in enumerate(spec.stages.items(), start=1):
            ready = resolve_references(asked, outputs).named(f"{spec.name}/{name}")
            with context.progress.in_stage(f"stage {number} of {len(spec.stages)}: {name}"):
                settled = retry_while_unavailable(partial(self._settled, ready, inputs, context))
                tags = retry_while_unavailable(partial(self._input_tags, settled, inputs))
                record = _run_stage(settled, tags, _wanted_states(spec, name), context)
            outputs[name] = _output(record, context.recorder.registry)
            inputs.drop_examples()

    def _settled(self, spec: Spec, inputs: Resolved, context: RunContext) -> Spec:
        """The stage in the precision of an earlier attempt at this pipeline, else as its devices decide."""
        has_run = context.attempt > 1 and asks_auto(spec)
        for settled in _in_each_precision(spec) if has_run else ():
            tags = self._input_tags(settled, inputs)  # runs begun by an earlier version have the second one alone
            if context.recorder.registry.run_ids(f"tag = '{PIPELINE}{context.run_id}' and {_tag_in(tags)}"):
                return settled
        settled_now: Spec = self._kind(spec).settle_precision(spec, inputs)
        return settled_now

    def _input_tags(self, spec: Spec, inputs: Resolved) -> tuple[str, str]:
        """Two digests: of fingerprint and input files, by which an attempt goes on; of these with snapshots and hours.

        Only the second one tells whether a completed run can stand for the stage.
        """
        read = self._kind(spec).input_identity(spec, inputs)
        return _digest_tag([spec.fingerprint(), read]), _digest_tag([spec.fingerprint(), read + _left_by(spec)])

    def record(self, result: None, run_id: str, recorder: Recorder) -> RunOutcome:
        return RunOutcome()

    def summary(self, run: RunRecord, registry: Registry) -> Iterator[str]:
        for stage in reversed(registry.stages(run.id)):
            lines = self._kind(parse_spec(stage.spec)).summary_lines(stage.id, registry)
            yield from (f"{stage.name.rpartition('/')[2]}: {line}" for line in lines[:1])


def _in_each_precision(spec: Spec) -> Sequence[Spec]:
    return [with_precision(spec, "bf16"), with_precision(spec, "fp32")] if asks_auto(spec) else [spec]


def _left_by(spec: Spec) -> list[Any]:
    """Values of the execution fields that decide what a pretraining leaves; an attempt may have others.

    The steps of snapshots do not change a model, and yet a stage without them cannot stand for one with.
    """
    made = pretraining_of(spec)
    if made is None:
        return []
    kept, hours = made.execution, [["max_hours", made.execution.max_hours]] if made.steps == "auto" else []
    snapshots = ["snapshots", sorted(kept.snapshot_steps), *([True] if kept.snapshot_optimizer else [])]
    return [snapshots, *hours] if kept.snapshot_steps else hours


def _digest_tag(values: list[Any]) -> str:
    return f"{INPUTS}{hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:20]}"


def _tag_in(tags: Sequence[str]) -> str:
    return f"tag in ({', '.join(map(repr, tags))})"


def _wanted_states(spec: PipelineSpec, stage: str) -> set[int]:
    """Steps of a stage whose training states later ones go on from."""
    made = [pretraining_of(later) for later in spec.stages.values()]
    starts = [(one.init_from, one.init_step) for one in made if one is not None]
    return {step for name, step in starts if name == f"{STAGE_MARK}{stage}" and step is not None}


def _completed_run(tags: Sequence[str], states: set[int], registry: Registry) -> RunRecord | None:
    """The newest completed run of a stage whose result, and training states of some steps, are there."""
    # More than one is looked at: files of a newer one, as of a run merged from elsewhere, may be out of reach here.
    for run_id in registry.run_ids(f"{_tag_in(tags)} and state = '{RunState.COMPLETED}'")[:_MAX_CANDIDATES]:
        record = registry.run(run_id)
        with suppress(CheckpointError):  # of a list of states that is damaged
            kept = saved_states(record.storage_path or "").keys() if states else states
            if states <= kept and exists(record.model_folder or _output(record, registry)):
                return record
    return None


def _run_stage(spec: Spec, tags: Sequence[str], states: set[int], context: RunContext) -> RunRecord:
    """The run of a stage: a completed run, another attempt at this pipeline's own, or a new run."""
    registry, own = context.recorder.registry, f"{PIPELINE}{context.run_id}"
    assert context.stages is not None, "the controller carries pipelines out"
    # A run that went on with other snapshots or hours stands for the stage of this pipeline alone.
    changed = _digest_tag([tags[1], own])
    if (completed := _completed_run([tags[1], changed], states, registry)) is not None:
        logger.info(f"{spec.name}: run {completed.id} did this already")
        registry.annotations.tag(completed.id, [own], reserved=True)
        return completed
    earlier = [record for record in registry.find_records(f"tag = '{own}'") if record.name == spec.name]
    for record in earlier:
        before = {tag for tag in registry.annotations.tags(record.id) if tag.startswith(INPUTS)}
        if record.state == RunState.COMPLETED or before.isdisjoint(tags):
            continue
        if tags[1] not in before or not before <= {*tags}:
            registry.annotations.tag(record.id, [tags[0], changed], reserved=True)
            registry.annotations.untag(record.id, sorted(before - {tags[0], changed}), reserved=True)
        return context.stages.resume(record, spec)
    if earlier:
        logger.info(f"{spec.name}: begins anew, as none of its runs is what the pipeline asks for now")
    return context.stages.start(spec, (own, *dict.fromkeys(tags)))


def _output(record: RunRecord, registry: Registry) -> str:
    """Name of a result in later stages: a model with its version, else the folder of a tokenizer or token store."""
    for model in registry.models.of_run(record.id):
        return model.label
    if record.model_folder:
        return record.model_folder
    paths = registry.datasets.table(record.id).values("path")
    return str(paths[0]) if paths else record.storage_path or ""


@contextmanager
def naming_stage(name: str) -> Iterator[None]:
    """Put the name of a pipeline's stage before the messages of errors that are raised in the block."""
    try:
        yield
    except OWN_ERRORS as error:
        raise type(error)(f"stages.{name}: {error}") from error
