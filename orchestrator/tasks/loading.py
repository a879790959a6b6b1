"""A `Task` from what a person wrote about it, and remarks on its data, to mend before anything learns from them."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from bert_core.text.characters import plain_text
from orchestrator.base.console import counted
from orchestrator.base.errors import InputError, NotFoundError, SpecError, TaskDataError
from orchestrator.base.nearest import nearest, no_file
from orchestrator.base.results import Split
from orchestrator.specs.task import TaskSpec
from orchestrator.storage import exists
from orchestrator.tasks.catalogue import KNOWN_TASKS, ON_HUB, KnownTask
from orchestrator.tasks.cell_values import look_alike, shown_name
from orchestrator.tasks.table_files import column_names
from orchestrator.tasks.task import Task
from orchestrator.tasks.text_examples import TabularColumns
from orchestrator.tasks.text_files import BadRecords, Reader, find_file
from orchestrator.tasks.types import TYPES, find_type
from orchestrator.tasks.types.base import AnyTaskType

logger = logging.getLogger(__name__)
DATA_FIELDS = frozenset().union(*(task_type.spec_fields for task_type in TYPES))
"""The fields of a task's spec that describe its data; every type reads some of them."""


def load_task(spec: TaskSpec) -> Task:
    """Load a task: find its files and learn its labels. A split that is read for that is not read again.

    Raises: SpecError, TaskDataError.
    """
    task = _known_task(spec, KNOWN_TASKS[spec.id]) if spec.id in KNOWN_TASKS else _own_task(spec)
    known_metrics = task.target.metric_names(task)
    if task.metric not in known_metrics:
        raise SpecError(f"task.metric {task.metric!r}: task {task.id} has the scores {', '.join(known_metrics)}")
    return task


def _known_task(spec: TaskSpec, known: KnownTask) -> Task:
    for name in ("head", *sorted(DATA_FIELDS)):
        if _is_given(spec, name):
            raise SpecError(f"task.{name}: {spec.id} is a known task and has its own; leave it out, or use another id")
    files = dict(spec.files)
    if spec.folder is not None:
        for split, candidates in known.files.items():
            path = find_file(spec.folder, candidates)
            if path is not None and not (split == "test" and _is_unlabeled(known, path)):
                files.setdefault(split, path)
    hint = "set task.folder in a spec, or give folder=DIR to evaluate"
    if not files and spec.folder is None and (hub := ON_HUB.get(spec.id)) is not None:
        known, files = known.on_hub(hub), dict(hub.files)
        try:
            exists(files["train"])
        except (NotFoundError, InputError) as error:
            raise TaskDataError(f"task {spec.id}: {error}; with its official files {hint}") from error
    if not files:
        names = " or ".join(name for split in known.files.values() for name in split)
        raise TaskDataError(
            f"task {spec.id}: none of its files is {f'in {spec.folder}' if spec.folder else f'known; {hint}'} "
            f"(looked for {names}, also .gz, .xz, .zst)"
        )
    task_type = find_type(known.head, known.objective)
    files = _checked_files(spec, task_type, files, known.files.get("validation", ()))
    labels, complete = known.labels or tuple(dict.fromkeys(known.classes.values())), known.complete(spec)
    task = _make_task(complete, task_type, files, task_type.reader(complete, labels, known))
    columns = known.text_columns if known.header else ()
    own: dict[str, Any] = {"labels": labels, "text_columns": columns, "unanswerable": known.unanswerable}
    return replace(task, max_examples=_limits(spec), **own)


def _make_task(spec: TaskSpec, task_type: AnyTaskType, files: Mapping[Split, str], reader: Reader[Any]) -> Task:
    split = spec.split
    return Task(
        id=spec.id,
        type=task_type,
        labels=spec.labels or (),
        metric=spec.metric or task_type.target.metrics[0],
        files=files,
        held_out=split.validation if split else None,
        folds=split.folds if split else None,
        reader=reader,
        on_bad_record=spec.on_bad_record,
        text_columns=spec.text_columns,
    )


