"""Pages of a run, of several runs side by side, and of a task with its ranking; the curves of a run as a picture."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from bert_core.objectives import OBJECTIVES
from bert_core.objectives.base import PERPLEXITY
from orchestrator.base.console import counted, duration
from orchestrator.base.errors import InputError, NotFoundError
from orchestrator.base.formatting import cell, field_cell, short_values
from orchestrator.base.metric_names import best_first, is_better_lower, is_of_the_machine, score_bounds
from orchestrator.registry.group_records import GroupRecord, replicate_text, scored_trials
from orchestrator.registry.leaderboard import SHOWN_DIGITS, noise_among, ranking_sentences, recipe_text, trial_groups
from orchestrator.registry.parameters import group_code, group_label, is_source_digest, varied_parameters
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.reports.charts import (
    MIN_TRIALS,
    Spread,
    draw_curves,
    importances,
    learning_curves,
    score_by_setting,
    seed_spread,
    setting_importances,
)
from orchestrator.reports.mistake_blocks import prediction_blocks
from orchestrator.reports.page_blocks import Block, Chart, Code, Facts, Page, Row, Section, Table, Words, run_cell
from orchestrator.reports.run_differences import TITLES, is_same, run_sections, value_text
from orchestrator.reports.run_facts import TEST, RunFacts, changed_spec, stages_text
from orchestrator.significance.summary import summarize
from orchestrator.storage import write_bytes

FIRST = (*(name for objective in OBJECTIVES.values() for name in objective.curve_names), PERPLEXITY)
"""Names of measurements whose curves stand first."""
_MOST_CURVES = 30
"""Lines of a chart of learning curves at most: the best trials'."""
_MOST_GROUPS = 30
_PARAMETER = "params."
MAX_RUNS = 20
"""Runs side by side at most: more lines cannot be told apart."""
_OF_EXECUTION = ("execution.", "name", "tags")
_WHOLE_SECTIONS = ("scores", "speed")
"""Sections of a comparison that show equal fields, too."""
_MOST_ROWS = 200
"""Groups of each ranking in its table; its picture has as many as `_MOST_GROUPS`."""
_RANKING_COLUMNS = (
    *("rank", "may_be_best", "mean", "low", "high", "sd", "n", "best", "baseline", "test"),
    *("init_from", "size", "recipe", "notes", "model", "run", "group"),
)
_IF_DIFFERENT = ("n", "baseline", "init_from", "size", "notes")
_RANKING_ORDER = (
    "Ranked by the worse end of the mean's 95 % interval, by the noise of seeds over all groups. A group may be the "
    "best where the best mean is not significantly better (multiple comparisons with the best, at 95 %)."
)
PICTURE_ENDINGS = (".png", ".svg", ".pdf")
_PANELS = (*FIRST, "tokens_per_s", "learning_rate")
"""Measurements that are drawn where a run has some of them; of another run all are."""


def run_page(registry: Registry, run: RunRecord, home: Path | None = None) -> Page:
    """Make the page of a run, a trial, a sweep or a pipeline.

    Args:
        home: folder with the table of prices.
    """
    facts = RunFacts(registry, run, home)
    sections = [
        Section("Result", _result(facts)),
        Section("Stages", [_stage_table(facts)]),
        *_sweep_sections(registry, run, facts.trials),
        *(
            Section(f"{facts.stage_names[stage.id]}: {section.heading}", section.blocks)
            for stage in facts.stages
            for section in _sweep_sections(registry, stage, registry.trials.table(stage.id).records)
        ),
        Section("How it learned", curve_charts(registry, {"": run})),
        *(
            Section(f"How {name} learned", curve_charts(registry, {"": stage}))
            for stage, name in zip(facts.stages, facts.stage_names.values(), strict=True)
        ),
        Section("Where it errs", prediction_blocks(run.predictions_path) if run.predictions_path else []),
        Section(
            "Where its model comes from",
            [Code("\n".join(registry.lineage.tree(facts.models[0].label).lines()))] if facts.models else [],
        ),
        Section("Made with", [_facts(facts.data_lines | facts.attempt_lines | facts.make_lines)]),
        Section("Make it again", _spec_blocks(run)),
    ]
    return Page(run.name, f"{run.kind} {run.id}, {run.state}, made {run.created_at:%Y-%m-%d %H:%M} UTC", sections)


def _facts(values: Mapping[str, Any]) -> Facts:
    shown = {name: value for name, value in values.items() if value not in (None, "", [])}
    return Facts({name: v if isinstance(v, str) else field_cell(name, v) for name, v in shown.items()})


