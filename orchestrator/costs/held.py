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


def held_by(run: RunRecord, registry: Registry) -> "Resources | None":
    """Return what a run held of its cluster, a trial or a sweep what one trial holds; None where the spec is not read.

    Of a spec that took GPUs where there were some, the tag `device:gpu` says whether it did; without it, CPUs count.
    """
    owner = run if run.parent_id is None else registry.run(run.parent_id)
    spec = spec_of(owner)
    if spec is None or isinstance(spec, PipelineSpec):
        return None
    from orchestrator.kinds import kind_of  # torch among it, which who reads what was recorded can spare

    resources = kind_of(spec).resources(spec)
    with_gpus = resources.with_gpus
    if with_gpus is not None and _ON_GPUS in registry.tags(owner.id):
        return replace(with_gpus, up_to=resources.up_to)
    return resources


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
