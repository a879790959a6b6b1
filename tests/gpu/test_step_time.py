"""Sides that take turns, and their figures. Run alone: pytest tests/gpu/test_step_time.py

Whole steps of all sides are in test_command.py.
"""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks._pretraining_batches import make_batch
from benchmarks.gpu import goals, sides, step_time
from benchmarks.gpu import setting as setting_module
from benchmarks.gpu.cases import COMPILED, EAGER, Case, cases
from benchmarks.gpu.ceilings import COPY, LARGE_PRODUCT, LAUNCH
from benchmarks.gpu.results import NOT_REACHED, Report, StageRecord
from benchmarks.gpu.roofline import useful_flops
from benchmarks.gpu.setting import Budget, Setting
from benchmarks.gpu.sides import HERE, HERE_COMPILED, PEER, PEER_COMPILED, Side, shape_of
from benchmarks.gpu.stages import STAGES, run_stage
from tests.gpu.devices import PLENTY_S, small_setting

STEP_TIME = next(stage for stage in STAGES if stage.name == "step time")
CASE = Case("2x64", 16, 4, (HERE,), EAGER)
CONFIG = small_setting("cpu").build_config("2x64")
BATCHES = [make_batch(CONFIG, 4, 16, 0.56, seed=0)]


@dataclass(eq=False)
class Player(Side):
    """A side that only notes whose turn it is."""

    turns: list[str] = field(default_factory=list)
    fails: bool = False

    def make_steps(self) -> list[torch.Tensor]:
        self.turns.append(self.name)
        if self.fails:
            raise RuntimeError("CUDA error: an illegal memory access\nmore")
        return []


def player(name: str, turns: list[str] | None = None, times_ms: tuple[float, ...] = ()) -> Any:
    steps, times = [lambda: torch.zeros(())], list(times_ms)
    return Player(name, None, steps, times, times[:], loss=7.0, turns=turns if turns is not None else [])  # type: ignore[arg-type]


def test_the_full_form_has_every_size_and_width_and_those_of_the_goals_first() -> None:
    full = list(cases(Setting(torch.device("cpu"))))
    assert (full[0].size, full[0].width, full[0].batch_size) == ("base", 128, 256)
    assert (full[1].size, full[1].width, full[1].sides) == ("base", 128, (HERE, HERE_COMPILED, PEER_COMPILED))
    assert PEER in full[0].sides
    assert PEER_COMPILED not in full[0].sides
    wanted = {(size, width) for size in ("tiny", "mini", "small", "base", "large") for width in (128, 512)}
    graphed = {(size, width) for size in ("tiny", "mini", "small") for width in (128, 512)}
    expected = dict.fromkeys((HERE, HERE_COMPILED, PEER, PEER_COMPILED), wanted)
    expected |= dict.fromkeys(sides.GRAPHED_HERE, graphed)
    for side, found in expected.items():
        assert {(case.size, case.width) for case in full if side in case.sides} == found
    assert all(case.batch_size * case.width == 32_768 for case in full)


def test_the_goals_have_their_figures_from_the_first_cases(tmp_path: Path) -> None:
    full = list(cases(Setting(torch.device("cpu"))))
    figures = {"MFU of measured rate": 0.5, "× the best here": 2.0, "tokens/s": 1.0}
    rows = [
        {**case.named(fill), "side": side, **figures}
        for case in full[:5]
        for fill in step_time.FILLS
        for side in case.sides
    ]
    report = Report(tmp_path / "r", "", {"step time": StageRecord("", rows)})
    assert all(goal.figure is not None for goal in goals.goals(report))
    assert [case.kind for case in full[:5]] == [EAGER, COMPILED, EAGER, EAGER, EAGER]


def test_a_second_run_goes_on_with_what_the_first_did_not_reach(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, str]] = []
    unreached = {PEER_COMPILED}

    def ready(setting: Setting, budget: Budget, case: Case, name: str, learners: dict[str, Any], *_: object) -> Any:
        asked.append((case.kind, name))
        learners[name] = None
        return step_time.Unmeasured(name, NOT_REACHED) if name in unreached else player(name)

    def run(made_with: str) -> list[dict[str, Any]]:
        asked.clear()
        report = Report.open(tmp_path / "r", "", made_with)
        assert run_stage(STEP_TIME, small_setting("cpu"), Budget(PLENTY_S), report)
        return [dict(row) for row in report.rows("step time")]

    monkeypatch.setattr(step_time, "ready_side", ready)
    monkeypatch.setattr(step_time, "figures", lambda *given: {"side": given[-2].name, "ms": 1.0})
    first = run("this code")
    assert {kind for kind, _ in asked} == {"eager", "compiled", "graphs"}
    unreached.clear()
    second = run("this code")
    assert asked == [("compiled", side) for side in (HERE, HERE_COMPILED, PEER_COMPILED)] * len(step_time.FILLS)
    assert [row for row in second if row["case"] != "compiled"] == [row for row in first if row["case"] != "compiled"]
    assert len(second) == len(first)
    assert not [row for row in second if "outcome" in row]
    run("this code")
    assert asked == []
    assert len(run("other code")) == len(first)
    assert {kind for kind, _ in asked} == {"eager", "compiled", "graphs"}


