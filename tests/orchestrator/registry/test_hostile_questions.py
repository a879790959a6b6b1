"""Questions that people and enemies type. Alone: pytest tests/orchestrator/registry/test_hostile_questions.py

`hostile_questions.txt` has a question a line, and after `⇒` the first letters of the runs that it finds, or `refused`.
Both databases give these answers.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import InputError
from orchestrator.base.results import MetricEvent
from orchestrator.registry import Registry
from tests.orchestrator.registry.samples import new_run

QUESTIONS = Path(__file__).with_name("hostile_questions.txt")
ANSWERS = [line.split(" ⇒ ") for line in QUESTIONS.read_text("utf-8").splitlines() if not line.startswith("#")]
RUNS: dict[str, dict[str, Any]] = {
    "plain": {"task": "sst2", "metric": "f1", "seed": 1, "tags": ["paper", "x:1"]},
    "w_%": {"task": "SST2", "metric": "f1", "seed": 2**53 + 1, "tags": ["été", "a'b"]},
    'He said "it\'s"': {"task": "überlänge", "metric": "loss", "seed": -1},
    "🎈 \u202e": {"task": "日本", "metric": "f1", "seed": 2**63 - 1},
    "long" * 700: {},
    "nul\0": {"task": "t\0"},
}
SPECS: list[dict[str, Any]] = [
    {"width": 5, "recipe": {"rate": 1e-5, "size": "tiny", "flag": True, "list": [1, 2], "none": None}},
    {"width": 2**53 + 1, "recipe": {"rate": math.nan, "size": "100%", "flag": False}},
    {"width": 2**53, "recipe": {"rate": math.inf, "size": "it's"}},
    {"width": 10**30 + 1, "recipe": {"rate": "1e-5", "size": "a\\b"}},
    {"recipe": {"rate": 10**30}},
    {"recipe": {"size": "n\0ul"}},
]


@pytest.fixture(scope="module")
def hostile(module_location: str) -> Iterator[Registry]:
    """Runs with what is hard to compare."""
    with Registry(module_location) as registry:
        ids = [
            new_run(registry, run_id=f"1{number:011}", name=name, kind="sweep", spec=spec, **RUNS[name])
            for number, (name, spec) in enumerate(zip(RUNS, SPECS, strict=True))
        ]
        measured: list[list[tuple[int, dict[str, float]]]] = [
            [(step, {"f1": 0.5 + step / 100, "loss": 1 / (step + 1)}) for step in range(5)],
            [(0, {"f1": math.nan})],
            [(0, {"loss": math.inf}), (1, {"loss": -math.inf})],
            [(2**62, {"f1": 0.9})],
            [],
            [(0, {"weird name": 1, "f1%": 2, "": 3, "été": 4, "a.b.c": 5})],
        ]
        for run_id, points in zip(ids, measured, strict=True):
            registry.metrics.record(run_id, [MetricEvent(step, "validation", values) for step, values in points])
        yield registry


def answer(registry: Registry, question: str) -> str:
    """First letters of the runs that a question finds, in the order of the alphabet, or that it is refused."""
    try:
        names = registry.run_table(question).values("name")
    except InputError as error:
        return "refused" if str(error).endswith("^") else str(error)
    assert registry.num_runs(question) == len(names)
    assert len(registry.run_table(f"not ({question})").records) == len(RUNS) - len(names)
    return "".join(sorted(name[0] for name in names)) or "-"


def test_hostile_questions_have_one_answer_on_every_database(hostile: Registry) -> None:
    wrong = []
    for question, *expected in ANSWERS:
        found = answer(hostile, question)
        wrong += [] if expected == [found] else [f"{question} ⇒ {found}, not {expected[0]}"]
    assert not wrong, "\n".join(wrong)


def test_long_questions_are_answered_up_to_a_limit_that_quoted_text_does_not_count_towards(hostile: Registry) -> None:
    assert answer(hostile, f"note like '{'(' * 300}'") == "-"
    assert answer(hostile, f"{'(' * 60}task = 'sst2'{')' * 60}") == "p"
    assert answer(hostile, " or ".join(["task = 'sst2'"] * 199)) == "p"
    assert answer(hostile, f"metrics.loss < 1{'0' * 400}") == "Hp"  # no double is so large
    for question in ("not " * 60 + "task = 'sst2'", " or ".join(["task = 'x'"] * 250), "x" * 20_000):
        assert "too long" in answer(hostile, question)


@pytest.mark.parametrize(
    ("create", "events"),
    [
        ({"seed": 2**63}, []),
        ({"spec": {"recipe": {"rate": 10**400}}}, []),
        ({}, [MetricEvent(2**63, "validation", {"f1": 0.5})]),
        ({}, [MetricEvent(1, "validation", {"f1": 10**400})]),
        ({}, [MetricEvent(2**63 + step, "validation", {"f1": 0.5}) for step in range(40)]),
    ],
    ids=["seed", "parameter", "step", "value", "steps"],
)
def test_a_number_that_no_column_holds_is_refused(
    registry: Registry, create: dict[str, Any], events: list[MetricEvent]
) -> None:
    with pytest.raises(InputError, match="larger than"):
        registry.metrics.record(new_run(registry, **create), events)
    assert registry.run_table("metrics.f1 is not null or seed is not null").records == []
