"""The model that a draft starts from, looked up by its name, and the registered ones that it could start from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.config import BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.drafting.text import count_words
from orchestrator.models.resolve import resolve_model
from orchestrator.registry import Registry
from orchestrator.settings import Settings
from orchestrator.storage import local_copy

_NAMES_SHOWN = 3


@dataclass(frozen=True)
class StartModel:
    """A model folder, whose weights are not read."""

    name: str
    folder: str

    @classmethod
    def find(cls, name: str, settings: Settings) -> "StartModel":
        """Look a model up. Raises: NotFoundError."""
        return cls(name, resolve_model(name, settings))

    @cached_property
    def config(self) -> BertConfig:
        """The model's configuration. Raises: CheckpointError."""
        return BertConfig.from_pretrained(local_copy(self.folder, skip=(WEIGHTS_FILE,)))

    def cut(self, texts: Sequence[str]) -> tuple[float, float]:
        """Tokens that the model's tokenizer makes of a word of these texts, and the share of them that is unknown."""
        tokenizer = Tokenizer.load(local_copy(self.folder, skip=(WEIGHTS_FILE,)))
        rows = tokenizer.encode_ids(texts)
        num_tokens, num_unknown = sum(map(len, rows)), sum(row.count(tokenizer.unk_id) for row in rows)
        return num_tokens / max(1, sum(map(count_words, texts))), num_unknown / max(1, num_tokens)


def registered_starts(settings: Settings) -> tuple[str, ...]:
    """Names of registered models that are pretrained and not fine-tuned, the newest first."""
    with Registry(settings.registry, read_only=True) as registry:
        models = registry.models.frame()
    names = models[models["head"] == "pretraining"]["name"].tolist()
    return tuple(dict.fromkeys(map(str, names)))[:_NAMES_SHOWN]
