"""Lines that several kinds of runs show a person while they work."""

from collections.abc import Callable, Iterator, Mapping

from orchestrator.progress import Progress
from orchestrator.results import DatasetResult, MessageEvent


def message_line(event: MessageEvent) -> str:
    """A worker's or trial's message, with its level unless it is mere information."""
    return event.text if event.level == "info" else f"{event.level}: {event.text}"


def report_tokenizing(progress: Progress) -> Callable[[int, int], None]:
    """A callback that shows how much of a corpus has been read, in bytes."""
    return lambda done_bytes, total_bytes: progress.show(
        f"tokenizing: {done_bytes / 1e6:,.0f} of {total_bytes / 1e6:,.0f} MB read"
    )


def report_dataset(dataset: DatasetResult, progress: Progress) -> None:
    """Say what a corpus has become."""
    for line in dataset_lines(dataset):
        progress.say(line)


def dataset_lines(dataset: DatasetResult) -> Iterator[str]:
    """The counts of a token store, and warnings that follow from them."""
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


def comparison_line(found: Mapping[str, float]) -> str:
    """A student's agreement with its teacher, and their sizes and speeds compared."""
    return (
        f"agreement {found['agreement']:.4f}, {found['parameter_ratio']:.0%} of the parameters, "
        f"{found['speed_ratio']:.2f} times as fast"
    )
