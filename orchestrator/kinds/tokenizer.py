"""Runs that train a tokenizer on text."""

import logging
from collections.abc import Iterator

from orchestrator.corpus.tokenizer_job import train_tokenizer
from orchestrator.kinds.base import Fact, Kind, RunContext
from orchestrator.kinds.resolved import Resolved
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.results import TokenizerResult
from orchestrator.specs import TokenizerSpec
from orchestrator.specs.references import Product

_REPORTED = ("fertility", "unknown_rate")
"""Scores of a tokenizer that its line shows; the registry has all of them."""

logger = logging.getLogger(__name__)


class TokenizerKind(Kind[TokenizerSpec, TokenizerResult]):
    """Training of a tokenizer, in the driver's process."""

    spec = TokenizerSpec
    products = frozenset({Product.TOKENIZER})

    def facts(self, spec: TokenizerSpec, inputs: Resolved) -> Iterator[Fact]:
        """Yield the size of the vocabulary."""
        yield "vocabulary", f"at most {spec.vocab_size:,} entries"

    def run(self, spec: TokenizerSpec, inputs: Resolved, context: RunContext) -> TokenizerResult:
        """Train the tokenizer; one that was trained before on the same text is used again."""
        context.progress.status(f"training a tokenizer of {spec.vocab_size:,} entries")
        result = train_tokenizer(spec, context.settings.storage)
        report = "".join(f"  {name} {value:.3f}" for name, value in result.report.items() if name in _REPORTED)
        logger.info(f"tokenizer: {result.vocab_size:,} entries{report}")
        return result

    def record(self, result: TokenizerResult, run_id: str, recorder: Recorder) -> RunOutcome:
        """Write the tokenizer's folder and its scores on text that it was not trained on."""
        recorder.record_tokenizer(run_id, result)
        recorder.record_final_metrics(run_id, 0, "validation", result.report)
        return RunOutcome()

    def vocab_size(self, spec: TokenizerSpec, inputs: Resolved) -> int:
        """Return the size that the spec asks for; a small corpus may give fewer entries."""
        return spec.vocab_size
