"""Draft of a fine-tuning on labeled files: their examples, a share for validation, a sweep of what the time allows."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, NamedTuple, Self

from bert_core.config import BertConfig
from bert_core.text.characters import Characters, count_words, plain_text
from bert_core.text.tokenization import MUCH_UNKNOWN, Tokenizer
from orchestrator.base.console import counted, names_text
from orchestrator.base.errors import InputError
from orchestrator.base.results import Split
from orchestrator.corpus.inspection import quantile
from orchestrator.drafting.columns import refuse_broken
from orchestrator.drafting.request import DraftedStages, DraftRequest, Finding
from orchestrator.drafting.sizes import TaskSizes, draft_vocabulary, task_sizes
from orchestrator.drafting.task_choice import TaskChoice
from orchestrator.registry.model_names import pretrained_models
from orchestrator.specs.task import SplitSpec, TaskSpec
from orchestrator.tasks.cell_values import shown_name
from orchestrator.tasks.loading import data_remarks, load_task
from orchestrator.tasks.table_files import column_names, table_name
from orchestrator.tasks.task import Task
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.base import AnyTaskType

logger = logging.getLogger(__name__)
_RANDOM = {"init_from": "random", "tokenizer": "@tokenizer", "size": "tiny", "dropout": 0.1}
_MIN_EXAMPLES = 10
_FEW = 1000
_MOST_VALIDATION = 5000
"""Examples for validation at most: more cost time and tell little more."""
_VOCABULARY_BYTES = 64 << 20
"""Text that a vocabulary is learned from, at most."""
_MEASURED_EXAMPLES = 1000
"""Examples that a tokenizer is measured on, and whose characters are looked at."""
_FEW_VALIDATION = 20
"""Examples for validation below which a single one moves the score by more than 5 points."""
_OUTLIER = 50
"""Times the length of long examples from which on a longer one is worth a word."""


class Example(NamedTuple):
    """An example as a person counts it."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    """Labels to count; empty where the label is a number, or no label is there."""
    num_words: int
    key: int

    @classmethod
    def of(cls, own: Any, task_type: AnyTaskType) -> Self:
        said = task_type.inputs(own).values()
        texts = tuple(text if isinstance(text, str) else " ".join(text) for text in said)
        key = hash(plain_text("\t".join(texts)))
        return cls(texts, task_type.target.label_names(own), sum(map(count_words, texts)), key)

    @property
    def is_empty(self) -> bool:
        return not all(map(str.strip, self.texts))


@dataclass(frozen=True)
class SplitFacts:
    """The examples of a split, or of a file that is divided into two."""

    path: str
    bad: BadRecords
    examples: Sequence[Example]

    @cached_property
    def num_empty(self) -> int:
        return sum(example.is_empty for example in self.examples)

    @cached_property
    def labels(self) -> Counter[str]:
        return Counter(label for example in self.examples for label in example.labels)

    @cached_property
    def words(self) -> Counter[int]:
        return Counter(example.num_words for example in self.examples)

    @property
    def duplicates(self) -> tuple[int, int]:
        """Number of duplicate examples, and how many of them contradict the first one's labels."""
        first = {example.key: example.labels for example in reversed(self.examples) if not example.is_empty}
        others = sum(first[example.key] != example.labels for example in self.examples if not example.is_empty)
        return len(self.examples) - self.num_empty - len(first), others


@dataclass(frozen=True)
class _Data:
    """A task as the run of its spec will read it."""

    spec: TaskSpec
    task: Task
    files: Mapping[Split, SplitFacts]
    splits: Mapping[Split, SplitFacts]
    """The same, with some of the training examples for validation where no file is."""
    tokens_per_word: float = 1.0

    @property
    def train(self) -> SplitFacts:
        return self.files["train"]

    def num_tokens(self, num_words: float) -> int:
        """Tokens of an example of so many words, special ones included."""
        return round(num_words * self.tokens_per_word) + 3

    def tokens_within(self, share: float) -> int:
        return self.num_tokens(quantile(self.train.words, share))


