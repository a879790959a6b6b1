"""What the processes of tests do that use a registry at once; they start together."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from queue import Queue
from typing import Any

from orchestrator.registry.registry import Registry
from orchestrator.results import MetricEvent, ModelResult
from tests.waiting import PATIENCE_S

NUM_ROUNDS = 12


def run_together(work: Callable[[str, str, int], str], location: str, shared: str, num_processes: int) -> list[str]:
    """What `work(location, shared, number)` returns in each of several processes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # one import for all of them
    barrier, answers = context.Barrier(num_processes), context.Queue()
    processes = [
        context.Process(target=_work, args=(work, location, shared, number, barrier, answers))
        for number in range(num_processes)
    ]
    for process in processes:
        process.start()
    found = [answers.get(timeout=PATIENCE_S) for _ in processes]
    for process in processes:
        process.join()
    answers.close()
    answers.join_thread()
    failures = [answer for answer in found if isinstance(answer, Exception)]
    assert not failures, failures
    return found


def _work(
    work: Callable[[str, str, int], str],
    location: str,
    shared: str,
    number: int,
    barrier: Barrier,
    answers: "Queue[Any]",
) -> None:
    barrier.wait()
    try:
        answers.put(work(location, shared, number))
    except Exception as error:
        answers.put(error)


def create(location: str, shared: str, number: int) -> str:
    """Use an empty database."""
    with Registry(location) as registry:
        return (
            registry.lifecycle.create(kind="corpus", name=str(number), fingerprint="f", spec={})
            + " "
            + registry.upgrade()
        )


def write(location: str, shared: str, number: int) -> str:
    """Start attempts of one run (read, then write), measure a run of one's own, register models under one name."""
    with Registry(location) as registry:
        own = registry.lifecycle.create(kind="pretrain", name=str(number), fingerprint="f", spec={"number": number})
        for step in range(NUM_ROUNDS):
            registry.lifecycle.start_attempt(shared, host=str(number))
            registry.metrics.record(own, [MetricEvent(step, "train", {"loss": 0.5, "rate": 1.0})])
            registry.models.register("shared", ModelResult("folder", f"{number}-{step}", 1, "ner"), own)
    return own
