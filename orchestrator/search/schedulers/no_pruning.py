"""No pruning: every trial runs to its own end."""

from orchestrator.search.schedulers.base import Scheduler


class NoPruning(Scheduler):
    """Trials run in order, first in, first out, and none is ended early."""

    spec_fields = ()
