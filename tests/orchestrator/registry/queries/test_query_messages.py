"""What the query language says of a text that is wrong, and that nothing a person types can break it.

pytest tests/orchestrator/registry/queries/test_query_messages.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from orchestrator.errors import InputError
from orchestrator.registry import Registry
from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.queries.query_fields import NAMES
from orchestrator.results import MetricEvent
from tests.orchestrator.registry.queries.query_samples import literal
from tests.orchestrator.registry.samples import new_run

SLOW_ENOUGH = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
END = "and, or, or the end"
VALUES = "a number, text in quotes, a date, an age \\(7d\\), or a field"


@pytest.mark.parametrize(
    ("query", "message", "column"),
    [
        ("metrics.f1 >", f"ends too early; expected {VALUES}:", 12),
        ("metrics.f1 > 0.9 and", "ends too early; expected a field", 20),
        ("(task = 'a'", "ends too early; expected \\):", 11),
        ("task = 'a' task = 'b'", f"goes wrong at 'task'; expected {END}:", 11),
        ("task = 'a') or (seed = 1", rf"goes wrong at '\)'; expected {END}:", 10),
        ("task = 'a' ; drop", f"goes wrong at ';'; expected {END}:", 11),
        ("task 'a'", "goes wrong at .*; expected a comparison .*, in, like, between, or is:", 5),
        ("task = “sst2”", "Text stands in straight quotes, ' or \":", 7),
        ("task = ‘sst2’", "Text stands in straight quotes", 7),
        ("TASK = 'sst2'", "No run has a field 'TASK'; nearest: task:", 0),
        ("task = 'a", "quote that opens here is not closed", 7),
        ("task in ()", "goes wrong at '\\)'", 9),
        ("seed between 1 or 2", "goes wrong at 'or'; expected and:", 15),
        ("task is 'a'", "expected null or not:", 8),
        ("created_at > 7days", "'7days' is no number, date or age, and text stands in quotes \\('7days'\\)", 13),
        ("1 < 2", "There should be a field on one side", 4),
        # words without quotes
        ("task = cola", "cola is no field, and text stands in quotes: task = 'cola':", 7),
        ("task in ('sst2', cola)", r"stands in quotes: task in \('cola', …\):", 17),
        ("task like co", "Text stands in quotes: like 'co':", 10),
        ("state = completed", "text stands in quotes: state = 'completed'", 8),
        ("tag = paper", "text stands in quotes: tag = 'paper'", 6),
        ("metrics.f1 > high", "No run has a field 'high'", 13),
        ("metrics.f1 > metrics.tst.f1", "No run has a field 'metrics.tst.f1'; nearest: .*metrics.test.f1", 13),
        # names
        ("metrics.ff > 1", "No run has a field 'metrics.ff'; nearest: metrics.f1", 0),
        ("f1 > 1", "nearest: metrics.f1, metrics.test.f1", 0),
        ("params.lr > 1", "nearest: params.learning_rate, params.recipe.learning_rate:", 0),
        ("metrics.los > 1", "nearest: metrics.train.loss", 0),
        ("commit = 'xyz'", "this is a commit's id; give 4 to 40 of its hexadecimal digits", 0),
        ("commit < 'abcd'", "commits have no order", 0),
        ("task = 'a' or params.learning_rat > 1", "nearest: params.learning_rate", 14),
        ("tusk = 'a'", "nearest: task", 0),
        ("password = 'a'", "there are: state, id, name", 0),
        ("avg(metrics.f1) > 1", "avg is no function; there are best, worst, min, max, first, last, at:", 0),
        ("best(task) > 1", "task has no history; best takes a measurement", 5),
        ("best(score) > 1", r"score has no history; best takes a measurement, such as metrics\.f1:", 5),
        ("at(metrics.f1) > 1", r"at takes a step, at\(metrics.loss, 1000\)", 0),
        ("best(metrics.f1, 3) > 1", "and the other functions none", 0),
        ("at(metrics.f1, 1.5) > 1", "a step is a whole number", 0),
        ("at(metrics.f1, 1e30) > 1", "a step is a whole number", 0),
        # values that a field never has
        ("group = 'spring'", "this is a group's id; give 4 or more of its digits, in quotes", 0),
        ("group = 'abc'", "this is a group's id", 0),
        ("group in ('abcd', '')", "this is a group's id", 0),
        ("metrics.f1 > 'a'", "this is a number; compare it with one", 0),
        ("metrics.f1 = true", "this is a number", 0),
        ("metrics.f1 > 7d", "this is a number", 0),
        ("metrics.f1 like 'a'", "like compares text", 0),
        (
            "metrics.f1 between 0.9 and 0.7",
            "nothing is between 0.9 and 0.7; the smaller one comes first: between 0.7 and 0.9:",
            0,
        ),
        ("metrics.f1 not between 0.9 and 0.7", "nothing is between 0.9 and 0.7", 0),
        ("seconds between 2h and 30m", "between 2h and 30m; the smaller one comes first: between 30m and 2h:", 0),
        ("seconds between 2h and 60", "between 2h and 60; the smaller one comes first: between 60 and 2h:", 0),
        ("created_at between 1d and 7d", "between 1d and 7d; the older one comes first: between 7d and 1d:", 0),
        (
            "created_at between 2026-11-22 and 2026-11-20",
            "2026-11-22 and 2026-11-20; the older one comes first: between 2026-11-20 and 2026-11-22:",
            0,
        ),
        ("created_at between 1d and 2026-11-20", "nothing is between 1d and 2026-11-20; the older one", 0),
        ("metrics.f1 between null and 1", "between takes two values", 0),
        ("task > 3", "this is text", 0),
        ("task > metrics.f1", "text cannot be compared with number", 0),
        ("tag = task", "a run may have several tags", 0),
        ("seed = 1.5", "this is a whole number, and never 1.5", 0),
        ("seconds > '1h'", "a number of seconds; compare it with one, or with a length like 30m", 0),
        ("state = 'done'", "no run is ever 'done'; a state is 'pending', 'running', 'completed'", 0),
        ("state in ('completed', 'done')", "no run is ever 'done'", 0),
        ("state > 'done'", "states have no order", 0),
        ("kind = 'pretran'", "no run is ever of the kind 'pretran'; a kind is .*'pretrain'", 0),
        ("created_at > 'yesterday'", "this is a time; compare it with one like 2026-11-20", 0),
        ("created_at > '7d'", "or with an age like 7d, which stands without quotes:", 0),
        ("created_at > 2026-13-99", "this is a time, and the calendar has no 2026-13-99:", 0),
        ("created_at > '0001-01-01T00:00+14:00'", "this is a time", 0),
        ("created_at like '2026%'", "like compares text, and this is a time", 0),
        ("created_at = 7d", "an age can be compared with < <= > >= and between only", 0),
        ("created_at > 99999w", "the longest age is 36500d", 0),
        ("params.cased > true", "with = and != only", 0),
        ("params.cased = 'true'", "this is true or false; write it without quotes", 0),
        ("params.learning_rate = '5e-5'", "this is a number; compare it with one, without quotes", 0),
        ("params.learning_rate like '5%'", "this is a number", 0),
        ("params.learning_rate > 7d", "an age is compared with a time or with seconds only", 0),
        ("params.size = 3", "this is text; compare it with text in quotes", 0),
        ("params.size = 'SST2'", r"no run has 'SST2'; did you mean 'sst2'\? There are '', '100%', 'C:", 0),
        ("params.size = 'zzzzzz'", r"no run has 'zzzzzz'; there are '', '100%', 'C:", 0),
        ("params.size != 'SST2'", "no run has 'SST2'", 0),
        ("params.size in ('SST2', 'COLA')", "no run has 'SST2' or 'COLA'", 0),
        ("task < null", "null can be compared with = and != only", 0),
        ("tags.odd = 3", "this is true, or the text after the colon", 0),
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


def test_a_tag_of_no_run_is_no_error_and_is_told(filled: Registry) -> None:
    for query in ("tags.drit", "tags.drit = 'head'"):
        assert filled.num_runs(query) == 0
        assert filled.unmatched(query) == ["no run has the tag 'drit'; nearest: tags.drift"]
    assert filled.num_runs("not tags.paper") == filled.num_runs()


def test_tags_that_serve_the_laboratory_alone_are_not_offered(registry: Registry) -> None:
    registry.tag(new_run(registry), f"inputs:{'a' * 64}", f"pipeline:{'b' * 12}", "night")
    assert registry.unmatched("tag = 'zzz'") == ["no run has tag = 'zzz'; there are: 'night'"]
    assert registry.unmatched("tags.zzz") == ["no run has the tag 'zzz'; there are: tags.night"]


def test_a_wrong_sort_is_refused(filled: Registry) -> None:
    with pytest.raises(InputError, match=r"nearest: metrics\.f1"):
        filled.runs(sort="-metrics.ff")
    with pytest.raises(InputError, match="asc or desc"):
        filled.runs(sort="name upwards")


def test_an_ambiguous_last_part_lists_the_paths(registry: Registry) -> None:
    new_run(registry, spec={"a": {"size": 1}, "b": {"size": 2}})
    with pytest.raises(InputError, match=r"say which of params\.a\.size, params\.b\.size"):
        registry.runs("params.size = 1")


def test_a_value_that_some_of_the_runs_have_is_no_error(filled: Registry) -> None:
    assert filled.num_runs("params.size in ('sst2', 'SST2')") == filled.num_runs("params.size = 'sst2'") > 0


def test_a_parameter_may_be_of_several_types(registry: Registry) -> None:
    for value in ("auto", 8, True):
        new_run(registry, spec={"batch_size": value})
    for query in ("params.batch_size = 8", "params.batch_size = 'auto'", "params.batch_size = true"):
        assert registry.num_runs(query) == 1
    assert registry.num_runs("params.batch_size = params.batch_size") == 3


def test_a_long_line_is_shown_around_the_place(filled: Registry) -> None:
    with pytest.raises(InputError) as caught:
        filled.runs(" or ".join(["seed = 1"] * 100) + " or tusk = 'a' or " + " or ".join(["seed = 1"] * 50))
    *_, line, caret = str(caught.value).split("\n")
    assert len(line) < 130
    assert line[caret.index("^") :].startswith("tusk = 'a'")


# ------------------------------------------------------------------ what nothing may break

PIECES = [*NAMES, "metrics.f1", "params.size", "params.learning_rate", "params.cased", "tags.odd", "metrics.train.loss"]
PIECES += ["and", "or", "not", "in", "is", "like", "between", "null", "true", "false", "(", ")", ",", "=", "!=", "=="]
PIECES += ["<", ">=", "0.5", "-1", "1e999", "7d", "30m", "99999w", "2026-11-22", "9999-12-31", "0001-01-01", "'sst2'"]
PIECES += [
    "'",
    '"',
    "''",
    "'%_'",
    "best(",
    "at(",
    "at(metrics.f1, 5)",
    "max(metrics.train.loss)",
    "mrpc",
    ";",
    "--",
    "\0",
]


def is_answered_or_refused(registry: Registry, query: str) -> bool:
    """Whether the query has an answer, or an error that shows what is wrong with it, and where."""
    try:
        registry.run_table(query, limit=5)
    except InputError as error:
        return str(error).endswith("^") or "too long" in str(error)
    return True


@SLOW_ENOUGH
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12))
def test_words_of_the_language_in_any_order_are_answered_or_refused(filled: Registry, pieces: list[str]) -> None:
    assert is_answered_or_refused(filled, " ".join(pieces))


@SLOW_ENOUGH
@given(
    field=st.sampled_from([*NAMES, "metrics.f1", "params.size", "params.cased", "best(metrics.f1)", "tags.odd"]),
    operator=st.sampled_from(["=", "!=", "<", ">=", "in (", "like", "between 1 and"]),
    value=st.sampled_from(
        ["0.5", "1e999", "-1e999", "7d", "36500d", "9999-12-31", "0001-01-01", "null", "true", "'x'"]
    ),
)
def test_any_field_beside_any_value_is_answered_or_refused(
    filled: Registry, field: str, operator: str, value: str
) -> None:
    assert is_answered_or_refused(filled, f"{field} {operator} {value}" + (")" if operator == "in (" else ""))


@SLOW_ENOUGH
@given(text=st.text(max_size=80))
def test_any_text_is_answered_or_refused(filled: Registry, text: str) -> None:
    assert is_answered_or_refused(filled, text)


HOSTILE = [
    "it's",
    "''",
    '"',
    "%",
    "_",
    "\\",
    "\\%",
    "\0",
    "\ud800",
    "\u202eabc",
    "a\nb",
    "\ufffd",
    "😀",
    "; drop",
    "é" * 3000,
]


@SLOW_ENOUGH
@given(
    text=st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=40),
    field=st.sampled_from(["name", "task", "kind", "id", "tag", "model", "host", "error", "fingerprint", "tags.odd"]),
    operator=st.sampled_from(["=", "!=", "in", "like", "<"]),
)
def test_any_text_can_be_compared_with(filled: Registry, text: str, field: str, operator: str) -> None:
    value = literal(text)
    assert is_answered_or_refused(filled, f"{field} {operator} " + (f"({value})" if operator == "in" else value))


def test_hostile_names_are_found_by_their_text_alone(registry: Registry) -> None:
    for text in HOSTILE:
        new_run(registry, name=text, tags=[text], spec={"size": text})
    for text in HOSTILE:
        same = {replace_unstorable(other) for other in HOSTILE} & {replace_unstorable(text)}
        for field in ("name", "tag", "params.size"):
            names = registry.run_table(f"{field} = {literal(text)}").values("name")
            assert set(names) == same, (field, text)


@pytest.mark.parametrize("length", [9_000, 1_000_000])
def test_a_very_long_text_is_compared_or_refused(filled: Registry, length: int) -> None:
    assert is_answered_or_refused(filled, f"name = {literal('x' * length)}")


# ------------------------------------------------------------------ what an error costs


def test_an_error_costs_the_same_however_many_runs_there_are(tmp_path: Path) -> None:
    """Counted in steps of SQLite's machine, of which a scan takes several for each row."""
    costs = []
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        for size in (10, 300):
            for index in range(size):
                run_id = new_run(registry, spec={"recipe": {"learning_rate": float(index), "size": "tiny"}})
                registry.metrics.record(run_id, [MetricEvent(1, "validation", {"f1": float(index)})])
            with counted_steps(registry) as steps, pytest.raises(InputError, match=r"nearest: params\.learning_rate"):
                registry.runs("params.lr > 1")
            costs.append(len(steps))
    assert costs[1] < 1.5 * costs[0]


@contextmanager
def counted_steps(registry: Registry) -> Iterator[list[int]]:
    """A list that grows by one at every step of SQLite's machine."""
    steps: list[int] = []
    registry.open()
    engine = registry._database._engine
    assert engine is not None

    def count(connection: Any, cursor: Any, *_: object) -> None:
        cursor.connection.set_progress_handler(lambda: steps.append(1), 1)

    event.listen(engine, "before_cursor_execute", count)
    yield steps
    event.remove(engine, "before_cursor_execute", count)
