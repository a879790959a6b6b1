"""Estimates of a pretraining before it starts: steps, passes over its text, time.

Passes are counted where the text is tokenized already, or short; of a longer text the beginning is tokenized. For the
tokenizer of an earlier stage stands one that is trained on the first text.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from bert_core.config import BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import CorpusError
from orchestrator.corpus.preview import SampleStore, open_sample_store
from orchestrator.corpus.stream import ExampleStream, SplitShards
from orchestrator.kinds.base import Fact, MeasuredTime
from orchestrator.kinds.estimates import trains_on_gpu
from orchestrator.kinds.resolved import Resolved
from orchestrator.pretraining.meter import measure_training
from orchestrator.pretraining.streams import build_stream, check_sentences
from orchestrator.specs import PretrainSpec
from orchestrator.specs.references import STAGE_MARK
from orchestrator.training.step_time import FORWARD_SHARE

SAMPLE_BYTES = 1 << 20
"""Text that is looked at where there is no token store: under a second of tokenizing."""
MANY_PASSES = 100
"""Passes from which on the plan says so. BERT read its text about 40 times (Devlin et al. 2019, appendix A.2)."""


class TextTooShortError(CorpusError):
    """The beginning of a text does not have the documents that a run needs; all of it may."""


def step_facts(spec: PretrainSpec) -> Iterator[Fact]:
    """Yield the steps that are left of each phase, and the tokens that they read."""
    if spec.init_step is not None:
        yield "goes on from", f"step {spec.init_step:,} of {spec.init_from}, with its optimizer"
    if spec.steps == "auto":
        yield "steps", f"as many as fit into {spec.execution.max_hours:g} h, measured when the run begins"
        return
    tokens = 0
    for (length, _, size), left in zip(spec.phase_steps(), spec.steps_left(), strict=True):
        if left:
            yield "steps", f"{len(left):,} of {size:,} examples up to {length} tokens"
            tokens += length * len(left) * size
    yield "tokens", f"at most {tokens:,}"


def passes_facts(spec: PretrainSpec, inputs: Resolved) -> Iterator[Fact]:
    """Yield how often a pretraining reads its text, and a note where that is very often.

    Yields nothing where only a run decides the tokenizer, or where the beginning of the text has too few documents.

    Raises: CorpusError where the whole text has too few documents to train on, or too short ones.
    """
    tokenizer = inputs.tokenizer_like(spec.tokenizer)
    if tokenizer is None or spec.steps == "auto":
        return
    try:
        with open_first_text(spec, tokenizer, inputs.settings.storage) as (stream, sample):
            num_tokens = round(sample.store.manifest.counts("train")["num_tokens"] / sample.share)
            num_epochs = stream.epoch_after(spec.num_steps) - stream.epoch_after(spec.init_step or 0)
            passes = num_epochs * sample.share
    except TextTooShortError:
        return
    is_whole = sample.share == 1
    about = "" if is_whole and not spec.tokenizer.startswith(STAGE_MARK) else "about "
    estimate = "" if is_whole else f", estimated from its first {SAMPLE_BYTES >> 20} MB"
    rounded = f"{passes:,.0f}" if passes >= 10 else f"{passes:.2g}"
    yield "passes over the text", f"{about}{rounded} ({about}{num_tokens:,} tokens{estimate})"
    if passes >= MANY_PASSES:
        yield "note", "so many passes teach little; lower steps or add text (BERT's own took about 40)"


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
            check_sentences(spec, sample.store.manifest.counts("train"))
            stream = build_stream(spec, SplitShards(sample.store, "train"), tokenizer)
        except CorpusError as error:
            raise error if sample.share == 1 else TextTooShortError(str(error)) from error
        yield stream, sample


def measure_steps(
    spec: PretrainSpec, inputs: Resolved, config: BertConfig | None, teacher: BertConfig | None = None
) -> MeasuredTime | None:
    """Measure steps on the text itself, or on its beginning, and return what all that are left would take.

    Args:
        config: of the model; None where only the run decides it, which gives None.
        teacher: of a model that reads every batch as well, without learning.

    Returns None on GPUs and for `steps: auto` too, for models whose steps take long, and where the beginning of the
    text has too few documents to train on.
    """
    tokenizer = inputs.tokenizer_like(spec.tokenizer)
    if config is None or tokenizer is None or trains_on_gpu(spec.execution.device) or spec.steps == "auto":
        return None
    try:
        with open_first_text(spec, tokenizer, inputs.settings.storage) as (stream, _):
            own = measure_training(spec, config, stream)
            theirs = 0.0 if teacher is None else measure_training(spec, teacher, stream)
    except TextTooShortError:
        return None
    if own is None or theirs is None:
        return None
    num_left = spec.num_steps - (spec.init_step or 0)
    return MeasuredTime(own + FORWARD_SHARE * theirs, f"{num_left:,} steps")
