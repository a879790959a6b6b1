"""What the processes of tests do that use a registry at once; they start together."""

import contextlib
import multiprocessing
from collections.abc import Callable, Mapping
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Queue
from typing import Any

from orchestrator.base.results import MetricEvent, ModelResult
from orchestrator.registry import database
from orchestrator.registry.registry import Registry
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


def migrate(location: str, shared: str, number: int) -> str:
    """Upgrade to the revision `9999` of the folder `shared`, and return the revision that is reached."""
    database.MIGRATIONS, database.NEWEST_REVISION = Path(shared), "9999"
    with Registry(location) as registry:
        return registry.upgrade(Path(shared).parent / "backups")


def write_until_killed(location: str, run_id: str, acknowledged: Connection) -> None:
    """Record measurement after measurement, and tell of each that the registry has taken."""
    with Registry(location) as registry:
        for step in count():
            registry.metrics.record(run_id, [MetricEvent(step, "train", {"loss": float(step)})])
            acknowledged.send(step)


def kill_writers(location: str, num_acknowledged: Mapping[str, int]) -> dict[str, int]:
    """Start a writer for each run, `kill -9` each after so many writes, and return how many it was told were taken."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    taken = {}
    ways = {run_id: context.Pipe(duplex=False) for run_id in num_acknowledged}
    writers = {
        run_id: context.Process(target=write_until_killed, args=(location, run_id, way[1]))
        for run_id, way in ways.items()
    }
    for writer in writers.values():
        writer.start()
    for run_id, number in num_acknowledged.items():
        answers, questions = ways[run_id]
        questions.close()  # so that the end of the writer is the end of its answers
        taken[run_id] = 0
        while taken[run_id] < number:
            assert answers.poll(PATIENCE_S), "a writer did not write"
            taken[run_id] = answers.recv() + 1
        writers[run_id].kill()
        with contextlib.suppress(EOFError):
            while True:
                taken[run_id] = answers.recv() + 1
        writers[run_id].join()
        answers.close()
    return taken
