"""A spec's network: each choice alone and with others, trained, saved, loaded and gone on with; choices that cannot be.

Alone: pytest tests/orchestrator/specs/test_network.py
"""

from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor
from torch.optim import Optimizer

from bert_core.config import BertConfig
from bert_core.families import FAMILY_NAMES
from bert_core.heads import BertForPreTraining
from bert_core.optimization import build_optimizer
from orchestrator.base.errors import SpecError
from orchestrator.specs import ModelSpec, PretrainSpec
from orchestrator.specs.loading import load_spec
from orchestrator.specs.network import build_config
from tests.bert_core.reference import ragged_batch

AXES: dict[str, tuple[Any, ...]] = {
    "position_embedding": ("absolute", "rotary", "alibi", "disentangled"),
    "norm_placement": ("post", "pre"),
    "norm": ("layer", "rms"),
    "feed_forward": ("mlp", "gated"),
    "hidden_act": ("gelu", "gelu_new", "relu", "silu"),
    "use_bias": (True, False),
    "tie_layers": (True, False),
    "num_key_value_heads": (1, 2, 4),
    "local_window": (4,),
    "depth_scaled_init": (True, False),
}
CHOICES = st.fixed_dictionaries(
    {"family": st.sampled_from(FAMILY_NAMES)},
    optional={name: st.sampled_from(values) for name, values in AXES.items()},
)
VOCAB_SIZE = 40


def takes_keys_of_all_heads(choices: dict[str, Any]) -> bool:
    """Whether a network has disentangled positions, which refuse grouped keys."""
    own = BertConfig.from_size("tiny", choices["family"]).position_embedding_type
    return bool(choices.get("position_embedding", own) == "disentangled")


def train(model: BertForPreTraining, optimizer: Optimizer, batch: dict[str, Tensor], num_steps: int = 1) -> list[float]:
    """Losses of steps that predict each token, which is there to be seen."""
    losses = []
    for step in range(num_steps):
        torch.manual_seed(step)
        loss = model.train()(**batch, labels=batch["input_ids"]).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


@given(choices=CHOICES)
@settings(max_examples=60)
@pytest.mark.heavy
@pytest.mark.core
def test_every_combination_trains_and_goes_on_from_its_folder_to_the_same_bits(choices: dict[str, Any]) -> None:
    assume(choices.get("num_key_value_heads", 4) == 4 or not takes_keys_of_all_heads(choices))
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    config = build_config(ModelSpec(**shape, max_position_embeddings=16, **choices), VOCAB_SIZE)
    batch = ragged_batch(config, [9, 5, 12], 12)
    model = BertForPreTraining.from_config(config)
    optimizer = build_optimizer(model, learning_rate=1e-2)
    losses = train(model, optimizer, batch, 4)
    assert losses[-1] < losses[0]
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = BertForPreTraining.from_pretrained(folder)
    assert again.config.model_type in (config.model_type, "bert_core")
    with torch.no_grad():
        found, expected = (each.eval()(**batch).prediction_logits for each in (again, model))
    assert torch.equal(found, expected)
    resumed = build_optimizer(again, learning_rate=1e-2)
    resumed.load_state_dict(deepcopy(optimizer.state_dict()))
    assert train(again, resumed, batch) == train(model, optimizer, batch)
    assert all(map(torch.equal, again.state_dict().values(), model.state_dict().values()))


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_a_choice_changes_that_alone_and_without_one_it_is_the_family_s(family: str) -> None:
    names = {"position_embedding": "position_embedding_type", "tie_layers": "num_hidden_groups"}
    own = build_config(ModelSpec(family=family, num_attention_heads=4), VOCAB_SIZE)
    for axis, values in AXES.items():
        for value in values:
            if axis == "num_key_value_heads" and value < 4 and takes_keys_of_all_heads({"family": family}):
                continue
            asked = ModelSpec(family=family, num_attention_heads=4, **{axis: value})
            config = build_config(asked, VOCAB_SIZE)
            changed = {name for name in vars(own) if getattr(own, name) != getattr(config, name)}
            follows = {"feed_forward": "intermediate_size", "norm_placement": "first_norm", "tie_layers": "first_norm"}
            follows["norm"] = "norm_bias"
            assert changed <= {names.get(axis, axis), follows.get(axis)}
            assert changed or config.family.model_type == own.family.model_type
            if axis == "tie_layers":
                assert len(BertForPreTraining(config, seed=None).bert.layers) == (1 if value else 2)
            elif axis != "num_key_value_heads" or value < 4:
                assert getattr(config, names.get(axis, axis)) == value


@pytest.mark.parametrize(("feed_forward", "inner"), [("mlp", 1024), ("gated", 704), (None, None)])
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_a_gated_layer_is_narrower_whoever_chose_it(family: str, feed_forward: str | None, inner: int | None) -> None:
    config = build_config(ModelSpec(size="mini", family=family, feed_forward=feed_forward), VOCAB_SIZE)
    assert config.intermediate_size == inner or (inner is None and config.intermediate_size in (1024, 704))
    own = ModelSpec(size="mini", family=family, feed_forward=feed_forward, intermediate_size=96)
    assert build_config(own, VOCAB_SIZE).intermediate_size == 96


def test_sizes_can_be_changed_number_by_number() -> None:
    config = build_config(ModelSpec(size="mini", num_hidden_layers=2, hidden_size=128), VOCAB_SIZE)
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (2, 128, 2)
    assert config.intermediate_size == 512


@pytest.mark.parametrize("family", ["modernbert", "modern"])
def test_local_attention_and_the_rotary_base_are_choices_of_a_spec(family: str) -> None:
    model = ModelSpec(family=family, local_window=16, global_every=2, rotary_base=500.0)
    config = build_config(model, VOCAB_SIZE)
    assert (config.local_window, config.global_every, config.rotary_base) == (16, 2, 500.0)
    assert (config.family.model_type, config.pad_token_id) == (
        "modernbert" if family == "modernbert" else "bert_core",
        0,
    )
    assert build_config(ModelSpec(family=family), 500).local_window == (128 if family == "modernbert" else None)


@pytest.mark.parametrize(
    ("field", "choices"),
    [
        ("rotary_base", {"rotary_base": 500.0}),
        ("rotary_base", {"rotary_base": 500.0, "family": "modern", "position_embedding": "absolute"}),
        ("global_every", {"global_every": 2}),
        ("local_window", {"local_window": 1}),
        ("num_attention_heads", {"num_attention_heads": 3}),
        ("num_key_value_heads", {"num_attention_heads": 4, "num_key_value_heads": 3}),
        ("hidden_size", {"position_embedding": "rotary", "hidden_size": 20, "num_attention_heads": 4}),
        ("norm", {"norm": "batch"}),
        ("position_embedding", {"position_embedding": "none"}),
    ],
)
def test_a_choice_that_cannot_be_is_refused_when_it_is_read(field: str, choices: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=field):
        ModelSpec(**choices)


def test_a_choice_is_an_override_like_any_other_and_part_of_the_fingerprint_where_it_is_made(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("kind: pretrain\ncorpus: {files: [a.txt]}\ntokenizer: t\nsteps: 10\n")
    plain, chosen = (load_spec(path, overrides) for overrides in ([], ["model.norm=rms"]))
    assert isinstance(chosen, PretrainSpec)
    assert chosen.model.norm == "rms"
    assert chosen.fingerprint() != plain.fingerprint()
    with pytest.raises(SpecError, match=r"model.*num_key_value_heads"):
        load_spec(path, ["model.num_key_value_heads=5"])
