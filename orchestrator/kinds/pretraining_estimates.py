"""Estimates of a pretraining before it starts: passes over its text, time, disk.

Passes are counted where the text is tokenized already, or short. Of a longer text the beginning is tokenized, and of a
text whose tokenizer is not there yet the bytes are counted.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from bert_core.config import BertConfig
from bert_core.objectives.packed_batches import count_examples
from bert_core.text.segment_layout import SegmentLayout
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import CorpusError
from orchestrator.corpus.document_batches import read_corpus
from orchestrator.corpus.input_files import find_files
from orchestrator.corpus.preview import SampleStore, open_sample_store
from orchestrator.corpus.stream import ExampleStream, SplitShards
from orchestrator.kinds.base import DiskUse, Fact, MeasuredTime
from orchestrator.kinds.corpus import token_store_disk
from orchestrator.kinds.estimates import BYTES_PER_SAVED_PARAMETER, BYTES_PER_WEIGHT, trains_on_gpu
from orchestrator.kinds.resolved import Resolved
from orchestrator.pretraining.meter import measure_training
from orchestrator.pretraining.streams import build_stream, segment_config
from orchestrator.registry.parameters import flatten
from orchestrator.registry.registry import Registry
from orchestrator.specs import PretrainSpec
from orchestrator.specs.loading import spec_values
from orchestrator.specs.references import STAGE_MARK
from orchestrator.training.step_time import FORWARD_SHARE

SAMPLE_BYTES = 1 << 20
"""Text that is looked at where there is no token store: under a second of tokenizing."""
MANY_PASSES = 100
"""Passes from which on the plan says so. BERT read its text about 40 times (Devlin et al. 2019, appendix A.2)."""
_BYTES_PER_TOKEN = 4.0
_LAYOUT = SegmentLayout(prefix=0, between=(0,), suffix=0, type_of_second=1)
"""Layout of BERT's special tokens; of a tokenizer that is not there yet only their number counts."""
NUM_RECORDED_RUNS = 50
"""Newest recorded runs, or trials, among which a similar one is looked for."""
_FEWEST_STEPS = 20
"""Steps of a run from which on their time tells another's: starting is part of a run's seconds."""
_STEP_FIELDS = (
    *("model", "phases", "global_batch_size", "micro_batch_size", "threads_per_worker", "precision"),
    *("gradient_precision", "micro_batch_tokens", "execution.activation_checkpointing"),
    *("token_objective", "sentence_objective", "execution.num_workers", "execution.device"),
    *("execution.compile_layers", "execution.cuda_graphs", "execution.deterministic"),
)
"""Fields of a pretraining that decide how long a step takes."""


class TextTooShortError(CorpusError):
    """The beginning of a text does not have the documents that a run needs; all of it may."""


def step_facts(spec: PretrainSpec) -> Iterator[Fact]:
    """Yield the steps of each phase, and the tokens that they read."""
    for length, steps in spec.phase_steps():
        yield "steps", f"{steps:,} of {spec.global_batch_size:,} examples up to {length} tokens"
    tokens = sum(length * steps * spec.global_batch_size for length, steps in spec.phase_steps())
    yield "tokens", f"at most {tokens:,}"


def passes_facts(spec: PretrainSpec, inputs: Resolved) -> Iterator[Fact]:
    """Yield how often a pretraining reads its text, and a note where that is very often.

    Raises: CorpusError where the whole text has too few documents to train on, or too short ones.
    """
    passes, num_tokens, source = (
        _without_tokenizer(spec) if spec.tokenizer.startswith(STAGE_MARK) else _with_tokenizer(spec, inputs)
    )
    about, estimate = ("about ", f", estimated from {source}") if source else ("", "")
    rounded = f"{passes:,.0f}" if passes >= 10 else f"{passes:.2g}"
    yield "passes over the text", f"{about}{rounded} ({about}{num_tokens:,} tokens{estimate})"
    if passes >= MANY_PASSES:
        yield "note", "so many passes teach little; lower steps or add text (BERT's own took about 40)"


def _with_tokenizer(spec: PretrainSpec, inputs: Resolved) -> tuple[float, int, str]:
    """Passes, tokens to train on, and what was looked at where that is an estimate."""
    tokenizer = inputs.tokenizer(spec.tokenizer)
    try:
        with open_first_text(spec, tokenizer, inputs.settings.storage) as (stream, sample):
            num_tokens = round(sample.store.manifest.counts("train")["num_tokens"] / sample.share)
            passes = stream.epoch_after(spec.steps) * sample.share
            return passes, num_tokens, "" if sample.share == 1 else f"its first {SAMPLE_BYTES >> 20} MB"
    except TextTooShortError:
        return _without_tokenizer(spec)


