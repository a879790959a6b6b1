"""Draft of a fine-tuning on labeled files: their examples, a share for validation, a sweep of what the time allows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from bert_core.config import BertConfig
from bert_core.text.characters import Characters, count_words, plain_text
from bert_core.text.tokenization import Tokenizer
from orchestrator.corpus.preview import quantile
from orchestrator.drafting.columns import refuse_broken
from orchestrator.drafting.request import DraftedStages, DraftRequest, Finding
from orchestrator.drafting.sizes import TaskSizes, draft_vocabulary, task_sizes
from orchestrator.drafting.task_choice import TaskChoice
from orchestrator.errors import InputError
from orchestrator.models.resolve import pretrained_models
from orchestrator.progress import counted
from orchestrator.results import Split
from orchestrator.specs.task import SplitSpec, TaskSpec
from orchestrator.tasks import TaskDefinition
from orchestrator.tasks.cell_values import is_unlabeled, other_spelling, shown_name
from orchestrator.tasks.table_files import column_names
from orchestrator.tasks.task import hold_out
from orchestrator.tasks.text_examples import LabelColumn
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.base import AnyTaskType

_RANDOM = {"init_from": "random", "tokenizer": "@tokenizer", "size": "tiny", "dropout": 0.1}
_MIN_EXAMPLES = 10
_FEW = 1000
_MOST_VALIDATION = 5000
"""Examples for validation at most: more cost time and tell little more."""
_VOCABULARY_BYTES = 64 << 20
"""Text that a vocabulary is learned from, at most."""
_MEASURED_EXAMPLES = 1000
"""Examples that a tokenizer is measured on, and whose characters are looked at."""
_MUCH_UNKNOWN = 0.1
"""Share of unknown tokens from which on a model hardly reads a text."""
_SHOWN = 6
"""Labels that a person is told."""
_MODELS_SHOWN = 3
_FEW_VALIDATION = 20
"""Examples for validation below which a single one moves the score by more than 5 points."""
_OUTLIER = 50
"""Times the length of long examples from which on a longer one is worth a word."""
_IMBALANCE = 20
"""Times that the commonest label may be as common as the rarest before it is worth a word."""


class Example(NamedTuple):
    """An example of the task type's own class, and what is counted of it."""

    own: Any
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    """Labels to count; empty where the label is a number, or no label is there."""
    num_words: int
    key: int
    """Key of all of its texts."""
    group: int
    """Key of the text that must not be in two splits, of a question its passage; 0 of an example without a word."""


@dataclass(frozen=True)
class SplitFacts:
    """The examples of a split, read to their end."""

    path: str
    bad: BadRecords
    examples: Sequence[Example]

    @cached_property
    def num_empty(self) -> int:
        return sum(not example.group for example in self.examples)

    @cached_property
    def labels(self) -> Counter[str]:
        return Counter(label for example in self.examples for label in example.labels)

    @cached_property
    def words(self) -> Counter[int]:
        """Number of examples by their number of words."""
        return Counter(example.num_words for example in self.examples)

    @property
    def doubles(self) -> tuple[int, int]:
        """Number of examples whose text stands in the file before, and of those among them that have other labels."""
        first = {example.key: example.labels for example in reversed(self.examples) if example.group}
        others = sum(first[example.key] != example.labels for example in self.examples if example.group)
        return len(self.examples) - self.num_empty - len(first), others


@dataclass(frozen=True)
class _Data:
    """The files of a task, and the examples that are trained and validated on."""

    task: TaskSpec
    files: Mapping[Split, SplitFacts]
    splits: Mapping[Split, SplitFacts]
    """The files' examples, or with some of the training examples for validation where no file is."""
    tokens_per_word: float

    @property
    def train(self) -> SplitFacts:
        """The whole training file."""
        return self.files["train"]

    def num_tokens(self, num_words: float) -> int:
        """Tokens of an example of so many words, special ones included."""
        return round(num_words * self.tokens_per_word) + 3

    def tokens_within(self, share: float) -> int:
        """Tokens that this share of the examples does not exceed."""
        return self.num_tokens(quantile(self.train.words, share))