def draft_task(choice: TaskChoice, request: DraftRequest, folder: Path | None, spec_path: str) -> DraftedStages:
    """Draft a fine-tuning on a task of some files.

    Args:
        folder: the model to start from; None for random weights, whose vocabulary is learned from a file of texts.

    Raises: InputError, TaskDataError where there is nothing to learn from.
    """
    data = read_data(choice.task)
    train, task_type = data.train, data.task.type
    texts = [example.texts for example in train.examples if not example.is_empty][:_MEASURED_EXAMPLES]
    characters = Characters(chain.from_iterable(texts))
    num_words = sum(example.num_words for example in train.examples)
    tokens_per_word, unknown_share = characters.tokens_per_word, 0.0
    if folder is not None:
        tokens_per_word, unknown_share = _measure_tokenizer(folder, [" ".join(some) for some in texts])
    data = replace(data, tokens_per_word=tokens_per_word)
    sizes = task_sizes(
        request,
        None if folder is None else BertConfig.from_pretrained(folder),
        num_train=len(data.splits["train"].examples),
        num_validation=len(data.splits["validation"].examples),
        mean_tokens=data.num_tokens(num_words / len(train.examples)),
        wanted_length=max(data.tokens_within(0.95), task_type.shortest_lengths.get("max_seq_length", 0)),
        splits_long_examples=task_type.splits_long_examples,
    )
    sweep = _sweep(data, sizes, request, choice.remarks)
    texts_path = str(PurePath(spec_path).with_suffix(".texts.txt"))
    vocabulary = draft_vocabulary({"files": [texts_path]}, characters, num_words, lowercase=not task_type.needs_case)
    side_files = {texts_path: vocabulary_texts(data.splits["train"].examples)}
    if folder is not None:
        vocabulary, side_files = DraftedStages(), {}
    findings = [
        *_data_findings(data, choice),
        *_cut_findings(data, sizes.max_seq_length),
        *vocabulary.findings,
        *_validation_findings(data),
        *_model_findings(request, unknown_share),
        ("sizes", _sizes_text(sizes, request)),
    ]
    stages, comments = {**vocabulary.stages, **sweep.stages}, {**vocabulary.comments, **sweep.comments}
    return DraftedStages(stages, comments, findings, side_files)


def read_data(spec: TaskSpec) -> _Data:
    """Read a task's files as a run will, a share of the training file for validation where there is no other file.

    Raises: InputError, SpecError, TaskDataError where there is not enough to learn from.
    """
    label, files = spec.label_column, dict(spec.files)
    if "test" in files and label and label not in column_names(files["test"], BadRecords(files["test"], "skip")):
        logger.info(f"{files.pop('test')} has no column {label!r}, so that there is no test split")
    is_divided = "validation" not in files
    # Each split of folds of which none is chosen is the whole file.
    as_whole = {"files": files, **({"split": SplitSpec(folds=2)} if is_divided else {})}
    task = load_task(spec.model_copy(update=as_whole))
    facts: dict[Split, SplitFacts] = {}
    for split in (split for split in task.splits if split in files):
        examples, bad = task.read(split)
        refuse_broken(bad, len(examples))
        facts[split] = SplitFacts(task.files[split], bad, [Example.of(own, task.type) for own in examples])
    train = facts["train"]
    usable = len(train.examples) - train.num_empty
    if usable < _MIN_EXAMPLES:
        raise InputError(
            f"{train.path} has {usable} labeled examples with text; at least {_MIN_EXAMPLES} are needed to learn from "
            "some and to check on others: add more"
        )
    if problem := task.target.labels_note(task.examples("train")):
        raise InputError(f"{train.path}: {problem}")
    policy = "skip" if any(one.bad.count for one in facts.values()) else "error"
    of_task = {"files": {split: one.path for split, one in facts.items()}, "on_bad_record": policy}
    if not is_divided:
        return _Data(spec.model_copy(update=of_task), task, facts, facts)
    count = len(train.examples)
    share = 0.2 if count < _FEW else round(min(0.1, _MOST_VALIDATION / count), 4)
    counted_of = dict(zip(map(id, task.examples("train")), train.examples, strict=True))
    task = replace(task, held_out=share, folds=None)
    parts: list[Split] = ["train", "validation"]
    splits = {split: replace(train, examples=[counted_of[id(one)] for one in task.examples(split)]) for split in parts}
    return _Data(spec.model_copy(update={**of_task, "split": SplitSpec(validation=share)}), task, facts, splits)


