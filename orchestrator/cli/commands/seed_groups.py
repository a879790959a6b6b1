"""Command group `groups`: runs that differ only in their seed, listed, shown and compared."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cells import setting_cell
from orchestrator.cli.commands.ranking import no_groups, seeds_text
from orchestrator.cli.commands.registry_reading import group_name, open_registry, tell_archived
from orchestrator.cli.frame import GlobalOptionsGroup
from orchestrator.cli.messages import notify
from orchestrator.cli.output import (
    num_rows_shown,
    show_paragraph,
    show_record,
    show_rows,
    show_table,
    show_text,
    shows_briefly,
)
from orchestrator.cli.reading import current_reading, output_options, reading_options
from orchestrator.measurements import is_better_lower, score_bounds
from orchestrator.progress import counted

if TYPE_CHECKING:
    from orchestrator.registry.group_comparison import Comparison
    from orchestrator.registry.group_records import GroupRecord, GroupRun
    from orchestrator.significance.ranking import SeedNoise

_DECIMALS = 12
"""Decimals of a difference of scores; what comes after them is noise of the processor's arithmetic."""
_PAGE = 30
"""Groups on a terminal; `--limit` gives more of them."""


@click.group(cls=GlobalOptionsGroup)
def groups() -> None:
    """Groups of runs that differ only in their seed."""


@groups.command("list", example="orchestrator groups list sst2")
@click.argument("task", required=False)
@click.option("--archived", is_flag=True, help="Include archived runs.")
@reading_options
def list_groups(task: str | None, archived: bool, form: str | None, output: str | None) -> None:
    """Groups of a task, or of all, in the order of the leaderboard."""
    from orchestrator.errors import NotFoundError

    with open_registry() as registry:
        table = registry.leaderboard(task, limit=num_rows_shown(_PAGE, form, output), archived=archived)
        num_archived = 0 if archived else registry.num_ranked_archived(task)
        empty = no_groups(registry, num_archived)
        if task is not None and not table.records and not num_archived:
            raise NotFoundError(
                f"no group of task {task}; there are: {', '.join(registry.ranked_tasks()) or 'none yet'}"
            )
    rankings = {(row["task"], row["metric"], row["split"], row["data"]): row["num_ranked"] for row in table.records}
    columns, num_groups = list(table.columns), sum(rankings.values())
    if num_groups:
        empty = f"there are {counted(num_groups, 'group')}; --offset is beyond the last one"
    if shows_briefly(form, output):
        from orchestrator.registry.group_records import group_label

        page = table.records[current_reading().offset :]
        differing = [name for name in ("init_from", "size") if len({row[name] for row in page}) > 1]
        columns = ["group", "task", "kind", "metric", "seeds", "mean", "sd", *differing, "recipe", "notes"]
        for row in table.records:
            row["group"], row["seeds"] = group_label(row["group"]), seeds_text(row)
    spare, below = ["kind", "metric", "sd", "size"], ["recipe", "notes", "init_from"]
    show_rows(
        table.records, columns, form, output, empty=empty, spare=spare, below=below, page=_PAGE, num_rows=num_groups
    )
    tell_archived(num_archived)


@groups.command("show", example="orchestrator groups show 3f2a")
@click.argument("group")
@output_options
def show_group(group: str, form: str | None, output: str | None) -> None:
    """One group: what its seeds show, and each of its runs.

    GROUP is the beginning of a group's digest, or a run or trial of it, by id or name.
    """
    with open_registry() as registry:
        found = registry.group(group_name(registry, group))
        noise = registry.seed_noise(found)
        num_archived = len(registry.annotations.flagged("archived") & {run.id for run in found.runs})
    rows = (_run_row(found, run) for run in found.runs)
    runs = sorted(rows, key=lambda row: (row["seed"] is None, row["seed"], row["fold"] or 0))
    record = _group_row(found, noise)
    if num_archived:
        notify(f"{num_archived} of its {counted(len(found.runs), 'run')} archived: `groups list` leaves these out")
    if not shows_briefly(form, output):
        show_record({**record, "parameters": dict(found.parameters), "runs": runs}, form, output)
        return
    show_record({**record, **{path: setting_cell(value) for path, value in found.parameters.items()}}, form, output)
    show_text("\n")
    columns = ["seed", *(["fold"] if found.num_folds > 1 else []), "run", "of", "state", "score"]
    columns += [name for name in ("test", "collapsed") if any(row[name] for row in runs)]
    show_table(runs, [*columns, "finished_at"])


def _group_row(group: "GroupRecord", noise: "SeedNoise | None") -> dict[str, Any]:
    from orchestrator.registry.group_records import group_notes

    summary, best = group.summary, group.best
    interval = noise.interval(summary, score_bounds(group.metric)) if noise and summary else None
    return {
        "group": group.key,
        "task": group.task,
        "kind": group.kind,
        "metric": group.metric + (" (smaller is better)" if is_better_lower(group.metric) else ""),
        "split": group.split,
        "data": group.data,
        "code": group.code_version,
        "n": summary.n if summary else 0,
        "mean": summary.mean if summary else None,
        "sd": summary.sd if summary else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "median": summary.median if summary else None,
        "best": best.score if best else None,
        "best_run": best.id if best else None,
        "test": group.tested.test if group.tested else None,
        "notes": "; ".join(group_notes(group)),
    }


