"""Notes on a group in words: all that its mean does not say, the doubtful first."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from orchestrator.cells import setting_cell
from orchestrator.measurements import is_direction_known
from orchestrator.registry.groups.group_keys import group_label
from orchestrator.registry.groups.group_records import GroupRecord, SeedScore
from orchestrator.registry.groups.model_origins import origin_sentence

_LONGEST_LIST = 3


def group_notes(group: GroupRecord, alike: Sequence[str] = ()) -> Iterator[str]:
    """Yield what a reader of the group's mean has to know.

    Args:
        alike: keys of groups that differ from it in the version of the code alone.
    """
    if group.refusal:
        yield f"score refused: {group.refusal}"
    elif not group.seeds:
        yield "no run completed with a score"
    elif len(group.seeds) == 1:
        yield "one seed: noise not known"
    elif not group.shows_noise:
        yield f"all {len(group.seeds)} seeds score the same: noise not known"
    yield from _refused_tests(group)
    counts = {
        "failed": group.num_failed,
        "pruned": group.num_pruned,
        "collapsed": group.num_collapsed,
        "NaN": group.num_nan,
        "not finished": group.num_unfinished,
    }
    told = [f"{number} {name}" for name, number in counts.items() if number]
    if told:
        yield f"of {len(group.runs)} runs {', '.join(told)}"
    yield from _repeats(group)
    if alike:
        named = ", ".join(group_label(key) for key in alike[:_LONGEST_LIST]) + (
            ", …" if len(alike) > _LONGEST_LIST else ""
        )
        yield f"the same was run with other code, too: {named}"
    if not is_direction_known(group.metric):
        yield f"whether a larger {group.metric} is better is not known: it is ranked so"
    if not group.refusal and (group.kind == "evaluate" or "trained" in (group.origin or "")):
        yield origin_sentence(group.origin, "its model", "these data")


def _refused_tests(group: GroupRecord) -> Iterator[str]:
    """Yield why test scores of runs are refused, and of how many where others are shown."""
    num_tested = sum(run.test is not None for run in group.runs)
    for reason, number in Counter(run.test_refusal for run in group.runs if run.test_refusal).items():
        which = "test score" if number == num_tested else f"{number} of {num_tested} test scores"
        yield f"{which} refused: {reason}"


def _repeats(group: GroupRecord) -> Iterator[str]:
    """Yield how often seeds ran, those that came out otherwise first."""
    others = [seed for seed in group.repeats if seed.spread]
    same = [seed for seed in group.repeats if not seed.spread]
    if others:
        widest = max(seed.spread for seed in others)
        yield f"{_ran(others)}, scores differ by {widest:.2g} although nothing else does"
    if same:
        yield f"{_ran(same)}, same score"


def _ran(seeds: Sequence[SeedScore]) -> str:
    if len(seeds) == 1:
        named = "run" if seeds[0].seed is None else f"seed {seeds[0].seed} run"
        return f"{named} {len(seeds[0].runs)} times"
    return f"{len(seeds)} seeds run up to {max(len(seed.runs) for seed in seeds)} times"


def choice_sentence(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Sentence on what scores of trials and students were chosen on; None of evaluations alone.

    Args:
        rows: records of the leaderboard that are shown.
    """
    rows = [row for row in rows if row["kind"] != "evaluate"]
    if not rows:
        return None
    sizes = sorted({row["num_ranked"] for row in rows})
    best = f"the best of {'up to ' if len(sizes) > 1 else ''}{sizes[-1]} groups"
    of_many = f"; the first place was chosen on them, too: {best}" if sizes[-1] > 1 else ""
    tested = "; no step was chosen on `test`" if any(row["test"] is not None for row in rows) else ""
    return f"scores are on the validation data on which the best step of each trial was chosen{of_many}{tested}"


def recipe_text(values: Mapping[str, Any]) -> str:
    """Values by path as one text; fields of a recipe by their own names.

    >>> recipe_text({"recipe.epochs": 3.0, "task.max_train_examples": 100})
    'epochs=3 task.max_train_examples=100'
    """
    return " ".join(f"{path.removeprefix('recipe.')}={_setting(value)}" for path, value in values.items())


def _setting(value: Any) -> str:
    return _float_text(value) if isinstance(value, float) else str(value)


_float_text = lru_cache(maxsize=10_000)(setting_cell)
"""A few numbers stand in the texts of all groups of a board."""