def vocabulary_texts(examples: Iterable[Example]) -> Iterator[bytes]:
    """Yield the different texts of examples, or the first of very many, an empty line between them."""
    seen, room = {""}, _VOCABULARY_BYTES
    for text in chain.from_iterable(example.texts for example in examples):
        line = " ".join(text.split())
        if room > 0 and line.lower() not in seen:
            seen.add(line.lower())
            room -= len(line.encode())
            yield f"{line}\n\n".encode()


def _measure_tokenizer(folder: Path, texts: Sequence[str]) -> tuple[float, float]:
    """Tokens that a model's tokenizer makes of a word of these texts, and the share of them that is unknown."""
    tokenizer = Tokenizer.load(folder)
    rows = tokenizer.encode_ids(texts)
    num_tokens, num_unknown = sum(map(len, rows)), sum(row.count(tokenizer.unk_id) for row in rows)
    return num_tokens / max(1, sum(map(count_words, texts))), num_unknown / max(1, num_tokens)


def _sweep(data: _Data, sizes: TaskSizes, request: DraftRequest, remarks: Sequence[str]) -> DraftedStages:
    task = data.spec
    short_lengths = data.task.type.shortest_lengths if sizes.max_seq_length < 256 else {}
    values = {
        "kind": "sweep",
        "task": task.model_dump(mode="json", exclude_defaults=True),
        "recipe": {
            **({"init_from": request.model} if request.model else _RANDOM),
            **short_lengths,
            "max_seq_length": sizes.max_seq_length,
            "batch_size": sizes.batch_size,
            "epochs": sizes.epochs,
        },
        "space": {"learning_rate": list(sizes.learning_rates)},
        "seeds": list(sizes.seeds),
    }
    is_cut = sizes.max_seq_length < data.tokens_within(0.95)
    fit = "longer examples are cut, or read in several windows" if is_cut else "19 of 20 examples fit whole"
    comments = {
        "task.split": "Kept for validation, by digests of the texts; {folds: 5} trains and validates on all, in turn.",
        "task.on_bad_record": "Some records are broken; `error` in place of `skip` would name the first.",
        f"task.label_column{'s' if task.label_columns else ''}": next(iter(remarks), ""),
        "recipe.max_seq_length": f"Tokens: {fit}.",
        "recipe.epochs": f"All of it takes {request.estimate(sizes.minutes)}.",
        "space": "Each value here is tried with each seed; lists in other fields of recipe may be added.",
    }
    of_stages = {
        "tokenizer": "A vocabulary for random weights, learned from the training texts.",
        "finetuning": "A baseline: random weights have read nothing but these examples. A pretrained model is far "
        f"better; start from one with:\n  {replace(request, model='NAME').command}",
    }
    of_values = {f"finetuning.{path}": comment for path, comment in comments.items()}
    return DraftedStages({"finetuning": values}, of_stages | of_values)


def _data_findings(data: _Data, choice: TaskChoice) -> Iterator[Finding]:
    """Yield what the files hold, and what is amiss with them."""
    train, table, task_type = data.train, choice.table, data.task.type
    layout = task_type.own_layout.partition(" (")[0] if table is None else table_name(table.path) or "JSON"
    topics = {"train": "data", "validation": "dev", "test": "test"}
    for split, facts in data.files.items():
        yield topics[split], f"{facts.path}: {layout}, {counted(len(facts.examples), 'example')}"
    seen = f" (by the first {table.num_rows:,} rows)" if table is not None and not table.is_whole else ""
    yield "task", f"{task_type.head}: {task_type.goal(data.spec)}{seen}"
    yield from (("", remark) for remark in choice.remarks)
    if common := train.labels.most_common():
        shares = [f"{shown_name(label)}: {_share(count, train.labels.total())}" for label, count in common]
        yield "labels", names_text(shares)
    if (positive := task_type.target.positive_label(data.task)) is not None:
        order = f"it is the second of {' and '.join(map(shown_name, data.task.labels))}"
        yield "", f"f1 is the score of {shown_name(positive)}: {order}; task.labels in the spec can say another order"
    middle, long, longest = map(data.tokens_within, (0.5, 0.95, 1))
    outlier = f"; the longest has {longest:,}: is a quote not closed?" if longest > _OUTLIER * long else ""
    yield "length", f"median about {middle:,} tokens, 95 % have at most {long:,}{outlier}"
    for facts in data.files.values():
        yield from _problems(facts)
    yield from data_remarks(data.task)


