"""Command `doctor`: checks of this machine, and of each node of a cluster."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import say_now, status_line
from orchestrator.cli.output import chosen_form, show_rows, show_text
from orchestrator.cli.reading import reading_options

if TYPE_CHECKING:
    from orchestrator.cluster.doctor import ExaminedNode, Finding

_EXAMPLE = """orchestrator doctor
orchestrator doctor --address 10.0.0.1:6379 --storage /srv/lab"""
_COLUMNS = ["part", "state", "found", "remedy"]
_NODE_COLUMNS = ["node", "state", "cpu", "gpu", "memory", "disk", "clock", "MB/s", "gloo"]


@click.command(cls=GlobalOptionsCommand, example=_EXAMPLE)
@reading_options
def doctor(form: str | None, output: str | None) -> int:
    """Check this machine and, with --address, a cluster's nodes.

    A cluster is named by --address HOST:6379, or by its dashboard's address, whose head then is `this machine`.
    Each problem comes with its remedy; the exit status is 1 when there is one. A node's row shows what is free of what
    it has, the time by which its clock is ahead, the speed of a transfer from this node, and the interface by which
    workers there would be reached; -f json has all that was found.
    """
    say_now("looking at this machine")
    from orchestrator.cluster.doctor import examine, has_nodes

    settings = current_settings()
    findings, nodes = list(examine(settings)), []
    listens = any(finding.part == "cluster" and finding.state == "ok" for finding in findings)
    if listens and has_nodes(settings):
        nodes = _examine_nodes(findings)
    show_examination(findings, nodes, form, output)
    states = [finding.state for finding in findings] + [node.state for node in nodes]
    return 1 if "problem" in states else 0


def _examine_nodes(findings: "list[Finding]") -> "list[ExaminedNode]":
    """Examine the cluster's nodes; where that is impossible, the reason joins the findings."""
    from orchestrator.cluster.doctor import examine_nodes, problem_of
    from orchestrator.errors import ClusterError

    try:
        with status_line() as status:
            status("looking at each node of the cluster …")
            return examine_nodes(current_settings())
    except ClusterError as error:
        findings.append(problem_of("nodes", error))
        return []


def show_examination(
    findings: "Sequence[Finding]", nodes: "Sequence[ExaminedNode]", form: str | None, output: str | None
) -> None:
    """Show findings on this machine, and a row for each node with its problems below.

    In a file, as CSV and as JSON, nodes are rows like the others; JSON has all that is known of a node besides.
    """
    rows: list[dict[str, Any]] = [asdict(finding) for finding in findings]
    if chosen_form(form, output) != "table" or output is not None:
        rows += [_finding_row(node) for node in nodes]
        columns = [*_COLUMNS, "details"] if nodes and chosen_form(form, output) == "json" else _COLUMNS
        show_rows(rows, columns, form, output)
        return
    show_rows(rows, _COLUMNS, form, output)
    if nodes:
        show_text("\nnodes: free of what each has; nodes need no way to the registry, which this process alone writes")
        show_rows([node_row(node) for node in nodes], _NODE_COLUMNS, form, output)
        show_text("".join(f"{line}\n" for line in problem_lines(nodes)))


def problem_lines(nodes: "Sequence[ExaminedNode]") -> list[str]:
    """One line for each problem of nodes, with its remedy; what several nodes have in common is said once."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for finding in (finding for node in nodes for finding in node.findings):
        places.setdefault((finding.state, finding.found, finding.remedy), []).append(finding.part)
    return [f"{state}: {', '.join(parts)}: {found}; {remedy}" for (state, found, remedy), parts in places.items()]


def node_row(node: "ExaminedNode") -> dict[str, str | None]:
    """Cells of a node: short enough for a row of 80 characters."""
    view, report, measured = node.view, node.view.report, node.view.measured
    row: dict[str, str | None] = {
        "node": view.address,
        "state": "silent" if report is None else node.state,
        "cpu": _share(view.free.get("CPU", 0.0), view.total.get("CPU", 0.0)),
        "gpu": _share(view.free.get("GPU", 0.0), view.total.get("GPU", 0.0)),
    }
    if report is not None:
        row["memory"] = f"{_share(_gib(report.free_memory_bytes), _gib(report.memory_bytes))}G"
        row["disk"] = f"{_gib(report.free_disk_bytes)}G"
        row["gloo"] = report.gloo_interface
    if measured is not None:
        row["clock"] = _clock(measured.clock_s)
        row["MB/s"] = None if measured.bytes_per_s is None else f"{measured.bytes_per_s / 1e6:,.0f}"
    return row


def _finding_row(node: "ExaminedNode") -> dict[str, Any]:
    """Row of a node among the findings: all that is wrong with it, or how it stands."""
    cells = node_row(node)
    standing = ", ".join(f"{name} {cells[name]}" for name in _NODE_COLUMNS[2:] if cells.get(name))
    return {
        "part": f"node {node.view.address}",
        "state": node.state,
        "found": "; ".join(finding.found for finding in node.findings) or standing,
        "remedy": "; ".join(finding.remedy for finding in node.findings),
        "details": asdict(node),
    }


def _share(free: float, total: float) -> str:
    return f"{free:g}/{total:g}"


def _gib(num_bytes: float) -> int:
    return round(num_bytes / (1 << 30))


def _clock(ahead_s: float) -> str:
    return f"{ahead_s:+.1f} s" if abs(ahead_s) >= 1 else f"{1000 * ahead_s:+.0f} ms"
