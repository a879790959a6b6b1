"""Sides that take turns, and their figures. Run alone: pytest tests/gpu/test_step_time.py

Whole steps of all sides are in test_command.py.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks._pretraining_batches import make_batch
from benchmarks.gpu import sides, step_time
from benchmarks.gpu.results import NOT_REACHED, Report, StageRecord
from benchmarks.gpu.roofline import useful_flops
from benchmarks.gpu.setting import Budget, Setting
from benchmarks.gpu.sides import HERE, HERE_COMPILED, PEER, PEER_COMPILED, Side, shape_of
from tests.gpu.devices import PLENTY_S, small_setting

CASE = step_time.Case("2x64", 16, 4, (HERE,))
CONFIG = small_setting("cpu").build_config("2x64")
BATCHES = [make_batch(CONFIG, 4, 16, 0.56, seed=0)]


@dataclass
class Player(Side):
    """A side that only notes whose turn it is."""

    turns: list[str] = field(default_factory=list)

    def round(self) -> None:
        self.turns.append(self.name)

    def loss_without_dropout(self) -> float | None:
        return 1.0


def player(name: str, turns: list[str] | None = None, times_ms: tuple[float, ...] = ()) -> Any:
    return Player(name, None, [lambda: torch.zeros(())], list(times_ms), None, turns if turns is not None else [])  # type: ignore[arg-type]


def test_the_full_form_has_every_size_and_width_and_those_of_the_goals_first() -> None:
    cases = list(step_time.cases(Setting(torch.device("cpu"))))
    assert (cases[0].size, cases[0].width, cases[0].batch_size) == ("base", 128, 256)
    assert PEER_COMPILED in cases[0].sides
    wanted = {(size, width) for size in ("mini", "small", "base", "large") for width in (128, 512)}
    for side in (HERE, PEER, PEER_COMPILED):
        assert {(case.size, case.width) for case in cases if side in case.sides} == wanted
    assert all(case.batch_size * case.width == 32_768 for case in cases)


def test_sides_take_turns() -> None:
    turns: list[str] = []
    playing = [player("A", turns), player("B", turns)]
    step_time.take_turns(small_setting("cpu"), Budget(PLENTY_S), playing)
    assert turns == ["A", "B"] * 2
    assert [len(side.times_ms) for side in playing] == [2, 2]


def test_a_side_without_any_round_was_not_reached(tmp_path: Path) -> None:
    late = player(HERE)
    step_time.take_turns(small_setting("cpu"), Budget(0), [late])
    row = step_time.figures(small_setting("cpu"), Report(tmp_path / "r", ""), CONFIG, [], late, [late])
    assert row == {"side": HERE, "outcome": NOT_REACHED}


def test_ratios_are_paired_with_the_best_side_here() -> None:
    slow, fast = player(HERE, times_ms=(10, 20, 10)), player(HERE_COMPILED, times_ms=(5, 10, 6))
    peer = player(PEER, times_ms=(20, 40, 12))
    assert step_time.times_best_here(peer, [slow, fast, peer]) == 4.0
    assert step_time.times_best_here(fast, [slow, fast, peer]) == 1.0
    assert step_time.times_best_here(peer, [peer]) is None


def test_utilization_is_useful_operations_over_the_rate_that_was_measured(tmp_path: Path) -> None:
    report = Report(tmp_path / "r", "")
    report.stages["ceilings"] = StageRecord(
        "", [{"ceiling": "large product", "rate": 2e-3}, {"ceiling": "copy", "rate": 1.0}]
    )
    shape, side = shape_of(BATCHES[0]), player(HERE, times_ms=(1, 2, 4))
    row = step_time.figures(small_setting("cpu"), report, CONFIG, [shape], side, [side])
    assert row["ms"] == 2
    assert row["spread"] == 1.5
    assert row["tokens/s"] == 500 * shape.num_tokens
    assert row["MFU of measured rate"] == pytest.approx(useful_flops(CONFIG, shape) / 0.002 / 2e9)
    assert row["measured / predicted"] == 2 / row["predicted ms"]


def test_shapes_are_those_of_the_real_tokens() -> None:
    shape = shape_of(BATCHES[0])
    assert shape.num_tokens == int(BATCHES[0]["attention_mask"].sum())
    assert shape.num_predictions == int((BATCHES[0]["labels"] != -100).sum())
    assert shape.num_slots == 4 * 16


def test_a_side_that_fails_says_why_and_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80 GiB.\nGPU 0")

    monkeypatch.setattr(step_time, "build_side_model", fail)
    found = step_time.ready_side(small_setting("cpu"), Budget(PLENTY_S), CASE, HERE, {}, BATCHES)
    assert found == "OutOfMemoryError: CUDA out of memory. Tried to allocate 80 GiB."


def test_a_side_is_not_begun_without_time_or_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert step_time.ready_side(small_setting("cpu"), Budget(0), CASE, HERE, {}, BATCHES) == NOT_REACHED
    full = Setting(torch.device("cpu"))
    assert step_time.ready_side(full, Budget(30), CASE, PEER_COMPILED, {}, BATCHES) == NOT_REACHED
    monkeypatch.setattr(sides.peers, "IS_INSTALLED", False)
    found = step_time.ready_side(small_setting("cpu"), Budget(PLENTY_S), CASE, PEER, {}, BATCHES)
    assert found == "transformers is not installed"


def test_attention_dropout_is_that_of_the_sides_name() -> None:
    for name, expected in ((HERE, 0.0), (sides.HERE_DROPOUT, 0.1)):
        learner = sides.build_side_model(small_setting("cpu"), name, CONFIG)
        assert learner.model.config.attention_probs_dropout_prob == expected
