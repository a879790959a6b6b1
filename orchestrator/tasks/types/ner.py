"""Named entity recognition, where each word of a sentence has a BIO tag, and token classification with any tags.

A tag belongs to its word's first sub-token (Devlin et al. 2019, section 5.3): the model's outputs are tag logits
(T, C), or tag numbers (T,), of which those on words' first sub-tokens count.

A sentence longer than a window is split between words, so that every word is tagged. A word that the tokenizer drops
(control characters, say) becomes `[UNK]`, a word longer than a window loses its end.

With the context of the document ("the maximal document context provided by the data", same section) a window is filled
with the tokens before and after its words, as evenly as the document allows; tokens of the context have no tag.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bert_core.constants import IGNORE_INDEX
from bert_core.metrics import classification_metrics, ner_f1, ner_f1_by_type
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import SpecError
from orchestrator.specs.recipe import LABEL_LOSS_FIELDS, Context
from orchestrator.specs.task import Head, TaskSpec
from orchestrator.storage.text_lines import stream_lines
from orchestrator.tasks.bio_tags import is_bio, words_of
from orchestrator.tasks.catalogue import KnownTask, tag_set
from orchestrator.tasks.features import (
    PER_EXAMPLE,
    PER_TOKEN,
    TOKEN_PLACES,
    Array,
    Features,
    HeadArrays,
    Windows,
    cumulative,
    fill_windows,
)
from orchestrator.tasks.table_files import JSON_ENDINGS
from orchestrator.tasks.text_files import Reader, plain_name
from orchestrator.tasks.types import base, conll
from orchestrator.tasks.types.requests import Request, RequestForm

_NUM_LINES_LOOKED_AT = 20
"""Lines of a file that tell whether it has CoNLL columns."""
Examples: TypeAlias = Sequence[conll.NerExample]


@dataclass(frozen=True, slots=True)
class TagsPrediction:
    """A tag for each word."""

    tags: tuple[str, ...]


@dataclass(frozen=True)
class NerArrays(HeadArrays):
    """First tokens of words, and the words' tags. T tokens, K words, N examples."""

    token_labels: NDArray[np.int32] = field(metadata=PER_TOKEN)
    """(T,) tag numbers on first sub-tokens, -100 elsewhere and where tags are not known."""
    word_starts: NDArray[np.int64] = field(metadata=TOKEN_PLACES)
    """(K,) the first sub-token of each word of the split, in order."""
    num_words: NDArray[np.int32] = field(metadata=PER_EXAMPLE)
    """(N,) the number of each sentence's words."""


@dataclass(frozen=True, kw_only=True)
class NerOptions(base.TaskOptions):
    """The context of a sentence."""

    context: Context
    """Text in a window beside the sentence's own words."""


class TagTarget(base.Target[conll.NerExample, TagsPrediction]):
    """Any tag for each word."""

    field = "tags"
    metrics: ClassVar[tuple[str, ...]] = ("word_accuracy", "macro_f1")

    def decode(
        self, task: base.TaskDefinition, examples: Examples, rows: Sequence[Array], options: NerOptions
    ) -> list[TagsPrediction]:
        """The tags by their numbers."""
        return [TagsPrediction(tuple(task.labels[number] for number in row.tolist())) for row in rows]

    def score(
        self, task: base.TaskDefinition, examples: Examples, predictions: Sequence[TagsPrediction]
    ) -> base.Scores:
        """Share of words with the right tag, and the mean of F1 over the tags that occur."""
        number = {label: i for i, label in enumerate(task.labels)}
        predicted = [number[tag] for prediction in predictions for tag in prediction.tags]
        gold = [number[tag] for example in examples for tag in example.tags]
        scores = classification_metrics(predicted, gold)
        return {"word_accuracy": scores["accuracy"], "macro_f1": scores["macro_f1"]}

    def baseline(self, task: base.TaskDefinition, learned: Examples, examples: Examples) -> list[TagsPrediction]:
        """Predict the tag that is most frequent in training, for every word."""
        counts = Counter(tag for example in learned for tag in example.tags)
        most = max(task.labels, key=lambda label: counts[label])
        return [TagsPrediction((most,) * len(example.words)) for example in examples]

    def row(self, task: base.TaskDefinition, example: conll.NerExample, prediction: TagsPrediction) -> dict[str, Any]:
        return {"words": list(example.words), **super().row(task, example, prediction)}

    def agreement(self, first: Sequence[TagsPrediction], second: Sequence[TagsPrediction]) -> float:
        """Share of the words with the same tag."""
        return base.share_equal(*(chain.from_iterable(one.tags for one in side) for side in (first, second)))