def draft_task(choice: TaskChoice, request: DraftRequest, folder: Path | None, spec_path: str) -> DraftedStages:
    """Draft a fine-tuning on a task of some files.

    Args:
        folder: the model to start from; None for random weights, whose vocabulary is learned from a file of texts.

    Raises: InputError, TaskDataError where there is nothing to learn from.
    """
    task = choice.task
    notes = [*_leave_out_unlabeled_test(task)]
    files = {split: read_split(task, path) for split, path in task.files.items()}
    check_splits(task, files)
    train, splits = files["train"], files
    if "validation" not in files:
        count = len(train.examples)
        share = 0.2 if count < _FEW else round(min(0.1, _MOST_VALIDATION / count), 4)
        task = task.model_copy(update={"split": SplitSpec(validation=share)})
        splits = divide(task, files, share)
    is_broken = any(facts.bad.count for facts in files.values())
    task = task.model_copy(update={"on_bad_record": "skip" if is_broken else "error"})
    texts = [example.texts for example in train.examples if example.group][:_MEASURED_EXAMPLES]
    characters = Characters(chain.from_iterable(texts))
    num_words = sum(example.num_words for example in train.examples)
    tokens_per_word, unknown_share = characters.tokens_per_word, 0.0
    if folder is not None:
        tokens_per_word, unknown_share = _measure_tokenizer(folder, [" ".join(some) for some in texts])
    data = _Data(task, files, splits, tokens_per_word)
    task_type = type_of(task)
    sizes = task_sizes(
        request,
        None if folder is None else BertConfig.from_pretrained(folder),
        num_train=len(splits["train"].examples),
        num_validation=len(splits["validation"].examples),
        mean_tokens=data.num_tokens(num_words / len(train.examples)),
        wanted_length=max(data.tokens_within(0.95), task_type.short_lengths.get("max_seq_length", 0)),
        splits_long_examples=task_type.splits_long_examples,
    )
    sweep = _sweep(data, sizes, request, choice.remarks)
    texts_path = str(PurePath(spec_path).with_suffix(".texts.txt"))
    vocabulary = draft_vocabulary({"files": [texts_path]}, characters, num_words, lowercase=not task_type.needs_case)
    side_files = {texts_path: vocabulary_texts(splits["train"].examples)}
    if folder is not None:
        vocabulary, side_files = DraftedStages(), {}
    findings = [
        *_data_findings(data, choice),
        *_cut_findings(data, sizes.max_seq_length),
        *vocabulary.findings,
        *_validation_findings(data),
        *notes,
        *_model_findings(request, unknown_share),
        ("sizes", _sizes_text(sizes, request)),
    ]
    stages, comments = {**vocabulary.stages, **sweep.stages}, {**vocabulary.comments, **sweep.comments}
    return DraftedStages(stages, comments, findings, side_files)


def type_of(task: TaskSpec) -> AnyTaskType:
    """The type of a drafted task."""
    assert task.head is not None, "a draft's task says its head"
    return TASK_TYPES[task.head]


def _leave_out_unlabeled_test(task: TaskSpec) -> Iterator[Finding]:
    """Take a test file without labels from a task's files, and yield why."""
    label, path = task.label_column, task.files.get("test")
    if not label or not path:
        return
    has_column = label in column_names(path, BadRecords(path, "skip"))
    values = LabelColumn(path, label, True, Counter()).values if has_column else ()
    if all(map(is_unlabeled, values)):
        del task.files["test"]
        yield "test", f"{path} has no {'label in' if has_column else 'column'} {label!r}, so it is left out"


def read_split(task: TaskSpec, path: str) -> SplitFacts:
    """Read a labeled file as the task reads it. Raises: TaskDataError, InputError where many records are broken."""
    task_type, bad = type_of(task), BadRecords(path, "skip")
    examples = []
    for own in task_type.reader(task, None).read(path, bad):
        said = task_type.said(own).values()
        texts = tuple(text if isinstance(text, str) else " ".join(text) for text in said)
        group = hash(plain_text(task_type.split_text(own))) if all(text.strip() for text in texts) else 0
        num_words, key = sum(map(count_words, texts)), hash(plain_text("\t".join(texts)))
        examples.append(Example(own, texts, task_type.label_names(own), num_words, key, group))
    refuse_broken(bad, len(examples))
    return SplitFacts(path, bad, examples)


def check_splits(task: TaskSpec, splits: Mapping[Split, SplitFacts]) -> None:
    """Check that there is enough to learn from, and that every split has known labels. Raises: InputError."""
    train, task_type = splits["train"], type_of(task)
    usable = len(train.examples) - train.num_empty
    if usable < _MIN_EXAMPLES:
        raise InputError(
            f"{train.path} has {usable} labeled examples with text; at least {_MIN_EXAMPLES} are needed to learn from "
            "some and to check on others: add more"
        )
    problem = task_type.labels_problem(task, list(train.labels))
    if problem or (problem := task_type.labels_note([example.own for example in train.examples])):
        raise InputError(f"{train.path}: {problem}")
    for split, facts in splits.items():
        unknown = sorted(facts.labels.keys() - train.labels.keys())
        if unknown and task_type.has_labels(task.objective):
            raise InputError(
                f"{facts.path} ({split}) has the label {unknown[0]!r}, which {train.path} never shows; add rows with "
                f"it there, or mend it here{other_spelling(unknown[0], train.labels)}"
            )


