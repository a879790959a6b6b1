"""The meaning of queries, held against Python. Alone: pytest tests/orchestrator/registry/test_query.py"""

import math
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from orchestrator.base.errors import InputError
from orchestrator.base.results import DatasetResult, MetricEvent
from orchestrator.registry import Registry
from orchestrator.registry.parameters import group_key, group_label
from orchestrator.registry.query_language import (
    Combination,
    Comparison,
    Condition,
    Operand,
    field_text,
    parse_filter,
)
from orchestrator.registry.records import Flag
from orchestrator.registry.tables import ALL_RUNS
from tests.orchestrator.registry.query_samples import (
    AGES,
    DAYS,
    HOSTS,
    NUMBERS,
    SAMPLES,
    WORDS,
    found,
    holds,
    selected,
    written,
)
from tests.orchestrator.registry.samples import new_run, trial_result


def comparisons(name: str, values: st.SearchStrategy[Any], operators: list[str]) -> st.SearchStrategy[Comparison]:
    """Comparisons of a field, or of a function's value, with one value, several and none."""
    if "(" in name:
        function, _, rest = name.rstrip(")").partition("(")
        metric, _, step = rest.partition(", ")
        operand = Operand(metric, function, int(step) if step else None)
    else:
        operand = Operand(name)
    one = st.builds(lambda op, value: Comparison(operand, op, (value,)), st.sampled_from(operators), values)
    several = st.lists(values, min_size=1, max_size=4).map(lambda chosen: Comparison(operand, "in", tuple(chosen)))
    null = st.sampled_from(["=", "!="]).map(lambda operator: Comparison(operand, operator, (None,)))
    return one | several | null


def ranges(name: str, values: list[Any], key: Any = None) -> st.SearchStrategy[Comparison]:
    """Comparisons `between` of a field, the smaller value first."""
    pairs = st.lists(st.sampled_from(values), min_size=2, max_size=2).map(lambda pair: tuple(sorted(pair, key=key)))
    return pairs.map(lambda pair: Comparison(Operand(name), "between", pair))


def between_fields(names: list[str], operators: list[str]) -> st.SearchStrategy[Comparison]:
    """Comparisons of a field with another field."""
    fields = st.sampled_from(names).map(Operand)
    return st.builds(lambda left, op, right: Comparison(left, op, (right,)), fields, st.sampled_from(operators), fields)


