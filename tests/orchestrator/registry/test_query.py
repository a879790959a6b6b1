"""The query language: what it means, held against plain Python, and what it says when it is wrong.

pytest tests/orchestrator/registry/test_query.py
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.registry import Registry
from orchestrator.registry.filters import Combination, Comparison, Condition, Not, Value, parse_filter
from orchestrator.results import MetricEvent
from orchestrator.run_states import RunState
from tests.orchestrator.registry.samples import new_run

WORDS = ["sst2", "cola", "it's", 'a "b"', "100%", "C:\\new", "Ünïcode", ""]
NUMBERS = [0.0, 0.5, -1.0, 5e-5, 1e9, 3.0]
# What the sample runs hold, by the name of the query language; None stands for what a run does not have.
SAMPLES: list[dict[str, Any]] = [
    {
        "task": WORDS[index % 8] if index % 5 else None,
        "name": WORDS[(index * 3) % 8],
        "seed": index % 4 if index % 3 else None,
        "metrics.f1": NUMBERS[index % 6] if index % 4 else None,
        "metrics.test.f1": NUMBERS[(index + 2) % 6] if index % 2 else None,
        "metrics.train.loss": float(index),
        "params.learning_rate": NUMBERS[(index * 5) % 6] if index % 7 else None,
        "params.recipe.size": WORDS[(index + 1) % 8] if index % 6 else None,
        "params.cased": bool(index % 2) if index % 5 else None,
    }
    for index in range(24)
]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """The sample runs, in a registry that the tests of this file only read."""
    if request.param == "sqlite":
        location = str(tmp_path_factory.mktemp("query") / "registry.sqlite")
    else:
        location = request.getfixturevalue("postgres_module_location")
    with Registry(location) as registry:
        for index, sample in enumerate(SAMPLES):
            spec = {
                "recipe": {"learning_rate": sample["params.learning_rate"], "size": sample["params.recipe.size"]},
                "cased": sample["params.cased"],
            }
            run_id = new_run(
                registry,
                run_id=f"{index:02d}",
                name=sample["name"],
                task=sample["task"],
                seed=sample["seed"],
                spec=spec,
                tags=["odd"] if index % 2 else ["even", "tiny"],
            )
            for split, name in (("validation", "f1"), ("test", "f1"), ("train", "loss")):
                value = sample[f"metrics.{name}" if split == "validation" else f"metrics.{split}.{name}"]
                if value is not None:
                    registry.metrics.record(run_id, [MetricEvent(1, split, {name: value})])  # type: ignore[arg-type]
        yield registry


def found(registry: Registry, query: str) -> list[int]:
    return sorted(int(run_id) for run_id in registry.runs(query).id)


# ------------------------------------------------------------------ against plain Python


def holds(tree: Condition, run: Mapping[str, Any]) -> bool:
    """The language's meaning, written once more without SQL."""
    if isinstance(tree, Not):
        return not holds(tree.part, run)
    if isinstance(tree, Combination):
        return (all if tree.word == "and" else any)(holds(part, run) for part in tree.parts)
    have = run[tree.field]
    if tree.operator == "in":
        return any(holds(Comparison(tree.field, "=", (value,)), run) for value in tree.values)
    (value,) = tree.values
    if value is None:
        return (have is None) == (tree.operator == "=")
    if have is None:
        return False
    if tree.operator == "like":
        pattern = "".join({"%": ".*", "_": "."}.get(letter, re.escape(letter)) for letter in str(value))
        return isinstance(have, str) and bool(re.fullmatch(pattern, have, re.DOTALL | re.IGNORECASE))
    same_kind = isinstance(have, bool) == isinstance(value, bool) and isinstance(have, str) == isinstance(value, str)
    if tree.operator == "!=":
        return not (same_kind and have == value)
    operations = {"=": have == value} if tree.operator == "=" else {}
    if not same_kind:
        return False
    if tree.operator != "=":
        operations = {"<": have < value, "<=": have <= value, ">": have > value, ">=": have >= value}
    return operations[tree.operator]


def written(tree: Condition) -> str:
    """The tree as text, every part in parentheses."""
    if isinstance(tree, Not):
        return f"NOT ({written(tree.part)})"
    if isinstance(tree, Combination):
        return f" {tree.word} ".join(f"({written(part)})" for part in tree.parts)
    values = [literal(value) for value in tree.values]
    return f"{tree.field} {tree.operator} " + (f"({', '.join(values)})" if tree.operator == "in" else values[0])