def _without_tokenizer(spec: PretrainSpec) -> tuple[float, int, str]:
    """Estimate the same from the number of bytes of the first documents."""
    total = sum(file.estimated_text_bytes for file in find_files(spec.corpus))
    first: list[float] = [len(document.text.encode()) for document in read_corpus(spec.corpus, SAMPLE_BYTES)]
    sizes = np.array(first or [total], np.float64)  # a document longer than what is looked at stands for all
    share = min(1.0, float(sizes.sum()) / max(1.0, total))
    lengths = np.maximum(1, sizes / _BYTES_PER_TOKEN).astype(np.int64)
    train, segments = 1 - spec.validation_fraction, segment_config(spec)
    passes = sum(
        steps * spec.global_batch_size * share / (train * count_examples(lengths, length, _LAYOUT, segments).sum())
        for length, steps in spec.phase_steps()
    )
    return float(passes), round(lengths.sum() * train / share), f"{_BYTES_PER_TOKEN:g} bytes of text a token"


@contextmanager
def open_first_text(
    spec: PretrainSpec, tokenizer: Tokenizer, storage: str
) -> Iterator[tuple[ExampleStream, SampleStore]]:
    """Open the examples of a run, where its text is short or tokenized, else those of the beginning of its text.

    Raises: CorpusError where the text has too few documents, or too short ones; TextTooShortError where its beginning
        has.
    """
    how = spec.validation_fraction, spec.shard_bytes, storage
    with open_sample_store(spec.corpus, tokenizer, *how, sample_bytes=SAMPLE_BYTES) as sample:
        try:
            stream = build_stream(spec, SplitShards(sample.store, "train"), tokenizer)
        except CorpusError as error:
            raise error if sample.share == 1 else TextTooShortError(str(error)) from error
        yield stream, sample


def measure_steps(
    spec: PretrainSpec, inputs: Resolved, config: BertConfig | None, teacher: BertConfig | None = None
) -> MeasuredTime | None:
    """Measure steps on the text itself, or on its beginning, and return what all of them would take.

    Args:
        config: of the model; None where only the run decides it, which gives None.
        teacher: of a model that reads every batch as well, without learning.

    Returns None on GPUs too, for models whose steps take long, and where the beginning of the text has too few
    documents to train on.
    """
    tokenizer = inputs.tokenizer_like(spec.tokenizer)
    if config is None or tokenizer is None or trains_on_gpu(spec.execution.device):
        return None
    try:
        with open_first_text(spec, tokenizer, inputs.settings.storage) as (stream, _):
            own = measure_training(spec, config, stream)
            theirs = 0.0 if teacher is None else measure_training(spec, teacher, stream)
    except TextTooShortError:
        return None
    if own is None or theirs is None:
        return None
    return MeasuredTime(own + FORWARD_SHARE * theirs, f"{spec.steps:,} steps")


def recorded_steps(spec: PretrainSpec, registry: Registry) -> MeasuredTime | None:
    """Return the time by the steps of the newest recorded pretraining with the same model and batches; None without."""
    own = _step_values(flatten(spec_values(spec)))
    rows = registry.run_table(f"kind = '{spec.kind}'", trials=False, limit=NUM_RECORDED_RUNS).records
    for run in registry.run_records([str(row["id"]) for row in rows]):
        step = registry.metrics.last_step(run.id) or 0
        if run.seconds and step >= _FEWEST_STEPS and _step_values(registry.parameters(run.id)) == own:
            step_s, host = run.seconds / step, f" on {run.host}" if run.host else ""
            by = f"{step_s:.2g} s a step of run {run.id}{host}"
            return MeasuredTime(step_s * spec.steps, f"{spec.steps:,} steps", by)
    return None


def _step_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that decide how long a step takes, by dotted path; those that are empty or off are left out."""
    return {
        path: value
        for path, value in parameters.items()
        if value not in (None, False, "never")
        and any(path == field or path.startswith(f"{field}.") for field in _STEP_FIELDS)
    }


def pretraining_disk(spec: PretrainSpec, num_parameters: int | None, inputs: Resolved) -> Iterator[DiskUse]:
    """Yield what a pretraining leaves: its text as tokens; checkpoints, snapshots and model where their size is known.

    Raises: CorpusError, TokenizerError.
    """
    if num_parameters is not None:
        kept = spec.execution.keep_checkpoints + 1  # a new one is whole before the oldest one goes
        yield DiskUse("checkpoints", kept * num_parameters * BYTES_PER_SAVED_PARAMETER)
        num_models = 1 + len(spec.execution.snapshot_steps)
        yield DiskUse("model and snapshots", num_models * num_parameters * BYTES_PER_WEIGHT)
    yield from token_store_disk(spec, inputs)