EQUAL, ORDER = ["=", "!="], ["=", "!=", "<", "<=", ">", ">="]
TEXTS = ["task", "name", "params.recipe.size"]
MEASURED = ["metrics.f1", "metrics.test.f1", "metrics.train.loss", "params.learning_rate", "seed"]
LOOKING_BACK = ["best(metrics.train.loss)", "max(metrics.train.loss)", "at(metrics.train.loss, 10)"]
LOOKING_BACK += ["first(metrics.train.loss)", "last(metrics.train.loss)", "at(metrics.train.loss, 4)"]
numbers, whole, words = st.sampled_from(NUMBERS), st.sampled_from([0.0, 1.0, 3.0]), st.sampled_from(WORDS)
tags = st.sampled_from(["odd", "even", "tiny", "drift:head", "none"])
patterns = st.sampled_from(["%s%", "s_t2", "100\\%", "%\\\\%", "%\\n%", "ÜN%CODE", "", "%", "it's", "_", "s\\_t2"])
leaves = st.one_of(
    *(comparisons(name, numbers, ORDER) for name in MEASURED[:-1]),
    comparisons("seed", whole, ORDER),
    *(comparisons(name, words, EQUAL) for name in TEXTS),
    *(patterns.map(lambda p, name=name: Comparison(Operand(name), "like", (p,))) for name in TEXTS[::2]),
    comparisons("params.cased", st.booleans(), EQUAL),
    comparisons("host", st.sampled_from(HOSTS), EQUAL),
    comparisons("tag", tags, EQUAL),
    comparisons("model", st.sampled_from(["best", "other", "best@1", "best@7"]), EQUAL),
    comparisons("dataset", st.sampled_from(["corpus", "c" * 64, "c"]), EQUAL),
    comparisons("tags.drift", st.sampled_from(["head", "other", True, False]), EQUAL),
    comparisons("tags.odd", st.booleans(), EQUAL),
    comparisons("created_at", st.sampled_from(DAYS), ORDER),
    st.builds(
        lambda op, age: Comparison(Operand("created_at"), op, (age,)),
        st.sampled_from(ORDER[2:]),
        st.sampled_from(AGES),
    ),
    comparisons("seconds", st.sampled_from([*AGES, 0.0, 700.0, 1e4]), ORDER),
    *(comparisons(name, st.sampled_from([*NUMBERS, 23.0, 30.0]), ORDER) for name in LOOKING_BACK),
    *(comparisons(name, st.sampled_from([math.nan, math.inf, 50.0]), EQUAL) for name in [*LOOKING_BACK, MEASURED[0]]),
    *(ranges(name, NUMBERS) for name in MEASURED),
    ranges("created_at", DAYS),
    ranges("created_at", AGES, key=lambda age: -age.seconds),
    between_fields(MEASURED, ORDER),
    between_fields(TEXTS, EQUAL),
)
trees = st.recursive(
    leaves,
    lambda inner: (
        inner.map(lambda part: Combination("not", (part,)))
        | st.builds(Combination, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=trees)
@pytest.mark.heavy
@pytest.mark.core
def test_a_query_finds_what_plain_python_finds(filled: Registry, tree: Condition) -> None:
    assert found(filled, written(tree)) == selected(lambda run: holds(tree, run))


@given(tree=trees)
def test_a_tree_written_out_reads_back(tree: Condition) -> None:
    assert parse_filter(written(tree)) == tree


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("0.7 < metrics.f1 <= 0.9", "metrics.f1 > 0.7 and metrics.f1 <= 0.9"),
        ("'cola' = task", "task = 'cola'"),
        ("task == 'cola'", "task = 'cola'"),
        ("task is null", "task = null"),
        ("task IS NOT NULL", "task != null"),
        ("seed not between 1 and 2 and seed = 3", "(not seed between 1 and 2) and seed = 3"),
        ("created_at > 2026-11-20", "created_at > '2026-11-20'"),
        ("created_at > 2026-11-20T10:45Z", "created_at > '2026-11-20T10:45Z'"),
        ("1 < seed < metrics.f1 < 4", "seed > 1 and seed < metrics.f1 and metrics.f1 < 4"),
        ("not tags.paper", "not tags.paper = true"),
        ("BEST(metrics.f1) > 1", "best(metrics.f1) > 1"),
    ],
)
def test_other_ways_to_write_the_same(short: str, long: str) -> None:
    assert parse_filter(short) == parse_filter(long)


def test_the_best_of_a_loss_is_its_lowest_and_of_a_score_its_highest(registry: Registry) -> None:
    run_id = new_run(registry)
    for step, value in ((1, 0.2), (2, 0.9), (3, 0.4)):
        registry.metrics.record(run_id, [MetricEvent(step, "validation", {"f1": value, "mlm_loss": value})])
    for query in (
        "best(metrics.f1) = 0.9 and best(metrics.mlm_loss) = 0.2 and worst(metrics.f1) = 0.2",
        "at(metrics.f1, 2) = 0.9 and at(metrics.f1, 100) = 0.4 and at(metrics.f1, 0) is null",
        "best(metrics.f1) > metrics.f1 and last(metrics.f1) = metrics.f1 and first(metrics.f1) = 0.2",
    ):
        assert list(registry.run_table(query).values("id")) == [run_id], query


