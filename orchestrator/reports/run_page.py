"""The page of one run: what came out, how it learned, where it errs, what it was made with, how to make it again."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from bert_core.objectives import OBJECTIVES
from bert_core.objectives.base import PERPLEXITY
from orchestrator.measurements import is_of_the_machine
from orchestrator.progress import duration
from orchestrator.registry.groups.scored_trials import choice_words, scored_trials
from orchestrator.registry.place_tags import is_internal
from orchestrator.registry.run_differences import make_of
from orchestrator.reports.blocks import Block, Code, Facts, Page, Row, Section, Table, Words
from orchestrator.reports.charts import learning_curves
from orchestrator.reports.lineage_chart import lineage_chart
from orchestrator.reports.make_facts import make_lines
from orchestrator.reports.prediction_charts import prediction_blocks
from orchestrator.reports.run_facts import TEST, attempt_line, changed_spec, data_line, score_lines
from orchestrator.reports.sweep_sections import sweep_sections
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    from orchestrator.registry.records import RunRecord
    from orchestrator.registry.registry import Registry

_FIRST = (*(name for objective in OBJECTIVES.values() for name in objective.curve_names), PERPLEXITY)
"""Names of measurements whose curves stand first."""
_STAGE_COLUMNS = ("stage", "kind", "state", "metric", "score", "took", "run")


def run_page(registry: "Registry", run: "RunRecord", more: Mapping[str, str] | None = None) -> Page:
    """Make the page of a run, a trial, a sweep or a pipeline.

    Args:
        more: further facts for the result, by their names.
    """
    subtitle = f"{run.kind} {run.id}, {run.state}, made {run.created_at:%Y-%m-%d %H:%M} UTC"
    stages = list(reversed(registry.stages(run.id))) if run.kind == "pipeline" else []
    trials = registry.trials.table(run.id).records
    sections = [
        Section("Result", _result(registry, run, more or {}, trials)),
        Section("Stages", [Table(_STAGE_COLUMNS, [_stage_row(registry, stage) for stage in stages])]),
        *sweep_sections(registry, run, trials),
        *(section for stage in stages for section in _stage_sections(registry, stage)),
        Section("How it learned", _curves(registry, run)),
        *(Section(f"How {_stage_name(stage)} learned", _curves(registry, stage)) for stage in stages),
        Section("Where it errs", _errors(registry, run)),
        Section("Where its model comes from", _lineage(registry, run)),
        Section("Made with", [Facts(_provenance(registry, run))]),
        Section("Make it again", _spec_blocks(run)),
    ]
    return Page(run.name, subtitle, sections)


def _stage_sections(registry: "Registry", stage: "RunRecord") -> Iterator[Section]:
    """Yield the sections on the trials of a pipeline's stage, under its name."""
    for section in sweep_sections(registry, stage, registry.trials.table(stage.id).records):
        yield Section(f"{_stage_name(stage)}: {section.heading}", section.blocks)


def _stage_name(stage: "RunRecord") -> str:
    return stage.name.rpartition("/")[2]


def _stage_row(registry: "Registry", stage: "RunRecord") -> dict[str, Any]:
    return {
        "stage": _stage_name(stage),
        "kind": stage.kind,
        "state": str(stage.state),
        "metric": stage.metric,
        "score": registry.metrics.latest(stage.id).get(str(stage.metric)),
        "took": None if stage.seconds is None else duration(stage.seconds),
        "run": stage.id,
    }


def _result(registry: "Registry", run: "RunRecord", more: Mapping[str, str], trials: Sequence[Row]) -> list[Block]:
    values = registry.metrics.latest(run.id)
    refusal = registry.test_refusals([run.id]).get(run.id)
    is_of_the_best = run.state == RunState.COMPLETED and run.metric is not None and run.parent_id is None
    choice = choice_words(len(scored_trials(trials, str(run.metric)))) if is_of_the_best else ""
    facts = {
        "state": str(run.state),
        "why it ended": run.error or "",
        "task": run.task or "",
        "tags": ", ".join(tag for tag in registry.tags(run.id) if not is_internal(tag)),
        "took": "" if run.seconds is None else duration(run.seconds),
        **more,
        **score_lines(values, run.metric, refusal, choice),
        "model": run.model_folder or "",
        "registered as": ", ".join(model.label for model in registry.models.left_by(run)),
    }
    blocks: list[Block] = [Facts({name: text for name, text in facts.items() if text})]
    if choice:
        has_test = any(name.startswith(TEST) for name in values)
        tested = f" Nothing was chosen on the test data of the scores {TEST}*." if has_test and not refusal else ""
        blocks.append(
            Words(
                "The scores on the validation data are those of the trial that did best on these very data: a little "
                f"flattering.{tested} The groups below tell how much of it was luck."
            )
        )
    return blocks


def _curves(registry: "Registry", run: "RunRecord") -> list[Block]:
    """Each measurement over the steps, its splits as lines of one chart; those of the objectives first."""
    lines: dict[str, dict[str, list[tuple[int, float | None]]]] = defaultdict(lambda: defaultdict(list))
    for row in registry.metrics.history_table(run.id).records:
        lines[row["name"]][row["split"]].append((row["step"], row["value"]))

    def order(name: str) -> tuple[bool, int, bool, str]:
        return name not in _FIRST, _FIRST.index(name) if name in _FIRST else 0, is_of_the_machine(name), name

    return [
        learning_curves(name, lines[name], log=name == PERPLEXITY)
        for name in sorted(lines, key=order)
        if any(len(points) > 1 for points in lines[name].values())
    ]


def _lineage(registry: "Registry", run: "RunRecord") -> list[Block]:
    """Drawing of what the model was made of that a run has registered last."""
    models = registry.models.left_by(run)
    return [lineage_chart(registry.lineage.ancestors(models[0].label))] if models else []


def _errors(registry: "Registry", run: "RunRecord") -> Sequence[Block]:
    return prediction_blocks(run.predictions_path) if run.predictions_path else []


def _provenance(registry: "Registry", run: "RunRecord") -> dict[str, str]:
    facts = {f"data {n}": data_line(row) for n, row in enumerate(registry.datasets.table(run.id).records, 1)}
    facts |= {f"attempt {one.number}": attempt_line(one) for one in registry.attempts(run.id)}
    facts |= {name: line for name, line in make_lines(make_of(registry, run)).items() if line}
    if run.storage_path:
        facts["folder"] = run.storage_path
    return facts


def _spec_blocks(run: "RunRecord") -> list[Block]:
    """The spec to copy, first without what has its default, then whole; and the commands that carry it out."""
    if run.parent_id is not None:
        return [Words(f"This is a trial of run {run.parent_id}. Its own settings:"), Code(_as_yaml(dict(run.spec)))]
    return [
        Words("Save this as spec.yaml; fields that are not here have their defaults."),
        Code(_as_yaml(changed_spec(run))),
        Code("orchestrator plan spec.yaml\norchestrator run spec.yaml"),
        Words("Every field, as it was recorded:"),
        Code(_as_yaml(dict(run.spec))),
    ]


def _as_yaml(values: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
    return text
