"""A frozen encoder's outputs: kept and found again. Alone: pytest tests/orchestrator/finetuning/test_frozen.py"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from orchestrator.finetuning.logits import compute_states, freeze
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.types.conll import NerExample
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.heads.prepared import Prepared, prepare


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    examples = [TextExample("0", "the good road"), TextExample("1", "bad")]
    made = prepare("classification", ("no", "yes"), examples, tiny_tasks.load_tokenizer(tmp_path))
    return replace(made, features=replace(made.features, fingerprint="mine"))


def freeze_one(prepared: Prepared, model: Any, cache: Path) -> Any:
    (frozen,) = freeze([prepared.features], model, "fp32", str(cache))
    return frozen


def test_outputs_are_those_of_the_last_layer_at_the_tokens_that_are_read(prepared: Prepared, tmp_path: Path) -> None:
    model = prepared.model()
    frozen = freeze_one(prepared, model, tmp_path)
    with torch.inference_mode():
        states = model.bert.head_states(prepared.batch.seqs).numpy()
    np.testing.assert_allclose(frozen.states, states[prepared.features.cu_seqlens[:-1]], atol=1e-6)
    assert frozen.input_ids.tolist() == prepared.features.input_ids[prepared.features.cu_seqlens[:-1]].tolist()


def test_outputs_of_a_tagger_are_kept_in_the_order_of_its_words(tmp_path: Path) -> None:
    examples = [NerExample(str(n), ("the", "old", "road")[: n + 1], ("O",) * (n + 1)) for n in range(3)]
    tagger = prepare("ner", ("O", "B-PER"), examples, tiny_tasks.load_tokenizer(tmp_path))
    model = tagger.model()
    frozen, whole = compute_states(tagger.features, model), model.bert.head_states(tagger.batch.seqs).detach().numpy()
    starts = tagger.features.head_arrays.word_starts
    np.testing.assert_allclose(frozen.states[frozen.head_arrays.word_starts], whole[starts], atol=1e-6)


def test_outputs_are_found_again_whatever_the_head(prepared: Prepared, tmp_path: Path) -> None:
    model = prepared.model()
    first = freeze_one(prepared, model, tmp_path)
    with torch.no_grad():
        model.classifier.weight.add_(1.0)
    again = freeze_one(prepared, model, tmp_path)
    assert (first.reused, again.reused) == (False, True)
    np.testing.assert_array_equal(again.states, first.states)


def test_outputs_of_another_encoder_or_of_other_data_are_kept_elsewhere(prepared: Prepared, tmp_path: Path) -> None:
    model = prepared.model()
    paths = [freeze_one(prepared, model, tmp_path).path]
    other = replace(prepared, features=replace(prepared.features, fingerprint="other"))
    paths.append(freeze_one(other, model, tmp_path).path)
    paths.append(freeze_one(prepared, prepared.model(layer_pooling="second_to_last"), tmp_path).path)
    with torch.no_grad():
        model.bert.layers[0].intermediate.weight.add_(1.0)
    paths.append(freeze_one(prepared, model, tmp_path).path)
    assert len(set(paths)) == 4
