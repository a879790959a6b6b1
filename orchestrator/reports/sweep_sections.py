"""Sections of a page on a sweep's trials: which settings did best, which matter, and how much of it is luck."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.cells import short_value
from orchestrator.measurements import best_first, is_better_lower, score_bounds
from orchestrator.registry.groups.group_keys import group_code
from orchestrator.registry.groups.scored_trials import scored_groups, scored_trials
from orchestrator.registry.groups.varying_paths import varied_parameters
from orchestrator.reports.blocks import Block, Row, Section, Table, Words
from orchestrator.reports.charts import Spread, learning_curves, seed_spread
from orchestrator.reports.setting_charts import importances, parallel_coordinates, score_by_setting
from orchestrator.reports.setting_importance import METHOD, MIN_TRIALS, setting_importances
from orchestrator.significance.summary import summarize

if TYPE_CHECKING:
    from orchestrator.registry.records import RunRecord
    from orchestrator.registry.registry import Registry

_MOST_CURVES = 30
"""Lines of a chart of learning curves at most: the best trials'."""
_MOST_GROUPS = 30
_PARAMETER = "params."


def sweep_sections(registry: "Registry", run: "RunRecord", records: Sequence[Row]) -> list[Section]:
    """Sections on the trials of a run, whose records `registry.trials.table` gives; none of a run without trials."""
    if not records:
        return []
    metric = str(run.metric)
    settings = [name.removeprefix(_PARAMETER) for name in varied_parameters(records)]
    names = _trial_names(records, settings)
    rows = [_row(record, settings, metric, names) for record in records]
    scored = [_row(record, settings, metric, names) for record in scored_trials(records, metric)]
    columns = ("number", "state", "score", *settings, "seed", "seconds", "run")
    return [
        Section("Luck of the seeds", _spreads(records, settings, metric)),
        Section("Settings", _settings(scored, settings, metric)),
        Section("Learning curves of the trials", _curves(registry, scored, metric)),
        Section("Trials", [Table(columns, sorted(rows, key=lambda row: best_first(metric, row["score"])))]),
    ]


def _row(record: Row, settings: Sequence[str], metric: str, names: Mapping[str, str]) -> dict[str, Any]:
    values = {name: record.get(_PARAMETER + name) for name in settings}
    return {
        "trial": names[record["id"]],
        "run": record["id"],
        "number": record["number"],
        "state": str(record["state"]),
        "score": record.get(f"metrics.{metric}"),
        "seed": record["seed"],
        "seconds": record["seconds"],
        **{name: short_value(value) if isinstance(value, str | list) else value for name, value in values.items()},
    }


def _trial_names(records: Sequence[Row], settings: Sequence[str]) -> dict[str, str]:
    """Names of trials by their ids: settings and seed where these vary, the number where nothing else differs."""
    has_seeds = len({record["seed"] for record in records}) > 1
    texts = [
        ", ".join([*_told(record, settings), *([f"seed {record['seed']}"] if has_seeds else [])]) for record in records
    ]
    num_named = Counter(texts)
    return {
        record["id"]: text if text and num_named[text] == 1 else f"{text} (trial {record['number']})".removeprefix(" ")
        for record, text in zip(records, texts, strict=True)
    }


def _told(record: Row, settings: Sequence[str]) -> list[str]:
    """Settings that set a trial apart from others, each by its name."""
    return [f"{name} {short_value(record.get(_PARAMETER + name))}" for name in settings]


def _spreads(records: Sequence[Mapping[str, Any]], settings: Sequence[str], metric: str) -> list[Block]:
    """The groups of trials that differ only in the seed, in the order of the leaderboard."""
    groups = scored_groups(records, metric)
    has_several_codes = len({group_code(group[0]["group"]) for group in groups}) > 1
    bounds = score_bounds(metric)
    shown = []
    for group in groups[:_MOST_GROUPS]:
        label = ", ".join(_told(group[0], settings)) or "all trials"
        code = f", code {group_code(group[0]['group'])}" if has_several_codes else ""
        shown.append(_spread([row[f"metrics.{metric}"] for row in group], label + code, bounds))
    blocks: list[Block] = [seed_spread(shown, metric)] if shown else []
    if len(groups) > len(shown):
        blocks.append(Words(f"The best {len(shown)} of {len(groups)} groups."))
    return blocks


def _spread(scores: Sequence[float], label: str, bounds: tuple[float, float] | None) -> Spread:
    summary = summarize(scores, bounds=bounds)
    interval = None if summary.interval is None else (summary.interval.low, summary.interval.high)
    return Spread(label, scores, summary.mean, interval)


def _settings(rows: Sequence[Row], settings: Sequence[str], metric: str) -> list[Block]:
    """Charts of the scores over the settings that were varied."""
    if not settings or not rows:
        return []
    blocks: list[Block] = []
    shares = setting_importances(rows, settings, larger_is_better=not is_better_lower(metric))
    if shares:
        blocks.append(importances(shares, METHOD))
    elif len(rows) < MIN_TRIALS:
        blocks.append(
            Words(f"With fewer than {MIN_TRIALS} scored trials the importance of a setting is not estimated.")
        )
    if len(settings) > 1:
        blocks.append(parallel_coordinates(rows, settings, metric))
    return [*blocks, *(score_by_setting(rows, name, metric) for name in settings)]


def _curves(registry: "Registry", rows: Sequence[Row], metric: str) -> list[Block]:
    """The score of the best trials over their steps; the best trials stand first."""
    lines = {}
    for row in rows[:_MOST_CURVES]:
        records = registry.metrics.history_table(row["run"], f"validation.{metric}").records
        if len(records) > 1:
            lines[row["trial"]] = [(record["step"], record["value"]) for record in records]
    return [learning_curves(metric, lines)] if lines else []
