"""Resources that a recorded run held, by its spec."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from orchestrator.errors import SpecError
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.specs import PipelineSpec, Spec
from orchestrator.specs.loading import parse_spec

if TYPE_CHECKING:
    from orchestrator.kinds.base import Resources

_ON_GPUS = "device:gpu"


def spec_of(run: RunRecord) -> Spec | None:
    """The spec of a recorded run; None of a trial, or where another version wrote what this one cannot read."""
    return None if run.parent_id is not None else _parsed(json.dumps(dict(run.spec)))


@lru_cache(maxsize=1_000)
def _parsed(spec: str) -> Spec | None:
    """The spec of a JSON text; kept, since of many runs that are asked for most repeat the specs of a few."""
    try:
        return parse_spec(json.loads(spec))
    except SpecError:
        return None


def held_by_each(runs: Sequence[RunRecord], registry: Registry) -> "dict[str, Resources]":
    """Return what each run held of its cluster, a trial or a sweep what one trial holds, by the run's id.

    Runs whose spec cannot be read are left out. Of a spec that took GPUs where there were some, the tag `device:gpu`
    says whether it did; without it, CPUs count.
    """
    sweeps = registry.run_records({run.parent_id for run in runs if run.parent_id is not None})
    owners = [*sweeps, *(run for run in runs if run.parent_id is None)]
    read = {owner.id: spec_of(owner) for owner in owners}
    specs = {owner_id: spec for owner_id, spec in read.items() if spec and not isinstance(spec, PipelineSpec)}
    if not specs:
        return {}
    from orchestrator.kinds import kind_of  # torch among it, which who reads what was recorded can spare

    held = {owner_id: kind_of(spec).resources(spec) for owner_id, spec in specs.items()}
    undecided = [owner_id for owner_id, resources in held.items() if resources.with_gpus is not None]
    for owner_id in registry.annotations.tagged(undecided, _ON_GPUS):
        with_gpus = held[owner_id].with_gpus
        assert with_gpus is not None
        held[owner_id] = replace(with_gpus, up_to=held[owner_id].up_to)
    return {run.id: held[owner] for run in runs if (owner := run.parent_id or run.id) in held}


def times_held(held: "Resources", groups: Sequence[Mapping[str, Any]], last_step: int | None = None) -> float:
    """Count how often resources were held: recorded groups of workers, beside the number that `held` is of.

    Args:
        groups: `first_step` and `hosts` of each, in order.
        last_step: step up to which the last one worked, by which they are weighted; without it the last one counts.
    """
    if not groups:
        return 1.0
    sizes = [len(group["hosts"]) for group in groups]
    mean = float(sizes[-1])
    if last_step is not None:
        begins = [group["first_step"] for group in groups]
        shares = [max(0, end - begin) for begin, end in zip(begins, [*begins[1:], last_step], strict=True)]
        if sum(shares):
            mean = sum(size * share for size, share in zip(sizes, shares, strict=True)) / sum(shares)
    return mean / held.processes[0].count
