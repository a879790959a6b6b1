"""What wrong and hostile queries are told. Alone: pytest tests/orchestrator/registry/test_query_messages.py"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.base.errors import InputError
from orchestrator.registry import Registry
from orchestrator.registry.dialects import replace_unstorable
from orchestrator.registry.fields import FIELD_NAMES
from tests.orchestrator.registry.query_samples import literal
from tests.orchestrator.registry.samples import new_run

SLOW_ENOUGH = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize(
    ("query", "named", "column"),
    [
        # the language
        ("metrics.f1 >", "a number, text in quotes", 12),
        ("task = 'a') or (seed = 1", "and, or, the end", 10),
        ("task = “sst2”", "straight quotes", 7),
        ("task = 'a", "not closed", 7),
        ("1 < 2", "a field", 4),
        ("task = cola", "task = 'cola'", 7),
        ("metrics.f1_C++ > 0", 'stands in quotes, metrics."f1_C++"', 12),
        ("metrics.f1_Job Title > 0", "stands in quotes", 15),
        ('metrics."f1_C', "not closed", 8),
        # names
        ("metrics.ff > 1", "metrics.f1", 0),
        ("f1 > 1", "metrics.f1, metrics.test.f1", 0),
        ("password = 'a'", "state, id, name", 0),
        ("avg(metrics.f1) > 1", "best, worst, min, max, first, last, at", 0),
        ("at(metrics.f1, 1.5) > 1", "whole number", 0),
        # values that a field never has
        ("commit = 'xyz'", "commit", 0),
        ("group = 'spring'", "group", 0),
        ("metrics.f1 > 'a'", "number", 0),
        ("metrics.f1 between 0.9 and 0.7", "between 0.7 and 0.9", 0),
        ("state = 'done'", "'pending', 'running', 'completed'", 0),
        ("created_at > 'yesterday'", "a time", 0),
        ("created_at > 2026-13-99", "2026-13-99", 0),
        ("created_at > 99999w", "36500d", 0),
        ("params.cased = 'true'", "without quotes", 0),
        ("task < null", "null", 0),
        ("pinned > true", "= and != only", 0),
        ("pinned = 'yes'", "true or false", 0),
    ],
)
def test_a_wrong_query_names_what_is_wrong_with_a_caret_under_the_place(
    filled: Registry, query: str, named: str, column: int
) -> None:
    with pytest.raises(InputError) as caught:
        filled.runs(query)
    *message, line, caret = str(caught.value).split("\n")
    assert named in " ".join(message)
    assert (line, caret.index("^") - 2) == (f"  {query}", column)


def test_tags_that_serve_the_laboratory_alone_are_not_offered(registry: Registry) -> None:
    registry.annotations.tag(new_run(registry), [f"inputs:{'a' * 64}", f"pipeline:{'b' * 12}", "night"], reserved=True)
    assert registry.unmatched("tag = 'zzz'") == ["no run has tag = 'zzz'; there are: 'night'"]
    assert registry.unmatched("tags.zzz") == ["no run has the tag 'zzz'; there are: tags.night"]


def test_a_wrong_sort_is_refused(filled: Registry) -> None:
    with pytest.raises(InputError, match=r"nearest: metrics\.f1"):
        filled.runs(sort="-metrics.ff")
    with pytest.raises(InputError, match="asc or desc"):
        filled.runs(sort="name upwards")


def test_a_value_that_some_of_the_runs_have_is_no_error(filled: Registry) -> None:
    assert filled.num_runs("params.size in ('sst2', 'SST2')") == filled.num_runs("params.size = 'sst2'") > 0


def test_a_parameter_may_be_of_several_types(registry: Registry) -> None:
    for value in ("auto", 8, True):
        new_run(registry, spec={"batch_size": value})
    for query in ("params.batch_size = 8", "params.batch_size = 'auto'", "params.batch_size = true"):
        assert registry.num_runs(query) == 1
    assert registry.num_runs("params.batch_size = params.batch_size") == 3


PIECES = [
    *FIELD_NAMES,
    "metrics.f1",
    "params.size",
    "params.learning_rate",
    "params.cased",
    "tags.odd",
    "metrics.train.loss",
]
PIECES += ["and", "or", "not", "in", "is", "like", "between", "null", "true", "false", "(", ")", ",", "=", "!=", "=="]
PIECES += ["<", ">=", "0.5", "-1", "1e999", "7d", "30m", "99999w", "2026-11-22", "9999-12-31", "0001-01-01", "'sst2'"]
PIECES += ["'", '"', "''", "'%_'", "best(", "at(", "at(metrics.f1,5)", "max(metrics.train.loss)", "mrpc", "--", "\x00"]


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
    field=st.sampled_from([*FIELD_NAMES, "metrics.f1", "params.size", "params.cased", "best(metrics.f1)", "tags.odd"]),
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


HOSTILE = ["it's", '"', "%", "_", "\\", "\\%", "\0", "\ud800", "\u202ea", "a\nb", "\ufffd", "😀", "; drop", "é" * 3000]


@SLOW_ENOUGH
@given(
    text=st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=40),
    field=st.sampled_from(["name", "task", "kind", "id", "tag", "model", "host", "error", "fingerprint", "tags.odd"]),
    operator=st.sampled_from(["=", "!=", "in", "like", "<"]),
)
@pytest.mark.heavy
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
