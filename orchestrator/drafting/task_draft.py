"""Draft of a fine-tuning on labeled files: a sweep from a model, or tokenizer and sweep from random weights."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from bert_core.config import BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.corpus.preview import quantile
from orchestrator.drafting.columns import TableFacts
from orchestrator.drafting.draft_parts import (
    Draft,
    Finding,
    commented,
    marks_finding,
    minutes_text,
    spec_text,
    start_folder,
    vocabulary_stage,
)
from orchestrator.drafting.examples import (
    SplitFacts,
    check_splits,
    divide,
    read_split,
    type_of,
    validation_share,
    vocabulary_texts,
)
from orchestrator.drafting.request import DraftRequest
from orchestrator.drafting.sizes import TaskSizes, task_sizes
from orchestrator.drafting.text import Characters, count_all, count_words
from orchestrator.progress import counted
from orchestrator.registry import Registry
from orchestrator.results import Split
from orchestrator.settings import Settings
from orchestrator.specs.task import SplitSpec, TaskSpec
from orchestrator.tasks import TaskDefinition
from orchestrator.tasks.cell_values import NO_LABEL_MARKS, read_label
from orchestrator.tasks.table_files import column_names
from orchestrator.tasks.text_examples import LabelColumn
from orchestrator.tasks.text_files import BadRecords

_QA_LENGTHS = {"max_seq_length": 192, "max_query_length": 48, "doc_stride": 64}
"""Least length of a window of a passage, and the lengths that fit one so short."""
_RANDOM = {"init_from": "random", "tokenizer": "@tokenizer", "size": "tiny", "dropout": 0.1}
_MEASURED_EXAMPLES = 1000
"""Examples that a tokenizer is measured on, and whose characters are looked at."""
_MUCH_UNKNOWN = 0.1
"""Share of unknown tokens from which on a model hardly reads a text."""
_LABELS_SHOWN = 6
_MODELS_SHOWN = 3
_FEW_VALIDATION = 20
"""Examples for validation below which a single one moves the score by more than 5 points."""
_OUTLIER = 50
"""Times the length of long examples from which on a longer one is worth a word."""
_IMBALANCE = 20
"""Times that the commonest label may be as common as the rarest before it is worth a word."""


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


def draft_task(
    task: TaskSpec, remarks: Sequence[str], table: TableFacts | None, request: DraftRequest, spec_path: str
) -> Draft:
    """Draft the spec of a fine-tuning on a task, which was chosen with some remarks by the table of its training file.

    Raises: InputError, TaskDataError where there is nothing to learn from; NotFoundError.
    """
    folder = start_folder(request)
    notes = [*_leave_out_unlabeled_test(task)]
    files = {split: read_split(task, path) for split, path in task.files.items()}
    check_splits(task, files)
    train, splits = files["train"], files
    if "validation" not in files:
        share = validation_share(len(train.examples))
        task = task.model_copy(update={"split": SplitSpec(validation=share)})
        splits = divide(task, files, share)
    is_broken = any(facts.bad.count for facts in files.values())
    task = task.model_copy(update={"on_bad_record": "skip" if is_broken else "error"})
    texts = [example.texts for example in train.examples if example.group][:_MEASURED_EXAMPLES]
    characters = Characters(chain.from_iterable(texts))
    tokens_per_word, unknown_share = characters.tokens_per_word, 0.0
    if folder is not None:
        tokens_per_word, unknown_share = _measure_tokenizer(folder, [" ".join(some) for some in texts])
    data = _Data(task, files, splits, tokens_per_word)
    config = BertConfig.from_size("tiny", vocab_size=1000) if folder is None else BertConfig.from_pretrained(folder)
    sizes = _sizes_of(data, config, request)
    values, side_files = _sweep(data, sizes, request, remarks), {}
    if folder is None:
        texts_path = str(PurePath(spec_path).with_suffix(".texts.txt"))
        side_files[texts_path] = vocabulary_texts(splits["train"].examples)
        corpus, num_words = {"files": [texts_path]}, count_all(train.words)
        tokenizer = vocabulary_stage(corpus, characters, num_words, lowercase=not type_of(task).needs_case)
        stages = commented(
            {"tokenizer": tokenizer, "finetuning": values},
            tokenizer="A vocabulary for random weights, learned from the training texts.",
            finetuning="A baseline: random weights have read nothing but these examples. A pretrained model is far "
            f"better; start from one with:\n  {replace(request, model='NAME').command}",
        )
        values = {"kind": "pipeline", "stages": stages}
    findings = [
        *_data_findings(data, remarks, table),
        *_cut_findings(data, sizes.max_seq_length),
        *(marks_finding(characters) if folder is None else ()),
        *_validation_findings(data),
        *notes,
        *_model_findings(request, unknown_share),
        ("sizes", _sizes_text(sizes, request)),
    ]
    return Draft(spec_path, spec_text(values, request, spec_path), findings, side_files)


def _leave_out_unlabeled_test(task: TaskSpec) -> Iterator[Finding]:
    """Take a test file without labels from a task's files, and yield why."""
    label, path = task.label_column, task.files.get("test")
    if not label or not path:
        return
    has_column = label in column_names(path, BadRecords(path, "skip"))
    if not has_column or all(map(_is_unlabeled, LabelColumn(path, label, True, Counter()).values)):
        del task.files["test"]
        yield "test", f"{path} has no {'label in' if has_column else 'column'} {label!r}, so it is left out"