def _is_unlabeled(known: KnownTask, path: str) -> bool:
    if not known.label_column:
        return False
    names = column_names(path, BadRecords(path, "skip"))
    present = names if known.header else map(str, range(len(names)))
    return not {*known.text_columns, *known.choice_columns, known.label_column} <= set(present)


def _own_task(spec: TaskSpec) -> Task:
    task_type = None if spec.head is None else find_type(spec.head, spec.objective)
    files = {} if task_type is None else task_type.find_files(spec)
    if task_type is None or not files:
        near = nearest(spec.id, KNOWN_TASKS, 1)
        hint = f"did you mean {near[0]}?" if near else "a task of one's own needs task.head and task.files"
        raise SpecError(f"task.id {spec.id!r} is no known task ({', '.join(KNOWN_TASKS)}); {hint}")
    files = _checked_files(spec, task_type, files, ())
    _check_fields(spec, task_type)
    task_type.check_spec(spec)
    whole = _make_task(spec, task_type, files, task_type.reader(spec, spec.labels))
    if spec.numerical_columns or spec.categorical_columns:
        learned = whole.examples("train" if "train" in whole.files else whole.splits[0])
        columns = TabularColumns.learn(spec.numerical_columns, spec.categorical_columns, learned)
        whole = replace(whole, columns=columns)
    if task_type.has_labels:
        labels = spec.labels or spec.label_columns or _find_labels(whole)
        task_type.target.check_labels(labels)
        whole = replace(whole, labels=labels, reader=task_type.reader(spec, labels))
    limits = _limits(spec)
    reads = {} if limits else whole.reads  # a file that was read whole for its labels is not kept for a part of it
    task = replace(_without_unlabeled_test(whole), max_examples=limits, reads=reads)
    read = chain.from_iterable(task.examples(split) for split in task.splits)
    return replace(task, unanswerable=task_type.has_unanswerable(read))


def _without_unlabeled_test(task: Task) -> Task:
    """The task without a test split whose labels were kept back (-1 in each row), which is told."""
    if "test" not in task.files:
        return task
    bad = BadRecords(task.files["test"], "skip")
    if next(iter(task.reader.read(bad.path, bad)), None) is not None or not bad.num_unlabeled:
        return task
    logger.info(f"{bad.path}: none of its {bad.num_unlabeled:,} rows has a label, so that there is no test split")
    files: dict[Split, str] = {split: path for split, path in task.files.items() if split != "test"}
    return replace(task, files=files)


def _is_given(spec: TaskSpec, name: str) -> bool:
    return bool(getattr(spec, name) != TaskSpec.model_fields[name].default)


def _check_fields(spec: TaskSpec, task_type: AnyTaskType) -> None:
    """Check that the type has a use for every field that describes data. Raises: SpecError."""
    for name in sorted(DATA_FIELDS - task_type.spec_fields):
        if _is_given(spec, name):
            uses = [other.name for other in TYPES if name in other.spec_fields]
            raise SpecError(
                f"task.{name}: a task with head: {task_type.name} has no use for it, it is for {' and '.join(uses)}; "
                "leave it out"
            )


def _find_labels(task: Task) -> tuple[str, ...]:
    """The labels of the whole training file."""
    if "train" not in task.files:
        raise SpecError(f"task.labels: task {task.id} has no training split to learn its labels from; list them")
    splits: tuple[Split, ...] = ("train", "validation") if task.is_divided else ("train",)
    labels = task.target.find_labels([*chain.from_iterable(map(task.examples, splits))])
    if len(labels) < 2:
        has = f"one label only ({shown_name(labels[0])})" if labels else "no labels"
        raise TaskDataError(
            f"task {task.id}: {task.files['train']} has {has}, and a model has nothing to tell apart; add examples "
            "with others, or name another column with task.label_column (init --label)"
        )
    return labels


