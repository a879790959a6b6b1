"""Words on a sweep that has completed: its groups of trials as a table, the best trial, and what it gained."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.errors import BertCoreError
from orchestrator.cells import short_value
from orchestrator.finetuning.model_record import read_saved_definition
from orchestrator.finetuning.sweep_progress import values_text
from orchestrator.progress import duration
from orchestrator.registry.group_records import replicate_text, scored_trials
from orchestrator.registry.leaderboard import trial_groups
from orchestrator.registry.parameters import group_code, varied_parameters
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.registry.tables import PIPELINE
from orchestrator.significance.comparison import seeds_of_each_group
from orchestrator.significance.ranking import SeedNoise
from orchestrator.significance.summary import Summary, summarize
from orchestrator.specs.references import RANDOM
from orchestrator.storage import local_copy


@dataclass(frozen=True)
class Difference:
    """Difference of two means, the first one's minus the second one's."""

    value: float
    half_width: float | None
    """Half of its 95 % interval; None where no group of the sweep shows how much seeds matter."""
    num_seeds_needed: int | None = None
    """Number of seeds of each group that would settle a difference of this size, where it is known."""

    @property
    def is_more_than_noise(self) -> bool | None:
        """Whether the interval leaves out zero; None where there is no interval."""
        return None if self.half_width is None else abs(self.value) > self.half_width

    def words(self, several_seeds: str) -> str:
        """Text of the difference, and of what it says.

        Args:
            several_seeds: override that has each recipe trained with several seeds; empty where each was.
        """
        if self.half_width is None:
            remedy = f"; several seeds show it: {several_seeds}" if several_seeds else ""
            return f"{self.value:+.4f}; seed noise not known{remedy}"
        told = f"{self.value:+.4f} ± {self.half_width:.4f} (95 %)"
        if self.is_more_than_noise:
            return f"{told}, more than seed noise"
        needed = f"; about {self.num_seeds_needed} seeds each would settle it" if self.num_seeds_needed else ""
        return f"{told}, not more than seed noise{needed}"


def compute_difference(first: Summary, second: Summary, noise: SeedNoise | None) -> Difference:
    """Compare two groups by the noise of seeds in their sweep."""
    value = first.mean - second.mean
    if noise is None:
        return Difference(value, None)
    sds = [math.sqrt(noise.of_mean(group).variance * group.n) for group in (first, second)]
    return Difference(value, noise.of_difference(first, second).half_width(), seeds_of_each_group(value, *sds))


def compute_gain(group: Summary, constant: float, noise: SeedNoise | None) -> Difference:
    """Compare a group with a score that has no noise of its own."""
    return Difference(group.mean - constant, noise and noise.of_mean(group).half_width())


_MOST_ROWS = 10
_WIDTH = 80
"""Characters of a line of the table at most."""
_PARAMETER = "params."
_START = "init_from"
_SEVERAL_SEEDS = "seeds=[0,1,2]"
_CODE = "version of the code"
"""Heading of the column that tells groups of different code apart."""


@dataclass(frozen=True)
class TrialGroup:
    """Completed trials that differ only in seed and fold."""

    varied: Mapping[str, str]
    """Values that set the group apart from others, as text, by field."""
    summary: Summary
    """Statistics of its seeds."""
    baseline: float | None
    """Mean score of what needs no reading of the text."""
    starts_at_random: bool
    holds_best: bool
    """Whether the trial with the best score of all is in it."""


def sweep_ending(run: RunRecord, registry: Registry) -> Iterator[str]:
    """Yield the result in one line, then the groups as a table, the best trial's values, and what they gain."""
    trials = registry.trials.table(run.id).records
    score = f"metrics.{run.metric}"
    scored = scored_trials(trials, str(run.metric))
    if not scored:
        return
    best = scored[0]
    folds, took = best.get("params.folds"), f" after {duration(run.seconds or 0.0)}"
    varied = [name.removeprefix(_PARAMETER) for name in varied_parameters(scored)]
    groups = _groups(scored, varied, str(run.metric))
    if not groups:
        yield f"no seed of {run.task} was scored on all of its {folds} folds{took}"
        return
    baseline = groups[0].baseline if folds else best.get(f"metrics.baseline.{run.metric}")
    shown, whose = best[score], "its trial" if len(trials) == 1 else f"the best of {len(trials)} trials"
    if folds:
        seeds = f" and {groups[0].summary.n} seeds" if groups[0].summary.n > 1 else ""
        first = f", the first of {len(groups)} groups" if len(groups) > 1 else ""
        shown, whose = groups[0].summary.mean, f"the mean over {folds} folds{seeds}{first}"
    beside = "" if baseline is None else f" (baseline {baseline:.4f})"
    yield f"{run.metric} {shown:.4f} on {run.task} by {whose}{beside}{took}"
    yield from _table(groups, list(groups[0].varied), str(run.metric))
    values = [f"{name} {short_value(best.get(_PARAMETER + name))}" for name in varied]
    named = ", ".join([*values, replicate_text(best)])
    yield f"best: trial {best['number']} ({named}), {run.metric} {best[score]:.4f}"
    if not groups[0].holds_best:
        yield f"first group: {values_text(groups[0].varied)}; groups stand by the worse end of their interval"
    positive = _positive_label(run)
    if positive is not None:
        yield f"f1 is the score of {positive}, the second label"
    yield from _gains(groups, baseline, _several_seeds(run, registry))