class EntityTarget(TagTarget):
    """A BIO tag for each word."""

    metrics = ("f1", "precision", "recall")

    def score(
        self, task: base.TaskDefinition, examples: Examples, predictions: Sequence[TagsPrediction]
    ) -> base.Scores:
        """Precision, recall and F1 of whole entities, as conlleval counts, and `f1_TYPE` of each type."""
        tags = [prediction.tags for prediction in predictions]
        gold = [example.tags for example in examples]
        by_type = ner_f1_by_type(tags, gold)
        return {**ner_f1(tags, gold), **{f"f1_{kind}": scores["f1"] for kind, scores in by_type.items()}}

    def baseline(self, task: base.TaskDefinition, learned: Examples, examples: Examples) -> list[TagsPrediction]:
        """Predict the tag `O` for every word."""
        return [TagsPrediction(("O",) * len(example.words)) for example in examples]

    def label_names(self, example: conll.NerExample) -> tuple[str, ...]:
        """The type of each name."""
        return tuple(tag[2:] for tag in example.tags if tag.startswith("B-"))

    def labels_note(self, examples: Examples) -> str | None:
        """Tags without a name leave nothing to find."""
        is_empty = all(tag == "O" for example in examples for tag in example.tags)
        return "every tag is O: there is no name to find, and f1 is 0" if is_empty else None

    def find_labels(self, examples: Iterable[conll.NerExample]) -> tuple[str, ...]:
        """`O`, then `B-` and `I-` of every type that occurs."""
        return tag_set(*sorted({tag[2:] for example in examples for tag in example.tags if tag != "O"}))

    def check_labels(self, labels: tuple[str, ...]) -> None:
        super().check_labels(labels)
        if "O" not in labels or not all(map(is_bio, labels)):
            raise SpecError(
                f"task.labels {', '.join(labels)}: a ner task's labels are O, and B-type and I-type per type"
            )


