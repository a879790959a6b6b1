"""Lines that several kinds of runs show a person while they work."""

import logging
from collections.abc import Callable, Mapping

from orchestrator.progress import Progress, size_text
from orchestrator.results import DatasetResult, MessageEvent

logger = logging.getLogger(__name__)


def log_message(event: MessageEvent) -> None:
    """Log a worker's or trial's message at its level."""
    logger.log(logging.getLevelNamesMapping()[event.level.upper()], event.text)


def report_tokenizing(progress: Progress) -> Callable[[int, int], None]:
    """A callback that shows how much of a corpus has been read, in bytes."""
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


def comparison_line(found: Mapping[str, float]) -> str:
    """A student's agreement with its teacher, and their sizes and speeds compared."""
    return (
        f"agreement {found['agreement']:.4f}, {found['parameter_ratio']:.0%} of the parameters, "
        f"{found['speed_ratio']:.2f} times as fast"
    )
