"""Bitwise resume: steps with a save and a load into fresh objects between them end at the bits of steps without.

In each position of PyTorch's switch for deterministic algorithms, since the backward of fused attention may add up
gradients in any order: "off"; "warn only", which takes a deterministic algorithm where there is one to choose, and
elsewhere warns; "on", which raises there. Dropout is seeded from the step, as in a training run. So too with what is
shipped for cards: compiled layers with a residual stream in bf16.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from benchmarks.gpu.own_step import Learner, build_learner, compile_model, own_loss, packed_inputs
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value
from benchmarks.gpu.setting import Budget, Setting
from benchmarks.gpu.texts import first_batches, generated_text
from bert_core.checkpoints.training_state import load_training_state, save_training_state
from bert_core.config import BertConfig
from bert_core.examples.packing import PackedBatch

AS_WRITTEN, COMPILED = "as written", "compiled layers"
_COMPILE_S = 20
"""Seconds that compiling the layers may take, which must be left in the budget."""


@dataclass(frozen=True)
class Form:
    """A way of making steps, in a position of the switch."""

    layers: str
    """AS_WRITTEN or COMPILED."""
    precision: str
    residual: str
    """Precision of the residual stream."""
    switch: str

    @property
    def row(self) -> dict[str, Value]:
        return {
            "layers": self.layers,
            "precision": self.precision,
            "residual": self.residual,
            "deterministic switch": self.switch,
        }


FORMS = (
    *(
        Form(AS_WRITTEN, precision, "fp32", switch)
        for precision in ("bf16", "fp32")
        for switch in ("off", "warn only", "on")
    ),
    *(Form(COMPILED, "bf16", "bf16", switch) for switch in ("off", "on")),
)
"""All forms; what is long to compile comes last."""


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Resume in each form, with each way of attention."""
    text = generated_text(*setting.choose((2000, 512), (100, 48)))
    num_steps, batch_size, width = setting.choose((8, 64, 128), (4, 4, 16))
    batches = first_batches(text, num_steps, batch_size, width, 1)
    for form, attention_dropout in product(FORMS, (0.0, 0.1)):
        row = {**form.row, "attention dropout": attention_dropout}
        if budget.left_s <= (setting.choose(_COMPILE_S, 0) if form.layers == COMPILED else 0):
            yield {**row, "outcome": NOT_REACHED}
            continue
        config = setting.build_config(
            "small", vocab_size=text.vocab_size, attention_probs_dropout_prob=attention_dropout
        )
        with deterministic_algorithms(form.switch) as warned:
            found = compare(setting, config, batches, form)
        promised = {"ok": found["equal"]} if form.switch == "on" else {}  # else a difference is a finding
        yield {**row, **found, "no deterministic form": "; ".join(warned), **promised}


def compare(setting: Setting, config: BertConfig, batches: Sequence[PackedBatch], form: Form) -> dict[str, Value]:
    """Compare weights and moments after all steps: in one go, once more, and with a break in the middle."""
    middle = len(batches) // 2
    try:
        straight = build(setting, config, form)
        train(straight, batches, form)
    except RuntimeError as error:  # an operation without a deterministic form, where the switch is on
        return {"equal": False, "outcome": f"failed: {str(error).partition(chr(10))[0][:200]}"}
    again, first = build(setting, config, form), build(setting, config, form)
    train(first, batches[:middle], form)
    resumed = through_a_file(first, build(setting, config, form))
    train(resumed, batches[middle:], form, first_step=middle)
    ms = setting.ms(lambda: train(again, batches, form)) / len(batches)
    return {"equal": is_equal(straight, resumed), "equal when repeated": is_equal(straight, again), "ms a step": ms}


def build(setting: Setting, config: BertConfig, form: Form) -> Learner:
    """Build the model of a form, always from the same weights, and its optimizer."""
    residual_dtype = torch.bfloat16 if form.residual == "bf16" else None
    learner = build_learner(config, setting.device, residual_dtype=residual_dtype)
    if form.layers == COMPILED:
        compile_model(setting, learner.model)
    return learner


def train(learner: Learner, batches: Sequence[PackedBatch], form: Form, first_step: int = 0) -> None:
    """Make one step with each batch; dropout is seeded from the step's number."""
    for step, batch in enumerate(batches, first_step):
        torch.manual_seed(step)
        learner.step(own_loss(learner, packed_inputs(batch, learner.device)), form.precision)


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
    """Set the switch; when the block ends, the list gets the first clause of each warning of an operation.

    New memory is not filled, as in a training run that asks for it.
    """
    filled_before = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    clauses: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.use_deterministic_algorithms(switch != "off", warn_only=switch == "warn only")
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        try:
            yield clauses
        finally:
            torch.use_deterministic_algorithms(False)
            torch.utils.deterministic.fill_uninitialized_memory = filled_before  # type: ignore[attr-defined]
            messages = [str(each.message) for each in caught if "deterministic" in str(each.message)]
            clauses += sorted({re.split(r"[,.;:](?:\s|$)", message, maxsplit=1)[0] for message in messages})