class Ner(base.TaskType[conll.NerExample]):
    head: ClassVar[Head] = "ner"
    target: TagTarget = EntityTarget()
    arrays_type = NerArrays
    spec_fields = frozenset({"text_columns", "label_column", "labels"})
    recipe_fields = (
        base.HEAD_FIELDS
        | LABEL_LOSS_FIELDS
        | {"token_decoder", "crf_learning_rate", "num_lstm_layers", "lstm_hidden_size", "context"}
    )
    options_type = NerOptions
    request = RequestForm(
        ("words",),
        {"words": ["Ada", "Lovelace", "lived", "in", "London", "."]},
        lambda line: {"words": conll.split_words(line)},
        num_columns=1,
    )
    labeled_layout = f"{conll.TAG_LAYOUTS}, or {conll.SPAN_LAYOUT}"
    own_layout = "CoNLL columns (.conll; tags may be missing)"
    default_columns = ("tokens",)
    splits_long_examples = True
    needs_case = True
    conll_type: ClassVar[type[conll.ConllReader]] = conll.ConllReader
    table_type: ClassVar[type[conll.NerTable]] = conll.NerTable

    def reader(
        self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None
    ) -> Reader[conll.NerExample]:
        """A table where all files are; its columns are `tokens` and `tags` unless named. Else CoNLL columns.

        CSV and TSV are tables where columns are named.
        With two columns of text, the first one says which sentence the word of the second belongs to.
        """
        endings = (*JSON_ENDINGS, ".parquet", *([".csv", ".tsv"] if spec.text_columns else ()))
        is_table = all(plain_name(path).endswith(endings) for path in spec.files.values())
        if known is None and len(spec.text_columns) == 2:
            sentence, word = spec.text_columns
            return self.table_type(word, spec.label_column or "tag", labels, sentence_column=sentence)
        if (known is None or known.label_column) and is_table:
            (tokens,) = spec.text_columns[:1] or self.default_columns
            return self.table_type(tokens, spec.label_column or "tags", labels)
        return self.conll_type(labels)

    def unlabeled_reader(self, path: str) -> conll.ConllReader | None:
        """The reader of CoNLL columns: where the name says that they are such, or the first lines have tags."""
        is_conll = conll.is_named_conll(path) or conll.has_tag_columns(islice(stream_lines(path), _NUM_LINES_LOOKED_AT))
        return conll.ConllReader(labeled=False) if is_conll else None

    def example_of(self, task: base.TaskDefinition, request: Request) -> conll.NerExample:
        """A sentence as a list of words, or as a text; lines with the same `document` follow one another in it."""
        words = request.values.get("words")
        words = tuple(words_of(words)) if isinstance(words, str) else request.texts("words", least=0)
        return conll.NerExample(request.id, words, document=request.values.get("document"))

    def goal(self, spec: TaskSpec) -> str:
        if spec.text_columns:
            return super().goal(spec)
        return f"a {'BIO ' if self.conll_type.are_entities else ''}tag for each word"

    def windows(
        self, task: base.TaskDefinition, examples: Examples, tokenizer: Tokenizer, options: NerOptions
    ) -> Windows[NerArrays]:
        """Windows of whole words in order; together they tag every word once."""
        number = {label: i for i, label in enumerate(task.labels)}
        budget = options.max_seq_length - 2
        input_ids: list[int] = []
        word_starts: list[int] = []
        tags: list[int] = []
        lengths: list[int] = []
        example_index: list[int] = []
        num_split = 0
        for document in _documents(examples):
            sentences = [[piece[:budget] for piece in _word_pieces(tokenizer, examples[i].words)] for i in document]
            tokens = list(chain.from_iterable(chain.from_iterable(sentences)))
            end = 0
            for index, pieces in zip(document, sentences, strict=True):
                example = examples[index]
                tags.extend(number[tag] for tag in example.tags)
                tags.extend([IGNORE_INDEX] * (len(example.words) - len(example.tags)))
                windows = list(fill_windows(pieces, budget))
                num_split += len(windows) > 1
                for window in windows:
                    begin, end = end, end + sum(map(len, window))
                    room = budget - (end - begin) if options.context == "document" else 0
                    first, last = _widen(begin, end, room, len(tokens))
                    place = len(input_ids) + 1 + begin - first
                    for piece in window:
                        word_starts.append(place)
                        place += len(piece)
                    input_ids += [tokenizer.cls_id, *tokens[first:last], tokenizer.sep_id]
                    lengths.append(2 + last - first)
                    example_index.append(index)
        token_labels = np.full(len(input_ids), IGNORE_INDEX, np.int32)
        token_labels[word_starts] = tags
        return Windows(
            input_ids=np.array(input_ids, np.int32),
            token_type_ids=np.zeros(len(input_ids), np.int8),
            cu_seqlens=cumulative(np.array(lengths, np.int64)),
            example_index=np.array(example_index, np.int32),
            head_arrays=NerArrays(
                token_labels=token_labels,
                word_starts=np.array(word_starts, np.int64),
                num_words=np.array([len(example.words) for example in examples], np.int32),
            ),
            counts={"num_split": num_split, "num_words": len(word_starts)},
        )

    def gather(self, features: Features[NerArrays], outputs: base.Outputs, options: NerOptions) -> list[Array]:
        """The number of each word's tag, on its first sub-token, by sentences: (T, C) or (T,)."""
        base.check_length(outputs, len(features.input_ids), "token")
        numbers = outputs.argmax(axis=1) if outputs.ndim == 2 else outputs  # (T,)
        arrays = features.head_arrays
        of_words = numbers[arrays.word_starts].astype(np.int64)  # (K,)
        return np.split(of_words, np.cumsum(arrays.num_words)[:-1])


class TokenClassification(Ner):
    """Parts of speech and the like; tags mark no entities and are taken as they are."""

    head = "token_classification"
    target = TagTarget()
    labeled_layout = conll.TAG_LAYOUTS
    conll_type, table_type = conll.PlainConllReader, conll.PlainTagTable


def _documents(examples: Examples) -> Iterator[list[int]]:
    """The indices of each document's sentences; a sentence of no document is alone."""
    for document, group in groupby(range(len(examples)), key=lambda index: examples[index].document):
        indices = list(group)
        yield from [[index] for index in indices] if document is None else [indices]


def _word_pieces(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The ids of each word, at least one."""
    ids, first = tokenizer.encode_words(words)
    present = [position for position in first if position >= 0]
    ends = dict(zip(present, [*present[1:], len(ids)], strict=False))  # no word may be present
    return [ids[position : ends[position]] if position >= 0 else [tokenizer.unk_id] for position in first]


def _widen(begin: int, end: int, room: int, num_tokens: int) -> tuple[int, int]:
    """A span of a document with up to `room` more tokens, half of them on each side where there are so many.

    >>> _widen(4, 6, room=4, num_tokens=20), _widen(1, 3, room=4, num_tokens=20), _widen(1, 3, room=4, num_tokens=5)
    ((2, 8), (0, 6), (0, 5))
    """
    size = min(end - begin + room, num_tokens)
    first = max(0, min(begin - room // 2, num_tokens - size))
    return first, first + size
