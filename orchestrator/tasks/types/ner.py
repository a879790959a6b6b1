"""Named entity recognition: each word of a sentence has a BIO tag.

The model's outputs are tag logits (T, C), or tag numbers (T,), of which those on words' first sub-tokens count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from bert_core.metrics import ner_f1, ner_f1_by_type
from bert_core.metrics.ner import entity_spans
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError
from orchestrator.specs.recipe import LABEL_LOSS_FIELDS, Context
from orchestrator.specs.task import EmbeddingObjectiveName, TaskSpec
from orchestrator.storage.text_lines import stream_lines
from orchestrator.tasks.bio_tags import complete_tag_set, is_bio
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.character_spans import words_of
from orchestrator.tasks.features import Features, Windows
from orchestrator.tasks.options import TaskOptions
from orchestrator.tasks.readers import Reader
from orchestrator.tasks.table_files import JSON_ENDINGS
from orchestrator.tasks.text_files import plain_name
from orchestrator.tasks.types.base import Outputs, TaskDefinition, TaskType
from orchestrator.tasks.types.conll import (
    ConllReader,
    NerExample,
    NerTable,
    has_tag_columns,
    is_named_conll,
    split_words,
)
from orchestrator.tasks.types.ner_windows import NerArrays, build_ner_windows
from orchestrator.tasks.types.outputs import check_length
from orchestrator.tasks.types.requests import Request

_NUM_LINES_LOOKED_AT = 20
"""Lines of a file that tell whether it has CoNLL columns."""


@dataclass(frozen=True, slots=True)
class TagsPrediction:
    """A BIO tag for each word."""

    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NerOptions(TaskOptions):
    """The context of a sentence."""

    context: Context
    """Text in a window beside the sentence's own words."""


