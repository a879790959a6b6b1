"""Draft of a spec for files of data: looked at, split where that is needed, sized, and explained."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Literal

from orchestrator.drafting.columns import inspect_table
from orchestrator.drafting.draft_parts import Draft, Finding, Naming
from orchestrator.drafting.input_layout import Layout, detect_layout
from orchestrator.drafting.pretraining_draft import draft_pretraining
from orchestrator.drafting.request import DraftRequest
from orchestrator.drafting.split_roles import assign_roles, data_name, role_of
from orchestrator.drafting.task_choice import TaskChoice, choose_task
from orchestrator.drafting.task_draft import draft_task
from orchestrator.errors import InputError
from orchestrator.specs import TextSource
from orchestrator.tasks.table_files import table_name
from orchestrator.tasks.text_files import plain_name

_CHOICES: dict[Layout, TaskChoice] = {"tagged": TaskChoice("ner", ()), "questions": TaskChoice("qa", ())}


def draft_spec(request: DraftRequest) -> Draft:
    """Look at files and draft the spec that suits them; nothing is written. Raises: InputError and its kin."""
    draft = _draft(request)
    return replace(draft, findings=(*draft.findings, *_gpu_findings(request.gpus), *_load_findings(request.num_cores)))


def _gpu_findings(gpus: Sequence[str]) -> Iterator[Finding]:
    """Yield a word on GPUs, which sizes leave out: no rule says yet what a small model reaches on one."""
    if gpus:
        yield Finding(
            "",
            f"sizes and time are those of the CPU cores, though this machine has {_gpus_text(gpus)}: training there "
            "takes less time; more --minutes gives larger sizes",
        )


def _gpus_text(gpus: Sequence[str]) -> str:
    names = " and ".join(dict.fromkeys(gpus))
    return f"a GPU ({names})" if len(gpus) == 1 else f"{len(gpus)} GPUs ({names})"


def _load_findings(num_cores: int) -> Iterator[Finding]:
    """Yield a word on a machine that is at other work, which no estimate of time counts in."""
    load = os.getloadavg()[0]
    if load > 1.5 * num_cores:
        yield Finding(
            "", f"this machine is busy (load {load:.0f} on {num_cores} cores): it will take longer unless that ends"
        )


def _draft(request: DraftRequest) -> Draft:
    files = tuple(dict.fromkeys(request.files))
    layout = _common_layout(files)
    naming = Naming.of(request.output or f"{data_name(files)}.yaml", data_name(files))
    if layout == "text":
        _refuse_columns(request, files)
        chosen, left_out = _without_held_out(files)
        return draft_pretraining(TextSource(files=chosen, format=_format(chosen)), request, naming, left_out)
    roles = assign_roles(files)
    if layout == "table":
        table = inspect_table(roles["train"])
        choice = choose_task(table, request)
        if choice.kind == "pretraining":
            return draft_pretraining(_column_source(files, choice), request, naming, ())
        return draft_task(choice, layout, roles, table, request, naming)
    choice = _CHOICES[layout]
    if request.kind not in (None, choice.kind):
        raise InputError(f"{files[0]} is laid out for a {choice.kind} task; leave --kind {request.kind} out")
    _refuse_columns(request, files)
    return draft_task(choice, layout, roles, None, request, naming)


def _common_layout(files: Sequence[str]) -> Layout:
    layouts = {path: detect_layout(path) for path in files}
    first, *others = layouts.items()
    for path, layout in others:
        if layout != first[1]:
            raise InputError(
                f"{first[0]} and {path} are laid out differently ({first[1]} and {layout}); give files of one layout"
            )
    return first[1]


def _refuse_columns(request: DraftRequest, files: Sequence[str]) -> None:
    """Check that nothing was said about columns, of a file without any. Raises: InputError."""
    for option, value in (("--text", request.text_columns), ("--label", request.label_column)):
        if value:
            raise InputError(
                f"{option}: {files[0]} has no named columns; leave it out, or give CSV, TSV, JSONL or Parquet"
            )
    if request.kind not in (None, "pretraining") and detect_layout(files[0]) == "text":
        raise InputError(
            f"{files[0]} is plain text without labels, and --kind {request.kind} needs labels: give CSV, TSV, JSONL or "
            "Parquet with a column of labels, CoNLL columns, or SQuAD's JSON"
        )


def _without_held_out(files: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files to pretrain on, and those that are for validation or test by their names."""
    held_out = tuple(path for path in files if len(files) > 1 and role_of(path) in ("validation", "test"))
    return tuple(path for path in files if path not in held_out) or files, held_out if len(held_out) < len(
        files
    ) else ()


def _format(files: Sequence[str]) -> Literal["auto", "text"]:
    """The format of plain text where a file's ending does not say it."""
    known = all(PurePath(plain_name(path)).suffix in (".txt", ".text") for path in files)
    return "auto" if known else "text"


def _column_source(files: tuple[str, ...], choice: TaskChoice) -> TextSource:
    if any(table_name(path) not in ("JSONL", "Parquet") for path in files):
        raise InputError(
            f"{files[0]}: pretraining reads plain text, JSONL and Parquet; save the column {choice.text_columns[0]!r} "
            "as a .txt file with an empty line between documents"
        )
    return TextSource(files=files, text_field=choice.text_columns[0])
