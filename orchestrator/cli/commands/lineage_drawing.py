"""`models lineage` and `models descendants`: what something was made of, and what was made of it, as a tree."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cells import printable
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.messages import notify
from orchestrator.cli.output import chosen_form, show_record, show_rows, show_text
from orchestrator.cli.reading import output_options

if TYPE_CHECKING:
    from orchestrator.registry.lineage import LineageTree

_DIGEST_CHARS = 12
_COLUMNS = ["depth", "kind", "name", "digest", "role", "run", "stale"]


@click.command(
    "lineage",
    cls=GlobalOptionsCommand,
    example="orchestrator models lineage reviews/finetuning",
)
@click.argument("model", metavar="MODEL")
@output_options
def lineage(model: str, form: str | None, output: str | None) -> None:
    """Draw what a model was made of, down to the files of its text.

    MODEL is a name, name@version, a run, a folder that was exported to, or the beginning of a digest. What was made of
    something that has changed since, or that a newer one has superseded, is marked as stale.
    """
    _show(model, form, output, descends=False)


@click.command(
    "descendants",
    cls=GlobalOptionsCommand,
    example="orchestrator models descendants data/text.txt",
)
@click.argument("name", metavar="MODEL")
@output_options
def descendants(name: str, form: str | None, output: str | None) -> None:
    """Draw what was made of a model, a file or a tokenizer.

    MODEL is a name, a run, a path, or the beginning of a digest. What is stale is marked: it was made before its origin
    changed, or a newer one superseded that.
    """
    _show(name, form, output, descends=True)


def _show(name: str, form: str | None, output: str | None, *, descends: bool) -> None:
    from orchestrator.cli.commands.registry_reading import open_registry

    with open_registry() as registry:
        tree = registry.lineage.descendants(name) if descends else registry.lineage.ancestors(name)
    form = chosen_form(form, output)
    if form == "json":
        show_record(_as_record(tree), form, output)
    elif form == "csv":
        show_rows(list(_rows(tree, 0)), _COLUMNS, form, output)
    else:
        show_text("".join(f"{line}\n" for line in tree_lines(tree)), output)
        if not tree.branches:
            notify("nothing was made of it" if descends else "what it was made of is not recorded")


def tree_lines(tree: "LineageTree") -> list[str]:
    """Lines of a tree, each node with its kind, its part and, where it is stale, why."""
    return [_text(tree), *_branch_lines(tree, "")]


def _branch_lines(tree: "LineageTree", indent: str) -> Iterator[str]:
    for number, branch in enumerate(tree.branches, start=1):
        is_last = number == len(tree.branches)
        yield f"{indent}{'└── ' if is_last else '├── '}{_text(branch)}"
        yield from _branch_lines(branch, indent + ("    " if is_last else "│   "))


def _text(tree: "LineageTree") -> str:
    node = tree.node
    digest = "" if node.kind in ("file", "export") else f" {node.digest[:_DIGEST_CHARS]}"
    role = f"{tree.role}: " if tree.role else ""
    repeated = " (as above)" if tree.is_repeated else ""
    stale = f"  STALE: {tree.stale}" if tree.stale else ""
    return printable(f"{role}{node.kind} {node.name}{digest}{repeated}{stale}", keep_lines=False)


def _as_record(tree: "LineageTree") -> dict[str, Any]:
    return {
        "kind": tree.node.kind,
        "name": tree.node.name,
        "digest": tree.node.digest,
        "role": tree.role,
        "run": tree.run_id,
        "stale": tree.stale,
        "branches": [_as_record(branch) for branch in tree.branches],
    }


def _rows(tree: "LineageTree", depth: int) -> Iterator[dict[str, Any]]:
    record = _as_record(tree)
    yield {**record, "depth": depth}
    for branch in tree.branches:
        yield from _rows(branch, depth + 1)
