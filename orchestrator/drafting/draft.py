"""Draft of a spec for files of data: looked at, split where that is needed, sized, and explained."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from orchestrator.drafting.columns import inspect_table
from orchestrator.drafting.draft_parts import Draft, Finding, Naming
from orchestrator.drafting.files import Layout, assign_roles, data_name, detect_layout, role_of
from orchestrator.drafting.pretraining_draft import draft_pretraining
from orchestrator.drafting.request import DraftRequest
from orchestrator.drafting.task_choice import TaskChoice, choose_task
from orchestrator.drafting.task_draft import TaskDraft
from orchestrator.errors import InputError
from orchestrator.specs import TextSource
from orchestrator.tasks.table_files import table_name
from orchestrator.tasks.text_files import plain_name


def draft_spec(request: DraftRequest) -> Draft:
    """Look at files and draft the spec that suits them; nothing is written. Raises: InputError and its kin."""
    draft = _draft(request)
    return replace(draft, findings=(*draft.findings, *_machine_findings(request)))


def _machine_findings(request: DraftRequest) -> Iterator[Finding]:
    """Yield a word on GPUs and other work, which no estimate of time counts in."""
    if request.gpus:
        names = " and ".join(dict.fromkeys(request.gpus))
        gpus = f"a GPU ({names})" if len(request.gpus) == 1 else f"{len(request.gpus)} GPUs ({names})"
        yield Finding(
            "",
            f"sizes and time are those of the CPU cores, though this machine has {gpus}: training there takes less "
            "time; more --minutes gives larger sizes",
        )
    load, num_cores = os.getloadavg()[0], request.num_cores
    if load > 1.5 * num_cores:
        yield Finding(
            "", f"this machine is busy (load {load:.0f} on {num_cores} cores): it will take longer unless that ends"
        )


def _draft(request: DraftRequest) -> Draft:
    files = tuple(dict.fromkeys(request.files))
    layout = _common_layout(files)
    name = data_name(files)
    naming = Naming.of(request.output or f"{name}.yaml", name)
    if layout != "table":
        _refuse_columns(request, files[0], layout)
    if layout == "text":
        return _draft_of_text(files, request, naming)
    roles = assign_roles(files)
    if layout == "table":
        table = inspect_table(roles["train"])
        choice = choose_task(table, request)
        if choice.kind == "pretraining":
            told = [Finding("", remark) for remark in choice.remarks]
            return draft_pretraining(_column_source(files, choice), request, naming, told)
        return TaskDraft(choice, roles, table, request, naming).draft()
    choice = TaskChoice("ner" if layout == "tagged" else "qa", ())
    if request.kind not in (None, choice.kind):
        raise InputError(f"{files[0]} is laid out for a {choice.kind} task; leave --kind {request.kind} out")
    return TaskDraft(choice, roles, None, request, naming).draft()


def _common_layout(files: Sequence[str]) -> Layout:
    layouts = {path: detect_layout(path) for path in files}
    first, *others = layouts.items()
    for path, layout in others:
        if layout != first[1]:
            raise InputError(
                f"{first[0]} and {path} are laid out differently ({first[1]} and {layout}); give files of one layout"
            )
    return first[1]


def _refuse_columns(request: DraftRequest, path: str, layout: Layout) -> None:
    """Check that nothing was said about columns, of a file without any. Raises: InputError."""
    for option, value in (("--text", request.text_columns), ("--label", request.label_column)):
        if value:
            raise InputError(f"{option}: {path} has no named columns; leave it out, or give CSV, TSV, JSONL or Parquet")
    if layout == "text" and request.kind not in (None, "pretraining"):
        raise InputError(
            f"{path} is plain text without labels, and --kind {request.kind} needs labels: give CSV, TSV, JSONL or "
            "Parquet with a column of labels, CoNLL columns, or SQuAD's JSON"
        )


def _draft_of_text(files: tuple[str, ...], request: DraftRequest, naming: Naming) -> Draft:
    """Draft a pretraining; of several files those for validation or test by their names are left out."""
    chosen = tuple(path for path in files if role_of(path) in (None, "train")) or files
    left_out = [path for path in files if path not in chosen]
    known = all(PurePath(plain_name(path)).suffix in (".txt", ".text") for path in chosen)
    source = TextSource(files=chosen, format="auto" if known else "text")
    told = f"{', '.join(left_out)}: by name for validation or test; some documents are held out"
    return draft_pretraining(source, request, naming, [Finding("left out", told)] if left_out else [])


def _column_source(files: tuple[str, ...], choice: TaskChoice) -> TextSource:
    if any(table_name(path) not in ("JSONL", "Parquet") for path in files):
        raise InputError(
            f"{files[0]}: pretraining reads plain text, JSONL and Parquet; save the column {choice.text_columns[0]!r} "
            "as a .txt file with an empty line between documents"
        )
    return TextSource(files=files, text_field=choice.text_columns[0])