def divide(task: TaskSpec, files: Mapping[Split, SplitFacts], share: float) -> dict[Split, SplitFacts]:
    """The splits with a share of the training examples for validation, as a run divides them. Raises: InputError."""
    train = files["train"]
    is_kept = hold_out(type_of(task), [example.own for example in train.examples], share)
    if not any(is_kept):
        raise InputError(
            f"{train.path}: nothing can be kept for validation, as each label stands beside one text only; add rows, "
            "or give a second file with dev in its name"
        )
    kept = replace(train, examples=[*compress(train.examples, is_kept)])
    trained = replace(train, examples=[*compress(train.examples, [not one for one in is_kept])])
    return {**files, "train": trained, "validation": kept}


def vocabulary_texts(examples: Iterable[Example]) -> Iterator[bytes]:
    """Yield the different texts of examples, or the first of very many, an empty line between them."""
    seen: set[str] = set()
    room = _VOCABULARY_BYTES
    for example in examples:
        for text in example.texts:
            line = " ".join(text.split())
            if line and line.lower() not in seen:
                seen.add(line.lower())
                document = f"{line}\n\n".encode()
                room -= len(document)
                yield document
        if room <= 0:
            return


def _measure_tokenizer(folder: Path, texts: Sequence[str]) -> tuple[float, float]:
    """Tokens that a model's tokenizer makes of a word of these texts, and the share of them that is unknown."""
    tokenizer = Tokenizer.load(folder)
    rows = tokenizer.encode_ids(texts)
    num_tokens, num_unknown = sum(map(len, rows)), sum(row.count(tokenizer.unk_id) for row in rows)
    return num_tokens / max(1, sum(map(count_words, texts))), num_unknown / max(1, num_tokens)


def _sweep(data: _Data, sizes: TaskSizes, request: DraftRequest, remarks: Sequence[str]) -> DraftedStages:
    """The stage `finetuning`, and comments on it and its values."""
    task = data.task
    short_lengths = type_of(task).short_lengths if sizes.max_seq_length < 256 else {}
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
    num_train, took = len(data.splits["train"].examples), request.estimate(sizes.minutes)
    comments = {
        "task.split": "Kept for validation, by digests of the texts; {folds: 5} trains and validates on all, in turn.",
        "task.on_bad_record": "Some records are broken; `error` in place of `skip` would name the first.",
        f"task.label_column{'s' if task.label_columns else ''}": next(iter(remarks), ""),
        "recipe.max_seq_length": f"Tokens: {fit}.",
        "recipe.epochs": f"{num_train:,} training examples; all of it takes {took}.",
        "space": "Each value here is tried with each seed; lists in other fields of recipe may be added.",
    }
    better = replace(request, model="NAME").command
    of_stages = {
        "tokenizer": "A vocabulary for random weights, learned from the training texts.",
        "finetuning": "A baseline: random weights have read nothing but these examples. A pretrained model is far "
        f"better; start from one with:\n  {better}",
    }
    of_values = {f"finetuning.{path}": comment for path, comment in comments.items()}
    return DraftedStages({"finetuning": values}, of_stages | of_values)


def _data_findings(data: _Data, choice: TaskChoice) -> Iterator[Finding]:
    """Yield what the files hold, and what is amiss with them."""
    train, table, task_type = data.train, choice.table, type_of(data.task)
    layout = task_type.own_layout.partition(" (")[0] if table is None else table.layout
    topics = {"train": "data", "validation": "dev", "test": "test"}
    for split, facts in data.files.items():
        yield topics[split], f"{facts.path}: {layout}, {counted(len(facts.examples), 'example')}"
    seen = f" (by the first {table.num_rows:,} rows)" if table is not None and not table.is_whole else ""
    yield "task", f"{task_type.head}: {task_type.goal(data.task)}{seen}"
    yield from (("", remark) for remark in choice.remarks)
    if train.labels:
        yield "labels", _labels_text(train)
    labels = tuple(sorted(train.labels))
    positive = task_type.positive_label(TaskDefinition(id="", type=task_type, labels=labels, metric=""))
    if positive is not None:
        yield (
            "",
            f"f1 is the score of {shown_name(positive)}: of {' and '.join(map(shown_name, labels))} it is the "
            "second; task.labels in the spec can say another order",
        )
    middle, long, longest = map(data.tokens_within, (0.5, 0.95, 1))
    outlier = f"; the longest has {longest:,}: look whether it is one example, as of a quote that is not closed"
    within = f"about {middle:,} tokens in the middle, 19 of 20 within {long:,}"
    yield "length", within + outlier * (longest > _OUTLIER * long)
    for facts in data.files.values():
        yield from _problems(facts)
    learned = {example.group for example in train.examples} - {0}
    for facts in data.files.values():
        leaks = sum(example.group in learned for example in facts.examples)
        if leaks and facts is not train:
            yield (
                "leak",
                f"{leaks:,} of {len(facts.examples):,} examples of {facts.path} have a text that is in {train.path} as "
                "well: scores will be too good",
            )


