"""Draft of a spec for files of data: looked at, split where that is needed, sized, and explained.

Labeled files are fine-tuned on (`task_draft`); of plain text a vocabulary and a model are made, in sizes that it can
bear.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from bert_core.config import BertConfig
from orchestrator.drafting.columns import inspect_table
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
from orchestrator.drafting.files import Layout, assign_roles, data_name, detect_layout, role_of
from orchestrator.drafting.request import DraftKind, DraftRequest
from orchestrator.drafting.sizes import PretrainingSizes, pretraining_sizes
from orchestrator.drafting.task_choice import choose_task
from orchestrator.drafting.task_draft import draft_task
from orchestrator.drafting.text import TextFacts, read_text, vocabulary_size
from orchestrator.errors import InputError
from orchestrator.specs import TextSource
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.catalogue import KNOWN_TASKS
from orchestrator.tasks.table_files import table_name
from orchestrator.tasks.text_files import plain_name

_KINDS: Mapping[Layout, tuple[DraftKind, ...]] = {
    "text": ("pretraining",),
    "entities": ("ner", "token_classification"),
    "tags": ("token_classification", "ner"),
    "questions": ("qa",),
}
"""Kinds of what is learned from a layout that is for nothing else, the usual one first."""
_HELD_OUT_DOCUMENTS = 20
_FEW_PASSES = 10
_MAX_WORKERS = 8
_SMALL_TEXT = 100_000
"""Words below which a pretraining is a trial."""


def draft_spec(request: DraftRequest) -> Draft:
    """Look at files and draft the spec that suits them; nothing is written. Raises: InputError and its kin."""
    files = tuple(dict.fromkeys(request.files))
    layout = _common_layout(files)
    name = data_name(files)
    spec_path = request.output or f"{name}.yaml"
    if not spec_path.endswith((".yaml", ".yml")):
        raise InputError(f"-o {spec_path}: a spec's name ends in .yaml; name it so")
    if layout != "table":
        _refuse_options(request, files[0], layout)
    draft = _draft_of(files, layout, name, request, spec_path)
    return replace(draft, findings=[*draft.findings, *_machine_findings(request)])


def _common_layout(files: Sequence[str]) -> Layout:
    first, *others = [(path, detect_layout(path)) for path in files]
    for path, layout in others:
        if layout != first[1]:
            raise InputError(
                f"{first[0]} and {path} are laid out differently ({first[1]} and {layout}); give files of one layout"
            )
    return first[1]


def _refuse_options(request: DraftRequest, path: str, layout: Layout) -> None:
    """Check that nothing was said about columns, of a file without any, nor of another kind. Raises: InputError."""
    for option, value in (("--text", request.text_columns), ("--label", request.label_column)):
        if value:
            raise InputError(f"{option}: {path} has no named columns; leave it out, or give CSV, TSV, JSONL or Parquet")
    if request.kind in (None, *_KINDS[layout]):
        return
    if layout == "text":
        raise InputError(
            f"{path} is plain text without labels, and --kind {request.kind} needs labels: give CSV, TSV, JSONL or "
            "Parquet with a column of labels, CoNLL columns, or SQuAD's JSON"
        )
    raise InputError(f"{path} is laid out for a {_KINDS[layout][0]} task; leave --kind {request.kind} out")


def _draft_of(files: tuple[str, ...], layout: Layout, name: str, request: DraftRequest, spec_path: str) -> Draft:
    """Draft a pretraining or a fine-tuning; texts that are for validation or test by their names are left out."""
    if layout == "text":
        chosen = tuple(path for path in files if role_of(path) in (None, "train")) or files
        left_out = ", ".join(path for path in files if path not in chosen)
        known = all(PurePath(plain_name(path)).suffix in (".txt", ".text") for path in chosen)
        source = TextSource(files=chosen, format="auto" if known else "text")
        told = ("left out", f"{left_out}: by name for validation or test; some documents are held out")
        return _draft_pretraining(source, request, spec_path, [told] if left_out else [])
    roles, table = assign_roles(files), None
    remarks: Sequence[str] = ()
    if layout == "table":
        table = inspect_table(roles["train"])
        task, remarks = choose_task(table, request)
    else:
        head = request.kind or _KINDS[layout][0]
        task = TaskSpec.model_validate({"id": name, "head": head, "on_bad_record": "skip"})
    if task.head is None:
        (column,) = task.text_columns
        if any(table_name(path) not in ("JSONL", "Parquet") for path in files):
            raise InputError(
                f"{files[0]}: pretraining reads plain text, JSONL and Parquet; save the column {column!r} "
                "as a .txt file with an empty line between documents"
            )
        source = TextSource(files=files, text_field=column)
        return _draft_pretraining(source, request, spec_path, [("", remark) for remark in remarks])
    own_id = re.sub(r"\W+", "_", name.lower())
    task = task.model_copy(update={"id": f"{own_id}_own" if own_id in KNOWN_TASKS else own_id, "files": dict(roles)})
    return draft_task(task, remarks, table, request, spec_path)


def _draft_pretraining(source: TextSource, request: DraftRequest, spec_path: str, findings: Sequence[Finding]) -> Draft:
    """Draft the spec of a pretraining; findings tell what is left out. Raises: InputError and its kin."""
    facts = read_text(source)
    folder = start_folder(request)
    config = None if folder is None else BertConfig.from_pretrained(folder)
    vocab_size = vocabulary_size(facts.num_words, facts.characters.num_common)
    num_tokens = facts.num_words * facts.characters.tokens_per_word
    sizes = pretraining_sizes(request, num_tokens, facts.tokens_holding(0.9), vocab_size, config)
    took = f"{minutes_text(sizes.minutes)} ({request.estimate})"
    values = _stage(source, facts, sizes, request, took)
    if folder is None:
        tokenizer = vocabulary_stage(values["corpus"], facts.characters, facts.num_words)
        values = {"kind": "pipeline", "stages": {"tokenizer": tokenizer, "pretraining": values}}
        start = f"BERT-{sizes.size} from random weights, with a vocabulary of up to {vocab_size:,} entries"
    else:
        values |= {"tokenizer": request.model, "init_from": request.model}
        del values["model"]
        start = f"goes on with {request.model}, which brings its own tokenizer"
    passes = f"{sizes.steps:,} steps, {sizes.num_passes:.1f} passes over the text"
    small = "the text is small: this is good for trying things out; a useful model has read millions of words"
    told = [
        *_text_findings(facts, has_marks=folder is None),
        *findings,
        ("task", "pretraining: masked words are predicted"),
        ("model", start),
        ("sizes", f"{passes}; {sizes.limit} set the end: {took}"),
        *([("", small)] if facts.num_words < _SMALL_TEXT else ()),
    ]
    return Draft(spec_path, spec_text(values, request, spec_path), told)


def _stage(
    source: TextSource, facts: TextFacts, sizes: PretrainingSizes, request: DraftRequest, took: str
) -> dict[str, Any]:
    if facts.num_bad_records:
        source = source.model_copy(update={"on_bad_record": "replace"})
    dropout = 0.0 if sizes.num_passes < _FEW_PASSES else 0.1
    shard_bytes = int(facts.num_text_bytes * facts.scale / 16)
    held_out = _held_out_share(facts)
    values = {
        "kind": "pretrain",
        "corpus": source.model_dump(mode="json", exclude_defaults=True),
        "tokenizer": "@tokenizer",
        "validation_fraction": held_out,
        "shard_bytes": max(64 << 10, min(4 << 20, shard_bytes)),
        "model": {"size": sizes.size, "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout},
        "phases": [{"max_seq_length": length, "share": share} for length, share in sizes.phases],
        "steps": sizes.steps,
        "global_batch_size": sizes.batch_size,
        "sentence_objective": "none",
        "cross_documents": facts.tokens_holding(0.5) < sizes.phases[-1][0],
        "learning_rate": sizes.learning_rate,
        "warmup_ratio": 0.05,
        "execution": {
            "num_workers": min(_MAX_WORKERS, request.num_cores),
            "checkpoint_every_minutes": 5.0,
            "log_every_steps": max(1, sizes.steps // 100),
        },
    }
    return commented(
        values,
        validation_fraction="Documents that are kept for validation, by a hash of their text."
        if held_out
        else "The file has too few documents (an empty line ends one) to keep some for validation.",
        shard_bytes="Small enough that the text has several shards to shuffle.",
        model="Dropout is for texts that are read many times; a small model that reads a few times underfits.",
        phases="Short sequences first: they are cheaper, and a small model learns faster from them.",
        steps=f"About {facts.num_words:,.0f} words: {sizes.num_passes:.1f} passes in {took}.",
        sentence_objective="All of the time goes into words (RoBERTa); next_sentence asks about pairs as well.",
    )


def _held_out_share(facts: TextFacts) -> float:
    """Share of the documents that is held out: about twenty of them, a tenth at most; 0 where there are few."""
    if facts.words.total() < _HELD_OUT_DOCUMENTS:
        return 0.0
    return round(min(0.1, max(0.005, _HELD_OUT_DOCUMENTS / facts.num_documents)), 3)


def _text_findings(facts: TextFacts, *, has_marks: bool) -> Iterator[Finding]:
    seen = f", by the first {facts.num_text_bytes >> 20:,} MB" if facts.scale > 1 else ""
    yield "data", f"{', '.join(facts.files)}: text, {facts.num_documents:,.0f} documents{seen}"
    long = facts.tokens_holding(0.9)
    yield "length", f"{facts.num_words:,.0f} words, nine of ten in documents of up to {long:,.0f} tokens, about"
    if has_marks:
        yield from marks_finding(facts.characters)
    if facts.num_doubles:
        yield "doubles", f"{facts.num_doubles:,} documents stand there before; they are read as often as they stand"
    if facts.num_bad_records:
        yield "mended", f"{facts.num_bad_records:,} records with bad bytes, the first: {facts.first_problem}"
    if not _held_out_share(facts):
        yield "held out", "nothing: an empty line ends a document, and there are too few to keep some back"


def _machine_findings(request: DraftRequest) -> Iterator[Finding]:
    """Yield a word on GPUs and other work, which no estimate of time counts in."""
    if request.gpus:
        names = " and ".join(dict.fromkeys(request.gpus))
        gpus = f"a GPU ({names})" if len(request.gpus) == 1 else f"{len(request.gpus)} GPUs ({names})"
        yield (
            "",
            f"sizes and time are those of the CPU cores, though this machine has {gpus}: training there takes less "
            "time; more --minutes gives larger sizes",
        )
    load, num_cores = os.getloadavg()[0], request.num_cores
    if load > 1.5 * num_cores:
        yield "", f"this machine is busy (load {load:.0f} on {num_cores} cores): it will take longer unless that ends"
