"""Lineage of a model, a run, a file or a tokenizer: drawn as lines, as a record, and as rows."""

from collections.abc import Iterator
from typing import Any

from orchestrator.cells import printable
from orchestrator.registry.lineage import LineageTree

_DIGEST_CHARS = 12


def lineage_lines(tree: LineageTree, first: str = "", others: str = "") -> Iterator[str]:
    """Lines of a tree right of two margins, each node with its kind, its part and, where it is stale, why."""
    node = tree.node
    digest = "" if node.kind in ("file", "export") else f" {node.digest[:_DIGEST_CHARS]}"
    role = f"{tree.role}: " if tree.role else ""
    repeated = " (as above)" if tree.is_repeated else ""
    stale = f"  STALE: {tree.stale}" if tree.stale else ""
    yield first + printable(f"{role}{node.kind} {node.name}{digest}{repeated}{stale}", keep_lines=False)
    for branch in tree.branches[:-1]:
        yield from lineage_lines(branch, f"{others}├── ", f"{others}│   ")
    for last in tree.branches[-1:]:
        yield from lineage_lines(last, f"{others}└── ", f"{others}    ")


def lineage_record(tree: LineageTree) -> dict[str, Any]:
    """A node with its branches in it."""
    return {**_fields(tree), "branches": [lineage_record(branch) for branch in tree.branches]}


def lineage_rows(tree: LineageTree, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield a row for each node, its depth beside it, before those of its branches."""
    yield {**_fields(tree), "depth": depth}
    for branch in tree.branches:
        yield from lineage_rows(branch, depth + 1)


def _fields(tree: LineageTree) -> dict[str, Any]:
    node = tree.node
    named = {"kind": node.kind, "name": node.name, "digest": node.digest}
    return named | {"role": tree.role, "run": tree.run_id, "stale": tree.stale}
