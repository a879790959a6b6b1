"""Replicas of a model on Ray Serve. What several people ask at the same time is computed together.

Errors that a person can mend travel as values, so that one bad request does not fail those beside it. What a replica
warns of travels with its next answer, and is logged by the server.
"""

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from orchestrator.cluster.capacity import cluster_room
from orchestrator.cluster.processes import Processes
from orchestrator.cluster.worker_warnings import CollectedWarnings, WarningRelay, WithWarnings
from orchestrator.errors import OWN_ERRORS, ClusterError, InputError, OwnError, last_line
from orchestrator.inference.answering import Abilities, Answering, Read, load_answering
from orchestrator.progress import attached
from orchestrator.serving.app import Ask
from orchestrator.serving.refusals import RefusedError
from orchestrator.specs.network import Precision
from orchestrator.storage.uris import absolute

MAX_REQUESTS = 32
"""Number of requests that are computed together at most."""
WAIT_S = 0.005
"""Time in which a request waits for others to be computed with."""

Answered = list[dict[str, Any]] | InputError


class Replica:
    """A process that holds the model."""

    def __init__(self, folder: str, device: str, precision: Precision = "fp32") -> None:
        """Load the model of a folder, or keep what is wrong with it."""
        self._warnings = CollectedWarnings()
        self._answering: Answering | OwnError
        try:
            with attached(self._warnings):
                self._answering = load_answering(folder, device, precision)
        except OWN_ERRORS as error:
            self._answering = error

    async def abilities(self) -> WithWarnings[Abilities | OwnError]:
        """Tell what the model can do, or why it cannot be loaded."""
        found = self._answering if isinstance(self._answering, Exception) else self._answering.abilities
        return WithWarnings(found, self._warnings.take())

    @serve.batch(  # type: ignore[untyped-decorator]
        max_batch_size=MAX_REQUESTS, batch_wait_timeout_s=WAIT_S
    )
    async def ask(self, requests: list[list[Read]]) -> list[WithWarnings[Answered]]:
        """The answers to several requests, computed together."""
        return self.answer(requests)

    def answer(self, requests: Sequence[Sequence[Read]]) -> list[WithWarnings[Answered]]:
        """The answers to several requests, all with the same warnings: whoever asked one may have gone."""
        assert not isinstance(self._answering, Exception), "a model that was not loaded is not asked"
        with attached(self._warnings):
            answered = answer_together(self._answering, requests)
        warnings = self._warnings.take()
        return [WithWarnings(each, warnings) for each in answered]


def answer_together(answering: Answering, requests: Sequence[Sequence[Read]]) -> list[Answered]:
    """Answer the inputs of several requests in batches by length; where one of them is wrong, each request alone.

    A request that is alone is answered to the bit as `orchestrator predict` answers a file of its inputs. Beside others
    the last digits may differ, since a batch's sums are made in another order.
    """
    if len(requests) > 1:
        with suppress(InputError):
            answers = iter(answering.answer([read for inputs in requests for read in inputs]))
            return [[next(answers) for _ in inputs] for inputs in requests]
    return [_answer_alone(answering, inputs) for inputs in requests]


def _answer_alone(answering: Answering, inputs: Sequence[Read]) -> Answered:
    try:
        return answering.answer(inputs)
    except InputError as error:
        return error


@contextmanager
def running_replicas(
    folder: str, device: str, num_replicas: int, precision: Precision = "fp32"
) -> Iterator[tuple[Abilities, Ask]]:
    """Replicas of a model's folder on the connected Ray, until the block ends: what they can do, how they are asked.

    What they warn of is logged here, each text once.

    Raises: CheckpointError, TokenizerError; ClusterError when the replicas do not start.
    """
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    application, quiet = f"orchestrator-{secrets.token_hex(4)}", {"log_level": "ERROR", "enable_access_log": False}
    num_gpus, relay = 1 if device == "cuda" else 0, WarningRelay()
    _check_room(num_replicas, num_gpus)
    actor = {"num_cpus": 1, "num_gpus": num_gpus}
    deployment = serve.deployment(Replica, num_replicas=num_replicas, ray_actor_options=actor, logging_config=quiet)
    try:
        try:
            serve.start(proxy_location="Disabled", logging_config=quiet)
            bound = deployment.bind(absolute(folder), device, precision)
            handle = serve.run(bound, name=application, route_prefix=None)
            found = relay.receive(handle.abilities.remote().result())
        except (RayError, RayServeException, RuntimeError) as error:
            raise ClusterError(f"the replicas did not start: {last_line(error)}; see `orchestrator doctor`") from error
        if isinstance(found, OWN_ERRORS):
            raise found
        yield found, _asking(handle, relay)
    finally:  # also where they did not start, or Ctrl-C came while they loaded the model
        with suppress(Exception):  # Ray may have gone before
            serve.delete(application)


def _check_room(num_replicas: int, num_gpus: int) -> None:
    """Check that the connected Ray holds the replicas; Ray Serve would wait for ever. Raises: ClusterError."""
    room = cluster_room(Processes(1, {"CPU": 1.0} | ({"GPU": float(num_gpus)} if num_gpus else {}))).grown
    if room < num_replicas:
        each = "a CPU and a GPU" if num_gpus else "a CPU"
        raise ClusterError(
            f"{num_replicas} replicas are asked for, each with {each}; there is room for {room}. Lower --num-replicas, "
            "leave --device out, or use a larger cluster with --address"
        )


def _asking(handle: DeploymentHandle, relay: WarningRelay) -> Ask:
    """The function by which the application has inputs answered by a replica."""

    async def ask(inputs: Sequence[Read]) -> list[dict[str, Any]]:
        try:
            answered = relay.receive(await handle.ask.remote(list(inputs)))
        except (RayError, RayServeException) as error:
            raise RefusedError(503, "inputs", f"no replica could answer ({last_line(error)}); ask again") from None
        if isinstance(answered, InputError):
            raise RefusedError.of_input(answered)
        return list(answered)

    return ask