def test_sides_take_turns() -> None:
    turns: list[str] = []
    playing = [player("A", turns), player("B", turns)]
    assert list(step_time.take_turns(small_setting("cpu"), Budget(PLENTY_S), playing)) == []
    assert turns == ["A", "B"] * 2
    assert [len(side.times_ms) for side in playing] == [2, 2]


def test_a_step_has_the_time_of_the_host_that_goes_ahead_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    side, seconds = player(HERE), [0.0]
    monkeypatch.setattr(setting_module.time, "perf_counter", lambda: seconds[0])

    def pass_time(amount_s: float) -> None:
        seconds[0] += amount_s

    monkeypatch.setattr(Player, "make_steps", lambda self: pass_time(0.004))
    monkeypatch.setattr(Setting, "synchronize", lambda self: pass_time(0.003))
    assert list(step_time.take_turns(small_setting("cpu"), Budget(PLENTY_S), [side])) == []
    assert side.host_times_ms == pytest.approx([4.0, 4.0])
    assert side.times_ms == pytest.approx([7.0, 7.0])


def test_a_side_without_any_round_was_not_reached(tmp_path: Path) -> None:
    late = player(HERE)
    assert list(step_time.take_turns(small_setting("cpu"), Budget(0), [late])) == []
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
    rows = [{"ceiling": LARGE_PRODUCT, "rate": 2e-3}, {"ceiling": COPY, "rate": 1.0}, {"ceiling": LAUNCH, "rate": 5.0}]
    report.stages["ceilings"] = StageRecord("", rows)
    shape, side = shape_of(BATCHES[0]), player(HERE, times_ms=(1, 2, 4))
    row = step_time.figures(small_setting("cpu"), report, CONFIG, [shape], side, [side])
    assert row["ms"] == row["host ms"] == 2
    assert row["spread"] == 1.5
    assert row["tokens/s"] == 500 * shape.num_tokens
    assert row["MFU of measured rate"] == pytest.approx(useful_flops(CONFIG, shape) / 0.002 / 2e9)
    assert row["measured / predicted"] == 2 / row["predicted ms"]


def test_without_a_measured_rate_there_is_no_utilization_and_no_prediction(tmp_path: Path) -> None:
    report, side = Report(tmp_path / "r", ""), player(HERE, times_ms=(1, 2, 4))
    row = step_time.figures(small_setting("cpu"), report, CONFIG, [shape_of(BATCHES[0])], side, [side])
    assert row["ms"] == 2
    for column in ("MFU of measured rate", "predicted ms", "measured / predicted"):
        assert row[column] is None
    goal = {"size": "base", "S": 128, "fill": 1.0}
    report.stages["step time"] = StageRecord("", [{**row, **goal}])
    assert all(goal.figure is None for goal in goals.goals(report) if "MFU" in goal.asked)


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
    assert isinstance(found, step_time.Unmeasured)
    reason = "OutOfMemoryError: CUDA out of memory. Tried to allocate 80 GiB."
    assert found.row == {"side": HERE, "outcome": reason, "ok": False}
    peer = step_time.ready_side(small_setting("cpu"), Budget(PLENTY_S), CASE, PEER, {}, BATCHES)
    assert isinstance(peer, step_time.Unmeasured)
    assert peer.row == {"side": PEER, "outcome": reason}, "that of another library is no failed check"


def test_a_side_that_fails_in_its_turn_is_taken_out_and_the_others_go_on() -> None:
    turns: list[str] = []
    failing, other = player(HERE_COMPILED, turns), player(PEER, turns)
    failing.fails = True
    playing = [failing, other]
    (found,) = step_time.take_turns(small_setting("cpu"), Budget(PLENTY_S), playing)
    reason = "RuntimeError: CUDA error: an illegal memory access"
    assert found.row == {"side": HERE_COMPILED, "outcome": reason, "ok": False}
    assert playing == [other]
    assert turns == [HERE_COMPILED, PEER, PEER]


def test_rows_are_there_although_every_turn_and_figure_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no time passed")

    def ready(setting: Setting, budget: Budget, case: object, name: str, learners: dict[str, Any], *_: object) -> Side:
        learners[name], side = None, player(name)
        side.fails = name == HERE_COMPILED
        return side

    monkeypatch.setattr(step_time, "ready_side", ready)
    monkeypatch.setattr(step_time, "figures", fail)
    rows = list(step_time.measure(small_setting("cpu"), Budget(PLENTY_S), Report(tmp_path / "r", "")))
    assert {row["side"] for row in rows if row.get("ok") is False} == set(sides.LEVERS)
    assert {row["side"] for row in rows} == {*sides.LEVERS, PEER, PEER_COMPILED}
    assert set(sides.LEVERS) == {HERE, HERE_COMPILED, *sides.GRAPHED_HERE, sides.HERE_DROPOUT}