def _result(facts: RunFacts) -> list[Block]:
    blocks: list[Block] = [_facts(facts.outcome | facts.score_lines() | facts.files)]
    if facts.run.metric in facts.values and facts.best_trial and facts.best_trial.choice:
        has_test = any(name.startswith(TEST) for name in facts.values)
        is_honest = has_test and not facts.test_refusal
        tested = f" Nothing was chosen on the test data of the scores {TEST}*." if is_honest else ""
        blocks.append(
            Words(
                "The scores on the validation data are those of the trial that did best on these very data: a little "
                f"flattering.{tested} The groups below tell how much of it was luck."
            )
        )
    return blocks


def _stage_table(facts: RunFacts) -> Table:
    rows = [
        {
            "stage": facts.stage_names[stage.id],
            "state": str(stage.state),
            **{key: getattr(stage, key) for key in ("kind", "metric")},
            "score": facts.registry.metrics.latest(stage.id).get(str(stage.metric)),
            "took": None if stage.seconds is None else duration(stage.seconds),
            "run": run_cell(stage.id),
        }
        for stage in facts.stages
    ]
    return Table(("stage", "kind", "state", "metric", "score", "took", "run"), rows)


def _sweep_sections(registry: Registry, run: RunRecord, records: Sequence[Row]) -> list[Section]:
    """Sections on the trials of a run: which settings did best, which matter, how much is luck; none without trials."""
    if not records:
        return []
    metric = str(run.metric)
    settings, names = _settings(records), _trial_names(records)
    rows = {record["id"]: _trial_row(record, settings, metric, names) for record in records}
    scored = [rows[record["id"]] for record in scored_trials(records, metric)]
    columns = ("number", "state", "score", *settings, "seed", "seconds", "run")
    curves = trial_curves(registry, run, records)
    has_lines = any(len(trace["x"]) > 1 for trace in curves.traces)
    return [
        Section("Luck of the seeds", _spreads(records, settings, metric)),
        Section("Settings", _setting_blocks(scored, settings, metric)),
        Section("Learning curves of the trials", [curves] if has_lines else []),
        Section("Trials", [Table(columns, sorted(rows.values(), key=lambda row: best_first(metric, row["score"])))]),
    ]


def _settings(records: Sequence[Row]) -> list[str]:
    return [name.removeprefix(_PARAMETER) for name in varied_parameters(records)]


def _trial_row(record: Row, settings: Sequence[str], metric: str, names: Mapping[str, str]) -> dict[str, Any]:
    values = {name: record.get(_PARAMETER + name) for name in settings}
    return {
        "trial": names[record["id"]],
        "run": run_cell(record["id"]),
        "state": str(record["state"]),
        "score": record.get(f"metrics.{metric}"),
        **{key: record[key] for key in ("number", "seed", "seconds")},
        **{name: str(value) if isinstance(value, list) else value for name, value in values.items()},
    }


def _trial_names(records: Sequence[Row]) -> dict[str, str]:
    """Names of trials by their ids: number, settings that vary, seed and fold."""
    return {
        record["id"]: ", ".join(filter(None, (f"trial {record['number']}", settings, replicate_text(record))))
        for record, settings in zip(records, _setting_texts(records, _settings(records)), strict=True)
    }


def _setting_texts(rows: Sequence[Mapping[str, Any]], settings: Sequence[str]) -> list[str]:
    """Text of the settings of each of some trials or groups: `init_from random, learning_rate 0.001`."""
    columns = [(name, short_values(row.get(_PARAMETER + name) for row in rows)) for name in settings]
    return [", ".join(f"{name} {texts[place]}" for name, texts in columns) for place in range(len(rows))]


def _spreads(records: Sequence[Row], settings: Sequence[str], metric: str) -> list[Block]:
    """The groups of trials that differ only in seed and fold, in the order of the leaderboard."""
    groups = trial_groups(records, metric)
    has_several_codes = len({group_code(group.key) for group in groups}) > 1
    summaries = [summarize(group.scores) for group in groups]
    noise = noise_among(groups)
    shown = []
    labels = _setting_texts([group.parameters for group in groups], settings)
    for group, summary, label in zip(groups[:_MOST_GROUPS], summaries, labels, strict=False):
        code = f", code {group_code(group.key)}" if has_several_codes else ""
        interval = noise and noise.interval(summary, score_bounds(metric))
        shown.append(Spread((label or "all trials") + code, group.scores, summary.mean, interval))
    blocks: list[Block] = [seed_spread(shown, metric)] if shown else []
    if len(groups) > len(shown):
        blocks.append(Words(f"The best {len(shown)} of {len(groups)} groups."))
    return blocks


