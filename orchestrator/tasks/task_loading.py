"""From what a person wrote about a task to a `Task`: its files, its labels, the reader of its layout."""

import difflib
from collections.abc import Mapping
from dataclasses import replace

from orchestrator.errors import SpecError, TaskDataError
from orchestrator.results import Split
from orchestrator.specs.task import Head, TaskSpec
from orchestrator.storage import exists
from orchestrator.tasks.bio_tags import complete_tag_set, is_bio
from orchestrator.tasks.catalogue import KNOWN_TASKS, KnownTask
from orchestrator.tasks.conll import ConllReader
from orchestrator.tasks.embedding_pairs import SimilarityTable, check_pairs, pair_reader
from orchestrator.tasks.examples import ClassificationExample, MultiLabelExample, NerExample, QaExample, TextExample
from orchestrator.tasks.labeled_tables import (
    ClassificationTable,
    MultiLabelTable,
    MultipleChoiceTable,
    NerTable,
    RegressionTable,
)
from orchestrator.tasks.retrieval import RetrievalReader, find_collection, find_judgments
from orchestrator.tasks.scores import default_metric, metric_names
from orchestrator.tasks.squad import SquadReader
from orchestrator.tasks.tables import has_columns
from orchestrator.tasks.tabular_columns import TabularColumns
from orchestrator.tasks.task import Reader, Task
from orchestrator.tasks.text_files import find_file, plain_name

_HEADS_OF_FIELDS: Mapping[str, tuple[Head, ...]] = {
    "choice_columns": ("multiple_choice",),
    "numerical_columns": ("classification", "multi_label", "regression"),
    "categorical_columns": ("classification", "multi_label", "regression"),
    "label_separator": ("multi_label",),
    "objective": ("embedding",),
    "score_range": ("embedding",),
}
"""The fields of a spec that not every task of one's own has a use for."""


def load_task(spec: TaskSpec) -> Task:
    """Find a task's files and learn its labels. Raises: SpecError, TaskDataError."""
    task = _known_task(spec, KNOWN_TASKS[spec.id]) if spec.id in KNOWN_TASKS else _own_task(spec)
    known_metrics = metric_names(task.id, task.predicts, len(task.labels))
    if task.metric not in known_metrics:
        raise SpecError(f"task.metric {task.metric!r}: task {task.id} has the scores {', '.join(known_metrics)}")
    return task


def _known_task(spec: TaskSpec, known: KnownTask) -> Task:
    for name in ("head", "labels", "text_columns", "label_column", *_HEADS_OF_FIELDS):
        if _is_given(spec, name):
            raise SpecError(f"task.{name}: {spec.id} is a known task and has its own; leave it out, or use another id")
    files = dict(spec.files)
    if spec.folder is not None:
        for split, candidates in known.files.items():
            path = find_file(spec.folder, candidates)
            if path is not None and not (split == "test" and _is_unlabeled(known, path)):
                files.setdefault(split, path)
    if not files:
        hint = "known; set task.folder in a spec, or give folder=DIR to evaluate"
        names = " or ".join(name for split in known.files.values() for name in split)
        raise TaskDataError(
            f"task {spec.id}: none of its files is {f'in {spec.folder}' if spec.folder else hint} "
            f"(looked for {names}, also .gz, .xz, .zst)"
        )
    _check_files(spec, files, known.files.get("validation", ()))
    reader = _known_reader(spec, known)
    return Task(
        id=spec.id,
        head=known.head,
        labels=known.labels or tuple(known.classes.values()),
        metric=spec.metric or known.metric,
        files=files,
        reader=reader,
        shared_files=reader.shared_files if isinstance(reader, RetrievalReader) else (),
        max_examples=_limits(spec),
        on_bad_record=spec.on_bad_record,
        unanswerable=known.unanswerable,
        objective=known.objective,
    )


