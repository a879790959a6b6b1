"""Summary of a completed sweep: its groups of trials as a table, the best trial, and what it gained."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from orchestrator.base.console import duration
from orchestrator.base.console.tables import Column, fitting, plain_lines
from orchestrator.base.formatting import short_value, short_values
from orchestrator.base.metric_names import BASELINE
from orchestrator.finetuning.sweep_progress import values_text
from orchestrator.registry.group_records import replicate_text, scored_trials
from orchestrator.registry.leaderboard import noise_among, trial_groups
from orchestrator.registry.parameters import group_code, varied_parameters
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.significance.ranking import SeedNoise
from orchestrator.significance.summary import Summary, summarize
from orchestrator.specs.references import RANDOM

_MOST_ROWS = 10
_WIDTH = 80
"""Characters of a line of the table at most."""
_INDENT = "  "
_PARAMETER = "params."
_CODE = "version of the code"
"""Heading of the column that tells groups of different code apart."""


def difference_text(value: float, half_width: float | None, remedy: str) -> str:
    """Text of a difference of two means, and whether it is more than the noise of seeds.

    Args:
        half_width: half of its 95 % interval; None where no group of the sweep shows how much seeds matter.
        remedy: override that has each recipe trained with several seeds; empty where each was.
    """
    if half_width is None:
        return f"{value:+.4f}; seed noise not known{remedy and f'; several seeds show it: {remedy}'}"
    verdict = "more" if abs(value) > half_width else "not more"
    return f"{value:+.4f} ± {half_width:.4f} (95 %), {verdict} than seed noise"


def sweep_summary(run: RunRecord, registry: Registry) -> Iterator[str]:
    """Yield the result in one line, then the groups as a table, the best trial's values, and what they gain."""
    trials, metric = registry.trials.table(run.id).records, str(run.metric)
    scored = scored_trials(trials, metric)
    if not scored:
        return
    best, score = scored[0], f"metrics.{metric}"
    folds, took = best.get("params.folds"), f" after {duration(run.seconds or 0.0)}"
    varied = [name.removeprefix(_PARAMETER) for name in varied_parameters(scored)]
    groups = trial_groups(scored, metric)
    if not groups:
        yield f"no seed of {run.task} was scored on all of its {folds} folds{took}"
        return
    summaries = [summarize(group.scores) for group in groups]
    baselines = [one.baseline for one in groups[0].runs if one.baseline is not None]
    baseline = best.get(f"metrics.{BASELINE}{metric}") if not folds else fmean(baselines) if baselines else None
    shown, whose = best[score], "its trial" if len(trials) == 1 else f"the best of {len(trials)} trials"
    if folds:
        seeds = f" and {summaries[0].n} seeds" if summaries[0].n > 1 else ""
        first = f", the first of {len(groups)} groups" if len(groups) > 1 else ""
        shown, whose = summaries[0].mean, f"the mean over {folds} folds{seeds}{first}"
    beside = "" if baseline is None else f" (baseline {baseline:.4f})"
    yield f"{metric} {shown:.4f} on {run.task} by {whose}{beside}{took}"
    has_several_codes = len({group_code(row["group"]) for row in scored}) > 1
    texts = {name: short_values(group.parameters.get(_PARAMETER + name) for group in groups) for name in varied}
    values = [
        {name: column[place] for name, column in texts.items()}
        | ({_CODE: group_code(group.key)} if has_several_codes else {})
        for place, group in enumerate(groups)
    ]
    yield from _table(values, summaries, metric)
    named = ", ".join(
        [*(f"{name} {short_value(best.get(_PARAMETER + name))}" for name in varied), replicate_text(best)]
    )
    yield f"best: trial {best['number']} ({named}), {metric} {best[score]:.4f}"
    if all(one.id != best["id"] for one in groups[0].runs):
        yield f"first group: {values_text(values[0])}; groups stand by the worse end of their interval"
    starts_at_random = [group.parameters.get(f"{_PARAMETER}init_from") == RANDOM for group in groups]
    yield from _gains(summaries, noise_among(groups), starts_at_random, baseline)


def _table(values: Sequence[Mapping[str, str]], summaries: Sequence[Summary], metric: str) -> Iterator[str]:
    """The groups as the lines of a table, the best ones; of what varies as many columns as fit.

    Args:
        values: of each group the values that set it apart from others, as text, by field; in the leaderboard's order.
    """
    if len(summaries) == 1 and summaries[0].n == 1:
        return
    shown = summaries[:_MOST_ROWS]
    varied = [Column(name, (name, *(texts[name] for texts in values[:_MOST_ROWS]))) for name in values[0]]
    numbers = {
        f"mean {metric}": [f"{one.mean:.4f}" for one in shown],
        "sd": ["–" if one.sd is None else f"{one.sd:.4f}" for one in shown],
        "seeds": [str(one.n) for one in shown],
    }
    columns = [*varied, *(Column(name, (name, *texts), is_number=True) for name, texts in numbers.items())]
    spare = [column.name for column in reversed(varied)]
    fit = fitting(columns, _WIDTH - len(_INDENT), spare, may_fold=False) or columns[len(varied) :]
    yield from (_INDENT + line for line in plain_lines(fit))
    if len(summaries) > len(shown):
        yield f"{_INDENT}and {len(summaries) - len(shown)} more groups"
    if left_out := [column.name for column in varied if column not in fit]:
        yield f"{_INDENT}which differ in {', '.join(left_out)} as well"


def _gains(
    groups: Sequence[Summary], noise: SeedNoise | None, starts_at_random: Sequence[bool], baseline: float | None
) -> Iterator[str]:
    """Lines on the best group's mean beside the majority baseline, random weights and the next group."""
    best = groups[0]
    remedy = "seeds=[0,1,2]" if all(group.n == 1 for group in groups) else ""
    if baseline is not None:
        gain = difference_text(best.mean - baseline, noise and noise.of_mean(best).half_width(), remedy)
        yield f"beside the majority baseline ({baseline:.4f}): {gain}"
    if starts_at_random[0] and not all(starts_at_random):
        yield "random weights did best"
    at_random = starts_at_random.index(True) if True in starts_at_random else 0
    others = [(at_random, "random weights"), *([] if at_random == 1 else [(1, "the next group")])]
    for place, what in others:
        if 0 < place < len(groups):
            other = groups[place]
            half_width = noise and noise.of_difference(best, other).half_width()
            yield f"beside {what} ({other.mean:.4f}): {difference_text(best.mean - other.mean, half_width, remedy)}"
    if len(groups) > 1 and noise is not None:
        yield (
            "the noise of seeds is pooled over all groups here; `orchestrator compare` tests two groups by their own "
            "seeds alone, and may need more of them"
        )
