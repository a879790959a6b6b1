"""Draft of a pretraining on plain text: tokenizer, then model, in sizes that the text can bear."""

from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.drafting.draft_parts import (
    MARKS_FINDING,
    Draft,
    Finding,
    Naming,
    minutes_text,
    spec_header,
    spec_text,
)
from orchestrator.drafting.request import DraftRequest
from orchestrator.drafting.sizes import PretrainingSizes, TimeBudget, pretraining_sizes
from orchestrator.drafting.start_model import StartModel
from orchestrator.drafting.text import TextFacts, read_text, vocabulary_size
from orchestrator.specs import TextSource
from orchestrator.specs.loading import parse_spec

_HELD_OUT_DOCUMENTS = 20
_FEW_PASSES = 10
_MAX_WORKERS = 8
_SMALL_TEXT = 100_000
"""Words below which a pretraining is a trial."""


def draft_pretraining(source: TextSource, request: DraftRequest, naming: Naming, findings: Sequence[Finding]) -> Draft:
    """Draft the spec of a pretraining.

    Args:
        findings: what was decided before: files and columns that are left out.

    Raises: InputError, CorpusError, NotFoundError.
    """
    facts = read_text(source)
    budget = TimeBudget(request.minutes, request.num_cores)
    model = StartModel.find(request.model, request.settings) if request.model else None
    vocab_size = vocabulary_size(facts.num_words, facts.characters.num_common)
    config = model.config if model else None
    sizes = pretraining_sizes(facts.num_tokens, facts.tokens_holding(0.9), vocab_size, budget, config)
    if facts.num_bad_records:
        source = source.model_copy(update={"on_bad_record": "replace"})
    corpus = source.model_dump(mode="json", exclude_defaults=True)
    pretraining = _stage(corpus, facts, sizes, request)
    if model is None:
        tokenizer = {"kind": "tokenizer", "corpus": corpus, "vocab_size": vocab_size, "lowercase": True}
        if facts.characters.has_meaningful_marks:
            tokenizer["strip_accents"] = False
        above = "stages.pretraining."
        values: dict[str, Any] = {"kind": "pipeline", "stages": {"tokenizer": tokenizer, "pretraining": pretraining}}
    else:
        above, values = "", {**pretraining, "tokenizer": model.name, "init_from": model.name}
        del values["model"]
    comments = {f"{above}{key}": text for key, text in _comments(facts, sizes, budget).items()}
    comments["stages.tokenizer.vocab_size"] = f"As much as about {facts.num_words:,.0f} words can teach."
    parse_spec(values)
    start = (
        f"goes on with {model.name}, which brings its own tokenizer"
        if model
        else f"BERT-{sizes.size} from random weights, with a vocabulary of up to {vocab_size:,} entries"
    )
    told = (
        *_data_findings(facts, has_marks=model is None and facts.characters.has_meaningful_marks),
        *findings,
        Finding("task", "pretraining: masked words are predicted"),
        Finding("model", start),
        *_size_findings(facts, sizes, budget),
    )
    return Draft(naming.spec_path, spec_text(values, comments, spec_header(request, naming.spec_path)), told)


def _stage(corpus: dict[str, Any], facts: TextFacts, sizes: PretrainingSizes, request: DraftRequest) -> dict[str, Any]:
    dropout = 0.0 if sizes.num_passes < _FEW_PASSES else 0.1
    text_bytes = facts.num_text_bytes * facts.scale
    return {
        "kind": "pretrain",
        "corpus": corpus,
        "tokenizer": "@tokenizer",
        "validation_fraction": _validation_fraction(facts),
        "shard_bytes": max(64 << 10, min(4 << 20, int(text_bytes / 16))),
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


def _validation_fraction(facts: TextFacts) -> float:
    """Share of the documents that is held out: about twenty of them, a tenth at most; 0 where there are few."""
    if facts.words.total() < _HELD_OUT_DOCUMENTS:
        return 0.0
    return round(min(0.1, max(0.005, _HELD_OUT_DOCUMENTS / facts.num_documents)), 3)


def _comments(facts: TextFacts, sizes: PretrainingSizes, budget: TimeBudget) -> dict[str, str]:
    about = f"About {facts.num_words:,.0f} words"
    return {
        "validation_fraction": "The file has too few documents (an empty line ends one) to keep some for validation."
        if _validation_fraction(facts) == 0
        else "Documents that are kept for validation, by a hash of their text.",
        "shard_bytes": "Small enough that the text has several shards to shuffle.",
        "model": "Dropout is for texts that are read many times; a small model that reads a few times underfits.",
        "phases": "Short sequences first: they are cheaper, and a small model learns faster from them.",
        "steps": f"{about}: {sizes.num_passes:.1f} passes in {minutes_text(sizes.minutes)} ({budget.text}).",
        "sentence_objective": "All of the time goes into words (RoBERTa); next_sentence asks about pairs as well.",
    }


def _data_findings(facts: TextFacts, *, has_marks: bool) -> Iterator[Finding]:
    seen = f", by the first {facts.num_text_bytes >> 20:,} MB" if facts.scale > 1 else ""
    yield Finding("data", f"{', '.join(facts.files)}: text, {facts.num_documents:,.0f} documents{seen}")
    long = facts.tokens_holding(0.9)
    yield Finding(
        "length", f"{facts.num_words:,.0f} words, nine of ten in documents of up to {long:,.0f} tokens, about"
    )
    if has_marks:
        yield MARKS_FINDING
    if facts.num_doubles:
        yield Finding(
            "doubles", f"{facts.num_doubles:,} documents stand there before; they are read as often as they stand"
        )
    if facts.num_bad_records:
        yield Finding("mended", f"{facts.num_bad_records:,} records with bad bytes, the first: {facts.first_problem}")
    if _validation_fraction(facts) == 0:
        yield Finding("held out", "nothing: an empty line ends a document, and there are too few to keep some back")


def _size_findings(facts: TextFacts, sizes: PretrainingSizes, budget: TimeBudget) -> Iterator[Finding]:
    yield Finding(
        "sizes",
        f"{sizes.steps:,} steps, {sizes.num_passes:.1f} passes over the text; {sizes.limit} set the end: "
        f"{minutes_text(sizes.minutes)} ({budget.text})",
    )
    if facts.num_words < _SMALL_TEXT:
        yield Finding(
            "", "the text is small: this is good for trying things out; a useful model has read millions of words"
        )