def _setting_blocks(rows: Sequence[Row], settings: Sequence[str], metric: str) -> list[Block]:
    """Charts of the scores over the settings that were varied."""
    if not settings or not rows:
        return []
    blocks: list[Block] = []
    shares = setting_importances(rows, settings, larger_is_better=not is_better_lower(metric))
    if shares:
        blocks.append(importances(shares))
    elif len(rows) < MIN_TRIALS:
        blocks.append(Words(f"With fewer than {MIN_TRIALS} scored trials no importance of a setting is estimated."))
    return [*blocks, *(score_by_setting(rows, name, metric) for name in settings)]


def trial_curves(registry: Registry, run: RunRecord, records: Sequence[Row]) -> Chart:
    """The score of the best trials over their steps, the best trial first."""
    metric, names = str(run.metric), _trial_names(records)
    lines = {}
    for record in scored_trials(records, metric)[:_MOST_CURVES]:
        history = registry.metrics.history(record["id"], f"validation.{metric}").records
        if history:
            lines[names[record["id"]]] = [(point["step"], point["value"]) for point in history]
    return learning_curves(metric, lines)


def curve_charts(registry: Registry, runs: Mapping[str, RunRecord], *, min_points: int = 2) -> list[Chart]:
    """Each measurement of some runs over the steps: a line for each split, and of several runs for each run's label.

    Args:
        min_points: points that some line of a chart has at least.
    """
    lines: dict[str, dict[str, list[tuple[int, float | None]]]] = defaultdict(lambda: defaultdict(list))
    for label, run in runs.items():
        for row in registry.metrics.history(run.id).records:
            line = f"{label}, {row['split']}" if len(runs) > 1 else row["split"]
            lines[row["name"]][line].append((row["step"], row["value"]))

    def order(name: str) -> tuple[bool, int, bool, str]:
        return name not in FIRST, FIRST.index(name) if name in FIRST else 0, is_of_the_machine(name), name

    return [
        learning_curves(name, lines[name], log=name == PERPLEXITY)
        for name in sorted(lines, key=order)
        if max(map(len, lines[name].values())) >= min_points
    ]


def _spec_blocks(run: RunRecord) -> list[Block]:
    """Spec to copy, without its defaults and in full, and the commands that run it."""
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


def comparison_page(registry: Registry, runs: Sequence[RunRecord]) -> Page:
    """Make the page of some runs; names that are not unique get their ids."""
    names = [run.name for run in runs]
    labels = [run.name if names.count(run.name) == 1 else f"{run.name} ({run.id[:6]})" for run in runs]
    headings = {f"run {number}": label for number, label in enumerate(labels)}
    rows = [
        {"name": run_cell(run.id, label), "kind": run.kind, "state": str(run.state), "task": run.task}
        for run, label in zip(runs, labels, strict=True)
    ]
    refusals = registry.test_refusals([run.id for run in runs])
    refused = [Words(f"The test score of {run_id} is refused: {why}.") for run_id, why in refusals.items()]
    of_each = [run_sections(RunFacts(registry, run)) for run in runs]
    tables = {name: _side_by_side(name, [sections[name] or {} for sections in of_each], headings) for name in TITLES}
    return Page(
        f"{len(runs)} runs side by side",
        ", ".join(run.id for run in runs),
        [
            Section("Runs", [Table(("name", "kind", "state", "task"), rows), *refused]),
            *(Section(TITLES[name], [tables[name]]) for name in TITLES if name != "run"),
            Section("Curves", curve_charts(registry, dict(zip(labels, runs, strict=True)))),
        ],
    )


def _side_by_side(section: str, of_each: Sequence[Mapping[str, Any]], headings: Mapping[str, str]) -> Table:
    """The fields of a section that differ between runs, a row each with a column for each run."""
    rows = []
    for field in dict.fromkeys(field for fields in of_each for field in fields):
        if is_source_digest(field) or (section == "spec" and field.startswith(_OF_EXECUTION)):
            continue
        values = [fields.get(field) for fields in of_each]
        if section in _WHOLE_SECTIONS or any(not is_same(values[0], value) for value in values[1:]):
            texts = [value if section in _WHOLE_SECTIONS else value_text(value, section) for value in values]
            rows.append({"field": field, **dict(zip(headings, texts, strict=True))})
    return Table(("field", *headings), rows, headings)