def _is_unlabeled(value: object) -> bool:
    """Whether a cell stands for no label; a list says which there are."""
    return not isinstance(value, list | dict) and read_label(value) in (None, *NO_LABEL_MARKS)


def _measure_tokenizer(folder: Path, texts: Sequence[str]) -> tuple[float, float]:
    """Tokens that a model's tokenizer makes of a word of these texts, and the share of them that is unknown."""
    tokenizer = Tokenizer.load(folder)
    rows = tokenizer.encode_ids(texts)
    num_tokens, num_unknown = sum(map(len, rows)), sum(row.count(tokenizer.unk_id) for row in rows)
    return num_tokens / max(1, sum(map(count_words, texts))), num_unknown / max(1, num_tokens)


def _sizes_of(data: _Data, config: BertConfig, request: DraftRequest) -> TaskSizes:
    least = _QA_LENGTHS["max_seq_length"] if data.task.head == "qa" else 0
    return task_sizes(
        request,
        config,
        num_train=len(data.splits["train"].examples),
        num_validation=len(data.splits["validation"].examples),
        mean_tokens=data.num_tokens(count_all(data.train.words) / len(data.train.examples)),
        wanted_length=max(data.tokens_within(0.95), least),
        is_pretrained=request.model is not None,
        splits_long_examples=type_of(data.task).splits_long_examples,
    )


def _sweep(data: _Data, sizes: TaskSizes, request: DraftRequest, remarks: Sequence[str]) -> dict[str, Any]:
    task = data.task
    fields = task.model_dump(mode="json", exclude_defaults=True)
    lengths = _QA_LENGTHS if task.head == "qa" and sizes.max_seq_length < 256 else {}
    recipe = {
        **({"init_from": request.model} if request.model else _RANDOM),
        **lengths,
        "max_seq_length": sizes.max_seq_length,
        "batch_size": sizes.batch_size,
        "epochs": sizes.epochs,
    }
    is_cut = sizes.max_seq_length < data.tokens_within(0.95)
    fit = "longer examples are cut, or read in several windows" if is_cut else "19 of 20 examples fit whole"
    num_train, took = len(data.splits["train"].examples), f"{minutes_text(sizes.minutes)} ({request.estimate})"
    values = {
        "kind": "sweep",
        "task": commented(
            fields,
            split="Kept for validation, by digests of the texts; {folds: 5} trains and validates on all, in turn.",
            on_bad_record="Some records are broken; `error` in place of `skip` would name the first.",
            **{"label_columns" if task.label_columns else "label_column": next(iter(remarks), "")},
        ),
        "recipe": commented(
            recipe,
            max_seq_length=f"Tokens: {fit}.",
            epochs=f"{num_train:,} training examples; all of it takes {took}.",
        ),
        "space": {"learning_rate": list(sizes.learning_rates)},
        "seeds": list(sizes.seeds),
    }
    return commented(
        values, space="Each value here is tried with each seed; lists in other fields of recipe may be added."
    )


# Findings