def test_trials_are_found_by_the_data_and_the_host_of_their_sweep(registry: Registry) -> None:
    sweep = new_run(registry, kind="sweep")
    registry.lifecycle.start_attempt(sweep, host="node-a")
    registry.datasets.record(sweep, DatasetResult("mrpc", "task", "a" * 64, "storage/mrpc", {}))
    (trial,) = registry.trials.record(sweep, [trial_result()])
    assert set(registry.run_table("dataset = 'mrpc' and host = 'node-a'").values("id")) == {sweep, trial}
    registry.datasets.record(sweep, DatasetResult("late", "task", "b" * 64, "storage/late", {}))
    assert [row["name"] for row in registry.datasets.table(trial).records] == ["late", "mrpc"]


def test_a_run_is_found_by_its_group_as_groups_are_listed(registry: Registry) -> None:
    digests, versions = ("cdee734f00112233", "cdee99ff00112233"), ("0.1.0", "0.2.0", None)
    for number, (digest, version) in enumerate((digest, version) for digest in digests for version in versions):
        new_run(registry, run_id=f"run{number}")
        with registry._database.connection(writing=True) as connection:
            values = {"group_key": digest, "code_version": version}
            connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.id == f"run{number}").values(**values))
    first, every = {"run0", "run1", "run2"}, {f"run{number}" for number in range(6)}
    whole = group_key(digests[0], "0.2.0")
    for query, expected in (
        (f"group = '{digests[0]}'", first),
        ("group = 'cdee'", every),
        ("group = 'CDEE7'", first),
        (f"group = '{group_label(whole)}'", {"run1"}),
        (f"group = '{whole}'", {"run1"}),
        (f"group = '{whole[:-1]}'", {"run1"}),
        (f"group != '{whole}'", every - {"run1"}),
        (f"group in ('{whole}', '{digests[1]}')", {"run1", "run3", "run4", "run5"}),
        (f"group = '{digests[0]}.ffffffffffff'", set()),
        ("group like 'cdee9%'", every - first),
    ):
        assert set(registry.run_table(query).values("id")) == expected, query


def test_a_run_is_found_by_its_code(registry: Registry) -> None:
    versions = ("0.1.0", "0.1.0+g1f2e3d4c5b6a", "0.1.0+g1f2e3d4c5b6a.d0a1b2c3d", "0.1.0+gaaaaaaaaaaaa", None)
    for number, version in enumerate(versions):
        new_run(registry, run_id=f"run{number}")
        with registry._database.connection(writing=True) as connection:
            connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.id == f"run{number}").values(code_version=version))
    for query, expected in (
        ("commit = '1f2e3d4'", {"run1", "run2"}),
        (f"commit = '1F2E3D4C5B6A{'0' * 28}'", {"run1", "run2"}),
        ("commit like '1f%'", {"run1", "run2"}),
        ("commit != '1f2e3d4'", {"run0", "run3", "run4"}),
        ("commit is null", {"run0", "run4"}),
        ("commit not like '1f%' and code is not null", {"run0", "run3"}),
        ("code = '0.1.0+g1f2e3d4c5b6a'", {"run1"}),
    ):
        assert set(registry.run_table(query).values("id")) == expected, query
    assert registry.grouped("commit", aggregates="count").records == [
        {"commit": "1f2e3d4c5b6a", "count": 2},
        {"commit": "aaaaaaaaaaaa", "count": 1},
        {"commit": None, "count": 2},
    ]


def test_words_that_no_run_has_are_told(filled: Registry) -> None:
    assert filled.unmatched("task = 'cola' and seed = 1 and params.size = 'sst2' and tag = 'odd'") == []
    assert filled.unmatched("not (tag in ('odd', 'od') or task = 'SST2')") == [
        "no run has tag = 'od'; nearest: 'odd'",
        "no run has task = 'SST2'; nearest: 'sst2'",
    ]
    assert filled.unmatched("model = 'worst'")[0].startswith("no run has model = 'worst'; there are: 'best', 'other'")
    nobody, unknown = filled.unmatched("name = 'nobody' and id = '77'")
    assert nobody.startswith("no run has name = 'nobody'; there are: '', '100%'")
    assert unknown == "no run has id = '77'"
    assert filled.unmatched("name = 'colla'") == ["no run has name = 'colla'; nearest: 'cola'"]
    assert filled.unmatched("params.size = 'SST2'") == ["no run has params.size = 'SST2'; nearest: 'sst2'"]
    assert filled.unmatched(" ") == []


