"""`leaderboard`: groups of runs that differ only in their seed, ranked; `compare`: what differs, and do scores."""

import json
import sys
from collections.abc import Sequence
from itertools import combinations, groupby, islice, repeat
from typing import TYPE_CHECKING, Any

import click

from orchestrator.base.console import terminal_width
from orchestrator.base.console.log_lines import folded
from orchestrator.base.errors import InputError, NotFoundError, SeveralRunsError
from orchestrator.base.formatting import plain_value
from orchestrator.cli.frame import command, refuse_options
from orchestrator.cli.messages import notify
from orchestrator.cli.output import page_size, show_record, show_rows, show_table, show_text, table_text
from orchestrator.cli.reading import current_reading, output_options
from orchestrator.cli.registry_reading import find_run, no_runs, open_registry, table_command, tell_archived
from orchestrator.significance.summary import LEVEL

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.group_comparison import Comparison
    from orchestrator.registry.group_records import GroupRecord
    from orchestrator.registry.records import RunRecord
    from orchestrator.significance.ranking import SeedNoise

_NUM_PLACES = 10
"""Places of each task; `--limit` gives more of them."""

_NO_TRIALS = "no fine-tuned trials yet; run a sweep: `orchestrator run experiments/sweep_sst2.yaml`"


@table_command(example="leaderboard sst2\nleaderboard --group 3f2a77c0.1a2b3c4d")
@click.argument("task", required=False)
@click.option("--all", "shows_all", is_flag=True, help=f"All groups, not the first {_NUM_PLACES} per task.")
@click.option("--group", "group", metavar="GROUP", help="Show one group with its runs, by id prefix.")
@click.option(
    "--by",
    type=click.Choice(["lower", "mean", "median", "best"]),
    default="lower",
    help="Statistic to rank by; lower: the worse end of the 95% interval.",
)
@click.option("--across-code", is_flag=True, help="Pool runs that differ only in code version; --group takes one.")
@click.option("--archived", is_flag=True, help="Include archived runs.")
def leaderboard(registry: "Registry", task: str | None, shows_all: bool, group: str | None, **asked: Any) -> None:
    """Rank the recipes of each task by their scores over seeds.

    Runs that differ only in the seed form a group: one row, whose id --group and `compare` take. Scores on different
    data are ranked separately; trials, distilled models and evaluated models together. Seed variance is pooled over all
    rows of a ranking, so a row with one seed has a confidence interval, too. `≈`: not significantly worse than the best
    (multiple comparisons with the best, 95%). --limit is the number of rows per task (default: 10; in a pipe
    all).
    """
    if group is not None:
        refuse_options(("task", "shows_all", *asked), "does not go with --group")
        _show_group(registry, group)
        return
    from orchestrator.reports.ranked_groups import RANKING, brief_columns, caveats

    reading = current_reading()
    limit = page_size() if shows_all else page_size(_NUM_PLACES)
    most = None if limit is None else reading.offset + limit
    table = registry.leaderboard(task, limit=most, **asked)
    num_archived = 0 if asked["archived"] else registry.num_ranked_archived(task)
    if task is not None and not table.records and not num_archived:
        known = ", ".join(registry.ranked_tasks()) or "none yet"
        raise NotFoundError(f"no finished trial of task {task}; there are: {known}")
    if shows_all:
        total = sum({RANKING(row): row["num_ranked"] for row in table.records}.values())
        rows = table.records[reading.offset :][:limit]
    else:  # the offset is one of each ranking
        rows = [row for _, some in groupby(table.records, RANKING) for row in islice(some, reading.offset, None)]
        total = len(rows) or len(table.records)
    columns: Sequence[str] = table.columns
    if reading.is_brief:
        columns = brief_columns(rows, asked["by"], has_tasks=task is None)
        columns = ["group", *columns] if shows_all else [*columns, "group"]
    alike = ["task"] if len({row["task"] for row in rows}) == 1 else []  # which then tells nothing apart
    spare = ["size", "kind", *([] if shows_all else ["group"]), *alike, "model", "metric"]
    empty = "every run that could be ranked is archived"
    if not rows and not num_archived:
        empty = _NO_TRIALS if registry.run_table(limit=1).records else no_runs(registry)
    show_rows(rows, columns, empty=empty, spare=spare, below=["recipe", "init_from"], total=total)
    if rows and reading.is_brief:
        for line in caveats(rows, asked["by"]):
            notify(line)
    tell_archived(num_archived)


def _show_group(registry: "Registry", name: str) -> None:
    from orchestrator.reports.ranked_groups import group_record, own_settings

    found = registry.group(name)
    record = group_record(found, registry.seed_noise(found))
    runs = [
        {
            **{name: getattr(run, name) for name in ("seed", "fold", "state", "finished_at")},
            "run": run.id,
            "of": run.parent_id,
            "score": None if found.refusal else run.score,
            "test": None if run.test_refusal else run.test,
            "collapsed": run.is_collapsed,
        }
        for run in sorted(found.runs, key=lambda run: (run.seed is None, run.seed, run.fold or 0))
    ]
    if registry.annotations.flagged("archived") & {run.id for run in found.runs}:  # where the group has no others
        notify("its runs are archived: the leaderboard leaves these out")
    if not current_reading().is_brief:
        record |= {"parameters": dict(found.parameters), "runs": runs}
        show_record(record)
        return
    record |= own_settings(found)
    show_record(record)
    show_text("\n")
    columns = ["seed", *(["fold"] if found.num_folds > 1 else []), "run", "of", "state", "score"]
    columns += [name for name in ("test", "collapsed") if any(row[name] for row in runs)]
    show_table(runs, [*columns, "finished_at"])


