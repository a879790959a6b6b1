"""`runs show`: what is recorded of one run, the result and the way on first."""

from typing import TYPE_CHECKING, Any

import click

from orchestrator.cells import setting_cell
from orchestrator.cli.commands.registry_reading import find_run, open_registry
from orchestrator.cli.commands.run_annotating import marks_of, note_lines
from orchestrator.cli.commands.run_brief import brief_record, find_best_trial, next_commands, stage_lines
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.output import chosen_form, show_record, show_text, shows_briefly
from orchestrator.cli.reading import current_reading, output_options
from orchestrator.measurements import COLLAPSED
from orchestrator.reports.run_texts import attempt_line, data_line, make_lines

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.records import AttemptRecord, RunRecord


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator runs show 7f3a\norchestrator runs show my-sweep --all",
)
@click.argument("run_id", metavar="RUN")
@click.option("--all", "is_whole", is_flag=True, help="Show everything that is recorded, the whole spec included.")
@output_options
def show(run_id: str, is_whole: bool, form: str | None, output: str | None) -> None:
    """Show a run: what it is, its scores, its files, what to do next.

    RUN is a run's name (its newest run), its id, or its first characters, four at least. Of its spec the fields that
    differ from their defaults, as they are typed behind `run`; of a sweep its best trial. With --all, or as JSON or
    CSV, there is everything that is recorded: the machine, each attempt, every score; as JSON the counts of each file.
    """
    with open_registry() as registry:
        run = find_run(registry, run_id)
        if shows_briefly(form, output) and not is_whole and not current_reading().columns:
            show_record(brief_record(registry, run), form, output)
            show_text("next\n" + "".join(f"  {line}\n" for line in next_commands(registry, run)))
        else:
            show_record(_whole_record(registry, run, chosen_form(form, output)), form, output)


def _whole_record(registry: "Registry", run: "RunRecord", form: str) -> dict[str, Any]:
    """All that is recorded of a run."""
    from dataclasses import asdict

    from orchestrator.reports.run_differences import make_of

    record: dict[str, Any] = asdict(run)
    spec = record.pop("spec")
    record["tags"] = registry.tags(run.id)
    record["marks"] = marks_of(registry, run.id)
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
    record["models"] = [model.label for model in registry.models.left_by(run)]
    values = registry.metrics.latest(run.id)
    record |= {f"metrics.{name}": value for name, value in values.items()}
    if form == "table" and COLLAPSED in values:
        record[f"metrics.{COLLAPSED}"] = bool(values[COLLAPSED])
    record["test_refused"] = registry.test_refusals([run.id]).get(run.id)
    best = find_best_trial(registry, run)
    if best is not None:
        record |= {"trials": best.count_text, "best trial": best.name_text}
        record |= {"choice": best.choice} if best.choice else {}
        text_of = setting_cell if form == "table" else lambda value: value
        record |= {f"best {name}": text_of(value) for name, value in best.settings.items()}
    make = make_of(registry, run)
    if form == "table":
        record |= stage_lines(registry, run) | make_lines(make)
    record |= _whole_make(make)
    parameters = registry.parameters(run.id)
    if form == "json":
        record |= {"spec": spec, "parameters": parameters, "data": data, "starts": [asdict(one) for one in attempts]}
    else:
        record |= {f"attempt.{one.number}": attempt_line(one) for one in attempts}
        record |= {f"data.{number}": data_line(row) for number, row in enumerate(data, start=1)}
        record |= {f"params.{name}": value for name, value in parameters.items()}
    return record


def _whole_make(attempt: "AttemptRecord | None") -> dict[str, Any]:
    """All that is recorded of what an attempt was made with, but for the changes of its code themselves."""
    from orchestrator.registry.parameters import flatten

    if attempt is None or attempt.code is None:
        return {}
    machine = {f"made_with.{name}": value for name, value in flatten(attempt.environment or {}).items()}
    code = {f"made_with.code.{name}": value for name, value in attempt.code.items()}
    return {"made_with.command": attempt.command, "made_with.overrides": attempt.overrides, **code, **machine}
