"""Command `submit`, which carries a run out as a job on a cluster."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from orchestrator.cli.frame import (
    GlobalOptionsCommand,
    current_settings,
    given_options,
    name_option,
    overrides_argument,
)
from orchestrator.cli.messages import notify, say_now, write_message
from orchestrator.cli.output import show_text
from orchestrator.cluster.connection import dashboard_address
from orchestrator.errors import ClusterError
from orchestrator.progress import reader_may_leave
from orchestrator.run_ids import new_run_id
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.execution.jobs import SubmittedJob


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator submit pretrain.yaml --address http://127.0.0.1:8265\n"
    "orchestrator submit --resume 7f3a --address http://127.0.0.1:8265",
)
@click.argument("spec_path", metavar="[SPEC.yaml]", required=False)
@overrides_argument
@click.option("--resume", "resumed", metavar="RUN", help="Resume this run instead of starting a spec.")
@click.option("--allow-drift", is_flag=True, help="With --resume: ignore changed data, models or versions.")
@name_option
@click.option("--no-wait", is_flag=True, help="Return when the job is accepted; do not follow its log.")
def submit(
    spec_path: str | None,
    overrides: tuple[str, ...],
    resumed: str | None,
    allow_drift: bool,
    name: str | None,
    no_wait: bool,
) -> int:
    """Submit a spec as a Ray job on a cluster.

    --address (or RAY_API_SERVER_ADDRESS) is the URL of the cluster's dashboard. The head node checks models, files and
    free resources first; a spec that cannot run is not submitted. The run's id, which is the job's id, goes to stdout;
    then the log is followed. Ctrl-C stops following, not the run.
    """
    if resumed is None and spec_path is None:
        raise click.UsageError("give a SPEC.yaml, or --resume RUN")
    if resumed is None and allow_drift:
        raise click.UsageError("--allow-drift goes with --resume RUN")
    say_now(f"reading the spec {spec_path}" if resumed is None else f"looking up run {resumed} on the cluster")
    job: SubmittedJob | None
    if resumed is None:
        assert spec_path is not None
        job = _submit_spec(spec_path, overrides, name)
    else:  # there is no spec, so that the first word is the first override
        job = _submit_resume(resumed, [word for word in (spec_path, *overrides) if word], allow_drift)
    if job is None:
        return 0
    notify(f"submitted to {job.address} as job {job.id}")
    with reader_may_leave(sys.stdout):
        show_text(job.run_id)
        sys.stdout.flush()
    if no_wait:
        notify(_how_to_go_on(job.run_id))
        return 0
    return _follow(job)


def _submit_spec(spec_path: str, overrides: tuple[str, ...], name: str | None) -> "SubmittedJob":
    from orchestrator.execution.jobs import SPEC_FILE, spec_files, submit_run
    from orchestrator.specs.loading import load_spec

    spec = load_spec(spec_path, overrides)
    spec = spec.model_copy(update={"name": name}) if name else spec
    settings = current_settings()
    address = dashboard_address(settings)
    _check(["plan", SPEC_FILE], settings, address, spec_files(spec))
    return submit_run(spec, new_run_id(), settings, address)


def _submit_resume(run_id: str, overrides: Sequence[str], allow_drift: bool) -> "SubmittedJob | None":
    """Submit another attempt at a run; None where it has completed, which the head has said."""
    from orchestrator.execution.jobs import submit_resume
    from orchestrator.run_states import RunState

    settings = current_settings()
    address = dashboard_address(settings)
    options = ["--check", *(["--allow-drift"] if allow_drift else [])]
    run = json.loads(_check(["resume", *options, "--", run_id, *overrides], settings, address))
    if run["state"] == RunState.COMPLETED:
        return None
    run_metadata = {"job_name": run["name"], "kind": run["kind"]}
    return submit_resume(run["id"], overrides, run_metadata, allow_drift, settings, address)


def _check(words: Sequence[str], settings: Settings, address: str, files: Mapping[str, bytes] | None = None) -> bytes:
    """Have the head check what is to be submitted; returns what it printed, or ends here with its status."""
    from orchestrator.execution.head_commands import ask_head

    say_now(f"checking it on the head of the cluster at {address}")
    answer = ask_head(words, settings, address, files=files)
    with reader_may_leave(sys.stderr):
        click.echo(answer.err, nl=False, err=True)
    if answer.status:
        notify("nothing was submitted")
        click.get_current_context().exit(answer.status)
    return answer.out


def _follow(job: "SubmittedJob") -> int:
    """Follow the log of a run's job; returns the exit status of the run."""
    from orchestrator.execution.jobs import exit_status, follow

    try:
        details = follow(job, write_message)
    except KeyboardInterrupt:
        notify(f"the run goes on, and is no longer followed from here\n{_how_to_go_on(job.run_id)}")
        raise
    except ClusterError:
        notify(f"the run may go on, and is no longer followed from here\n{_how_to_go_on(job.run_id)}")
        raise
    return exit_status(details, job.id)


def _how_to_go_on(run_id: str) -> str:
    orchestrator = f"orchestrator{given_options()}"
    return f"follow it:  {orchestrator} runs logs --follow {run_id}\nstop it:    {orchestrator} stop {run_id}"
