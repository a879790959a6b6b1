"""A function called where its GPUs are: in the driver's own process, or in one Ray task on a node that has them.

What Ray's processes log reaches nobody, since Ray is started without `log_to_driver`, which would bring Ray's own lines
too. A warning for a person therefore travels as a value:

    a process of Ray     with attached(warnings): work()        its warnings are collected (`CollectedWarnings`)
                         WithWarnings(result, warnings.take())  and go with the next result
    the driver           relay.receive(answer)                  logs each text once, whichever process it comes from

Trials, distillations and pretraining workers send their warnings as events, among the others that they have.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orchestrator.cluster.capacity import Processes
from orchestrator.cluster.shortage import telling_silence
from orchestrator.errors import OWN_ERRORS, OwnError, RunFailedError, last_line
from orchestrator.progress import attached
from orchestrator.training.cards import new_card_notes

T = TypeVar("T")
logger = logging.getLogger(__name__)


class CollectedWarnings(logging.Handler):
    """Handler that keeps the texts of warnings until they are taken; to be attached around the work of a process."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message of a record."""
        self._texts.append(record.getMessage())

    def take(self) -> tuple[str, ...]:
        """Return the texts that nobody has taken yet, each once, in the order in which they came."""
        texts, self._texts = self._texts, []
        return tuple(dict.fromkeys(texts))


@dataclass(frozen=True)
class WithWarnings(Generic[T]):
    """A value from one of Ray's processes, and the warnings that were logged there since the value before it."""

    value: T
    warnings: tuple[str, ...] = ()


class WarningRelay:
    """Logs in the driver what Ray's processes have warned of, each text once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, warnings: Iterable[str]) -> None:
        """Log those texts that are new."""
        for text in warnings:
            if text not in self._told:
                self._told.add(text)
                logger.warning(text)

    def receive(self, answer: WithWarnings[T]) -> T:
        """Log the warnings that come with a value, and return the value."""
        self.tell(answer.warnings)
        return answer.value


def call_on_device(function: Callable[[str], T], num_cpus: float, num_gpus: float, problem: str, remedy: str = "") -> T:
    """Call `function("cpu")` in this process, or with GPUs `function("cuda")` in one task of the connected Ray.

    What is to be told of the card is logged here once the task has its place, what the task warns of when it ends.

    Args:
        function: takes the name of its device. It may travel to another machine: its paths are absolute.
        num_cpus: logical CPUs of the task.
        problem: what a person is told when the task fails, before Ray's reason: `the model was not scored`.
        remedy: what they are told after it.

    Raises: what `function` raises in this process; its own errors (`OWN_ERRORS`) from the task as well;
        RunFailedError for what else goes wrong there.
    """
    if not num_gpus:
        return function("cpu")
    import ray

    task = (
        ray.remote(_begin_and_call)
        .options(num_cpus=num_cpus, num_gpus=num_gpus, num_returns="streaming")
        .remote(function)
    )
    needed, relay = Processes(1, {"CPU": num_cpus, "GPU": num_gpus}), WarningRelay()
    with waiting_for(task, problem, remedy):
        with telling_silence("work with a GPU has not begun", needed):
            card_notes = ray.get(next(task))
        relay.tell(card_notes)
        relay.tell(ray.get(next(task)))
        outcome: T | OwnError = ray.get(next(task))
    if isinstance(outcome, OWN_ERRORS):
        raise outcome
    return outcome


@contextmanager
def waiting_for(task: Any, problem: str, remedy: str = "") -> Iterator[None]:
    """Cancel a remote task when its caller stops waiting. Raises: RunFailedError for what Ray says went wrong."""
    import ray

    try:
        yield
    except ray.exceptions.RayError as error:
        raise RunFailedError(f"{problem}: {last_line(error)}{remedy}") from error
    except BaseException:
        with suppress(ray.exceptions.RayError):  # Ray may be gone as well
            ray.cancel(task, force=True)
        raise


def _begin_and_call(function: Callable[[str], T]) -> Iterator[T | OwnError | Sequence[str]]:
    """Yield what is to be told of the card once there is a place, then the function's warnings, then its result.

    In place of a result may be an error that a retry would repeat.
    """
    yield new_card_notes("cuda")
    warnings = CollectedWarnings()
    try:
        with attached(warnings):
            outcome: T | OwnError = function("cuda")
    except OWN_ERRORS as error:
        outcome = error
    finally:
        yield warnings.take()  # also before an error that ends this task
    yield outcome