@command(example="compare 7f3a 9c21\ncompare 3f2a77c0.1a2b3c4d 77c0b1d2.1a2b3c4d -f json")
@click.argument("names", metavar="A B [C …]", nargs=-1, required=True)
@output_options
def compare(names: tuple[str, ...]) -> None:
    """Compare runs, groups or models: scores, and what differs.

    First the scores: is the difference significant? With six or more common seeds (seven for several comparisons) a
    paired permutation test, otherwise Welch's test; for predictions on the same examples McNemar's test and a
    bootstrap. Several comparisons are Holm-corrected. Then everything else that differs: spec, data, code, environment.
    A, B: a run or trial by id or name, a group as `leaderboard` shows it, or a model.
    """
    if len(names) < 2:
        raise InputError("name at least two runs, groups or models to compare")
    from orchestrator.reports.run_differences import compare_pair, difference_lines, pair_record, pair_rows

    scores, why_not = list["Comparison"](), ""
    with open_registry() as registry:
        found = [_find(registry, name) for name in names]
        scored = [_scored(registry, one) for one in found]
        if any(getattr(one, "kind", None) != "pipeline" for one in found):
            found = scored  # whose settings can be held against those of what is no pipeline
        references = [getattr(one, "id", name) for name, one in zip(names, scored, strict=True)]
        if len(set(references)) < len(names):
            raise InputError("the same is named twice, or a pipeline beside its own last stage; name different ones")
        try:
            scores = registry.compare(*references)
        except InputError as error:
            why_not = str(error)
        noise = registry.seed_noise(scores[0].first) if scores else None  # of the ranking that all of them are in
        both = zip(combinations(names, 2), combinations(found, 2), scores or repeat(None), strict=False)
        pairs = [compare_pair(registry, named, *sides, compared) for named, sides, compared in both]
    form, output = current_reading().form, current_reading().output
    if form == "json":
        records = [pair_record(pair, noise, why_not) for pair in pairs]
        show_text(json.dumps(plain_value(records), indent=2, ensure_ascii=False), output)
    elif form == "csv":
        rows = [row for pair in pairs for row in pair_rows(pair_record(pair, noise, why_not))]
        show_rows(rows, ["a", "b", "section", "field", "first", "second"])
    else:
        parts, notes = list[str](), list[str]()
        for pair in pairs:
            parts += _score_parts(pair.scores, noise, notes) if pair.scores else []
            parts.append("\n".join(difference_lines(pair.differences, pair.runs)))
        show_text("\n\n".join(filter(None, parts)), output)
        for note in notes:
            notify(note)
    if why_not:
        notify(f"scores not compared: {why_not}")


def _find(registry: "Registry", name: str) -> "RunRecord | GroupRecord":
    """The run or the group that a name means, of a model the run that registered it. Raises: NotFoundError."""
    try:
        return find_run(registry, name, or_model=True)
    except SeveralRunsError:
        raise
    except NotFoundError as no_run:
        try:
            return registry.group(name)
        except NotFoundError as no_group:
            raise (no_group if isinstance(no_group, SeveralRunsError) else no_run) from None


def _scored(registry: "Registry", one: "RunRecord | GroupRecord") -> "RunRecord | GroupRecord":
    """The last stage of a pipeline on a task, which has the scores; anything else itself."""
    from orchestrator.registry.records import RunRecord

    if isinstance(one, RunRecord) and one.kind == "pipeline":
        for stage in registry.stages(one.id):
            if stage.task is not None:
                notify(f"of pipeline {one.id} the scores of its last stage: {stage.id} ({stage.name})")
                return stage
    return one


def _score_parts(comparison: "Comparison", noise: "SeedNoise | None", notes: list[str]) -> list[str]:
    """The answer, the two sides and the tests as text; what is to be said of them comes to `notes`."""
    from orchestrator.registry.parameters import group_label
    from orchestrator.reports.ranked_groups import group_record
    from orchestrator.reports.run_differences import POOLED, significance_rows

    both = (comparison.first, comparison.second)
    told = f"{both[0].label} beside {both[1].label}: {comparison.words}"
    sides = [group_record(group, noise) | {"group": group_label(group.key)} for group in both]
    tests = significance_rows(comparison, noise)
    notes += [f"{side['group']}: {side['notes']}" for side in sides if side["notes"]]
    pooled = next((row["p"] for row in tests if row["test"] == POOLED), None)
    if pooled is not None and (pooled * comparison.num_comparisons < 1 - LEVEL) != comparison.is_distinguishable:
        notes.append(
            "the noise of seeds pooled over the whole ranking, by which a sweep ends and `leaderboard` ranks, says "
            "otherwise: it assumes that a seed matters about as much in every group, the answer above does not"
        )
    return [
        folded(told, terminal_width(sys.stdout)),
        table_text(sides, ["group", "mean", "sd", "low", "high", "n", "best"], current_reading().output)[0],
        table_text(tests, ["test", "of", "difference", "low", "high", "p"], current_reading().output)[0],
    ]
