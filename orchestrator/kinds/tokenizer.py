"""Runs that train a tokenizer on text."""

import logging
from collections.abc import Iterator
from time import perf_counter

from bert_core.text.tokenization import Tokenizer
from orchestrator.corpus.input_files import find_files
from orchestrator.corpus.tokenizer_job import is_trained, tokenizer_notes, train_on_first_text, train_tokenizer
from orchestrator.kinds.base import Fact, Kind, MeasuredTime, RunContext
from orchestrator.kinds.resolved import Resolved
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.results import TokenizerResult
from orchestrator.specs import TokenizerSpec
from orchestrator.specs.references import Product

_REPORTED = ("fertility", "unknown_rate")
"""Scores of a tokenizer that its line shows; the registry has all of them."""

_MEASURED_BYTES = 1 << 20
"""Text that a tokenizer is trained on to find out how long all of it takes: about a second."""

logger = logging.getLogger(__name__)


class TokenizerKind(Kind[TokenizerSpec, TokenizerResult]):
    """Training of a tokenizer, in the driver's process."""

    spec = TokenizerSpec
    products = frozenset({Product.TOKENIZER})

    def facts(self, spec: TokenizerSpec, inputs: Resolved) -> Iterator[Fact]:
        """Yield the size of the vocabulary."""
        yield "vocabulary", f"at most {spec.vocab_size:,} entries"

    def measure_time(self, spec: TokenizerSpec, inputs: Resolved) -> MeasuredTime | None:
        """Train on the first text, half of it and all of it; None where the tokenizer is there already."""
        if is_trained(spec, inputs.settings.storage):
            return None
        total = sum(file.estimated_text_bytes for file in find_files(spec.corpus))
        more = max(0.0, min(total, spec.max_bytes or total) - _MEASURED_BYTES)
        seconds = _seconds_of_training(spec, _MEASURED_BYTES)
        if more:
            # Reading grows with the text, choosing among the pieces hardly does; and the first time was slower.
            half_s, seconds = (_seconds_of_training(spec, size) for size in (_MEASURED_BYTES // 2, _MEASURED_BYTES))
            seconds += max(0.0, seconds - half_s) / (_MEASURED_BYTES // 2) * more
        return MeasuredTime(seconds, "training the tokenizer", "its first text")

    def tokenizer_like(self, spec: TokenizerSpec, inputs: Resolved) -> Tokenizer:
        """Train on the first text alone."""
        return train_on_first_text(spec, _MEASURED_BYTES)

    def run(self, spec: TokenizerSpec, inputs: Resolved, context: RunContext) -> TokenizerResult:
        """Train the tokenizer; one that was trained before on the same text is used again."""
        context.progress.status(f"training a tokenizer of {spec.vocab_size:,} entries")
        result = train_tokenizer(spec, context.settings.storage)
        report = "".join(f"  {name} {value:.3f}" for name, value in result.report.items() if name in _REPORTED)
        logger.info(f"tokenizer: {result.vocab_size:,} entries{report}")
        for note in tokenizer_notes(spec, result):
            logger.info(f"tokenizer: {note}")
        return result

    def record(self, result: TokenizerResult, run_id: str, recorder: Recorder) -> RunOutcome:
        """Write the tokenizer's folder and its scores on text that it was not trained on."""
        recorder.registry.datasets.record_tokenizer(run_id, result)
        recorder.record_final_metrics(run_id, 0, "validation", result.report)
        return RunOutcome()

    def vocab_size(self, spec: TokenizerSpec, inputs: Resolved) -> int:
        """Return the size that the spec asks for; a small corpus may give fewer entries."""
        return spec.vocab_size


def _seconds_of_training(spec: TokenizerSpec, num_bytes: int) -> float:
    begun_at = perf_counter()
    train_on_first_text(spec, num_bytes)
    return perf_counter() - begun_at
