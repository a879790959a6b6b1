"""Runs over text: a tokenizer that is trained on it, and a token store that it becomes."""

import logging
import os
from collections.abc import Callable, Iterator
from time import perf_counter

from bert_core.text.tokenization import Tokenizer
from orchestrator.base.console import Progress, size_text
from orchestrator.base.results import DatasetResult, TokenizerResult
from orchestrator.corpus.input_files import find_files
from orchestrator.corpus.preview import open_sample_store
from orchestrator.corpus.token_store import MANIFEST, store_folder, store_options
from orchestrator.corpus.tokenizer_job import tokenizer_notes, train_on_first_text, train_tokenizer
from orchestrator.kinds.base import DiskUse, Fact, Kind, MeasuredTime, RunContext
from orchestrator.kinds.resolved import Resolved
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.specs import CorpusSpec, PretrainSpec, TokenizerSpec
from orchestrator.specs.references import STAGE_MARK, Product
from orchestrator.storage import exists, join

_REPORTED = ("fertility", "unknown_rate")
"""Scores of a tokenizer that its line shows; the registry has all of them."""
_MEASURED_BYTES = 1 << 20
"""Text that is worked on to find out how long all of it takes: about a second."""
_STORED_PER_TEXT_BYTE = 0.5
"""A token of about four characters is a number of two bytes."""
logger = logging.getLogger(__name__)


class TokenizerKind(Kind[TokenizerSpec, TokenizerResult]):
    """Training of a tokenizer, in the driver's process."""

    spec = TokenizerSpec
    products = frozenset({Product.TOKENIZER})

    def facts(self, spec: TokenizerSpec, inputs: Resolved) -> Iterator[Fact]:
        yield "vocabulary", f"at most {spec.vocab_size:,} entries"

    def run(self, spec: TokenizerSpec, inputs: Resolved, context: RunContext) -> TokenizerResult:
        context.progress.status(f"training a tokenizer of {spec.vocab_size:,} entries")
        result = train_tokenizer(spec, context.settings.storage)
        report = "".join(f"  {name} {value:.3f}" for name, value in result.report.items() if name in _REPORTED)
        logger.info(f"tokenizer: {result.vocab_size:,} entries{report}")
        for note in tokenizer_notes(spec, result):
            logger.info(f"tokenizer: {note}")
        return result

    def record(self, result: TokenizerResult, run_id: str, recorder: Recorder) -> RunOutcome:
        recorder.registry.datasets.record_tokenizer(run_id, result)
        recorder.record_final_metrics(run_id, 0, "validation", result.report)
        return RunOutcome()

    def vocab_size(self, spec: TokenizerSpec, inputs: Resolved) -> int:
        """Return the size that the spec asks for; a small corpus may give fewer entries."""
        return spec.vocab_size

    def tokenizer_like(self, spec: TokenizerSpec, inputs: Resolved) -> Tokenizer:
        return train_on_first_text(spec, _MEASURED_BYTES)


class CorpusKind(Kind[CorpusSpec, DatasetResult]):
    """Tokenizing of a corpus by Ray Data. Later runs with the same text find the token store by themselves."""

    spec = CorpusSpec

    def disk(self, spec: CorpusSpec, inputs: Resolved) -> Iterator[DiskUse]:
        yield from token_store_disk(spec, inputs)

    def measure_time(self, spec: CorpusSpec, inputs: Resolved) -> MeasuredTime | None:
        """Tokenize the first text on one CPU; None where the token store exists."""
        tokenizer = inputs.tokenizer_like(spec.tokenizer)
        if tokenizer is None:
            return None
        how = spec.validation_fraction, spec.shard_bytes, inputs.settings.storage
        begun_at = perf_counter()
        with open_sample_store(spec.corpus, tokenizer, *how, sample_bytes=_MEASURED_BYTES) as sample:
            seconds = perf_counter() - begun_at
        if sample.origin == "token_store":
            return None
        num_cpus = spec.num_cpus or os.cpu_count() or 1
        seconds = seconds if sample.share == 1 else seconds / sample.share / num_cpus
        return MeasuredTime(seconds, "tokenizing", "its first text")

    def run(self, spec: CorpusSpec, inputs: Resolved, context: RunContext) -> DatasetResult:
        from orchestrator.corpus.build import build_token_store  # Ray is loaded when a run starts

        result = build_token_store(
            spec.corpus,
            inputs.tokenizer(spec.tokenizer),
            validation_fraction=spec.validation_fraction,
            shard_bytes=spec.shard_bytes,
            storage=context.settings.storage,
            num_cpus=spec.num_cpus,
            progress=report_tokenizing(context.progress),
        )
        log_dataset(result)
        return result

    def record(self, result: DatasetResult, run_id: str, recorder: Recorder) -> RunOutcome:
        recorder.registry.datasets.record(run_id, result)
        return RunOutcome()


def token_store_disk(spec: CorpusSpec | PretrainSpec, inputs: Resolved) -> Iterator[DiskUse]:
    """Yield the token store of a spec's text, unless it exists. Raises: CorpusError, TokenizerError."""
    if spec.corpus.max_documents is not None:
        return
    files = find_files(spec.corpus)
    how = spec.validation_fraction, spec.shard_bytes
    if not spec.tokenizer.startswith(STAGE_MARK):
        options = store_options(spec.corpus, inputs.tokenizer(spec.tokenizer), *how)
        if exists(join(store_folder(inputs.settings.storage, options, files), MANIFEST)):
            return
    num_bytes = round(_STORED_PER_TEXT_BYTE * sum(file.estimated_text_bytes for file in files))
    yield DiskUse("token store", num_bytes, str([spec.corpus.identity_values(), spec.tokenizer, *how]))


def report_tokenizing(progress: Progress) -> Callable[[int, int], None]:
    """A callback that shows how many bytes of a corpus have been read."""
    return lambda done_bytes, total_bytes: progress.status(
        f"tokenizing: {size_text(done_bytes)} of {size_text(total_bytes)} read"
    )


def log_dataset(dataset: DatasetResult) -> None:
    """Log the counts of a token store, and warnings that follow from them."""
    counts = dataset.counts
    how = "tokenized before" if dataset.reused else "tokenized"
    logger.info(
        f"corpus {how}: {counts['num_train_documents']:,} documents, {counts['num_train_tokens']:,} tokens; "
        f"{counts['num_validation_documents']:,} held out"
    )
    if not counts["num_validation_documents"]:
        logger.warning(
            "no document is held out, so there will be no held-out scores; raise validation_fraction or add text"
        )
    if counts["num_bad_records"]:
        logger.info(f"corpus: {counts['num_bad_records']:,} bad records were left out or mended")