def _labels_text(train: SplitFacts) -> str:
    total, common = train.labels.total(), train.labels.most_common()
    shares = [f"{shown_name(label)}: {_share(count, total)}" for label, count in common[:_SHOWN]]
    more = f", and {len(common) - _SHOWN} more" if len(common) > _SHOWN else ""
    (_, most), (rarest, least) = common[0], common[-1]
    note = f"; unbalanced: {shown_name(rarest)} has {least:,}" if most > _IMBALANCE * least else ""
    return ", ".join(shares) + more + note


def _problems(facts: SplitFacts) -> Iterator[Finding]:
    bad = facts.bad
    if bad.count:
        broken = counted(bad.count, "broken record")
        yield "left out", f"{facts.path}: {broken}, the first at {bad.first_problem}"
    if bad.repair_note:
        yield "mended", bad.repair_note
    for remark, count in bad.remarks.items():
        yield "read", f"{facts.path}: {remark}: {count:,}"
    if facts.num_empty:
        yield "empty", f"{facts.path}: {counted(facts.num_empty, 'example')} without a word"
    num_doubles, num_contradictions = facts.doubles
    if num_doubles:
        other = f", {num_contradictions:,} of them with other labels" if num_contradictions else ""
        again = f"{counted(num_doubles, 'example')} whose text stands there before"
        yield "doubles", f"{facts.path}: {again}{other}"


def _cut_findings(data: _Data, max_seq_length: int) -> Iterator[Finding]:
    """Yield how many examples are longer than what is read of them, and how much is not read."""
    tokens = [(data.num_tokens(words), count) for words, count in data.train.words.items()]
    cut = [(length - max_seq_length, count) for length, count in tokens if length > max_seq_length]
    if cut and not type_of(data.task).splits_long_examples:
        lost, total = (sum(length * count for length, count in lengths) for lengths in (cut, tokens))
        yield (
            "cut",
            f"about {sum(count for _, count in cut):,} of {len(data.train.examples):,} examples are longer than "
            f"the {max_seq_length} tokens of max_seq_length: {_share(lost, total)} of all text are not read; "
            "recipe.long_documents: mean reads them in windows",
        )


def _validation_findings(data: _Data) -> Iterator[Finding]:
    """Yield how examples were kept for validation, and what a score on these cannot tell."""
    train, validation = data.train, data.splits["validation"]
    count = len(validation.examples)
    missing = [shown_name(label) for label, _ in train.labels.most_common() if not validation.labels[label]]
    if data.task.split is not None:
        shares = f", {'other ' if missing else ''}labels in the same shares" if train.labels else ""
        counts = f"{len(data.splits['train'].examples):,} for training, {count:,} for validation"
        yield "split", f"{counts}; no text is in both{shares}"
    if missing:
        shown = ", ".join(missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        yield "", f"not in validation: {shown}{more}: no score tells how well this is learned; add examples"
    if note := type_of(data.task).labels_note([example.own for example in validation.examples]):
        yield "", f"{validation.path}: {note}; add others"
    if count < _FEW_VALIDATION:
        measure = "measures next to nothing, it is" if count == 1 else "measure next to nothing, each is"
        points = f"{100 / max(1, count):.0f} points of the score"
        yield "", f"{counted(count, 'example')} for validation {measure} {points}: add examples"


def _model_findings(request: DraftRequest, unknown_share: float) -> Iterator[Finding]:
    """Yield which weights the fine-tuning starts from; without a model also those that are registered."""
    if request.model:
        if unknown_share > _MUCH_UNKNOWN:
            yield (
                "unknown",
                f"{100 * unknown_share:.0f} % of the tokens of these texts are unknown to {request.model} "
                "([UNK]), which learned its vocabulary from other text: start from another model",
            )
        yield "model", f"starts from {request.model}"
        return
    yield (
        "model",
        "random weights (BERT-tiny) and a vocabulary of these texts: a baseline. Starting from a pretrained model "
        "is far better: --model NAME, of one on the hub (bert-base-uncased), a registered model or a folder",
    )
    if names := pretrained_models(request.settings)[:_MODELS_SHOWN]:
        yield "", f"registered here: {', '.join(names)}"


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
