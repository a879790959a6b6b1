"""Whatever a model's folder can do with a text, behind one interface: for who asks and does not know the model.

fine-tuned for a task                    the task's prediction with its scores (`Predictor`)
an embedding model                       a vector for each text (`LineEmbedder`)
pretrained with masks                    the likeliest words for each [MASK] (`MaskFiller`)
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from bert_core.config import BertConfig
from orchestrator.errors import InputError
from orchestrator.finetuning.heads import HEADS
from orchestrator.finetuning.model_folder import find_head
from orchestrator.inference.embedder import LineEmbedder, text_values
from orchestrator.inference.predictor import Predictor
from orchestrator.inference.pretraining_heads import MaskFiller
from orchestrator.specs.network import Precision
from orchestrator.storage import local_copy
from orchestrator.tasks import TASK_TYPES

Read = str | dict[str, Any]
"""One input: a text, or an object with the keys that the model reads."""


@dataclass(frozen=True)
class Abilities:
    """Description of what a model answers, for a person and for a program."""

    head: str
    """Kind of the answers: a task's head, `embedding` or `fill_mask`."""
    keys: tuple[str, ...]
    """Keys of an input that is an object."""
    labels: tuple[str, ...]
    """Names of the classes, where there are some."""
    takes_text: bool
    """Whether an input may be a plain text."""
    example: dict[str, Any]
    """An input."""


class Answering(Protocol):
    """A loaded model that answers inputs."""

    abilities: Abilities

    def answer(self, inputs: Sequence[Read]) -> list[dict[str, Any]]:
        """One answer for each input: its values, and what the model says. Raises: InputError, naming `line N`."""


class _TaskAnswering:
    """Answers of a fine-tuned model, in the words of `orchestrator predict`."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        task = predictor.task
        columns = dict.fromkeys(task.columns.names)
        keys = task.type.request_keys
        takes_text = not columns and task.type.reads_plain_text
        example = {**task.type.example_request, **columns}
        self.abilities = Abilities(task.head, (*keys, *columns), task.labels, takes_text, example)

    def answer(self, inputs: Sequence[Read]) -> list[dict[str, Any]]:
        """One answer for each input."""
        return self._predictor.answer(list(enumerate(inputs, start=1)))


class _Embedding:
    """Vectors, in the words of `orchestrator embed`."""

    abilities = Abilities("embedding", ("text",), (), True, dict(TASK_TYPES["classification"].example_request))

    def __init__(self, embedder: LineEmbedder) -> None:
        self._embedder = embedder

    def answer(self, inputs: Sequence[Read]) -> list[dict[str, Any]]:
        """One answer for each input."""
        numbered = [(number, text_values(read, number)) for number, read in enumerate(inputs, start=1)]
        values, vectors = self._embedder.embed_values(numbered)
        return [{**some, "embedding": vector.tolist()} for some, vector in zip(values, vectors, strict=True)]


class _MaskFilling:
    """Guesses for each [MASK], in the words of `orchestrator fill-mask`."""

    def __init__(self, filler: MaskFiller) -> None:
        self._filler = filler
        example = {"text": f"It was a {filler.mask} day."}
        self.abilities = Abilities("fill_mask", ("text",), (), True, example)

    def answer(self, inputs: Sequence[Read]) -> list[dict[str, Any]]:
        """One answer for each input."""
        return [self._answer(text_values(read, number), number) for number, read in enumerate(inputs, start=1)]

    def _answer(self, values: dict[str, Any], number: int) -> dict[str, Any]:
        try:
            return {**values, "guesses": [asdict(guess) for guess in self._filler.fill(values["text"])]}
        except InputError as error:
            raise InputError(f"line {number}: {error}") from None


def load_answering(folder: str, device: str = "cpu", precision: Precision = "fp32") -> Answering:
    """The model of a folder, whatever it is. Raises: CheckpointError, TokenizerError."""
    local = local_copy(folder)
    head = find_head(local, BertConfig.from_pretrained(local))
    if head is None:
        return _MaskFilling(MaskFiller.load(folder, device, precision))
    if HEADS[head].gives_vectors:
        return _Embedding(LineEmbedder.load(folder, device=device, precision=precision))
    return _TaskAnswering(Predictor.load(folder, device=device, precision=precision))
