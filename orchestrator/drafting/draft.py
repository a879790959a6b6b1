"""Draft of a spec for files of data: looked at, sized, explained, and written as commented YAML.

Labeled files are fine-tuned on (`task_draft`); of plain text a vocabulary and a model are made, in sizes that it can
bear.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.config import BertConfig
from orchestrator.base.console import counted
from orchestrator.base.errors import InputError
from orchestrator.corpus.inspection import TextFacts, sample_text
from orchestrator.drafting.columns import MAX_BAD_SHARE, inspect_table
from orchestrator.drafting.file_layouts import Layout, assign_roles, data_name, detect_layout, role_of
from orchestrator.drafting.request import DraftedStages, DraftKind, DraftRequest, Finding
from orchestrator.drafting.sizes import PretrainingSizes, draft_vocabulary, pretraining_sizes
from orchestrator.drafting.task_choice import TaskChoice, choose_task
from orchestrator.drafting.task_draft import draft_task
from orchestrator.registry.model_names import resolve_model
from orchestrator.specs import TextSource
from orchestrator.specs.loading import parse_spec
from orchestrator.specs.task import TaskSpec
from orchestrator.specs.yaml_text import comment_lines, commented_lines, parse_document
from orchestrator.storage import exists, local_copy, write_bytes, write_chunks
from orchestrator.storage.uris import absolute
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
_FEWEST_WORDS = 200


class Draft(NamedTuple):
    """A spec to be written, the files beside it, and what a person is told."""

    spec_path: str
    spec_text: str
    findings: Sequence[Finding]
    side_files: Mapping[str, Iterable[bytes]]

    def write(self, inputs: Sequence[str] = (), *, replaces: bool = False) -> list[str]:
        """Write the files beside the spec, then the spec; returns their paths.

        Args:
            inputs: files that the spec was drafted from, which are never written over.
            replaces: whether other files are.

        Raises: InputError, naming the files that are in the way.
        """
        targets, remedy = [*self.side_files, self.spec_path], "name another spec with -o FILE"
        for target in targets:
            if absolute(target) in map(absolute, inputs):
                raise InputError(f"{target} would be written over, and it is the data itself; {remedy}")
        if there := [] if replaces else list(filter(exists, targets)):
            raise InputError(f"{' and '.join(there)} would be overwritten; give --force, or {remedy}")
        for path, chunks in self.side_files.items():
            write_chunks(path, chunks)
        write_bytes(self.spec_path, self.spec_text.encode())
        return targets


def draft_spec(request: DraftRequest) -> Draft:
    """Look at files and draft the spec that suits them; nothing is written. Raises: InputError and its kin."""
    files = tuple(dict.fromkeys(request.files))
    is_text = request.kind == "pretraining"
    layout = detect_layout(files[0], is_text=is_text)
    for path in files[1:]:
        if (other := detect_layout(path, is_text=is_text)) != layout:
            raise InputError(
                f"{files[0]} and {path} are laid out differently ({layout} and {other}); give files of one layout"
            )
    name = data_name(files)
    spec_path = request.output or f"{name}.yaml"
    if not spec_path.endswith((".yaml", ".yml")):
        raise InputError(f"-o {spec_path}: a spec's name ends in .yaml; name it so")
    if layout != "table":
        _refuse_options(request, files[0], layout)
    draft = _draft_stages(files, layout, name, request, spec_path)
    findings = [*draft.findings]
    if request.gpus:  # which no estimate of time counts in
        has = f"sizes and time are those of the CPU cores, though this machine has {counted(len(request.gpus), 'GPU')}"
        findings.append(("", f"{has}: training there takes less time; more --minutes gives larger sizes"))
    return Draft(spec_path, _spec_text(draft, request, spec_path), findings, draft.side_files)


def _refuse_options(request: DraftRequest, path: str, layout: Layout) -> None:
    """Check that nothing was said about columns, of a file without any, nor of another kind. Raises: InputError."""
    for option, value in (("--text", request.text_columns), ("--label", request.label_column)):
        if value:
            raise InputError(f"{option}: {path} has no named columns; leave it out, or give CSV, TSV, JSONL or Parquet")
    if request.kind in (None, *_KINDS[layout]):
        return
    is_for = "plain text without labels" if layout == "text" else f"laid out for a {_KINDS[layout][0]} task"
    others = "CSV, TSV, JSONL or Parquet with a column of labels, CoNLL columns, or SQuAD's JSON"
    raise InputError(f"{path} is {is_for}; leave --kind {request.kind} out, or give {others}")


def _draft_stages(
    files: tuple[str, ...], layout: Layout, name: str, request: DraftRequest, spec_path: str
) -> DraftedStages:
    """Draft a pretraining or a fine-tuning; texts that are for validation or test by their names are left out."""
    if layout == "text":
        chosen = tuple(path for path in files if role_of(path) in (None, "train")) or files
        left_out = ", ".join(path for path in files if path not in chosen)
        known = all(PurePath(plain_name(path)).suffix in (".txt", ".text") for path in chosen)
        source = TextSource(files=chosen, format="auto" if known else "text")
        finding = ("left out", f"{left_out}: by name for validation or test; some documents are held out")
        return _draft_pretraining(source, request, [finding] if left_out else [])
    roles = assign_roles(files)
    if layout == "table":
        table = inspect_table(roles["train"])
        choice = choose_task(table, request)._replace(table=table)
    else:
        head = request.kind or _KINDS[layout][0]
        choice = TaskChoice(TaskSpec.model_validate({"id": name, "head": head, "on_bad_record": "skip"}))
    if choice.task.head is None:
        (column,) = choice.task.text_columns
        is_within = any(column.startswith(f"{one.name}.") for one in table.columns)
        if is_within or any(table_name(path) not in ("JSONL", "Parquet") for path in files):
            raise InputError(
                f"{files[0]}: pretraining reads plain text, keys of JSONL and columns of Parquet, none within an "
                f"object; save {column!r} as a .txt file with an empty line between documents"
            )
        source = TextSource(files=files, text_field=column)
        return _draft_pretraining(source, request, [("", remark) for remark in choice.remarks])
    own_id = re.sub(r"\W+", "_", name.lower())
    own = {"id": f"{own_id}_own" if own_id in KNOWN_TASKS else own_id, "files": {**roles}}
    choice = choice._replace(task=choice.task.model_copy(update=own))
    return draft_task(choice, request, _start_folder(request), spec_path)


def _start_folder(request: DraftRequest) -> Path | None:
    """Folder of the model to start from, without its weights; None for random ones. Raises: NotFoundError."""
    if not request.model:
        return None
    return local_copy(resolve_model(request.model, request.settings), skip=(WEIGHTS_FILE,))


def _draft_pretraining(source: TextSource, request: DraftRequest, findings: Sequence[Finding]) -> DraftedStages:
    """Draft a pretraining; `findings` are those of its files. Raises: InputError and its kin."""
    facts = sample_text(source)
    _check_text(facts)
    folder = _start_folder(request)
    if facts.num_bad_records:
        source = source.model_copy(update={"on_bad_record": "replace"})
    corpus = source.model_dump(mode="json", exclude_defaults=True)
    vocabulary = draft_vocabulary(corpus, facts.characters, facts.num_words)
    vocab_size = vocabulary.stages["tokenizer"]["vocab_size"]
    num_tokens = facts.num_words * facts.characters.tokens_per_word
    config = None if folder is None else BertConfig.from_pretrained(folder)
    sizes = pretraining_sizes(request, num_tokens, facts.tokens_holding(0.9), vocab_size, config)
    stage = _pretraining_stage(corpus, facts, sizes, request)
    start = f"BERT-{sizes.size} from random weights, with a vocabulary of up to {vocab_size:,} entries"
    if folder is not None:
        vocabulary = DraftedStages()
        start = f"goes on with {request.model}, which brings its own tokenizer"
    passes = f"{sizes.steps:,} steps, {sizes.num_passes:.1f} passes over the text"
    small = "the text is small: this is good for trying things out; a useful model has read millions of words"
    findings = [
        *_text_findings(facts, vocabulary.findings),
        *findings,
        ("task", "pretraining: masked words are predicted"),
        ("model", start),
        ("sizes", f"{passes}; {sizes.limit} set the end: {request.estimate(sizes.minutes)}"),
        *([("", small)] if facts.num_words < _SMALL_TEXT else ()),
    ]
    return DraftedStages({**vocabulary.stages, **stage.stages}, {**vocabulary.comments, **stage.comments}, findings)


def _check_text(facts: TextFacts) -> None:
    """Check that a text can be read, and that there is enough of it. Raises: InputError."""
    if facts.num_bad_records > MAX_BAD_SHARE * (facts.num_bad_records + facts.words.total()):
        raise InputError(
            f"{counted(facts.num_bad_records, 'record')} beside {counted(facts.words.total(), 'document')} cannot be "
            f"read, the first: {facts.first_problem}; save the file as UTF-8, or name the one that holds the text"
        )
    if facts.num_words < _FEWEST_WORDS:
        raise InputError(
            f"{', '.join(facts.files)}: {facts.num_words:,.0f} words are too few to learn a language from; add text "
            "(a book has 100,000 words), or label some rows and give a CSV"
        )


def _pretraining_stage(
    corpus: Mapping[str, Any], facts: TextFacts, sizes: PretrainingSizes, request: DraftRequest
) -> DraftedStages:
    dropout = 0.0 if sizes.num_passes < _FEW_PASSES else 0.1
    held_out = _held_out_share(facts)
    values = {
        "kind": "pretrain",
        "corpus": corpus,
        "tokenizer": "@tokenizer",
        "validation_fraction": held_out,
        "shard_bytes": max(64 << 10, min(4 << 20, int(facts.num_text_bytes * facts.scale / 16))),
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
    comments = {
        "validation_fraction": "Documents that are kept for validation, by a hash of their text."
        if held_out
        else "The file has too few documents (an empty line ends one) to keep some for validation.",
        "shard_bytes": "Small enough that the text has several shards to shuffle.",
        "model": "Dropout is for texts that are read many times; a small model that reads a few times underfits.",
        "phases": "Short sequences first: they are cheaper, and a small model learns faster from them.",
        "steps": f"About {facts.num_words:,.0f} words: {sizes.num_passes:.1f} passes in "
        f"{request.estimate(sizes.minutes)}.",
        "sentence_objective": "All of the time goes into words (RoBERTa); next_sentence asks about pairs as well.",
    }
    if request.model:
        values |= {"tokenizer": request.model, "init_from": request.model}
        del values["model"]
    return DraftedStages({"pretraining": values}, {f"pretraining.{name}": comments[name] for name in comments})


def _held_out_share(facts: TextFacts) -> float:
    """Share of the documents that is held out: about twenty of them, a tenth at most; 0 where there are few."""
    if facts.words.total() < _HELD_OUT_DOCUMENTS:
        return 0.0
    return round(min(0.1, max(0.005, _HELD_OUT_DOCUMENTS / facts.num_documents)), 3)


def _text_findings(facts: TextFacts, of_vocabulary: Sequence[Finding]) -> Iterator[Finding]:
    seen = f", by the first {facts.num_text_bytes >> 20:,} MB" if facts.scale > 1 else ""
    yield "data", f"{', '.join(facts.files)}: text, {facts.num_documents:,.0f} documents{seen}"
    long = f"about {facts.tokens_holding(0.9):,.0f} tokens"
    yield "length", f"{facts.num_words:,.0f} words, 90 % of them in documents of at most {long}"
    yield from of_vocabulary
    if facts.num_duplicates:
        again = f"{facts.num_duplicates:,} documents stand there before"
        yield "repeated", f"{again}; they are read as often as they stand"
    if facts.num_bad_records:
        yield "mended", f"{facts.num_bad_records:,} records with bad bytes, the first: {facts.first_problem}"
    if not _held_out_share(facts):
        yield "held out", "nothing: an empty line ends a document, and there are too few to keep some back"


def _spec_text(draft: DraftedStages, request: DraftRequest, spec_path: str) -> str:
    """A spec below the command that drafted it and those that come next. Raises: SpecError for no spec."""
    plan, run = (shlex.join(("orchestrator", verb, spec_path)) for verb in ("plan", "run"))
    header = (
        f"Drafted by:\n  {request.command}\n"
        "Paths are meant from the folder in which the command is given. Change what you like, then:\n"
        f"  {plan}\n  {run}"
    )
    lines = ["kind: pipeline", "stages:", *commented_lines(draft.stages, draft.comments, indent="  ")]
    if len(draft.stages) == 1:
        ((name, values),) = draft.stages.items()
        lines = [*commented_lines(values, draft.comments, f"{name}.")]
    text = "\n".join([*comment_lines(header), *lines]) + "\n"
    parse_spec(parse_document(text, spec_path).values)
    return text
