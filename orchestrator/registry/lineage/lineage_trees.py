"""Trees of lineage: what something was made of, or what was made of it, each with whether it is stale."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.registry.lineage.lineage_edges import LineageEdge, LineageNode

_ORDER = ("text", "examples", "tokenizer", "weights", "teacher", "copy")


@dataclass(frozen=True)
class LineageTree:
    """A node and the branches below it: its parents in a tree of ancestors, its children in one of descendants."""

    node: LineageNode
    role: str | None = None
    """Part that the parent of the two had in making the child, on the branch that leads here; None at the root."""
    run_id: str | None = None
    """Run that made the child of that branch."""
    stale: str | None = None
    """Reason why the node is stale; None where all that it was made of is still the newest."""
    branches: tuple["LineageTree", ...] = ()
    is_repeated: bool = False
    """Whether the node stands elsewhere in the tree already, with its branches."""


def grow(root: LineageNode, edges: Sequence[LineageEdge], stale: Mapping[str, str], *, downward: bool) -> LineageTree:
    """Make the tree of a node from edges.

    Args:
        stale: why nodes are stale, by their digests.
        downward: from parents to children, or from children to parents.
    """
    by_end: defaultdict[str, list[LineageEdge]] = defaultdict(list)
    for edge in edges:
        by_end[(edge.parent if downward else edge.child).digest].append(edge)
    drawn: set[str] = set()

    def branch(node: LineageNode, via: LineageEdge | None) -> LineageTree:
        is_repeated = node.digest in drawn and bool(by_end[node.digest])
        drawn.add(node.digest)
        below = [] if is_repeated else sorted(by_end[node.digest], key=_place)
        branches = tuple(branch(edge.child if downward else edge.parent, edge) for edge in below)
        role, run_id = (None, None) if via is None else (via.role, via.run_id)
        return LineageTree(node, role, run_id, stale.get(node.digest), branches, is_repeated)

    return branch(root, None)


def _place(edge: LineageEdge) -> tuple[int, str, str]:
    """Key by which branches are ordered: the data first."""
    known = edge.role in _ORDER
    return _ORDER.index(edge.role) if known else len(_ORDER), edge.parent.name, edge.child.name