def _several_seeds(run: RunRecord, registry: Registry) -> str:
    """Override that has each recipe trained with several seeds, as it is typed for the spec that was run."""
    for tag in registry.annotations.tags(run.id):
        if tag.startswith(PIPELINE):
            pipeline = registry.run(tag.removeprefix(PIPELINE))
            for key, stage in pipeline.spec["stages"].items():
                if run.name == (stage.get("name") or f"{pipeline.name}/{key}"):
                    return f"stages.{key.partition('.')[0]}.{_SEVERAL_SEEDS}"  # a variant's is set in its stage
    return _SEVERAL_SEEDS


def _positive_label(run: RunRecord) -> str | None:
    """The class whose f1 ranks the trials, as the model that the run has left tells it; None where f1 is of all."""
    if run.metric != "f1" or run.model_folder is None:
        return None
    with suppress(BertCoreError, OSError):  # a run is complete without it, whatever became of the folder
        task = read_saved_definition(local_copy(run.model_folder, skip=(WEIGHTS_FILE,)))
        return None if task is None else task.type.positive_label(task)
    return None


def _groups(rows: Sequence[Mapping[str, Any]], varied: Sequence[str], metric: str) -> list[TrialGroup]:
    """The groups in the order of the leaderboard; where code was changed meanwhile, each tells its own.

    Args:
        rows: scored trials, the best first.
    """
    has_several_codes = len({group_code(row["group"]) for row in rows}) > 1
    return [
        TrialGroup(
            {name: short_value(group.parameters.get(_PARAMETER + name)) for name in varied}
            | ({_CODE: group_code(group.key)} if has_several_codes else {}),
            summarize(group.scores),
            fmean(baselines) if baselines else None,
            group.parameters.get(_PARAMETER + _START) == RANDOM,
            any(run.id == rows[0]["id"] for run in group.runs),
        )
        for group in trial_groups(rows, metric)
        for baselines in [[run.baseline for run in group.runs if run.baseline is not None]]
    ]


def _table(groups: Sequence[TrialGroup], varied: Sequence[str], metric: str) -> Iterator[str]:
    """The groups as the lines of a table, the best ones; of what varies as many columns as fit."""
    if len(groups) == 1 and groups[0].summary.n == 1:
        return
    shown = groups[:_MOST_ROWS]
    summaries = [group.summary for group in shown]
    headings = (f"mean {metric}", "sd", "seeds")
    numbers = [(f"{one.mean:.4f}", "–" if one.sd is None else f"{one.sd:.4f}", str(one.n)) for one in summaries]
    number_widths = [max(map(len, column)) for column in zip(headings, *numbers, strict=True)]
    left = _WIDTH - sum(2 + width for width in number_widths)
    widths: dict[str, int] = {}
    for name in varied:
        width = max(len(name), *(len(group.varied[name]) for group in shown))
        if left >= 2 + width:
            widths[name] = width
            left -= 2 + width

    def line(names: Mapping[str, str], cells: Sequence[str]) -> str:
        texts = [f"{names[name]:<{width}}" for name, width in widths.items()]
        return "  " + "  ".join(
            [*texts, *(f"{cell:>{width}}" for cell, width in zip(cells, number_widths, strict=True))]
        )

    yield line({name: name for name in widths}, headings)
    for group, cells in zip(shown, numbers, strict=True):
        yield line(group.varied, cells)
    if len(groups) > len(shown):
        yield f"  and {len(groups) - len(shown)} more groups"
    if len(widths) < len(varied):
        yield f"  which differ in {', '.join(name for name in varied if name not in widths)} as well"


def _gains(groups: Sequence[TrialGroup], baseline: float | None, several_seeds: str) -> Iterator[str]:
    """Lines on the best group's mean beside the majority baseline, random weights and the next group.

    Args:
        several_seeds: override that has each recipe trained with several seeds.
    """
    best, noise = groups[0], SeedNoise.of([group.summary for group in groups])
    remedy = several_seeds if all(group.summary.n == 1 for group in groups) else ""
    if baseline is not None:
        gain = compute_gain(best.summary, baseline, noise)
        yield f"beside the majority baseline ({baseline:.4f}): {gain.words(remedy)}"
    at_random = next((group for group in groups if group.starts_at_random), None)
    if at_random is best and not all(group.starts_at_random for group in groups):
        yield "random weights did best"
    if at_random is not None and at_random is not best:
        difference = compute_difference(best.summary, at_random.summary, noise)
        yield f"beside random weights ({at_random.summary.mean:.4f}): {difference.words(remedy)}"
    if len(groups) > 1 and groups[1] is not at_random:
        difference = compute_difference(best.summary, groups[1].summary, noise)
        yield f"beside the next group ({groups[1].summary.mean:.4f}): {difference.words(remedy)}"
    if len(groups) > 1 and noise is not None:
        yield (
            "the noise of seeds is pooled over all groups here; `orchestrator compare` tests two groups by their own "
            "seeds alone, and may need more of them"
        )