class Ner(TaskType[NerExample, TagsPrediction, NerArrays, NerOptions]):
    """A tag for each word."""

    head = "ner"
    metrics = ("f1", "precision", "recall")
    purpose = "words and their tags"
    arrays_type = NerArrays
    options_type = NerOptions
    spec_fields = frozenset({"text_columns", "label_column", "labels"})
    recipe_fields = LABEL_LOSS_FIELDS | {"token_decoder", "num_lstm_layers", "lstm_hidden_size", "context"}
    request_keys = ("words",)
    list_keys = frozenset({"words"})
    own_layout = "CoNLL columns (.conll; tags may be missing)"
    example_request: ClassVar[Mapping[str, Any]] = {"words": ["Ada", "Lovelace", "lived", "in", "London", "."]}
    usual_text_columns = ("tokens",)
    splits_long_examples = True

    def reader(
        self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None
    ) -> Reader[NerExample]:
        """A table where all files are; its columns are `tokens` and `tags` unless named. Else CoNLL columns.

        With two columns of text, the first one says which sentence the word of the second belongs to.
        """
        is_table = all(plain_name(path).endswith((*JSON_ENDINGS, ".parquet")) for path in spec.files.values())
        if known is None and len(spec.text_columns) == 2:
            sentence, word = spec.text_columns
            return NerTable(word, spec.label_column or "tag", labels, sentence_column=sentence)
        if (known is None or known.label_column) and is_table:
            (tokens,) = spec.text_columns[:1] or self.usual_text_columns
            return NerTable(tokens, spec.label_column or "tags", labels)
        return ConllReader(labels)

    def unlabeled_reader(self, path: str) -> ConllReader | None:
        """The reader of CoNLL columns: where the name says that they are such, or the first lines have tags."""
        is_conll = is_named_conll(path) or has_tag_columns(islice(stream_lines(path), _NUM_LINES_LOOKED_AT))
        return ConllReader(labeled=False) if is_conll else None

    def has_labels(self, objective: EmbeddingObjectiveName | None) -> bool:
        """True: outputs stand for tags."""
        return True

    def labels_problem(self, spec: TaskSpec, labels: Sequence[str]) -> str | None:
        """Refuse labels without a name: there is nothing to find."""
        return None if labels else "every tag is O; tag the names with B-TYPE and I-TYPE"

    def label_names(self, example: NerExample) -> tuple[str, ...]:
        """The type of each name."""
        return tuple(tag[2:] for tag in example.tags if tag.startswith("B-"))

    def split_row(self, spec: TaskSpec, example: NerExample) -> Mapping[str, Any]:
        """The words and their tags."""
        return {"tokens": example.words, "tags": example.tags}

    def labels_note(self, examples: Sequence[NerExample]) -> str | None:
        """Tags without a name leave nothing to find."""
        is_empty = all(tag == "O" for example in examples for tag in example.tags)
        return "every tag is O: there is no name to find, and f1 is 0" if is_empty else None

    def find_labels(self, examples: Iterable[NerExample]) -> tuple[str, ...]:
        """`O`, then `B-` and `I-` of every type that occurs."""
        return complete_tag_set({tag for example in examples for tag in example.tags})

    def check_labels(self, labels: tuple[str, ...]) -> None:
        """Check that labels are BIO tags. Raises: SpecError."""
        super().check_labels(labels)
        if "O" not in labels or not all(is_bio(label) for label in labels):
            raise SpecError(
                f"task.labels {', '.join(labels)}: a ner task's labels are O, and B-type and I-type per type"
            )

    def windows(
        self, task: TaskDefinition, examples: Sequence[NerExample], tokenizer: Tokenizer, options: NerOptions
    ) -> Windows[NerArrays]:
        """Windows of whole words; together they tag every word once."""
        return build_ner_windows(examples, task.labels, tokenizer, options.max_seq_length, options.context)

    def decode(
        self,
        task: TaskDefinition,
        features: Features[NerArrays],
        examples: Sequence[NerExample],
        outputs: Outputs,
        options: NerOptions,
    ) -> list[TagsPrediction]:
        """The tag on each word's first sub-token: (T, C) or (T,)."""
        check_length(outputs, len(features.input_ids), "token")
        numbers = outputs.argmax(axis=1) if outputs.ndim == 2 else outputs  # (T,)
        arrays = features.head_arrays
        tags = np.array(task.labels, dtype=object)[numbers[arrays.word_starts].astype(np.int64)]  # (K,)
        return [TagsPrediction(tuple(sentence)) for sentence in np.split(tags, np.cumsum(arrays.num_words)[:-1])]

    def score(
        self, task: TaskDefinition, examples: Sequence[NerExample], predictions: Sequence[TagsPrediction]
    ) -> dict[str, float]:
        """Precision, recall and F1 of whole entities, as conlleval counts, and `f1_TYPE` of each type."""
        tags = [prediction.tags for prediction in predictions]
        gold = [example.tags for example in examples]
        by_type = ner_f1_by_type(tags, gold)
        return {**ner_f1(tags, gold), **{f"f1_{kind}": scores["f1"] for kind, scores in by_type.items()}}

    def baseline(
        self, task: TaskDefinition, learned: Sequence[NerExample], examples: Sequence[NerExample]
    ) -> list[TagsPrediction]:
        """Predict the tag `O` for every word."""
        return [TagsPrediction(("O",) * len(example.words)) for example in examples]

    def row(self, task: TaskDefinition, example: NerExample, prediction: TagsPrediction) -> dict[str, Any]:
        """The words, and both tags of each."""
        return {
            "words": list(example.words),
            "prediction": list(prediction.tags),
            "gold": list(example.tags),
            "correct": prediction.tags == example.tags,
        }

    def wrongness(self, task: TaskDefinition, example: NerExample, prediction: TagsPrediction) -> float:
        """Number of words with a wrong tag."""
        return float(sum(tag != gold for tag, gold in zip(prediction.tags, example.tags, strict=True)))

    def breakdown(
        self, task: TaskDefinition, examples: Sequence[NerExample], predictions: Sequence[TagsPrediction]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """`entities`: the scores of each type, with the number of gold entities."""
        gold = [example.tags for example in examples]
        support = Counter(kind for tags in gold for _, _, kind in entity_spans(tags))
        by_type = ner_f1_by_type([prediction.tags for prediction in predictions], gold)
        return {"entities": [{"entity": kind, **by_type[kind], "support": support[kind]} for kind in by_type]}

    def decisions(self, prediction: TagsPrediction) -> Sequence[object]:
        """List the predicted tag of each word."""
        return prediction.tags

    def parse_text(self, line: str) -> dict[str, Any]:
        """Words with spaces between them."""
        return {"words": split_words(line)}

    def example_of(self, task: TaskDefinition, request: Request) -> NerExample:
        """A sentence as a list of words, or as a text."""
        words = request.values.get("words")
        if isinstance(words, str):
            return NerExample(request.id, tuple(words_of(words)))
        return NerExample(request.id, request.texts("words", least=0))

    def answer(self, task: TaskDefinition, prediction: TagsPrediction) -> dict[str, Any]:
        """A tag for each word."""
        return {"tags": list(prediction.tags)}
