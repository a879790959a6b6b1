"""Lineage of a model as a drawing: from files of text on the left to the model on the right."""

from orchestrator.cells import short_value
from orchestrator.registry.lineage.lineage_edges import LineageNode
from orchestrator.registry.lineage.lineage_trees import LineageTree
from orchestrator.reports.blocks import Chart, Table

_LONGEST_NAME = 40


def lineage_chart(tree: LineageTree) -> Chart:
    """Draw a tree of ancestors; a band's label is the part that it had in making the next."""
    nodes: dict[str, LineageNode] = {}
    links: list[tuple[str, str, str]] = []
    _collect(tree, nodes, links)
    places = {digest: place for place, digest in enumerate(nodes)}
    trace = {
        "type": "sankey",
        "node": {
            "label": [f"{node.kind} {short_value(node.name, _LONGEST_NAME)}" for node in nodes.values()],
            "pad": 24,
            "thickness": 14,
            "hovertemplate": "%{label}<extra></extra>",
        },
        "link": {
            "source": [places[parent] for parent, _, _ in links],
            "target": [places[child] for _, child, _ in links],
            "value": [1] * len(links),
            "label": [role for _, _, role in links],
            "color": "rgba(120, 140, 170, 0.35)",
            "hovertemplate": "%{label}<extra></extra>",
        },
    }
    rows = [
        {
            "what": f"{nodes[parent].kind} {nodes[parent].name}",
            "was": role,
            "of": f"{nodes[child].kind} {nodes[child].name}",
            "digest": parent[:12],
        }
        for parent, child, role in links
    ]
    table = Table(("what", "was", "of", "digest"), rows)
    return Chart("What it was made of", [trace] if links else [], {}, 140 + 40 * len(nodes), table=table)


def _collect(tree: LineageTree, nodes: dict[str, LineageNode], links: list[tuple[str, str, str]]) -> None:
    """Gather the nodes of a tree by digest, and each link from a parent to its child once."""
    nodes.setdefault(tree.node.digest, tree.node)
    for branch in tree.branches:
        link = (branch.node.digest, tree.node.digest, branch.role or "")
        if link not in links:
            links.append(link)
        _collect(branch, nodes, links)
