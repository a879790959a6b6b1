"""From what a person wrote about a task to a `Task`: its files, its labels, the reader of its layout."""

import difflib
from collections.abc import Mapping
from dataclasses import replace

from orchestrator.errors import SpecError, TaskDataError
from orchestrator.results import Split
from orchestrator.specs.sweep import Head, TaskSpec
from orchestrator.storage import exists
from orchestrator.tasks.bio_tags import complete_tag_set, is_bio
from orchestrator.tasks.catalogue import KNOWN_TASKS, KnownTask
from orchestrator.tasks.conll import ConllReader
from orchestrator.tasks.examples import ClassificationExample, NerExample, QaExample
from orchestrator.tasks.scores import default_metric, metric_names
from orchestrator.tasks.squad import SquadReader
from orchestrator.tasks.tables import ClassificationTable, NerTable, RegressionTable, has_columns
from orchestrator.tasks.task import Reader, Task
from orchestrator.tasks.text_files import find_file, plain_name


def load_task(spec: TaskSpec) -> Task:
    """Find a task's files and learn its labels. Raises: SpecError, TaskDataError."""
    task = _known_task(spec, KNOWN_TASKS[spec.id]) if spec.id in KNOWN_TASKS else _own_task(spec)
    known_metrics = metric_names(task.id, task.head, len(task.labels))
    if task.metric not in known_metrics:
        raise SpecError(f"task.metric {task.metric!r}: task {task.id} has the scores {', '.join(known_metrics)}")
    return task


def _known_task(spec: TaskSpec, known: KnownTask) -> Task:
    for name in ("head", "labels", "text_columns", "label_column"):
        if getattr(spec, name) != TaskSpec.model_fields[name].default:
            raise SpecError(f"task.{name}: {spec.id} is a known task and has its own; leave it out, or use another id")
    files = dict(spec.files)
    if spec.folder is not None:
        for split, candidates in known.files.items():
            path = find_file(spec.folder, candidates)
            if path is not None and not (split == "test" and _is_unlabelled(known, path)):
                files.setdefault(split, path)
    if not files:
        hint = "known; set task.folder in a spec, or give folder=DIR to evaluate"
        names = " or ".join(name for split in known.files.values() for name in split)
        raise TaskDataError(
            f"task {spec.id}: none of its files is {f'in {spec.folder}' if spec.folder else hint} "
            f"(looked for {names}, also .gz, .xz, .zst)"
        )
    _check_files(spec, files, known.files.get("validation", ()))
    return Task(
        id=spec.id,
        head=known.head,
        labels=known.labels or tuple(known.classes.values()),
        metric=spec.metric or known.metric,
        files=files,
        reader=_known_reader(known),
        max_examples=_limits(spec),
        on_bad_record=spec.on_bad_record,
        unanswerable=known.unanswerable,
    )


def _known_reader(known: KnownTask) -> Reader:
    if known.head == "classification":
        return ClassificationTable(known.text_columns, known.label_column, known.classes, known.header)
    if known.head == "regression":
        return RegressionTable(known.text_columns, known.label_column, known.header)
    return ConllReader(known.labels) if known.head == "ner" else SquadReader()


def _is_unlabelled(known: KnownTask, path: str) -> bool:
    if not known.label_column:
        return False
    return not has_columns(path, (*known.text_columns, known.label_column), known.header)


def _own_task(spec: TaskSpec) -> Task:
    if spec.head is None or not spec.files:
        near = difflib.get_close_matches(spec.id, KNOWN_TASKS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise SpecError(
            f"task.id {spec.id!r} is no known task ({', '.join(KNOWN_TASKS)}); {hint}"
            "A task of one's own needs task.head and task.files"
        )
    _check_files(spec, spec.files, ())
    if spec.head in ("classification", "regression") and not spec.text_columns:
        raise SpecError("task.text_columns: name the one or two columns that hold the text")
    task = Task(
        id=spec.id,
        head=spec.head,
        labels=spec.labels or (),
        metric=spec.metric or default_metric(spec.head),
        files=dict(spec.files),
        reader=_own_reader(spec, spec.head, spec.labels),
        max_examples=_limits(spec),
        on_bad_record=spec.on_bad_record,
    )
    if spec.head == "qa":
        return replace(task, unanswerable=any(_has_no_answer(task, split) for split in task.splits))
    if spec.head == "regression":
        return task
    labels = spec.labels or _find_labels(task)
    if not spec.labels and len(labels) < 2:
        has = f"has one label only ({labels[0]})" if labels else "has no labels"
        raise TaskDataError(f"task {spec.id}: the training split {has}; a classifier needs two")
    _check_labels(spec.head, labels)
    return replace(task, labels=labels, reader=_own_reader(spec, spec.head, labels))


def _own_reader(spec: TaskSpec, head: Head, labels: tuple[str, ...] | None) -> Reader:
    """The reader of a person's own files; in a ner table the columns are `tokens` and `tags` unless named."""
    if head == "classification":
        classes = None if labels is None else {label: label for label in labels}
        return ClassificationTable(spec.text_columns, spec.label_column or "label", classes)
    if head == "regression":
        return RegressionTable(spec.text_columns, spec.label_column or "label")
    if head == "qa":
        return SquadReader()
    if all(plain_name(path).endswith((".jsonl", ".ndjson", ".parquet")) for path in spec.files.values()):
        tokens = spec.text_columns[0] if spec.text_columns else "tokens"
        return NerTable(tokens, spec.label_column or "tags", labels)
    return ConllReader(labels)


def _find_labels(task: Task) -> tuple[str, ...]:
    """The labels of the whole training split, sorted."""
    if "train" not in task.files:
        raise SpecError(f"task.labels: task {task.id} has no training split to learn its labels from; list them")
    found: set[str] = set()
    for example in replace(task, max_examples={}).examples("train"):
        if isinstance(example, NerExample):
            found.update(example.tags)
        elif isinstance(example, ClassificationExample) and example.label is not None:
            found.add(example.label)
    return complete_tag_set(found) if task.head == "ner" else tuple(sorted(found))


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
            "give a labelled file as task.files.validation"
        )


def _limits(spec: TaskSpec) -> dict[Split, int]:
    limits: dict[Split, int | None] = {"train": spec.max_train_examples, "validation": spec.max_validation_examples}
    return {split: limit for split, limit in limits.items() if limit is not None}
