"""The plan of a spec: what each stage does and what it takes of the cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.corpus.input_files import find_files
from orchestrator.kinds import kind_of
from orchestrator.kinds.base import Resources
from orchestrator.kinds.resolved import Resolved
from orchestrator.planning.checks import each_stage, naming_stage
from orchestrator.planning.disk import disk_room, uses_text
from orchestrator.planning.run_time import cost_fact, expected_time
from orchestrator.progress import counted, size_text
from orchestrator.specs import PipelineSpec, Spec
from orchestrator.specs.parts import text_sources_of
from orchestrator.specs.pipeline import stages_of


@dataclass(frozen=True)
class PlanRow:
    """One fact of a plan."""

    stage: str
    what: str
    value: str


def plan_rows(spec: Spec, inputs: Resolved, *, with_time: bool = False) -> list[PlanRow]:
    """The plan of a spec, stage by stage.

    Args:
        with_time: whether to say how long each stage takes, for which a few steps may be measured, in seconds.

    Raises: TaskDataError for a task's file that cannot be read, and the like.
    """
    rows = []
    for name, stage in each_stage(spec, inputs):
        with naming_stage(spec, name):
            kind = kind_of(stage)
            facts = [("kind", kind.name), *_text_facts(stage), *kind.facts(stage, inputs)]
            if with_time and (expected := expected_time(kind, stage, inputs)):
                facts += [("time", expected.text), cost_fact(kind, stage, inputs, expected)]
            if uses := list(kind.disk(stage, inputs)):
                facts.append(("disk", uses_text(uses)))
            facts.append(("resources", _resources_text(kind.resources(stage))))
        rows += [PlanRow(name, what, value) for what, value in facts]
    room = disk_room(spec, inputs)
    if room is not None:
        rows.append(PlanRow("" if isinstance(spec, PipelineSpec) else rows[-1].stage, "disk in all", room.text()))
    return rows


def needed_resources(spec: Spec, have: Mapping[str, float]) -> Resources:
    """Resources that a spec takes of a cluster with these; of a pipeline the most of any stage, and all processes."""
    needs = [kind_of(stage).resources(stage).on(have) for stage in stages_of(spec).values()]
    names = {name for need in needs for name in need.total}
    return Resources(
        {name: max(need.total.get(name, 0.0) for need in needs) for name in names},
        [processes for need in needs for processes in need.processes],
    )


def unused_gpu_notes(spec: Spec, have: Mapping[str, float]) -> Iterator[str]:
    """Yield what to tell a person of GPUs that are there, and that a stage does not take as they are too few."""
    for name, stage in stages_of(spec).items():
        if note := kind_of(stage).resources(stage).unused_gpus(have):
            yield f"{name}: {note}" if name else note


def _text_facts(spec: Spec) -> list[tuple[str, str]]:
    found = [find_files(source) for source in text_sources_of(spec)]
    return [
        ("text", f"{counted(len(files), 'file')}, {size_text(sum(file.num_bytes for file in files))} as stored")
        for files in found
    ]


def _resources_text(resources: Resources) -> str:
    text = ", ".join(f"{count:g} {name}" for name, count in resources.total.items())
    if resources.with_gpus is None:
        return text
    return f"{text}, and {resources.with_gpus.total['GPU']:g} GPU if available"