def _problems(facts: SplitFacts) -> Iterator[Finding]:
    bad = facts.bad
    if bad.count:
        broken = counted(bad.count, "broken record")
        yield "left out", f"{facts.path}: {broken}, the first at {bad.first_problem}"
    if facts.num_empty:
        yield "empty", f"{facts.path}: {counted(facts.num_empty, 'example')} without a word"
    num_duplicates, num_contradictions = facts.duplicates
    if num_duplicates:
        other = f", {num_contradictions:,} of them with other labels" if num_contradictions else ""
        again = f"{counted(num_duplicates, 'example')} whose text stands there before"
        yield "repeated", f"{facts.path}: {again}{other}"


def _cut_findings(data: _Data, max_seq_length: int) -> Iterator[Finding]:
    num_cut = sum(count for words, count in data.train.words.items() if data.num_tokens(words) > max_seq_length)
    if num_cut and not data.task.type.splits_long_examples:
        which = f"about {num_cut:,} of {len(data.train.examples):,} examples have more than the {max_seq_length} tokens"
        yield "cut", f"{which} that are read of each; recipe.long_documents: mean reads them whole, in windows"


def _validation_findings(data: _Data) -> Iterator[Finding]:
    """Yield how examples were kept for validation, and what a score on these cannot tell."""
    train, validation = data.train, data.splits["validation"]
    count = len(validation.examples)
    missing = [shown_name(label) for label, _ in train.labels.most_common() if not validation.labels[label]]
    if data.task.is_divided:
        shares = f", {'other ' if missing else ''}labels in the same shares" if train.labels else ""
        counts = f"{len(data.splits['train'].examples):,} for training, {count:,} for validation"
        yield "split", f"{counts}; no text is in both{shares}"
    if missing:
        yield "", f"not in validation: {names_text(missing)}: no score tells how well this is learned; add examples"
    if count < _FEW_VALIDATION:
        measure = "measures next to nothing, it is" if count == 1 else "measure next to nothing, each is"
        points = f"{100 / max(1, count):.0f} points of the score"
        yield "", f"{counted(count, 'example')} for validation {measure} {points}: add examples"


def _model_findings(request: DraftRequest, unknown_share: float) -> Iterator[Finding]:
    """Yield which weights the fine-tuning starts from; without a model also those that are registered."""
    if request.model:
        if unknown_share > MUCH_UNKNOWN:
            unknown = f"{100 * unknown_share:.0f} % of the tokens of these texts are unknown to {request.model} ([UNK])"
            yield "unknown", f"{unknown}, which learned its vocabulary from other text: start from another model"
        yield "model", f"starts from {request.model}"
        return
    random = "random weights (BERT-tiny) and a vocabulary of these texts: a baseline"
    named = "--model NAME, of one on the hub (bert-base-uncased), a registered model or a folder"
    yield "model", f"{random}. Starting from a pretrained model is far better: {named}"
    if names := pretrained_models(request.settings):
        yield "", f"registered here: {names_text(names)}"


def _sizes_text(sizes: TaskSizes, request: DraftRequest) -> str:
    """The trials and epochs, their time by estimate, and what to do where it is not enough."""
    trials = f"{counted(len(sizes.learning_rates), 'learning rate')} × {counted(len(sizes.seeds), 'seed')}"
    took = f"{trials}, {counted(sizes.epochs, 'epoch')}: {request.estimate(sizes.minutes, ' of training')}"
    if not sizes.fits:
        return f"{took}; more than the {request.minutes:g} asked for: give more --minutes or less data"
    return f"{took}; not all examples are read in this time: give more --minutes" if sizes.epochs < 1 else took


def _share(count: int, total: int) -> str:
    """A share in percent, as in `61 %`."""
    percent = 100 * count / max(1, total)
    return f"{percent:.0f} %" if percent >= 1 else f"{percent:.1f} %"