def task_page(registry: Registry, task: str) -> Page:
    """Make the page of a task that has been tried."""
    records = registry.leaderboard(task, limit=_MOST_ROWS).records
    drawn = [row["run"] for row in records if row["mean"] is not None and row["rank"] <= _MOST_GROUPS]
    shown = registry.groups_of(drawn, archived=False)
    groups = {(group.key, group.metric, (group.data or "")[:SHOWN_DIGITS]): group for group in shown}
    num_archived = registry.num_ranked_archived(task)
    left_out = f"; {counted(num_archived, 'archived run')} left out" if num_archived else ""
    sections, num_groups = [], 0
    for (metric, split, data), some in groupby(records, key=lambda row: (row["metric"], row["split"], row["data"])):
        ranking = [dict(row, may_be_best="≈" if row["may_be_best"] and row["rank"] > 1 else "") for row in some]
        num_groups += ranking[0]["num_ranked"]
        on_data = f", data {data}" if data else ""
        sections.append(Section(f"{metric} on {split}{on_data}", _ranking_blocks(ranking, groups, metric)))
    return Page(f"Task {task}", f"{num_groups} groups of runs that differ only in their seed{left_out}", sections)


def _ranking_blocks(
    ranking: list[dict[str, Any]], groups: dict[tuple[str, str, str], GroupRecord], metric: str
) -> list[Block]:
    """The spread of the best groups as a picture, then all of them as a table."""
    scored = [row for row in ranking if row["mean"] is not None][:_MOST_GROUPS]
    found = [(groups.get((row["group"], row["metric"], row["data"] or "")), row) for row in scored]
    spreads = [_spread(group, row) for group, row in found if group is not None]  # one may be gone meanwhile
    chart: list[Block] = [seed_spread(spreads, metric)] if spreads else []
    words: list[Block] = [Words(_RANKING_ORDER)]
    for sentence in ranking_sentences(ranking):
        words.append(Words(f"{sentence[0].upper()}{sentence[1:]}."))
    if ranking[0]["num_ranked"] > len(ranking):
        words.append(Words(f"The first {len(ranking)} of {ranking[0]['num_ranked']} groups."))
    rows = [row | {"group": group_label(row["group"]), "run": row["run"] and run_cell(row["run"])} for row in ranking]
    columns, same = telling_columns(rows)
    if same:
        told = ", ".join(f"{name} {cell(rows[0][name])}" for name in same)
        words.append(Words(f"The same in all groups: {told}."))
    return [*chart, *words, Table(columns, rows)]


def telling_columns(ranking: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Columns with values to show, and those with one value in all groups, for which a sentence needs less room."""
    first, *others = ranking
    full = [name for name in _RANKING_COLUMNS if any(row[name] not in (None, "") for row in ranking)]
    same = [
        name for name in full if name in _IF_DIFFERENT and others and all(row[name] == first[name] for row in others)
    ]
    one_seed_each = all(row["best"] == row["mean"] for row in ranking)
    return [name for name in full if name not in same and not (name == "best" and one_seed_each)], same


def _spread(group: GroupRecord, row: dict[str, Any]) -> Spread:
    values = {name: row[name] for name in ("init_from", "size") if row[name] is not None}
    label = f"{row['rank']}. {recipe_text(values)} {row['recipe'] or ''}".strip()
    interval = None if row["low"] is None else (row["low"], row["high"])
    return Spread(label, group.scores, row["mean"], interval)


def plot_run(registry: Registry, run: RunRecord, output: str) -> None:
    """Draw a run into a PNG, SVG or PDF file. Raises: InputError, NotFoundError when there is nothing to draw."""
    if Path(output).suffix not in PICTURE_ENDINGS:
        raise InputError(f"{output} should end in {', '.join(PICTURE_ENDINGS)}, which says what is drawn")
    shown = _panels(registry, run)
    if not shown:
        others = stages_text(stage for stage in RunFacts(registry, run).stages if _panels(registry, stage))
        raise NotFoundError(f"run {run.id} ({run.kind}, {run.state}) has no measurements over steps to draw{others}")
    write_bytes(output, draw_curves(shown, f"{run.name} ({run.id})", Path(output).suffix[1:]))


def _panels(registry: Registry, run: RunRecord) -> list[Chart]:
    trials = registry.trials.table(run.id).records
    charts = [trial_curves(registry, run, trials)] if trials else curve_charts(registry, {"": run}, min_points=1)
    return [chart for chart in charts if chart.title in _PANELS] or [chart for chart in charts if chart.traces]
