"""Bitwise resume: steps with a save and a load into fresh objects between them end at the bits of steps without.

In each position of PyTorch's switch for deterministic algorithms, since the backward of fused attention may add up
gradients in any order: "off"; "warn only", which takes a deterministic algorithm where there is one to choose, and
elsewhere warns; "on", which raises there. Dropout is seeded from the step, as in a training run.
"""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from benchmarks.gpu.own_step import Learner, PackedInputs, build_learner, own_loss, packed_inputs
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value
from benchmarks.gpu.setting import Budget, Setting
from benchmarks.gpu.texts import first_batches, generated_text
from bert_core.checkpoints.training_state import load_training_state, save_training_state
from bert_core.config import BertConfig

SWITCHES = ("off", "warn only", "on")


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Resume in each way of attention, each precision, with and without the switch."""
    text = generated_text(*setting.choose((2000, 512), (100, 48)))
    num_steps, batch_size, width = setting.choose((8, 64, 128), (4, 4, 16))
    batches = [packed_inputs(each, setting.device) for each in first_batches(text, num_steps, batch_size, width, 1)]
    for attention_dropout in (0.0, 0.1):
        config = setting.build_config(
            "small", vocab_size=text.vocab_size, attention_probs_dropout_prob=attention_dropout
        )
        for precision in ("bf16", "fp32"):
            for switch in SWITCHES:
                row = {"attention dropout": attention_dropout, "precision": precision, "deterministic switch": switch}
                if budget.is_spent:
                    yield {**row, "outcome": NOT_REACHED}
                    continue
                with deterministic_algorithms(switch) as warned:
                    found = compare(setting, config, batches, precision)
                promised = {"ok": found["equal"]} if switch == "on" else {}  # else a difference is a finding
                yield {**row, **found, "no deterministic form": "; ".join(warned), **promised}


def compare(setting: Setting, config: BertConfig, batches: list[PackedInputs], precision: str) -> dict[str, Value]:
    """Compare weights and moments after all steps: in one go, once more, and with a break in the middle."""
    middle = len(batches) // 2

    def fresh() -> Learner:
        return build_learner(config, setting.device)

    straight, again, first = fresh(), fresh(), fresh()
    try:
        train(straight, batches, precision)
    except RuntimeError as error:  # an operation without a deterministic form, where the switch is on
        return {"equal": False, "outcome": f"failed: {str(error).partition(chr(10))[0][:200]}"}
    ms = setting.ms(lambda: train(again, batches, precision)) / len(batches)
    train(first, batches[:middle], precision)
    resumed = through_a_file(first, fresh())
    train(resumed, batches[middle:], precision, first_step=middle)
    return {"equal": is_equal(straight, resumed), "equal when repeated": is_equal(straight, again), "ms a step": ms}


def train(learner: Learner, batches: list[PackedInputs], precision: str, first_step: int = 0) -> None:
    """Make one step with each batch; dropout is seeded from the step's number."""
    for step, inputs in enumerate(batches, first_step):
        torch.manual_seed(step)
        learner.step(own_loss(learner, inputs), precision)


def through_a_file(learner: Learner, other: Learner) -> Learner:
    """Save a learner's state and load it into another one, which is returned."""
    with TemporaryDirectory() as folder:
        save_training_state(Path(folder) / "state", learner.model, learner.optimizer, {})
        load_training_state(Path(folder) / "state", other.model, other.optimizer)
    return other


def tensors(learner: Learner) -> Iterator[Tensor]:
    """Yield the weights, then the moments, in the order of the parameters."""
    parameters = list(learner.model.parameters())
    yield from parameters
    for parameter in parameters:
        for _, value in sorted(learner.optimizer.state[parameter].items()):
            yield torch.as_tensor(value)


def is_equal(learner: Learner, other: Learner) -> bool:
    """Whether weights and moments of two learners are equal, bit by bit."""
    return all(torch.equal(a, b) for a, b in zip(tensors(learner), tensors(other), strict=True))


@contextmanager
def deterministic_algorithms(switch: str) -> Iterator[list[str]]:
    """Set the switch; when the block ends, the list gets the first clause of each warning of an operation."""
    clauses: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.use_deterministic_algorithms(switch != "off", warn_only=switch == "warn only")
        try:
            yield clauses
        finally:
            torch.use_deterministic_algorithms(False)
            messages = [str(each.message) for each in caught if "deterministic" in str(each.message)]
            clauses += sorted({re.split(r"[,.;:](?:\s|$)", message, maxsplit=1)[0] for message in messages})
