"""Facts that are recorded of one run, as short lines of text: for `runs show` and for a report."""

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from orchestrator.cells import cell, field_cell
from orchestrator.measurements import COLLAPSED

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.records import AttemptRecord, RunRecord

_COUNTS_SHOWN = ("num_documents", "num_tokens", "num_bad_records")
"""Counts of a corpus that are told; of other data all are."""
_BASELINE = "baseline."
TEST = "test."
"""Beginning of the names of scores on the test split."""
_NUM_SCORES_SHOWN = 12


def stage_line(registry: "Registry", stage: "RunRecord") -> str:
    """One line on a stage of a pipeline: `5d22… sweep COMPLETED, accuracy 0.8400`."""
    score = registry.metrics.latest(stage.id).get(str(stage.metric))
    return f"{stage.id} {stage.kind} {stage.state}" + ("" if score is None else f", {stage.metric} {cell(score)}")


def score_lines(
    values: Mapping[str, float], metric: str | None, refusal: str | None = None, choice: str = ""
) -> dict[str, str]:
    """Each score with its baseline, the one that ranks first: `accuracy: 0.8400 (baseline 0.5000)`.

    Args:
        refusal: reason why scores on the test split are refused, which is told beside them; None where they are not.
        choice: words on what the score that ranks was chosen from, which are told beside it.
    """
    names = sorted((name for name in values if _BASELINE not in name), key=lambda name: (name != metric, name))
    lines = {}
    for name in names[:_NUM_SCORES_SHOWN]:
        baseline = values.get(_BASELINE + name)
        value = bool(values[name]) if name.rpartition(".")[2] == COLLAPSED else values[name]
        remarks = [] if baseline is None else [f"baseline {cell(baseline)}"]
        remarks += [choice] if choice and name == metric else []
        remarks += [f"refused: {refusal}"] if refusal and name.startswith(TEST) else []
        lines[name] = field_cell(name, value) + (f" ({'; '.join(remarks)})" if remarks else "")
    return lines


def changed_fields(run: "RunRecord") -> dict[str, Any]:
    """The fields of a run's spec that differ from their defaults, by dotted path; all of a spec that is not read."""
    from orchestrator.registry.parameter_values import flatten

    return {path: value for path, value in flatten(changed_spec(run)).items() if path not in ("kind", "name", "tags")}


def changed_spec(run: "RunRecord") -> dict[str, Any]:
    """A run's spec (of a trial its recipe) without the fields that have their defaults; all of one not read here."""
    if run.parent_id is not None:
        from orchestrator.specs.recipe import RecipeSpec

        defaults = RecipeSpec().model_dump(mode="json")
        return {name: value for name, value in run.spec.items() if name not in defaults or value != defaults[name]}
    from orchestrator.errors import SpecError
    from orchestrator.specs.loading import parse_spec

    try:
        changed = parse_spec(dict(run.spec)).model_dump(mode="json", exclude_defaults=True)
    except SpecError:  # of another version
        return dict(run.spec)
    return {"kind": run.kind, **changed}


def attempt_line(attempt: "AttemptRecord") -> str:
    """One line on a start of a run: how it ended, where its driver worked, and what the cluster calls it."""
    place = f"process {attempt.pid} on {attempt.host}" if attempt.host else "an unknown host"
    job = f", job {attempt.job_id}" if attempt.job_id else ""
    return f"{attempt.state}: {place}{job}; began {attempt.started_at:%Y-%m-%d %H:%M}{_workers_text(attempt)}"


def _workers_text(attempt: "AttemptRecord") -> str:
    """Training workers of an attempt by steps: `; steps 0-80: 4 workers on a, b; from step 80: 2 workers on a`."""
    from orchestrator.results import WorkersEvent

    groups = [WorkersEvent(**group) for group in attempt.workers or ()]
    ends = [f"steps {one.first_step:,}-{after.first_step:,}" for one, after in pairwise(groups)]
    ends += [f"from step {one.first_step:,}" for one in groups[-1:]]
    return "".join(f"; {steps}: {group}" for steps, group in zip(ends, groups, strict=True))


def data_line(row: Mapping[str, Any]) -> str:
    """One line on data of a run: its name, how much of it there is, without zeros, and where it lies."""
    counts = row["counts"]
    names = [name for name in _COUNTS_SHOWN if name in counts] or [name for name in counts if counts[name]]
    amounts = [f"{counts[name]:,} {name.removeprefix('num_').replace('_', ' ')}" for name in names]
    return f"{row['name']}: {', '.join(amounts)}; at {row['path']}"
