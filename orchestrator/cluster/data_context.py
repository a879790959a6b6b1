"""Ray Data as this project uses it: silent, within limits of its own, and without endless retries."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ray.data import DataContext, ExecutionResources
from ray.util.annotations import RayDeprecationWarning

from bert_core.errors import BertCoreError
from orchestrator.errors import OrchestratorError

MAX_RETRIES = 3
"""Times that a task which killed its worker is tried again; Ray Data's own default is for ever."""


def own_error(error: BaseException) -> OrchestratorError | BertCoreError | None:
    """The error of ours that a task raised and Ray wrapped, if there is one."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OrchestratorError | BertCoreError):
            return seen
        cause = getattr(seen, "cause", None)
        seen = cause if isinstance(cause, BaseException) else seen.__cause__
    return None


@contextmanager
def data_context(num_cpus: float, object_store_memory: float | None = None) -> Iterator[DataContext]:
    """Datasets that are made inside the block hold to these limits (CPUs, bytes), and to what is set on the context."""
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised; the rest is remarks
    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.raise_original_map_exception = True  # so that `own_error` finds it
    context.execution_options.resource_limits = ExecutionResources(
        cpu=num_cpus, object_store_memory=object_store_memory
    )
    with DataContext.current(context), warnings.catch_warnings():
        # `max_retries` is not a named parameter of map_batches yet.
        warnings.simplefilter("ignore", RayDeprecationWarning)
        yield context
