"""The plan of a spec: what each stage does and what it takes of the cluster."""

import os
import socket
from contextlib import nullcontext, suppress
from dataclasses import dataclass

from orchestrator.base.console import counted, duration, size_text
from orchestrator.base.errors import RegistryError
from orchestrator.cluster.connection import most_cpus
from orchestrator.corpus.input_files import find_files
from orchestrator.kinds import kind_of
from orchestrator.kinds.base import AnyKind, Fact, Resources, is_narrow
from orchestrator.kinds.pipeline import naming_stage
from orchestrator.kinds.preflight import disk_need, uses_text
from orchestrator.kinds.resolved import Resolved
from orchestrator.registry import Registry
from orchestrator.registry.costs import UNKNOWN_GPU, Usage, load_prices, usage_of, with_price
from orchestrator.specs import PipelineSpec, Spec
from orchestrator.specs.corpus import text_sources_of
from orchestrator.specs.precision import possible_fingerprints, with_precision


@dataclass(frozen=True)
class ExpectedTime:
    """Time that a run will take, and how it is known."""

    seconds: float
    text: str
    usage: Usage | None = None
    """Devices that an earlier run of the same spec held; None where the time is of a part of a run."""


def expected_time(kind: AnyKind, spec: Spec, inputs: Resolved) -> ExpectedTime | None:
    """Return the time of a run: that of an earlier run of the same spec, else by a part of it; None where neither is.

    To do a part of a run takes seconds.
    """
    with suppress(RegistryError), Registry(inputs.settings.registry, read_only=True) as registry:
        earlier = registry.newest_completed(possible_fingerprints(inputs.pin(spec)))
        if earlier is not None and earlier.seconds:
            host = f" on {earlier.host}" if earlier.host else ""
            text = f"{duration(earlier.seconds)}, as run {earlier.id} took{host}"
            return ExpectedTime(earlier.seconds, text, usage_of(earlier, registry))
    found = kind.measure_time(
        with_precision(spec, "fp32") if is_narrow(kind.model_configs(spec, inputs)) else spec, inputs
    )
    if found is None:
        return None
    length = f"about {duration(found.seconds)}" if found.seconds >= 1 else "less than a second"
    how = f"from {found.by} on the CPU of {socket.gethostname()}, beside starting"
    return ExpectedTime(found.seconds, f"{length} for {found.of_what}, {how}")


def cost_fact(kind: AnyKind, spec: Spec, inputs: Resolved, expected: ExpectedTime) -> Fact:
    """The line of a plan about the cost of a run. Raises: InputError for prices that are wrong."""
    usage = expected.usage
    if usage is None:
        held = kind.resources(spec)  # as much at once as it may, and by trials no more CPUs than this machine has
        cpus, gpus = (held.total.get(name, 0.0) for name in ("CPU", "GPU"))
        most = min(max(float(os.cpu_count() or 1), cpus), most_cpus(inputs.settings))
        cpu_s, gpu_s = expected.seconds * min(cpus * held.up_to, most), expected.seconds * gpus * held.up_to
        usage = Usage(expected.seconds, cpu_s, {UNKNOWN_GPU: gpu_s} if gpu_s else {})
    return "cost", f"about {with_price(usage, load_prices(inputs.settings.home))}"


@dataclass(frozen=True)
class PlanRow:
    """One fact of a plan."""

    stage: str
    what: str
    value: str


def plan_rows(spec: Spec, inputs: Resolved, *, with_time: bool = False) -> list[PlanRow]:
    """The plan of a spec, stage by stage; `with_time` measures a few steps, which takes seconds."""
    rows, is_pipeline = [], isinstance(spec, PipelineSpec)
    for name, stage in spec.stage_specs().items():
        with naming_stage(name) if is_pipeline else nullcontext():
            kind = kind_of(stage)
            facts = [("kind", kind.name), *_text_facts(stage), *kind.facts(stage, inputs)]
            if with_time and (expected := expected_time(kind, stage, inputs)):
                facts += [("time", expected.text), cost_fact(kind, stage, inputs, expected)]
            if uses := list(kind.disk(stage, inputs)):
                facts.append(("disk", uses_text(uses)))
            facts.append(("resources", _resources_text(kind.resources(stage))))
        whose = f"stages.{name}: " if is_pipeline else ""  # advice names fields of the stage, as problems do
        rows += [PlanRow(name, what, f"{whose}{value}" if what == "note" else value) for what, value in facts]
        if is_pipeline:
            inputs.drop_examples()
    if (disk := disk_need(spec, inputs)) is not None:
        rows.append(PlanRow("" if is_pipeline else rows[-1].stage, "disk in all", str(disk)))
    return rows


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