def _data_findings(data: _Data, remarks: Sequence[str], table: TableFacts | None) -> Iterator[Finding]:
    """Yield what the files hold, and what is amiss with them."""
    task, train, task_type = data.task, data.train, type_of(data.task)
    layout = task_type.own_layout.partition(" (")[0] if table is None else table.layout
    topics = {"train": "data", "validation": "dev", "test": "test"}
    for split, facts in data.files.items():
        yield topics[split], f"{facts.path}: {layout}, {counted(len(facts.examples), 'example')}"
    yield "task", f"{task.head}: {_task_text(task, table)}"
    yield from (("", remark) for remark in remarks)
    if train.labels:
        yield "labels", _labels_text(train)
    labels = tuple(sorted(train.labels))
    positive = task_type.positive_label(TaskDefinition(id="", type=task_type, labels=labels, metric=""))
    if positive is not None:
        yield (
            "",
            f"f1 is the score of {_shown(positive)}: of {' and '.join(map(_shown, labels))} it is the "
            "second; task.labels in the spec can say another order",
        )
    middle, long, longest = map(data.tokens_within, (0.5, 0.95, 1))
    outlier = f"; the longest has {longest:,}: look whether it is one example, as of a quote that is not closed"
    within = f"about {middle:,} tokens in the middle, 19 of 20 within {long:,}"
    yield "length", within + outlier * (longest > _OUTLIER * long)
    for facts in data.files.values():
        yield from _problems(facts)
    for facts in data.files.values():
        leaks = 0 if facts is train else sum(example.group in train.groups for example in facts.examples)
        if leaks:
            yield (
                "leak",
                f"{leaks:,} of {len(facts.examples):,} examples of {facts.path} have a text that is in {train.path} as "
                "well: scores will be too good",
            )


def _task_text(task: TaskSpec, table: TableFacts | None) -> str:
    if task.head == "qa":
        return "the answer is a part of the passage"
    if table is None:
        return f"a {'BIO ' if task.head == 'ner' else ''}tag for each word"
    if task.head == "embedding":
        far = f", far from {', '.join(task.negative_columns)}" if task.negative_columns else ""
        return f"vectors of {task.text_columns[0]} near those of {task.text_columns[1]}{far}"
    label = ", ".join(map(_shown, task.label_columns or (str(task.label_column),)))
    is_set = "label_separator" in task.model_fields_set
    separator = f", several apart by {task.label_separator!r}" if is_set else ""
    seen = "" if table.is_whole else f" (by the first {table.num_rows:,} rows)"
    return f"{label} from {' and '.join(map(_shown, task.text_columns))}{separator}{seen}"


def _labels_text(train: SplitFacts) -> str:
    total, common = train.labels.total(), train.labels.most_common()
    shares = [f"{_shown(label)}: {_share(count, total)}" for label, count in common[:_LABELS_SHOWN]]
    more = f", and {len(common) - _LABELS_SHOWN} more" if len(common) > _LABELS_SHOWN else ""
    (_, most), (rarest, least) = common[0], common[-1]
    note = f"; unbalanced: {_shown(rarest)} has {least:,}" if most > _IMBALANCE * least else ""
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
    missing = [_shown(label) for label, _ in train.labels.most_common() if not validation.labels[label]]
    if data.task.split is not None:
        shares = f", {'other ' if missing else ''}labels in the same shares" if train.labels else ""
        counts = f"{len(data.splits['train'].examples):,} for training, {count:,} for validation"
        yield "split", f"{counts}; no text is in both{shares}"
    if missing:
        shown = ", ".join(missing[:_LABELS_SHOWN])
        more = f" and {len(missing) - _LABELS_SHOWN} more" if len(missing) > _LABELS_SHOWN else ""
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
    if names := registered_starts(request.settings):
        yield "", f"registered here: {', '.join(names)}"


def registered_starts(settings: Settings) -> tuple[str, ...]:
    """Names of registered models that are pretrained and not fine-tuned, the newest first."""
    with Registry(settings.registry, read_only=True) as registry:
        models = registry.models.frame()
    names = models[models["head"] == "pretraining"]["name"].tolist()
    return tuple(dict.fromkeys(map(str, names)))[:_MODELS_SHOWN]


def _sizes_text(sizes: TaskSizes, request: DraftRequest) -> str:
    """The trials and epochs, their time by estimate, and what to do where it is not enough."""
    trials = f"{counted(len(sizes.learning_rates), 'learning rate')} × {counted(len(sizes.seeds), 'seed')}"
    took = f"{trials}, {counted(sizes.epochs, 'epoch')}: {minutes_text(sizes.minutes)} of training ({request.estimate})"
    if not sizes.fits:
        return f"{took}; more than the {request.minutes:g} asked for: give more --minutes or less data"
    return f"{took}; not all examples are read in this time: give more --minutes" if sizes.epochs < 1 else took


def _share(count: int, total: int) -> str:
    """A share in percent, as in `61 %`."""
    percent = 100 * count / max(1, total)
    return f"{percent:.0f} %" if percent >= 1 else f"{percent:.1f} %"


def _shown(label: str) -> str:
    """A label or the name of a column, quoted where blanks at its ends would not be seen."""
    return label[:40] if label == label.strip() else repr(label[:40])