def _checked_files(
    spec: TaskSpec, task_type: AnyTaskType, files: Mapping[Split, str], validation_names: tuple[str, ...]
) -> dict[Split, str]:
    """The existing files of a task's splits; a divided training file is that of the validation split as well."""
    for split, path in files.items():
        if not exists(path):
            raise TaskDataError(f"task.files.{split}: {no_file(path)}")
    if spec.split is not None:
        if "train" not in files:
            raise TaskDataError(f"task.split: task {spec.id} has no training split to divide")
        if "validation" in files:
            has = f"task {spec.id} has a validation split, {files['validation']}"
            raise SpecError(f"task.split: {has}; leave one out (files: {{train: …}})")
        if spec.max_validation_examples is not None:
            raise SpecError("task.max_validation_examples: task.split says how many are for validation; leave it out")
        return {**files, "validation": files["train"]}
    if not task_type.is_searched and "train" in files and "validation" not in files:
        looked = f" ({' or '.join(validation_names)} in {spec.folder})" if validation_names and spec.folder else ""
        raise TaskDataError(
            f"task {spec.id} has a training split and no validation split{looked}; "
            "give a labeled file as task.files.validation, or divide the training file: task.split.validation=0.1"
        )
    return dict(files)


def _limits(spec: TaskSpec) -> dict[Split, int]:
    limits: dict[Split, int | None] = {"train": spec.max_train_examples, "validation": spec.max_validation_examples}
    return {split: limit for split, limit in limits.items() if limit is not None}


def data_remarks(task: Task) -> Iterator[tuple[str, str]]:
    """Yield a topic and a text for labels that look alike or measure nothing, mended records and texts in two splits.

    Reads every labeled split. Raises: TaskDataError, naming file and line.
    """
    train = task.file("train")
    labels = {name for example in task.examples("train") for name in task.target.label_names(example)}
    for alike in look_alike(sorted(labels)):
        names = f"{', '.join(map(repr, alike[:-1]))} and {alike[-1]!r}"
        looks = f"{names} look alike and are {len(alike)} classes"
        yield "labels", f"{looks}; if one is meant, write it in one way in {train}"
    for split in {task.files[split]: split for split in task.splits}.values():
        bad = task.read(split).bad
        if bad.num_repaired:
            yield "mended", f"{bad.path}: {counted(bad.num_repaired, 'record')} mended, the first at {bad.first_repair}"
    for split in task.splits:
        if remark := task.target.labels_note(task.examples(split)):
            yield split, f"{task.files[split]}: {remark}; add others"
    for split, count in count_leaks(task).items():
        own = task.files[split]
        remedy = f"{own} is both" if own == train else f"take them out of {own} or of {train}"
        yield (
            "leak",
            f"{count:,} of {len(task.examples(split)):,} {split} examples have a text that is in the training split as "
            f"well, so that scores come out too good; {remedy}",
        )


def count_leaks(task: Task) -> dict[Split, int]:
    """Count the examples of the other splits whose text the training split has as well; splits without one are absent.

    Reads every split: over a million short texts it takes seconds. Examples without a word do not count, nor do parts
    of one file, which have no text in common.

    Raises: TaskDataError for a split that cannot be read.
    """
    if "train" not in task.files:
        return {}
    own = ("train", "validation") if task.is_divided else ("train",)
    others = {split: list(_plain_texts(task, task.examples(split))) for split in task.splits if split not in own}
    wanted = set().union(*others.values()) - {""}
    learned = {text for text in _plain_texts(task, task.examples("train")) if text in wanted}
    counts = {split: sum(text in learned for text in texts) for split, texts in others.items()}
    return {split: count for split, count in counts.items() if count}


def _plain_texts(task: Task, examples: Iterable[Any]) -> Iterator[str]:
    """Yield the text of each example that no other split may have; questions on the same passage follow one another."""
    text, plain = "", ""
    for example in examples:
        own = task.type.split_text(example)
        if own != text:
            text, plain = own, plain_text(own)
        yield plain