def _run_row(group: "GroupRecord", run: "GroupRun") -> dict[str, Any]:
    return {
        "seed": run.seed,
        "fold": run.fold,
        "run": run.id,
        "of": run.parent_id,
        "state": run.state,
        "score": None if group.refusal else run.score,
        "test": None if run.test_refusal else run.test,
        "collapsed": run.is_collapsed,
        "finished_at": run.finished_at,
    }


@groups.command("compare", example="orchestrator groups compare 3f2a 77c0")
@click.argument("names", metavar="A B [C …]", nargs=-1, required=True)
@output_options
def compare(names: tuple[str, ...], form: str | None, output: str | None) -> None:
    """Whether the difference of groups is more than luck.

    Each is the beginning of a group's digest, a trial, or a run, by id or name. Six seeds in common are compared in
    pairs, by a permutation test; fewer, of two groups whose seeds show noise, by Welch's test; predictions of the same
    examples by McNemar's test and a bootstrap. Several comparisons are corrected by Holm's method, which seven pairs
    and more can pass.
    """
    with open_registry() as registry:
        found = registry.compare(*[group_name(registry, name) for name in names])
        noise = registry.seed_noise(found[0].first) if shows_briefly(form, output) else None
    rows = [_comparison_row(comparison) for comparison in found]
    if not shows_briefly(form, output):
        show_rows(rows, list(rows[0]), form, output)
        return
    for number, comparison in enumerate(found):
        show_text("\n" if number else "")
        _show_comparison(comparison, noise)


def _show_comparison(comparison: "Comparison", noise: "SeedNoise | None") -> None:
    from orchestrator.registry.group_records import group_label

    first, second = comparison.first, comparison.second
    show_paragraph(f"{first.label} beside {second.label}: {comparison.words}")
    sides = [_group_row(group, noise) for group in (first, second)]
    for side in sides:
        side["group"] = group_label(side["group"])
    show_table(sides, ["group", "mean", "sd", "low", "high", "n", "best"])
    show_text("\n")
    tests = _test_rows(comparison)
    show_table(tests, ["test", "of", "difference", "low", "high", "p"])
    if comparison.differs_in:
        show_text("\n")
        rows = [{"differs in": path, "first": one, "second": other} for path, (one, other) in _told(comparison)]
        show_table(rows, ["differs in", "first", "second"])
    for group, side in zip((first, second), sides, strict=True):
        if side["notes"]:
            notify(f"{group.label}: {side['notes']}")


def _told(comparison: "Comparison") -> list[tuple[str, tuple[str, str]]]:
    """Paths and both values as texts: a column of several settings has no number of decimals that suits them all."""
    return [
        (path.removeprefix("recipe."), (setting_cell(one), setting_cell(other)))
        for path, (one, other) in comparison.differs_in.items()
    ]


def _test_rows(comparison: "Comparison") -> list[dict[str, Any]]:
    """Every test that could be made, a row each, with what it is of; the first one speaks."""
    examples, metric, of_seeds = comparison.examples, comparison.first.metric, comparison.of_seeds
    rows = [_test_row("Welch, all seeds", metric, comparison.welch, comparison.welch.p_value)]
    if comparison.paired is not None:
        name = f"paired permutation, {len(comparison.differences)} common seeds"
        paired = _test_row(name, metric, comparison.paired, comparison.paired.p_value)
        rows.insert(0 if of_seeds is comparison.paired else 1, paired)
    if (bootstrap := comparison.bootstrap) is not None:
        rows.append(_test_row("bootstrap over seeds", metric, replace(of_seeds, interval=bootstrap), None))
    if examples is not None and examples.score is not None:
        name = f"paired bootstrap, {examples.num_examples:,} examples"
        rows.append(_test_row(name, metric, examples.score, examples.score.p_value))
    for answers in examples.answers if examples else ():
        result, about = answers.result, examples.answers_about if examples else ""
        name = f"McNemar, {answers.first_run[:6]} {result.only_first} : {result.only_second} {answers.second_run[:6]}"
        rows.append(_test_row(name, about, result, answers.corrected_p_value))
    return rows


def _test_row(test: str, about: str, result: Any, p_value: float | None) -> dict[str, Any]:
    interval = result.interval
    low, high = (None, None) if interval is None else (_rounded(interval.low), _rounded(interval.high))
    difference = _rounded(result.difference)
    return {"test": test, "of": about, "difference": difference, "low": low, "high": high, "p": p_value}


def _rounded(difference: float) -> float:
    """The difference without the noise of floating-point sums, which would make 0 of two equal means a tiny number."""
    return round(difference, _DECIMALS) + 0.0


def _comparison_row(comparison: "Comparison") -> dict[str, Any]:
    result = comparison.result
    return {
        "answer": comparison.words,
        "first": comparison.first.key,
        "second": comparison.second.key,
        "distinguishable": comparison.is_distinguishable,
        "test": comparison.test,
        "difference": result.difference,
        "low": result.interval.low if result.interval else None,
        "high": result.interval.high if result.interval else None,
        "p_value": comparison.p_value,
        "corrected_p_value": comparison.corrected_p_value,
        "num_comparisons": comparison.num_comparisons,
        "num_first": len(comparison.first.seeds),
        "num_second": len(comparison.second.seeds),
        "num_common": len(comparison.differences),
        "num_seeds_needed": comparison.num_seeds_needed,
        "tests": _test_rows(comparison),
        "differs_in": {path: list(values) for path, values in comparison.differs_in.items()},
    }
