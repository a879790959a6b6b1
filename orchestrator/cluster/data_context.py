"""Ray Data's settings for this project: no output of its own, limits on CPUs and memory, no endless retries."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ray.data import DataContext, ExecutionResources
from ray.util.annotations import RayDeprecationWarning

MAX_RETRIES = 3
"""Number of times that a task is tried again after its worker died; Ray Data would try without end."""


@contextmanager
def data_context(num_cpus: float, object_store_memory: float | None = None) -> Iterator[DataContext]:
    """Limit the datasets that are made inside the block.

    Args:
        num_cpus: logical CPUs that their tasks may use at once.
        object_store_memory: bytes that their blocks may take in Ray's object store; no limit when None.

    Yields the context, on which more can be set.
    """
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised too; the rest is Ray's own business
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
