"""Nodes of the cluster that the settings name: each looked at and judged."""

from orchestrator.cluster.addresses import is_dashboard, names_no_cluster
from orchestrator.cluster.connection import connect
from orchestrator.cluster.doctor.node_findings import ExaminedNode, judge
from orchestrator.cluster.doctor.node_probe import versions
from orchestrator.cluster.doctor.node_report import Versions
from orchestrator.settings import Settings


def has_nodes(settings: Settings) -> bool:
    """Whether the settings name a cluster on which a driver can run: its head's address, not its dashboard's."""
    return not names_no_cluster(settings) and not is_dashboard(str(settings.address))


def examine_nodes(settings: Settings, timeout_s: float | None = None) -> list[ExaminedNode]:
    """Look at each living node of the cluster at `settings.address`, the driver's own first.

    Args:
        timeout_s: time within which a node must answer.

    Raises: ClusterError where the cluster cannot be reached or refuses.
    """
    with connect(settings):
        from orchestrator.cluster.doctor.node_survey import NODE_TIMEOUT_S, survey

        views = survey(settings.storage, timeout_s or NODE_TIMEOUT_S)
    return judge(views, Versions(**versions()), settings.storage)
