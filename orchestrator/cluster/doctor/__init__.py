"""Doctor: what may be wrong with this machine (`this_machine`), and with each node of a cluster (`nodes` and below).

    examine(settings)           one finding per part of this machine; Ray is not started
    examine_nodes(settings)     what each node of the cluster at `settings.address` is like, and what is wrong there

`node_probe` is what runs on a node, `node_report` its answer, `node_survey` asks, `node_findings` judges.
"""

from orchestrator.cluster.doctor.finding import Finding, problem_of
from orchestrator.cluster.doctor.node_findings import ExaminedNode
from orchestrator.cluster.doctor.nodes import examine_nodes, has_nodes
from orchestrator.cluster.doctor.this_machine import examine

__all__ = ["ExaminedNode", "Finding", "examine", "examine_nodes", "has_nodes", "problem_of"]
