"""What stages tell a person, a line each."""

from collections.abc import Iterator, Mapping

from orchestrator.progress import duration
from orchestrator.results import DatasetResult, MessageEvent, SweepResult


def message_line(event: MessageEvent) -> str:
    """What a worker or trial has to say."""
    return event.text if event.level == "info" else f"{event.level}: {event.text}"


def tokenizing_line(done_bytes: int, total_bytes: int) -> str:
    """How far a corpus is read."""
    return f"tokenizing: {done_bytes / 1e6:,.0f} of {total_bytes / 1e6:,.0f} MB read"


def dataset_lines(dataset: DatasetResult) -> Iterator[str]:
    """What a corpus has become, and what a person should know of it."""
    counts = dataset.counts
    how = "tokenized before" if dataset.reused else "tokenized"
    yield (
        f"corpus {how}: {counts['num_train_documents']:,} documents, {counts['num_train_tokens']:,} tokens; "
        f"{counts['num_held_out_documents']:,} held out"
    )
    if not counts["num_held_out_documents"]:
        yield (
            "warning: no document is held out, so there will be no held-out scores; "
            "raise validation_fraction or add text"
        )
    if counts["num_bad_records"]:
        yield f"corpus: {counts['num_bad_records']:,} bad records were left out or mended"


def sweep_line(result: SweepResult) -> str:
    """How the best trial of a sweep did."""
    best = result.best.metrics
    return (
        f"{result.task}: best of {len(result.trials)} trials has {result.metric} {best[result.metric]:.4f} "
        f"(baseline {best.get(f'baseline.{result.metric}', 0.0):.4f}) after {duration(result.seconds)}"
    )


def comparison_line(found: Mapping[str, float]) -> str:
    """How a student stands beside its teacher."""
    return (
        f"agreement {found['agreement']:.4f}, {found['parameter_ratio']:.0%} of the parameters, "
        f"{found['speed_ratio']:.2f} times as fast"
    )
