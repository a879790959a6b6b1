"""Levers that are switched off one at a time. Run alone: pytest tests/gpu/test_levers.py"""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from benchmarks._pretraining_batches import make_batch, pack_batch
from benchmarks.gpu import levers
from benchmarks.gpu.levers import LEVER_NAMES, NONE
from benchmarks.gpu.measured_tables import WITHOUT
from benchmarks.gpu.own_step import Learner, own_loss
from benchmarks.gpu.results import NOT_REACHED, Report
from benchmarks.gpu.roofline import ALL_LEVERS
from benchmarks.gpu.setting import Budget, Setting
from bert_core.kernels import block_cross_entropy, linear_cross_entropy
from bert_core.layers.layer_norm import LayerNorm
from bert_core.model import BertModel
from tests.gpu.devices import ON_EACH_DEVICE, rows_of, small_setting

pytestmark = pytest.mark.filterwarnings("default")  # the compiler's own
CONFIG = small_setting("cpu").build_config("base")
BATCHES = [make_batch(CONFIG, 4, 16, 0.56, seed=0)]


def rows_read_of_the_last_layer(learner: Learner) -> int:
    """Rows that the encoder is asked for in a step, or all tokens where it is asked for no rows."""
    seqs, labels = pack_batch(BATCHES[0])
    with mock.patch.object(BertModel, "encode", autospec=True, side_effect=BertModel.encode) as encode:
        own_loss(learner, (seqs, labels))()
    (call,) = encode.call_args_list
    return seqs.num_tokens if len(call.args) == 2 else len(call.args[2])


def pulled(learner: Learner) -> dict[str, bool]:
    """Which levers a model and its optimizer have; that of the cross entropy is pulled in each of its steps."""
    model: Any = learner.model
    num_tokens, num_labels = int(BATCHES[0]["attention_mask"].sum()), int((BATCHES[0]["labels"] >= 0).sum())
    num_rows = rows_read_of_the_last_layer(learner)
    assert num_rows in (num_labels + 4, num_tokens)
    return {
        "fused_adamw": all(group["fused"] for group in learner.optimizer.param_groups),
        "varlen": model.config.attention_probs_dropout_prob == 0.0,
        "compiled_layers": any("before_attention" in vars(module) for module in model.modules()),
        "bf16_residual": all(m.residual_dtype == torch.bfloat16 for m in model.modules() if isinstance(m, LayerNorm)),
        "last_layer_rows": num_rows < num_tokens,
    }


@pytest.mark.parametrize("name", [NONE, *LEVER_NAMES])
def test_one_lever_is_off_and_the_others_are_pulled(name: str) -> None:
    found = pulled(levers.build_without(small_setting("cpu"), CONFIG, name))
    assert [lever for lever, is_pulled in found.items() if not is_pulled] == [
        lever for lever in found if lever == name
    ], found


def test_the_default_optimizer_is_the_one_of_several_passes() -> None:
    learner = levers.build_without(small_setting("cpu"), CONFIG, "fused_adamw")
    with mock.patch.object(torch, "_foreach_lerp_", wraps=torch._foreach_lerp_) as several:
        learner.step(own_loss(learner, pack_batch(BATCHES[0])))
    assert several.called


@pytest.mark.parametrize("name", [NONE, "fused_cross_entropy"])
def test_only_steps_without_fused_cross_entropy_go_block_by_block(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(block_cross_entropy, "_fused_kernel", lambda device: asked.append("kernel"))
    monkeypatch.setattr(linear_cross_entropy, "_block_rows", lambda weight: (asked.append("rows"), 512)[1])
    side = levers.prepare(small_setting("cpu"), CONFIG, name, BATCHES)
    assert bool(asked) is (name == NONE)
    assert side.name == name
    assert block_cross_entropy._fused_kernel(torch.device("cpu")) is None
    assert asked[-1] == "kernel", "what was there is there again"


@ON_EACH_DEVICE
def test_each_lever_has_a_row_with_what_the_step_takes_longer_without_it(device: str, tmp_path: Path) -> None:
    rows = rows_of(levers.measure, device, Report(tmp_path / "r", ""))
    assert [row["without"] for row in rows] == [NONE, *LEVER_NAMES] == list(WITHOUT)
    assert all(row["ok"] for row in rows), rows
    assert rows[0]["ms longer"] == 0.0
    assert all(row["ms"] > 0 and "predicted ms" not in row for row in rows), "without ceilings"


def test_predictions_are_those_of_all_levers_but_one() -> None:
    assert levers.levers_without(NONE) == ALL_LEVERS
    for name in LEVER_NAMES:
        without = vars(levers.levers_without(name))
        assert [other for other, is_pulled in without.items() if not is_pulled] == [name]


def test_a_lever_that_cannot_be_switched_off_is_a_failed_check_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build = levers.build_without

    def fail_on_one(setting: Any, config: Any, name: str) -> Learner:
        if name == "varlen":
            raise torch.OutOfMemoryError("CUDA out of memory.\nGPU 0")
        return build(setting, config, name)

    monkeypatch.setattr(levers, "build_without", fail_on_one)
    monkeypatch.setattr(levers, "LEVER_NAMES", ("varlen", "bf16_residual"))
    failed, *others = rows_of(levers.measure, "cpu", Report(tmp_path / "r", ""))
    assert (failed["outcome"], failed["ok"]) == ("OutOfMemoryError: CUDA out of memory.", False)
    assert [(row["without"], row["ok"]) for row in others] == [(NONE, True), ("bf16_residual", True)]


def test_without_time_every_lever_is_told_as_not_reached(tmp_path: Path) -> None:
    rows = list(levers.measure(small_setting("cpu"), Budget(0), Report(tmp_path / "r", "")))
    assert [row["outcome"] for row in rows] == [NOT_REACHED] * (1 + len(LEVER_NAMES))


def test_only_what_is_compiled_anew_waits_for_time_to_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def note(setting: Any, config: Any, name: str, batches: Any) -> None:
        asked.append(name)
        raise RuntimeError("nothing is built here")

    monkeypatch.setattr(levers, "prepare", note)
    list(levers.measure(Setting(torch.device("cpu")), Budget(15), Report(tmp_path / "r", "")))
    assert asked == [name for name in LEVER_NAMES if name != "bf16_residual"]
