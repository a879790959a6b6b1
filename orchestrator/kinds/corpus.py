"""Runs that tokenize text into a token store."""

import os
from collections.abc import Iterator
from time import perf_counter

from orchestrator.corpus.preview import open_sample_store
from orchestrator.kinds.base import Kind, MeasuredTime, RunContext
from orchestrator.kinds.disk import DiskUse, token_store_disk
from orchestrator.kinds.messages import log_dataset, report_tokenizing
from orchestrator.kinds.resolved import Resolved
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.results import DatasetResult
from orchestrator.specs import CorpusSpec

_MEASURED_BYTES = 1 << 20
"""Text that is tokenized to find out how long all of it takes: under a second."""


class CorpusKind(Kind[CorpusSpec, DatasetResult]):
    """Tokenizing of a corpus by Ray Data. Later runs with the same text find the token store by themselves."""

    spec = CorpusSpec

    def disk(self, spec: CorpusSpec, inputs: Resolved) -> Iterator[DiskUse]:
        """Yield the token store."""
        yield from token_store_disk(spec, inputs)

    def measure_time(self, spec: CorpusSpec, inputs: Resolved) -> MeasuredTime | None:
        """Tokenize the first text on one CPU; None where the token store is there already."""
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
        """Build the token store, or find the one of the same text and tokenizer."""
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
        """Write the token store with its counts and files."""
        recorder.registry.datasets.record(run_id, result)
        return RunOutcome()