def _known_reader(spec: TaskSpec, known: KnownTask) -> Reader:
    if known.head == "retrieval":
        return find_collection(spec.id, spec.folder, known.gains)
    if known.head == "embedding":
        least, greatest = known.score_range
        return SimilarityTable(known.text_columns, known.label_column, least=least, greatest=greatest)
    if known.head == "classification":
        return ClassificationTable(known.text_columns, known.label_column, known.classes, header=known.header)
    if known.head == "regression":
        return RegressionTable(known.text_columns, known.label_column)
    if known.head == "multiple_choice":
        return MultipleChoiceTable(known.text_columns, known.choice_columns, known.label_column)
    return ConllReader(known.labels) if known.head == "ner" else SquadReader()


def _is_unlabeled(known: KnownTask, path: str) -> bool:
    if not known.label_column:
        return False
    return not has_columns(path, (*known.text_columns, *known.choice_columns, known.label_column), known.header)


def _is_given(spec: TaskSpec, name: str) -> bool:
    return bool(getattr(spec, name) != TaskSpec.model_fields[name].default)


def _own_task(spec: TaskSpec) -> Task:
    if spec.head == "retrieval":
        return _own_collection(spec)
    if spec.head is None or not spec.files:
        near = difflib.get_close_matches(spec.id, KNOWN_TASKS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise SpecError(
            f"task.id {spec.id!r} is no known task ({', '.join(KNOWN_TASKS)}); {hint}"
            "A task of one's own needs task.head and task.files"
        )
    _check_files(spec, spec.files, ())
    _check_columns(spec, spec.head)
    task = Task(
        id=spec.id,
        head=spec.head,
        labels=spec.labels or (),
        metric=spec.metric or default_metric(spec.head, spec.objective),
        files=dict(spec.files),
        reader=_own_reader(spec, spec.head, spec.labels),
        max_examples=_limits(spec),
        on_bad_record=spec.on_bad_record,
        objective=spec.objective,
    )
    if spec.head == "qa":
        return replace(task, unanswerable=any(_has_no_answer(task, split) for split in task.splits))
    whole = replace(task, max_examples={})
    if spec.numerical_columns or spec.categorical_columns:
        task = replace(task, columns=_learn_columns(spec, whole))
    if task.predicts in ("regression", "multiple_choice", "retrieval"):
        return task
    labels = spec.labels or _find_labels(whole)
    if not spec.labels and len(labels) < 2:
        has = f"has one label only ({labels[0]})" if labels else "has no labels"
        raise TaskDataError(f"task {spec.id}: the training split {has}; a classifier needs two")
    _check_labels(spec.head, labels)
    return replace(task, labels=labels, reader=_own_reader(spec, spec.head, labels))


def _own_collection(spec: TaskSpec) -> Task:
    for name in ("labels", "text_columns", "label_column", *_HEADS_OF_FIELDS):
        if _is_given(spec, name):
            raise SpecError(f"task.{name}: a task with head: retrieval has no use for it; leave it out")
    reader = find_collection(spec.id, spec.folder, None)
    files = spec.files or find_judgments(str(spec.folder))
    if not files:
        raise TaskDataError(f"task {spec.id}: {spec.folder} has neither qrels.tsv nor qrels/dev.tsv; give task.files")
    return Task(
        id=spec.id,
        head="retrieval",
        labels=(),
        metric=spec.metric or default_metric("retrieval"),
        files=dict(files),
        reader=reader,
        shared_files=reader.shared_files,
        max_examples=_limits(spec),
        on_bad_record=spec.on_bad_record,
    )


def _own_reader(spec: TaskSpec, head: Head, labels: tuple[str, ...] | None) -> Reader:
    """The reader of a person's own files; in a ner table the columns are `tokens` and `tags` unless named."""
    texts, label = spec.text_columns, spec.label_column or "label"
    numbers, categories = spec.numerical_columns, spec.categorical_columns
    if head == "classification":
        classes = None if labels is None else {label: label for label in labels}
        return ClassificationTable(texts, label, classes, numerical_columns=numbers, categorical_columns=categories)
    if head == "multi_label":
        separator = spec.label_separator
        return MultiLabelTable(
            texts, label, labels, separator, numerical_columns=numbers, categorical_columns=categories
        )
    if head == "multiple_choice":
        return MultipleChoiceTable(texts, spec.choice_columns, label)
    if head == "regression":
        return RegressionTable(texts, label, numerical_columns=numbers, categorical_columns=categories)
    if head == "embedding":
        return pair_reader(spec, labels)
    if head == "qa":
        return SquadReader()
    if all(plain_name(path).endswith((".jsonl", ".ndjson", ".parquet")) for path in spec.files.values()):
        tokens = texts[0] if texts else "tokens"
        return NerTable(tokens, spec.label_column or "tags", labels)
    return ConllReader(labels)


def _find_labels(task: Task) -> tuple[str, ...]:
    """The labels of the whole training split, sorted."""
    if "train" not in task.files:
        raise SpecError(f"task.labels: task {task.id} has no training split to learn its labels from; list them")
    found: set[str] = set()
    for example in task.examples("train"):
        if isinstance(example, NerExample):
            found.update(example.tags)
        elif isinstance(example, ClassificationExample) and example.label is not None:
            found.add(example.label)
        elif isinstance(example, MultiLabelExample):
            found.update(example.labels or ())
    return complete_tag_set(found) if task.head == "ner" else tuple(sorted(found))


def _learn_columns(spec: TaskSpec, task: Task) -> TabularColumns:
    """From the whole training split; where there is none, a model that is evaluated brings what it has learnt."""
    split: Split = "train" if "train" in task.files else task.splits[0]
    examples = [example for example in task.examples(split) if isinstance(example, TextExample)]
    return TabularColumns.learn(spec.numerical_columns, spec.categorical_columns, examples)


def _check_columns(spec: TaskSpec, head: Head) -> None:
    for name, heads in _HEADS_OF_FIELDS.items():
        if _is_given(spec, name) and head not in heads:
            raise SpecError(f"task.{name} is for {' and '.join(heads)}; a task with head: {head} has no use for it")
    if head not in ("ner", "qa") and not spec.text_columns:
        raise SpecError("task.text_columns: name the one or two columns that hold the text")
    if head == "embedding":
        check_pairs(spec)
    if head == "multiple_choice" and len(spec.choice_columns) < 2:
        raise SpecError("task.choice_columns: name the two or more columns that hold the choices")


def _check_labels(head: Head, labels: tuple[str, ...]) -> None:
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise SpecError(f"task.labels {', '.join(labels)}: at least two labels, each once, can be told apart")
    if head == "ner":
        wrong = [label for label in labels if not is_bio(label)]
        if wrong or "O" not in labels:
            raise SpecError(
                f"task.labels {', '.join(labels)}: a ner task's labels are O, and B-type and I-type per type"
            )


def _has_no_answer(task: Task, split: Split) -> bool:
    return any(isinstance(example, QaExample) and not example.answers for example in task.examples(split))


def _check_files(spec: TaskSpec, files: Mapping[Split, str], validation_names: tuple[str, ...]) -> None:
    for split, path in files.items():
        if not exists(path):
            raise TaskDataError(f"task.files.{split}: there is no file {path}")
    if "train" in files and "validation" not in files:
        looked = f" ({' or '.join(validation_names)} in {spec.folder})" if validation_names and spec.folder else ""
        raise TaskDataError(
            f"task {spec.id} has a training split and no validation split{looked}; "
            "give a labeled file as task.files.validation"
        )


def _limits(spec: TaskSpec) -> dict[Split, int]:
    limits: dict[Split, int | None] = {"train": spec.max_train_examples, "validation": spec.max_validation_examples}
    return {split: limit for split, limit in limits.items() if limit is not None}
