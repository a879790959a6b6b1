"""Command `doctor`: checks of this machine, and of each node of a cluster."""

from dataclasses import asdict
from typing import Any

import click

from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import say_now
from orchestrator.cli.output import chosen_form, show_rows, show_text
from orchestrator.cli.reading import reading_options


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator doctor\norchestrator doctor --address 10.0.0.1:6379 --storage /srv/lab",
)
@reading_options
def doctor(form: str | None, output: str | None) -> int:
    """Check this machine and, with --address, a cluster's nodes.

    A cluster is named by --address HOST:6379, or by its dashboard's address, whose head then is `this machine`.
    Each problem comes with its remedy; the exit status is 1 when there is one. A node's row shows what is free of what
    it has; -f json has all that was found.
    """
    say_now("looking at this machine")
    from orchestrator.cluster.connection import is_dashboard, names_no_cluster
    from orchestrator.cluster.doctor import examine, problem_of
    from orchestrator.errors import ClusterError

    settings, nodes = current_settings(), list[dict[str, Any]]()
    findings = list(examine(settings))
    listens = findings[-1].state == "ok" and not names_no_cluster(settings)
    if listens and not is_dashboard(str(settings.address)):
        from orchestrator.cluster.doctor import survey_nodes

        say_now("looking at each node of the cluster")
        try:
            nodes, wrong = survey_nodes(settings)
            findings += wrong
        except ClusterError as error:
            findings.append(problem_of("nodes", error, "see `ray status`"))
    rows: list[dict[str, Any]] = [asdict(finding) for finding in findings]
    if chosen_form(form, output) == "json":
        rows += [{"part": f"node {node['node']}", "state": "ok", "found": node} for node in nodes]
    show_rows(rows, ["part", "state", "found", "remedy"], form, output)
    if nodes and chosen_form(form, output) == "table" and output is None:
        show_text("\nnodes: free of what each has")
        show_rows(nodes, ["node", "cpu", "gpu", "memory", "disk"], form, output)
    return 1 if any(finding.state == "problem" for finding in findings) else 0
