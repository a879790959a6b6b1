"""Notes on a group in words: all that its mean does not say, the doubtful first."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.cells import setting_cell
from orchestrator.measurements import is_direction_known
from orchestrator.registry.groups.group_keys import group_label
from orchestrator.registry.groups.group_records import GroupRecord, SeedScore
from orchestrator.registry.groups.model_origins import origin_sentence
from orchestrator.run_states import RunState

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
    yield from _refused_tests(group)
    counts = {
        "failed": group.num_in(RunState.FAILED),
        "pruned": group.num_in(RunState.PRUNED),
        "collapsed": group.num_collapsed,
        "NaN": group.num_nan,
        "not finished": group.num_unfinished,
    }
    told = [f"{number} {name}" for name, number in counts.items() if number]
    if told:
        yield f"of {len(group.runs)} runs {', '.join(told)}"
    yield from _repeats(group)
    if alike:
        yield f"the same was run with other code, too: {_listed(list(map(group_label, alike)))}"
    if group.pooled_versions:
        versions = [version or "not recorded" for version in group.pooled_versions]
        yield f"runs of {len(versions)} versions of the code taken together: {_listed(versions)}"
    if not is_direction_known(group.metric):
        yield f"whether a larger {group.metric} is better is not known: it is ranked so"
    if not group.refusal and (group.kind == "evaluate" or "trained" in (group.origin or "")):
        yield origin_sentence(group.origin, "its model", "these data")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_LONGEST_LIST]) + (", …" if len(names) > _LONGEST_LIST else "")


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


def noise_sentence(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Sentence on rankings without intervals; None where every ranking has them.

    Args:
        rows: records of the leaderboard that are shown.
    """
    known = {
        (row["task"], row["metric"], row["split"], row["data"]): row["low"] is not None for row in rows if row["n"]
    }
    if all(known.values()):
        return None
    tasks = {task for (task, *_), is_known in known.items() if not is_known}
    where = "" if not any(known.values()) else f" of {', '.join(sorted(tasks))}"
    return (
        f"no group{where} has several seeds that differ: how much a seed matters is not known, so no interval is told"
    )


def recipe_text(values: Mapping[str, Any]) -> str:
    """Values by path as one text; fields of a recipe by their own names.

    >>> recipe_text({"recipe.epochs": 3.0, "task.max_train_examples": 100})
    'epochs=3 task.max_train_examples=100'
    """
    return " ".join(f"{path.removeprefix('recipe.')}={_setting(value)}" for path, value in values.items())


def _setting(value: Any) -> str:
    return setting_cell(value) if isinstance(value, float) else str(value)
