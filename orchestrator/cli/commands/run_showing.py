"""`runs show`: what is recorded of one run, the result and the way on first."""

from typing import TYPE_CHECKING, Any

import click

from orchestrator.cells import setting_cell
from orchestrator.cli.commands.costing import recorded_cost
from orchestrator.cli.commands.next_steps import model_commands
from orchestrator.cli.commands.registry_reading import find_run, open_registry
from orchestrator.cli.commands.run_annotating import note_lines
from orchestrator.cli.frame import AtDashboard, GlobalOptionsCommand, current_settings, given_options, resume_command
from orchestrator.cli.output import chosen_form, show_record, show_text, shows_briefly
from orchestrator.cli.reading import current_reading, output_options
from orchestrator.reports.make_facts import make_lines, whole_make
from orchestrator.reports.run_facts import (
    BEST,
    attempt_line,
    best_trial,
    changed_fields,
    data_line,
    score_lines,
    stage_line,
)
from orchestrator.results import COLLAPSED
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.records import RunRecord


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator runs show 7f3a\norchestrator runs show my-sweep --all",
    at_dashboard=AtDashboard.SENT,
)
@click.argument("run_id", metavar="RUN")
@click.option("--all", "is_whole", is_flag=True, help="Show everything that is recorded, the whole spec included.")
@output_options
def show(run_id: str, is_whole: bool, form: str | None, output: str | None) -> None:
    """Show a run: its result, its files, what to do next.

    RUN is an id or the beginning of one, or a run's name: of several runs the newest.
    Of its spec the fields that differ from their defaults; of a sweep the scores and settings of its best trial. With
    --all, or as JSON or CSV, there is everything that is recorded; as JSON also the counts of each file.
    """
    with open_registry() as registry:
        run = find_run(registry, run_id)
        if shows_briefly(form, output) and not is_whole and not current_reading().columns:
            show_record(_brief_record(registry, run), form, output)
            show_text("next\n" + "".join(f"  {line}\n" for line in _next_commands(registry, run)))
        else:
            show_record(_whole_record(registry, run, chosen_form(form, output)), form, output)


def _brief_record(registry: "Registry", run: "RunRecord") -> dict[str, Any]:
    """Fields of a run that matter most, in the order of reading."""
    from orchestrator.progress import duration
    from orchestrator.registry.run_differences import make_of

    values = registry.metrics.latest(run.id)
    stages = registry.stages(run.id) if run.kind == "pipeline" else []
    step = registry.metrics.last_step(run.id)
    checkpoints = registry.checkpoints.of_run(run.id)
    took = None if run.seconds is None else duration(run.seconds)
    cost = recorded_cost(registry, run, current_settings().home)
    record: dict[str, Any] = {
        "run": f"{run.id} {run.name}",
        "kind": run.kind,
        "state": run.state,
        "error": run.error,
        "task": run.task,
        "tags": registry.tags(run.id),
        "marks": registry.annotations.flags(run.id),
        **note_lines(registry, run.id),
        "created": run.created_at,
        "took": took,
        "host": None if run.parent_id is None else run.host,
        "cost": None if cost is None else cost.removeprefix(f"{took}; "),
        "step": None if step is None else f"{step:,}",
    }
    record |= score_lines(values, run.metric)
    record |= _best_trial_texts(registry, run)
    if run.kind == "pipeline":
        record |= {f"stage {stage.name.rpartition('/')[2]}": stage_line(registry, stage) for stage in reversed(stages)}
    else:
        record |= {f"spec.{path}": value for path, value in changed_fields(run).items()}
    record |= {f"data.{n}": data_line(row) for n, row in enumerate(registry.datasets.table(run.id).records, 1)}
    record |= {f"attempt.{one.number}": attempt_line(one) for one in registry.attempts(run.id)}
    record |= make_lines(make_of(registry, run))
    record |= {
        "folder": run.storage_path,
        "last checkpoint": checkpoints[-1].path if checkpoints else None,
        "model": run.model_folder,
        "registered as": [model.label for model in registry.models.of_run(run.id)],
        "predictions": run.predictions_path,
    }
    return record


def _best_trial_texts(registry: "Registry", run: "RunRecord") -> dict[str, Any]:
    """The best trial of a sweep, its settings as texts with all their digits."""
    return {
        name: setting_cell(value) if name.startswith(BEST) else value
        for name, value in best_trial(registry, run).items()
    }


def _next_commands(registry: "Registry", run: "RunRecord") -> list[str]:
    """Commands that go on from a run, ready to be pasted."""
    own = f"orchestrator{given_options()}"
    commands = model_commands(run, registry)
    if run.state in (RunState.FAILED, RunState.STOPPED) and run.parent_id is None:
        commands.append(resume_command(run.id))
    if run.kind == "sweep":
        commands.append(f"{own} runs trials {run.id}")
    if _can_be_drawn(registry, run):
        commands.append(f"{own} runs plot {run.id} -o {run.id}.png")
    return [*commands, f"{own} runs show {run.id} --all"]


def _can_be_drawn(registry: "Registry", run: "RunRecord") -> bool:
    """Whether `runs plot` has something to draw: measurements over steps, of a sweep those of its trials that rank."""
    trials = registry.trials.table(run.id).records
    if not trials:
        return registry.metrics.last_step(run.id) is not None
    return any(registry.metrics.history_table(trial["id"], f"validation.{run.metric}").records for trial in trials)


def _whole_record(registry: "Registry", run: "RunRecord", form: str) -> dict[str, Any]:
    """All that is recorded of a run."""
    from dataclasses import asdict

    from orchestrator.registry.run_differences import make_of

    record: dict[str, Any] = asdict(run)
    spec = record.pop("spec")
    record["tags"] = registry.tags(run.id)
    record["marks"] = registry.annotations.flags(run.id)
    if form == "table":
        record |= note_lines(registry, run.id)
    else:
        record["notes"] = [asdict(one) for one in registry.annotations.notes(run.id)]
    attempts = registry.attempts(run.id)
    record["attempts"] = len(attempts)
    record["last_step"] = registry.metrics.last_step(run.id)
    checkpoints = registry.checkpoints.of_run(run.id)
    record["last_checkpoint"] = checkpoints[-1].path if checkpoints else None
    data = registry.datasets.table(run.id).records
    record["models"] = [model.label for model in registry.models.of_run(run.id)]
    values = registry.metrics.latest(run.id)
    record |= {f"metrics.{name}": value for name, value in values.items()}
    if form == "table" and COLLAPSED in values:
        record[f"metrics.{COLLAPSED}"] = bool(values[COLLAPSED])
    record |= _best_trial_texts(registry, run) if form == "table" else best_trial(registry, run)
    record |= whole_make(make_of(registry, run))
    parameters = registry.parameters(run.id)
    if form == "json":
        record |= {"spec": spec, "parameters": parameters, "data": data, "starts": [asdict(one) for one in attempts]}
    else:
        record |= {f"attempt.{one.number}": attempt_line(one) for one in attempts}
        record |= {f"data.{number}": data_line(row) for number, row in enumerate(data, start=1)}
        record |= {f"params.{name}": value for name, value in parameters.items()}
    return record
