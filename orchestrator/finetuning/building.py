"""A new model for a task: its configuration by the recipe, its encoder from a folder or drawn anew."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from torch import Tensor

from bert_core.config import BertConfig
from bert_core.families import ENCODER
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import SpecError
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.specs import ModelSpec, RecipeSpec
from orchestrator.specs.network import build_config
from orchestrator.specs.task import Head
from orchestrator.tasks.types.base import TaskDefinition


def build_model(task: TaskDefinition, recipe: RecipeSpec, init_folder: str | None, tokenizer: Tokenizer) -> HeadModel:
    """A model with a new head for the task, on a new encoder or on that of `init_folder`.

    The recipe's seed draws what is new. Raises: SpecError, CheckpointError, TokenizerError where recipe, tokenizer and
    checkpoint do not fit together.
    """
    start = random_config(recipe, tokenizer) if init_folder is None else BertConfig.from_pretrained(init_folder)
    model = build_untrained(task, recipe, start, tokenizer)
    if init_folder is not None:
        own = model.state_dict()
        found = _encoder_weights(task.head, init_folder)
        # A head that reads several layers has a pooler of another width, which starts anew.
        fitting = {name: found[name] for name in own.keys() & found.keys() if own[name].shape == found[name].shape}
        model.load_state_dict({**own, **fitting})
    HEADS[task.head].configure(model, task.objective, recipe, init_folder)
    return model


def build_untrained(task: TaskDefinition, recipe: RecipeSpec, start: BertConfig, tokenizer: Tokenizer) -> HeadModel:
    """A model with a new head for the task, and random weights, of the size of the one that the recipe starts from.

    Raises: SpecError, TokenizerError where recipe, tokenizer and size do not fit together.
    """
    head = HEADS[task.head]
    config = replace(
        start.with_dropout(recipe.dropout, recipe.attention_dropout),
        token_decoder=recipe.token_decoder,
        num_lstm_layers=recipe.num_lstm_layers,
        lstm_hidden_size=recipe.lstm_hidden_size,
        layer_pooling=recipe.layer_pooling,
        num_tabular_features=task.columns.width,
        span_boundary_objective=False,  # a head of pretraining's alone
    )
    config = head.with_labels(config, task.labels)
    check_fit(config, recipe, tokenizer)
    model: HeadModel = head.model_type.from_config(config, recipe.seed)
    return model


def check_fit(config: BertConfig, recipe: RecipeSpec, tokenizer: Tokenizer) -> None:
    """Check that a model reads what the recipe gives it. Raises: SpecError, TokenizerError."""
    tokenizer.check_fits(config.vocab_size)
    if recipe.max_seq_length > config.max_seq_length:
        raise SpecError(
            f"recipe.max_seq_length {recipe.max_seq_length} is longer than the {config.max_seq_length} tokens "
            f"that {recipe.init_from} can read (max_position_embeddings); lower it or start from another model"
        )


def random_config(recipe: RecipeSpec, tokenizer: Tokenizer) -> BertConfig:
    """Configuration of a recipe's encoder with random weights."""
    model = ModelSpec(
        size=recipe.size,
        family=recipe.family,
        max_position_embeddings=max(512, recipe.max_seq_length),
        initializer_range=recipe.initializer_range,
    )
    return build_config(model, tokenizer.vocab_size, tokenizer.pad_id)


@lru_cache(maxsize=2)
def _encoder_weights(head: Head, folder: str) -> dict[str, Tensor]:
    """A folder's encoder, read and checked once per process; weights that it lacks are left out."""
    model: HeadModel = HEADS[head].model_type.from_pretrained(Path(folder), encoder_only=True)
    assert model.load_report is not None
    lacking = set(model.load_report.initialized)
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name.startswith(ENCODER) and lacking.isdisjoint(model.weight_names.of(name))
    }