@pytest.mark.parametrize(
    ("sizes", "up", "down"),
    [
        (("mini", None, "tiny", "base"), ["base", "mini", "tiny", "None"], ["tiny", "mini", "base", "None"]),
        (("auto", 8, 4), ["4", "8", "auto"], ["8", "4", "auto"]),
    ],
)
def test_text_sorts_as_text_and_numbers_before_it(
    registry: Registry, sizes: tuple[Any, ...], up: list[str], down: list[str]
) -> None:
    for size in sizes:
        new_run(registry, name=str(size), spec={"size": size})
    assert [list(registry.runs(sort=sort).name) for sort in ("params.size", "-params.size")] == [up, down]


@pytest.mark.parametrize("sort", ["metrics.f1", "-metrics.f1", "metrics.f1 desc", "params.learning_rate", "-seed"])
def test_sorting_puts_runs_without_the_value_last(filled: Registry, sort: str) -> None:
    name = sort.removesuffix(" desc").lstrip("-")
    values = [SAMPLES[int(run_id)][name] for run_id in filled.runs(sort=sort).id]
    present = [value for value in values if value is not None]
    assert present == sorted(present, reverse=sort != name)
    assert values == present + [None] * (len(SAMPLES) - len(present))


def test_a_run_is_found_by_its_notes(registry: Registry) -> None:
    noted, other = (new_run(registry, name=name) for name in ("noted", "other"))
    registry.annotations.note(noted, "LR too high")
    registry.annotations.note(noted, "tried again")
    assert list(registry.runs("note like '%lr%'").id) == [noted]
    assert list(registry.runs("note = 'tried again'").id) == [noted]
    assert list(registry.runs("note is null").id) == [other]
    assert sorted(registry.grouped("note", aggregates="count").frame()["note"].dropna()) == [
        "LR too high",
        "tried again",
    ]


@pytest.mark.parametrize("flag", ["archived", "pinned"])
def test_a_run_is_found_by_its_flags(registry: Registry, flag: Flag) -> None:
    pipeline, other = new_run(registry, kind="pipeline"), new_run(registry)
    stage = new_run(registry, tags=[f"pipeline:{pipeline}"])
    registry.annotations.set_flag(pipeline, flag)
    for query in (f"{flag} = true", f"{flag} != false", f"{flag} is not null and not {flag} = false", flag):
        assert set(registry.run_ids(query)) == {pipeline, stage}
        assert registry.num_runs(query) == 2
    assert registry.run_ids(f"{flag} = false") == [other]
    assert registry.run_ids(sort=flag)[0] == other
    assert dict(registry.grouped(flag, aggregates="count").frame().values) == {False: 1, True: 2}


def test_a_query_for_archived_runs_finds_them_where_they_are_left_out_otherwise(registry: Registry) -> None:
    run_id = new_run(registry)
    registry.annotations.set_flag(run_id, "archived")
    assert registry.run_ids("archived = true", archived=False) == [run_id]
    assert registry.run_ids("pinned != archived", archived=False) == [run_id]
    assert registry.run_ids("name != 'archived'", archived=False) == []


@pytest.mark.parametrize("name", ["f1_C++", "f1_R&D", "f1_a:b", "f1_Job Title", 'f1_"x"', "f1_it's", "f1_(a, b)"])
def test_a_name_with_other_signs_stands_in_quotes(registry: Registry, name: str) -> None:
    run_id = new_run(registry)
    registry.metrics.record(run_id, [MetricEvent(1, split, {name: 0.5}) for split in ("validation", "test")])
    for field in (f"metrics.{name}", f"metrics.test.{name}"):
        written = field_text(field)
        assert list(registry.runs(f"{written} > 0.4 and best({written}) = 0.5")["id"]) == [run_id]
        assert list(registry.runs(sort=f"-{written}")["id"]) == [run_id]
    with pytest.raises(InputError, match=re.escape(f"nearest: {field_text(f'metrics.{name}')}")):
        registry.runs(f"{field_text(f'metrics.{name}x')} > 0")