def literal(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return (
        {None: "null", True: "TRUE", False: "false"}[value] if value is None or isinstance(value, bool) else repr(value)
    )


def comparisons(field: str, values: st.SearchStrategy[Any], operators: list[str]) -> st.SearchStrategy[Comparison]:
    one = st.builds(lambda op, value: Comparison(field, op, (value,)), st.sampled_from(operators), values)
    several = st.lists(values, min_size=1, max_size=4).map(lambda chosen: Comparison(field, "in", tuple(chosen)))
    null = st.sampled_from(["=", "!="]).map(lambda operator: Comparison(field, operator, (None,)))
    return one | several | null


ORDER = ["=", "!=", "<", "<=", ">", ">="]
numbers, words = st.sampled_from(NUMBERS), st.sampled_from(WORDS)
patterns = st.sampled_from(["%s%", "s_t2", "100%", "%\\%", "%CODE", "", "%", "it's", "_"])
leaves = st.one_of(
    *(comparisons(name, numbers, ORDER) for name in ("metrics.f1", "metrics.test.f1", "params.learning_rate", "seed")),
    *(comparisons(name, words, ["=", "!="]) for name in ("task", "name", "params.recipe.size")),
    *(patterns.map(lambda p, name=name: Comparison(name, "like", (p,))) for name in ("task", "params.recipe.size")),
    comparisons("params.cased", st.booleans(), ["=", "!="]),
)
trees = st.recursive(
    leaves,
    lambda inner: (
        inner.map(Not)
        | st.builds(Combination, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=trees)
def test_a_query_finds_what_plain_python_finds(filled: Registry, tree: Condition) -> None:
    expected = [index for index, run in enumerate(SAMPLES) if holds(tree, run)]
    assert found(filled, written(tree)) == expected


@given(tree=trees)
def test_a_tree_written_out_reads_back(tree: Condition) -> None:
    assert without_places(parse_filter(written(tree))) == tree


def without_places(tree: Condition | None) -> Condition:
    if isinstance(tree, Not):
        return Not(without_places(tree.part))
    if isinstance(tree, Combination):
        return Combination(tree.word, tuple(without_places(part) for part in tree.parts))
    assert isinstance(tree, Comparison)
    return Comparison(tree.field, tree.operator, tree.values)


# ------------------------------------------------------------------ single facts


def test_and_binds_tighter_than_or_and_not_tightest() -> None:
    tree = parse_filter("not a = 1 and b = 2 or c = 3")
    a, b, c = (Comparison(name, "=", (float(value),)) for name, value in (("a", 1), ("b", 2), ("c", 3)))
    assert without_places(tree) == Combination("or", (Combination("and", (Not(a), b)), c))


def test_the_design_page_query_works(filled: Registry) -> None:
    query = "metrics.f1 > 0.9 and (params.learning_rate < 5e-5 or task = 'cola')"
    expected = [
        index
        for index, run in enumerate(SAMPLES)
        if (run["metrics.f1"] or 0) > 0.9
        and ((run["params.learning_rate"] is not None and run["params.learning_rate"] < 5e-5) or run["task"] == "cola")
    ]
    assert expected
    assert found(filled, query) == expected


def test_an_empty_query_finds_all(filled: Registry) -> None:
    assert found(filled, " ") == list(range(len(SAMPLES)))


def test_states_are_asked_for_in_any_case(registry: Registry) -> None:
    run_id = new_run(registry)
    registry.lifecycle.finish(run_id, RunState.COMPLETED)
    for query in ("state = 'completed'", "state in ('Completed')", "state like 'comp%'", "state != 'failed'"):
        assert list(registry.runs(query).id) == [run_id]
    assert registry.runs("state != 'completed'").empty


def test_tags_are_asked_for_by_word(filled: Registry) -> None:
    odd = [index for index in range(len(SAMPLES)) if index % 2]
    assert found(filled, "tag = 'odd'") == odd
    assert found(filled, "tag in ('odd', 'none') and tag not like 'ev%'") == odd
    assert found(filled, "not tag = 'tiny'") == odd
    assert found(filled, "tag = null") == []


def test_times_are_compared_as_moments(filled: Registry) -> None:
    assert len(found(filled, "created_at > '2020-01-01' and created_at < '2999-01-01T00:00+02:00'")) == len(SAMPLES)
    assert found(filled, "finished_at > '2020-01-01'") == []
    assert len(found(filled, "finished_at = null")) == len(SAMPLES)


def test_the_last_part_of_a_path_is_enough_where_it_is_unique(filled: Registry) -> None:
    assert found(filled, "params.size = 'sst2'") == found(filled, "params.recipe.size = 'sst2'") != []


def test_an_ambiguous_last_part_lists_the_paths(registry: Registry) -> None:
    new_run(registry, spec={"a": {"size": 1}, "b": {"size": 2}})
    with pytest.raises(InputError, match=r"say which of params\.a\.size, params\.b\.size"):
        registry.runs("params.size = 1")


def test_an_empty_registry_answers_any_query_with_nothing(registry: Registry) -> None:
    assert registry.runs("metrics.f1 > 0.9 and params.x = 1").empty


@pytest.mark.parametrize(
    ("sort", "order"), [("params.size", ["base", "mini", "tiny"]), ("-params.size", ["tiny", "mini", "base"])]
)
def test_text_parameters_sort_as_text(registry: Registry, sort: str, order: list[str]) -> None:
    for size in ("mini", None, "tiny", "base"):
        new_run(registry, name=str(size), spec={"size": size})
    assert list(registry.runs(sort=sort).name) == [*order, "None"]


def test_numbers_come_before_text(registry: Registry) -> None:
    for value in ("auto", 8, 4):
        new_run(registry, name=str(value), spec={"batch_size": value})
    assert list(registry.runs(sort="params.batch_size").name) == ["4", "8", "auto"]
    assert list(registry.runs(sort="-params.batch_size").name) == ["8", "4", "auto"]


@pytest.mark.parametrize("sort", ["metrics.f1", "-metrics.f1", "metrics.f1 desc", "params.learning_rate", "-seed"])
def test_sorting_puts_runs_without_the_value_last(filled: Registry, sort: str) -> None:
    name = sort.removesuffix(" desc").lstrip("-")
    values = [SAMPLES[int(run_id)][name] for run_id in filled.runs(sort=sort).id]
    present = [value for value in values if value is not None]
    assert present == sorted(present, reverse=sort != name)
    assert values == present + [None] * (len(SAMPLES) - len(present))


@pytest.mark.parametrize("field", ["metrics.f1", "params.learning_rate", "tag", "task"])
def test_a_query_can_be_sorted_by_the_field_it_asks_about(filled: Registry, field: str) -> None:
    for sort in (field, f"-{field}"):
        assert sorted(filled.runs(f"{field} != null", sort=sort).id) == sorted(filled.runs(f"{field} != null").id)


def test_a_limit_takes_the_first(filled: Registry) -> None:
    for sort in ("-metrics.f1", "name", "-created_at"):
        whole = list(filled.runs(sort=sort).id)
        for limit in (0, 1, 20, 22, 100):
            assert list(filled.runs(sort=sort, limit=limit).id) == whole[:limit]


# ------------------------------------------------------------------ messages


@pytest.mark.parametrize(
    ("query", "message", "column"),
    [
        ("metrics.f1 >", "ends too early; expected a number or text in quotes", 12),
        ("metrics.f1 > 0.9 and", "ends too early; expected a field", 20),
        ("(task = 'a'", "ends too early; expected \\)", 11),
        ("task == 'a'", "goes wrong at '='; expected a number", 6),
        ("task = cola", "goes wrong at 'c.*'; expected .*text in quotes", 7),
        ("task 'a'", "goes wrong at .*; expected a comparison", 5),
        ("task = 'a' task = 'b'", "goes wrong at 'task'; expected and or or or the end", 11),
        ("task = 'a", "quote that opens here is not closed", 7),
        ("task in ()", "goes wrong at '\\)'", 9),
        ("task = 'a' ; drop", "goes wrong at ';'", 11),
        ("metrics.ff > 1", "No run has a field 'metrics.ff'; nearest: metrics.f1", 0),
        ("task = 'a' or params.learning_rat > 1", "nearest: params.learning_rate", 14),
        ("tusk = 'a'", "nearest: task", 0),
        ("password = 'a'", "nearest: state, tag, id", 0),
        ("metrics.f1 > 'a'", "this is a number; compare it with one", 0),
        ("metrics.f1 like 'a'", "like compares text", 0),
        ("task > 3", "this is text", 0),
        ("created_at > 'yesterday'", "this is a time", 0),
        ("created_at like '2026%'", "like compares text, and this is a time", 0),
        ("params.cased > true", "with = and != only", 0),
        ("task < null", "null can be compared with = and != only", 0),
    ],
)
def test_a_wrong_query_is_shown_with_a_caret_under_the_place(
    filled: Registry, query: str, message: str, column: int
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        filled.runs(query)
    *_, line, caret = str(caught.value).split("\n")
    assert (line, caret.index("^") - 2) == (f"  {query}", column)


def test_the_caret_stands_under_its_own_line(filled: Registry) -> None:
    with pytest.raises(InputError) as caught:
        filled.runs("task = 'a'\n  and tusk = 'b'\n  and name = 'c'")
    assert str(caught.value).endswith("\n    and tusk = 'b'\n        ^")


@pytest.mark.parametrize(
    "query",
    ["(" * 5000 + "seed = 1" + ")" * 5000, "not " * 400 + "seed = 1", " or ".join(["seed = 1"] * 500), "x" * 20_000],
    ids=["parentheses", "not", "or", "letters"],
)
def test_a_monstrous_query_is_refused(filled: Registry, query: str) -> None:
    with pytest.raises(InputError, match="too long"):
        filled.runs(query)


def test_a_wrong_sort_is_refused(filled: Registry) -> None:
    with pytest.raises(InputError, match=r"nearest: metrics\.f1"):
        filled.runs(sort="-metrics.ff")
    with pytest.raises(InputError, match="asc or desc"):
        filled.runs(sort="name upwards")
