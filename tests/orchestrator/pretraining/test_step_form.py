"""Form of a run's steps, and what is told where it changes. Alone:
pytest tests/orchestrator/pretraining/test_step_form.py"""

import pytest
from pydantic import ValidationError

from bert_core.heads import BertForPreTraining
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.step_form import StepForm
from orchestrator.specs import PretrainSpec
from tests.bert_core.reference import small_config

GRAPHS, KERNELS = {"steps_are_graphs": True}, {"steps_are_graphs": False}


VALUES = {"corpus": {"files": ["generated"]}, "tokenizer": "generated", "steps": 10}


def form_of(are_graphs: bool, warned: list[str]) -> StepForm:
    spec = PretrainSpec.model_validate(VALUES | {"execution": {"cuda_graphs": are_graphs}})
    return StepForm(spec, Worker(), warned.append, warned.append)


@pytest.mark.parametrize(
    ("are_graphs", "checkpoint", "expected"),
    [
        (True, None, None),
        (True, GRAPHS, None),
        (False, KERNELS, None),
        (False, {}, None),
        (True, {}, "were single kernels up to the checkpoint and are CUDA graphs from here on"),
        (False, GRAPHS, "execution.cuda_graphs true goes on as before"),
    ],
)
def test_a_change_within_a_run_is_told_once(
    are_graphs: bool, checkpoint: dict[str, bool] | None, expected: str | None
) -> None:
    warned: list[str] = []
    form = form_of(are_graphs, warned)
    for _ in range(2):  # after a step that diverged, a run begins again
        form.begin(BertForPreTraining.from_config(small_config()), checkpoint)
    assert form.state() == {"layers_are_compiled": False, "steps_are_graphs": are_graphs}
    assert len(warned) == (expected is not None)
    assert expected is None or expected in warned[0]


@pytest.mark.parametrize(
    ("changes", "execution", "reason"),
    [
        ({}, {"num_workers": 2}, "execution.num_workers allows 2; set it to 1"),
        ({}, {"num_workers": {"min": 1, "max": 4}}, "execution.num_workers allows 4; set it to 1"),
        ({}, {"device": "cpu"}, "execution.device is cpu; set that to gpu"),
        ({}, {"activation_checkpointing": "layers"}, "execution.activation_checkpointing reads the state"),
        ({"micro_batch_size": 8}, {}, "micro_batch_size 8 cuts it into parts"),
        ({"micro_batch_tokens": 4096}, {}, "micro_batch_tokens cuts it into parts"),
    ],
)
def test_what_graphs_cannot_be_combined_with(
    changes: dict[str, object], execution: dict[str, object], reason: str
) -> None:
    PretrainSpec.model_validate(VALUES | changes | {"execution": execution})
    with pytest.raises(ValidationError, match=f"execution.cuda_graphs .* and {reason}"):
        PretrainSpec.model_validate(VALUES | changes | {"execution": execution | {"cuda_graphs": True}})


def test_a_micro_batch_of_the_whole_batch_is_one_part() -> None:
    values = {**VALUES, "global_batch_size": 8, "micro_batch_size": 8, "execution": {"cuda_graphs": True}}
    assert PretrainSpec.model_validate(values).execution.cuda_graphs
