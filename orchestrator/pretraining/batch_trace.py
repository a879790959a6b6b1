"""Trace of the batches that a pretraining consumes: a line per step and worker, with the digest of each example.

`orchestrator verify-resume` asks for it by environment variables, which Ray hands on to its workers. The digests of all
workers, laid end to end, do not depend on their number.
"""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.examples.packing import PackedBatch
from orchestrator.corpus.stream import ExampleStream
from orchestrator.pretraining.collectives import Worker

TRACE_VARIABLE = "ORCHESTRATOR_BATCH_TRACE"
"""Folder that traces are written to."""
HOLD_VARIABLE = "ORCHESTRATOR_BATCH_TRACE_HOLD_AFTER"
"""Number of steps after which a worker waits, before the next step, to be killed there."""
_HOLD_S = 600.0
"""Longest wait to be killed: whoever asked for it may have died."""
_HOLDING = "holding"

Batches = Callable[[int], Iterator[tuple[int, PackedBatch]]]
"""A function from the first step to the worker's numbered batches, up to the end of the run."""


def is_traced() -> bool:
    return TRACE_VARIABLE in os.environ


def traced(batches: Batches, worker: Worker, attempt: int) -> Batches:
    """Return the same batches, traced as they are taken where that is asked for."""
    if not is_traced():
        return batches
    folder = Path(os.environ[TRACE_VARIABLE]) / f"attempt-{attempt}"
    hold_after = int(os.environ.get(HOLD_VARIABLE, "-1"))

    def taken(first_step: int) -> Iterator[tuple[int, PackedBatch]]:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"rank-{worker.rank}.jsonl").open("a", encoding="utf-8") as file:
            for step, batch in batches(first_step):
                entry = {"step": step + 1, "num_workers": worker.num_workers, "examples": list(example_digests(batch))}
                file.write(json.dumps(entry) + "\n")
                file.flush()
                if step == hold_after:
                    (folder / f"rank-{worker.rank}.{_HOLDING}").touch()
                    threading.Event().wait(_HOLD_S)
                yield step, batch

    return taken


def num_holding(folder: Path) -> int:
    """Number of workers that wait to be killed."""
    return len(list(folder.glob(f"attempt-*/rank-*.{_HOLDING}")))


def read_trace(folder: Path) -> dict[int, str]:
    """Digest of each batch that a run consumed, by step counted from 1.

    Of a step that was trained again, the last batch counts: only its update is part of the model.
    """
    by_step: dict[int, dict[int, dict[str, Any]]] = {}
    for attempt in sorted(folder.glob("attempt-*"), key=lambda path: int(path.name.removeprefix("attempt-"))):
        own: dict[int, dict[int, dict[str, Any]]] = {}
        for path in attempt.glob("rank-*.jsonl"):
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                own.setdefault(entry["step"], {})[int(path.stem.removeprefix("rank-"))] = entry
        by_step |= own
    return {
        # The first worker is in every group; what ranks beyond the last group's left is of an earlier, larger one.
        step: combine_digests(digest for rank in range(parts[0]["num_workers"]) for digest in parts[rank]["examples"])
        for step, parts in sorted(by_step.items())
    }


def example_digests(batch: PackedBatch) -> Iterator[str]:
    """SHA-256 of each example of a batch."""
    for example in batch.split(1):
        digest = hashlib.sha256()
        for name in PackedBatch.__dataclass_fields__:
            values = np.asarray(getattr(example, name), "<i8")  # data tasks and plain streams differ in widths
            if name == "draws" and not len(values):
                continue  # so that other objectives' batches have the digests of older versions
            digest.update(len(values).to_bytes(8, "little") + values.tobytes())
        yield digest.hexdigest()


def combine_digests(digests: Iterable[str]) -> str:
    """Digest of a batch from those of its examples, however workers share them; of batches from those of each."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def global_batch_digest(stream: ExampleStream, step: int) -> str:
    """Build a step's batch of all workers, and return its digest; steps count from 0."""
    return combine_digests(
        digest for _, batch in stream.batches(range(step, step + 1)) for digest in example_digests(batch)
    )