def test_a_short_name_means_one_path_or_is_refused_with_all(registry: Registry) -> None:
    specs = [
        {"recipe": {"size": "tiny"}},
        {"recipe": {"size": "tiny"}, "model": {"size": "tiny"}},
        {"model": {"size": "base"}},
        {"size": "base", "recipe": {"size": "tiny"}},
        {"space": {"epochs": [1, 2]}, "recipe": {"epochs": 3}},  # which the space overrides
        {"recipe": {"epochs": 3}},
    ]
    for number, spec in enumerate(specs):
        new_run(registry, run_id=f"run{number}", spec=spec)
    ask: Any
    for ask in (
        lambda: registry.runs("params.size = 'tiny'"),
        lambda: registry.runs("not params.size is null"),
        lambda: registry.runs(sort="params.size"),
        lambda: registry.grouped("params.size"),
        lambda: registry.grouped("kind", aggregates="max(params.size)"),
    ):
        with pytest.raises(InputError, match=r"say which: params\.model\.size, params\.recipe\.size, params\.\"size\""):
            ask()
    for query, expected in (
        ("params.recipe.size = 'tiny'", {"run0", "run1", "run3"}),
        ("params.recipe.size != 'tiny'", {"run2", "run4", "run5"}),
        ("params.model.size is null", {"run0", "run3", "run4", "run5"}),
        ("params.\"size\" = 'base'", {"run3"}),
        ("params.epochs = 3", {"run5"}),
    ):
        assert set(registry.run_table(query).values("id")) == expected, query
    assert registry.run_ids(sort='params."size"')[0] == "run3"
    assert registry.grouped('params."size"', aggregates="count").values("count") == [1, 5]


def test_a_column_has_a_short_name_where_no_other_path_of_the_table_ends_so(registry: Registry) -> None:
    for section, value in (("recipe", "tiny"), ("space", ["tiny"])):
        new_run(registry, name="one", spec={section: {"size": value}})
    new_run(registry, name="other", spec={"model": {"size": "tiny"}})
    columns = [name for name in registry.run_table("name = 'one'").columns if name.startswith("params.")]
    assert columns == ["params.size", "params.space.size"]
    columns = [name for name in registry.run_table().columns if name.startswith("params.")]
    assert columns == ["params.model.size", "params.recipe.size", "params.space.size"]


def test_nan_and_infinities_are_kept_and_told_from_nothing(registry: Registry) -> None:
    for name, value in (("nan", math.nan), ("inf", math.inf), ("low", -math.inf), ("none", None), ("one", 1.0)):
        run_id = new_run(registry, name=name, metric="loss", spec={} if value is None else {"rate": value})
        if value is not None:
            registry.metrics.record(run_id, [MetricEvent(1, "validation", {"loss": value})])
    table = registry.run_table(sort="name")
    for column in ("metrics.loss", "params.rate"):
        assert str(table.values(column)) == "[inf, -inf, nan, None, 1.0]"
        groups = registry.grouped(column, aggregates="count").values(column)
        assert str(groups) == "[-inf, 1.0, inf, nan, None]"
    (row,) = registry.grouped("kind", aggregates="n(metrics.loss),max(params.rate),mean(metrics.loss)").records
    assert list(row.values()) == ["pretrain", 3, math.inf, None]
    for query, names in (("metrics.loss is nan", ["nan"]), ("metrics.loss > 0", ["one", "inf"])):
        assert registry.run_table(query, sort="metrics.loss").values("name") == names
    assert registry.run_table("metrics.loss is nan or metrics.loss is inf", sort="name").values("name") == [
        "inf",
        "nan",
    ]
