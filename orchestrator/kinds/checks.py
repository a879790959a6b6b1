"""Checks of start models and labeled data: do they fit what the spec gives them, and one another?"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

from bert_core.checkpoints.sentence_transformers import SentenceEmbeddingConfig, read_sentence_embedding
from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.config import BertConfig
from bert_core.errors import ConfigError
from orchestrator.base.errors import SpecError
from orchestrator.finetuning.search_space import check_prompts
from orchestrator.kinds.resolved import Resolved
from orchestrator.pretraining.job import check_start
from orchestrator.specs import RecipeSpec
from orchestrator.specs.references import RANDOM, STAGE_MARK
from orchestrator.storage import local_copy
from orchestrator.tasks.loading import data_remarks
from orchestrator.tasks.task import Task


def check_positions(field: str, longest: int, models: Iterable[str], inputs: Resolved) -> None:
    """Check that models have a position for each token of the longest sequence, whose length stands in a field.

    Raises: SpecError.
    """
    for name in models:
        config = None if name == RANDOM else inputs.config(name)
        if config is not None and longest > config.max_seq_length:
            raise SpecError(
                f"{field} {longest} is longer than the {config.max_seq_length} positions of {name}; "
                "lower it or start from another model"
            )


def check_layer_pooling(
    poolings: Iterable[Any], models: Iterable[object], sizes: Iterable[object], inputs: Resolved
) -> None:
    """Check that a head that reads four layers has them below it, in every combination of what a recipe may say.

    A recipe's `layer_pooling` may be any of `poolings`, its `init_from` any of `models`, its `size` any of `sizes`.

    Raises: SpecError.
    """
    configs = _start_configs(models, sizes, inputs)
    for layer_pooling, (what, config) in product(poolings, configs.items()):
        if config is None:
            continue
        try:
            replace(config, layer_pooling=layer_pooling)
        except ConfigError as error:
            needs = str(error).partition(";")[0].replace("'", "")
            raise SpecError(
                f"recipe.{needs}, and {what} has {config.num_hidden_layers}; "
                "choose another layer_pooling or a deeper model"
            ) from None


def _start_configs(models: Iterable[object], sizes: Iterable[object], inputs: Resolved) -> dict[str, BertConfig | None]:
    names = [str(name) for name in models]
    configs = {f"init_from {name}": inputs.config(name) for name in names if name != RANDOM}
    return configs | ({f"size {size}": BertConfig.from_size(str(size)) for size in sizes} if RANDOM in names else {})


def check_vectors(
    task: Task, recipe: RecipeSpec, models: Iterable[object], sizes: Iterable[object], inputs: Resolved
) -> None:
    """Check that an embedding has the numbers that a recipe names, and that it mentions the prompts of its start.

    Other tasks have no vectors. Raises: SpecError, CheckpointError.
    """
    if "matryoshka_dims" not in task.type.recipe_fields:
        return
    models, rules = list(models), dict[str, SentenceEmbeddingConfig]()
    for name in map(str, models):
        if name != RANDOM and not name.startswith(STAGE_MARK):
            folder = local_copy(inputs.folder("init_from", name), skip=(WEIGHTS_FILE,))
            rules[f"init_from {name}"] = read_sentence_embedding(folder)
            check_prompts(recipe, rules[f"init_from {name}"])
    for what, config in _start_configs(models, sizes, inputs).items():
        own = rules.get(what, SentenceEmbeddingConfig())
        for size in recipe.matryoshka_dims:
            if config is not None and size > (width := own.vector_size(config.hidden_size)):
                raise SpecError(f"recipe.matryoshka_dims {size}: a vector of {what} has {width} numbers")


def check_tokenizer(model: str, tokenizer: str, inputs: Resolved) -> None:
    """Check that a model to continue from was trained with a tokenizer, where both are there already.

    Raises: TokenizerError.
    """
    if not model.startswith(STAGE_MARK) and not tokenizer.startswith(STAGE_MARK):
        check_start(inputs.folder("init_from", model), inputs.tokenizer(tokenizer))


def check_examples(task: Task, inputs: Resolved) -> None:
    """Check that each labeled split can be read, with labels that the training split has too; warn of odd data.

    Raises: TaskDataError, naming file and line.
    """
    for _, remark in data_remarks(task):
        inputs.warn(f"task {task.id}: {remark}")
