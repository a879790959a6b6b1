"""Note on the attention that a trial takes on a card, where it is not the variable-length one, which skips padding."""

import os
from dataclasses import replace

import torch

from bert_core.attention import BACKENDS, choose_backend
from bert_core.attention.backend import AttentionCall
from bert_core.config import BertConfig
from orchestrator.specs import RecipeSpec
from orchestrator.training.cards import OLDEST_CAPABILITY

_TOLD: set[tuple[int, str]] = set()
"""Notes that were told, each with the id of its process: a forked one takes the set along."""


def attention_note(config: BertConfig, recipe: RecipeSpec, capability: tuple[int, int]) -> str | None:
    """Return the text for a person whose training steps compute padding too, with what in the recipe would change that.

    None where they skip it, where the encoder is frozen, which reads each text once, and on a card that is too old,
    of which `card_notes` tells.

    Args:
        capability: compute capability of the card.
    """
    if recipe.freeze_encoder or capability < OLDEST_CAPABILITY:
        return None
    call = AttentionCall(
        device="cuda",
        dtype=torch.bfloat16 if recipe.precision == "bf16" else torch.float32,
        dropout_p=config.attention_probs_dropout_prob,
        has_slopes=config.position_embedding_type == "alibi",
        is_causal=config.causal_attention,
        head_size=config.head_size,
        compute_capability=capability,
    )
    without_padding, chosen = BACKENDS[0], choose_backend(call)
    if chosen is without_padding:
        return None
    reason = without_padding.refusal(replace(call, dtype=torch.bfloat16))
    remedy = "with recipe.precision bf16 its steps take less time"
    return f"attention computes padding too ({chosen.name}): variable-length attention " + (
        reason or f"{without_padding.refusal(call)}; {remedy}"
    )


def new_attention_note(config: BertConfig, recipe: RecipeSpec) -> str | None:
    """Return `attention_note` for this process's card the first time that a process has it to tell; None later."""
    note = attention_note(config, recipe, torch.cuda.get_device_capability())
    if note is None or (os.getpid(), note) in _TOLD:
        return None
    _TOLD.add((os.getpid(), note))
    return note