def test_losses_of_sides_may_differ_by_a_hundredth() -> None:
    side, other = player(HERE), player(PEER)
    for loss, expected in ((7.06, True), (6.94, True), (7.08, False), (float("nan"), False)):
        side.loss = loss
        assert step_time.computes_the_same(side, other) is expected


def test_a_side_is_not_begun_without_time_or_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    late = step_time.ready_side(small_setting("cpu"), Budget(0), CASE, HERE, {}, BATCHES)
    assert late == step_time.Unmeasured(HERE, NOT_REACHED)
    full = Setting(torch.device("cpu"))
    for name, left_s in ((PEER_COMPILED, 30), (HERE_COMPILED, 15), (sides.HERE_COMPILED_GRAPHS, 15)):
        late = step_time.ready_side(full, Budget(left_s), CASE, name, {}, BATCHES)
        assert late == step_time.Unmeasured(name, NOT_REACHED)
    monkeypatch.setattr(sides.peers, "IS_INSTALLED", False)
    found = step_time.ready_side(small_setting("cpu"), Budget(PLENTY_S), CASE, PEER, {}, BATCHES)
    assert found == step_time.Unmeasured(PEER, "transformers is not installed")


def test_attention_dropout_is_that_of_the_sides_name() -> None:
    for name, expected in ((HERE, 0.0), (sides.HERE_DROPOUT, 0.1)):
        learner = sides.build_side_model(small_setting("cpu"), name, CONFIG)
        assert learner.model.config.attention_probs_dropout_prob == expected


@pytest.mark.filterwarnings("default")  # the compiler's own
@pytest.mark.parametrize("name", sides.COMPILED_HERE)
def test_layers_are_compiled_as_a_training_run_does_and_too_many_graphs_are_an_error(name: str) -> None:
    with torch._dynamo.config.patch(recompile_limit=8, fail_on_recompile_limit_hit=False):
        learner = sides.build_side_model(small_setting("cpu"), name, CONFIG)
        assert torch._dynamo.config.recompile_limit == 64
        assert torch._dynamo.config.fail_on_recompile_limit_hit
    compiled = [name for name, module in learner.model.named_modules() if "before_attention" in vars(module)]
    assert len(compiled) == CONFIG.num_hidden_layers


def test_a_weight_that_transformers_would_keep_as_drawn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    learner = sides.build_side_model(small_setting("cpu"), HERE, CONFIG)
    state = dict(learner.model.state_dict())
    del state[next(name for name in state if "pooler" in name)]
    monkeypatch.setattr(learner.model, "state_dict", lambda: state)
    with pytest.raises(AssertionError, match=r"lacks: .*pooler"):
        sides.peers.build_peer(learner.model, torch.device("cpu"))


def test_memory_counts_from_before_the_first_steps_in_which_graphs_take_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    allocated = {"others": 1000, "weights": 70}

    def told(call: str, value: int = 0) -> Any:
        return lambda device: [calls.append(call), value][1]

    side = player(sides.HERE_GRAPHS, calls)
    side.learner = SimpleNamespace(num_bytes=allocated["weights"])
    monkeypatch.setattr(step_time, "build_side", lambda *_: side)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", told("from here"))
    monkeypatch.setattr(torch.cuda, "memory_allocated", told("allocated", sum(allocated.values())))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", told("peak", 1000 + 70 + 500))
    monkeypatch.setattr(Player, "make_steps", lambda self: [calls.append("steps"), [torch.zeros(())]][1])
    case = Case("2x64", 16, 4, (sides.HERE_GRAPHS,), EAGER)
    on_a_card = Setting(torch.device("cuda"), is_small=True)
    found = step_time.prepare(on_a_card, case, sides.HERE_GRAPHS, {sides.HERE_GRAPHS: side.learner}, BATCHES)
    assert calls == ["from here", "allocated", "steps", "steps", "peak"]
    assert found.peak_bytes == 70 + 500


@pytest.mark.parametrize("name", sides.GRAPHED_HERE)
def test_graphs_are_not_available_without_a_card(name: str) -> None:
    found = step_time.ready_side(small_setting("cpu"), Budget(PLENTY_S), CASE, name, {}, BATCHES)
    reason = "not available here: CUDA graphs need an NVIDIA GPU"
    assert found == step_time.Unmeasured(name, reason)
    assert found.row == {"side": name, "outcome": reason}, "no failed check"
