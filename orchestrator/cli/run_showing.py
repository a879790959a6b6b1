"""`runs show` and `runs reproduce`: what is recorded of one run, the result and the next commands first.

The brief of a run fits a screen of 80 columns; the rest is `runs show --all`.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cells import cell, printable, setting_cell
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings, given_options, resume_command
from orchestrator.cli.messages import say_now
from orchestrator.cli.output import chosen_form, show_record, show_text, shows_briefly
from orchestrator.cli.reading import current_reading, format_options, output_option, output_options
from orchestrator.cli.registry_reading import find_run, marks_of, note_lines, open_registry
from orchestrator.cli.reporting import recorded_cost
from orchestrator.cli.running import model_commands
from orchestrator.measurements import COLLAPSED, is_of_the_machine
from orchestrator.reports.run_texts import attempt_line, changed_spec, code_line, data_line, make_lines, score_lines
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.records import AttemptRecord, RunRecord


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator runs show 7f3a\norchestrator runs show my-sweep --all",
)
@click.argument("run_id", metavar="RUN")
@click.option("--all", "is_whole", is_flag=True, help="Everything recorded, with the whole spec.")
@output_options
def show(run_id: str, is_whole: bool, form: str | None, output: str | None) -> None:
    """Show a run: state, scores, files, next commands.

    Spec fields that differ from their defaults are shown as KEY=VALUE; a sweep also shows its best trial. --all, JSON
    and CSV have everything recorded: machine, attempts, every score; JSON also the counts of each data file.
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


_MOST_SCORES, _MOST_STAGES = 6, 12
_TRAINING = "train."


@dataclass(frozen=True)
class BestTrial:
    """The trial of a sweep with the best score."""

    name_text: str
    """Id, number and seed."""
    count_text: str
    """Number of trials, and of those with a score."""
    choice: str
    """Words on what its score was chosen from; empty for a single trial."""
    settings: Mapping[str, Any]
    """Values of the fields in which trials differ, by path."""


def brief_record(registry: "Registry", run: "RunRecord") -> dict[str, Any]:
    """Fields of a run that matter most, in the order of reading."""
    return {
        **_identity(registry, run),
        **_scores(registry, run),
        **(_stages(registry, run) if run.kind == "pipeline" else _changes(_changed_fields(run))),
        **_sources(registry, run),
        **_files(registry, run),
    }


def next_commands(registry: "Registry", run: "RunRecord") -> list[str]:
    """Commands that go on from a run, ready to be pasted."""
    own = f"orchestrator{given_options()}"
    commands = model_commands(run, registry)
    if run.state in (RunState.FAILED, RunState.STOPPED) and run.parent_id is None:
        commands.append(resume_command(run.id))
        commands.append(f"{own} runs logs {run.id}")
    if run.kind == "sweep":
        commands.append(f"{own} runs trials {run.id}")
    if _can_be_drawn(registry, run):
        commands.append(f"{own} runs plot {run.id} -o {run.id}.png")
    return [*commands, f"{own} runs show {run.id} --all"]


def stage_lines(registry: "Registry", run: "RunRecord") -> dict[str, str]:
    """A line on each stage of a pipeline, by its name; none of any other run."""
    lines = {}
    for stage in reversed(registry.stages(run.id)) if run.kind == "pipeline" else ():
        score = registry.metrics.latest(stage.id).get(str(stage.metric))
        scored = "" if score is None else f", {stage.metric} {cell(score)}"
        lines[f"stage {stage.name.rpartition('/')[2]}"] = f"{stage.id} {stage.kind} {stage.state}{scored}"
    return lines


def _identity(registry: "Registry", run: "RunRecord") -> dict[str, Any]:
    """Identity of a run, its outcome, and the notes of people on it."""
    from orchestrator.progress import duration
    from orchestrator.registry.tables import is_internal

    took = None if run.seconds is None else duration(run.seconds)
    return {
        "run": f"{run.id} {run.name}",
        "kind": run.kind,
        "state": run.state,
        "error": run.error,
        "task": run.task,
        "tags": [tag for tag in registry.tags(run.id) if not is_internal(tag)],
        "marks": marks_of(registry, run.id),
        **note_lines(registry, run.id),
        "created": run.created_at,
        "took": took,
        "host": None if run.parent_id is None else run.host,
        "cost": recorded_cost(registry, run, current_settings().home),
        **_attempts(registry.attempts(run.id)),
    }


def _attempts(attempts: "list[AttemptRecord]") -> dict[str, str]:
    """Starts of a run, unless there is nothing to tell: one that completed, with workers on one host."""
    hosts = {host for one in attempts for group in one.workers or () for host in group["hosts"]}
    if len(attempts) == 1 and attempts[0].state == RunState.COMPLETED and len(hosts) < 2:
        return {}
    return {f"attempt.{one.number}": attempt_line(one) for one in attempts}


def _scores(registry: "Registry", run: "RunRecord") -> dict[str, Any]:
    """The scores on held-out data, each with its baseline; of a run without any what it has measured in training."""
    values = registry.metrics.latest(run.id)
    held_out = {name: value for name, value in values.items() if not name.startswith(_TRAINING)}
    shown = {name: value for name, value in (held_out or values).items() if not is_of_the_machine(name)}
    best = find_best_trial(registry, run)
    refusal = registry.test_refusals([run.id]).get(run.id)
    lines = score_lines(shown, run.metric, refusal, "" if best is None else best.choice)
    more = len(lines) - _MOST_SCORES
    step = registry.metrics.last_step(run.id)
    return {
        "step": f"{step:,}" if step else None,
        **dict(islice(lines.items(), _MOST_SCORES)),
        "more scores": f"{more}: --all" if more > 0 else None,
        **({} if best is None else _best_lines(best)),
    }


def _best_lines(best: BestTrial) -> dict[str, str]:
    """Number of trials of a sweep, and its best one with the settings that set it apart."""
    settings = f": {_words(best.settings)}" if best.settings else ""
    return {"trials": best.count_text, "best trial": best.name_text + settings}


def _stages(registry: "Registry", run: "RunRecord") -> dict[str, str]:
    """The stages of a pipeline; of many those that have not completed, and the newest."""
    lines = stage_lines(registry, run)
    more = len(lines) - _MOST_STAGES
    if more <= 0:
        return lines
    done = [name for name, line in lines.items() if f" {RunState.COMPLETED}" in line]
    left_out = set(done[: more + 1])
    shown = {name: line for name, line in lines.items() if name not in left_out}
    return {"stages": f"{len(lines)}, of which {len(left_out)} are not here, all of them completed: --all", **shown}


def _changes(changed: Mapping[str, Any]) -> dict[str, str]:
    """The settings that differ from their defaults, a line for each section, as they are typed on a command line."""
    sections: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, value in changed.items():
        section, _, name = path.partition(".")
        sections[f"spec.{section}" if name else "spec"][name or path] = value
    return {section: _words(values) for section, values in sections.items()}


def _changed_fields(run: "RunRecord") -> dict[str, Any]:
    """Fields of a spec that differ from their defaults, by dotted path, without kind, name and tags."""
    from orchestrator.registry.parameters import flatten

    return {path: value for path, value in flatten(changed_spec(run)).items() if path not in ("kind", "name", "tags")}


def _words(settings: Mapping[str, Any]) -> str:
    """Settings as words `KEY=VALUE`; lists have no blanks, at which a line would break."""
    return " ".join(f"{name}={_typed(value)}" for name, value in settings.items())


def _typed(value: Any) -> str:
    """Text of a setting as it is typed."""
    return f"[{','.join(map(setting_cell, value))}]" if isinstance(value, list | tuple) else setting_cell(value)


def _sources(registry: "Registry", run: "RunRecord") -> dict[str, str]:
    """The data and the code that a run was made of."""
    from orchestrator.reports.run_differences import make_of

    make = make_of(registry, run)
    lines = {f"data.{n}": data_line(row) for n, row in enumerate(registry.datasets.table(run.id).records, 1)}
    return lines if make is None or make.code is None else {**lines, "code": code_line(make.code)}


def _files(registry: "Registry", run: "RunRecord") -> dict[str, Any]:
    """Paths of a run's files; of one that has not completed also of the checkpoint that it goes on from."""
    checkpoints = [] if run.state == RunState.COMPLETED else registry.checkpoints.of_run(run.id)
    return {
        "folder": run.storage_path,
        "last checkpoint": checkpoints[-1].path if checkpoints else None,
        "model": run.model_folder,
        "registered as": [model.label for model in registry.models.left_by(run)],
        "predictions": run.predictions_path,
    }


def _can_be_drawn(registry: "Registry", run: "RunRecord") -> bool:
    """Whether `runs plot` has something to draw: measurements over steps, of a sweep those of its trials that rank."""
    trials = registry.trials.table(run.id).records
    if not trials:
        return bool(registry.metrics.last_step(run.id))
    return any(registry.metrics.history(trial["id"], f"validation.{run.metric}").records for trial in trials)


def find_best_trial(registry: "Registry", run: "RunRecord") -> BestTrial | None:
    """The best trial of a sweep; None where no trial has a score, and for any other run."""
    from orchestrator.registry.group_records import (
        choice_words,
        replicate_text,
        scored_trials,
        varied_parameters,
    )

    rows = registry.trials.table(run.id).records
    scored = scored_trials(rows, str(run.metric))
    if not scored:
        return None
    best = scored[0]
    return BestTrial(
        f"{best['id']} (number {best['number']}, {replicate_text(best)})",
        f"{len(rows)}, {len(scored)} with a score",
        choice_words(len(scored)),
        {name.removeprefix("params."): best.get(name) for name in varied_parameters(rows)},
    )


@click.command(
    "reproduce",
    cls=GlobalOptionsCommand,
    example="orchestrator runs reproduce 7f3a\norchestrator runs reproduce 7f3a --show spec -o again.yaml",
)
@click.argument("run_id", metavar="RUN")
@click.option(
    "--show",
    "part",
    type=click.Choice(["spec", "diff"]),
    help="Print the spec, or the uncommitted changes as a diff.",
)
@format_options
@output_option("Write to FILE; .json sets the format.")
def reproduce(run_id: str, part: str | None, form: str | None, output: str | None) -> None:
    """Show how to reproduce a run.

    Commit and uncommitted changes, command, spec, versions, and which inputs have changed since.
    """
    say_now(f"looking up run {run_id}")
    from orchestrator.execution.reproduction import kept_diff, reproduction_facts, spec_text

    with open_registry() as registry:
        run = find_run(registry, run_id)
        if part is not None:
            show_text((kept_diff if part == "diff" else spec_text)(run, registry), output)
            return
        facts = reproduction_facts(run, registry, current_settings())
    if chosen_form(form, output) == "json":
        show_record(facts, "json", output)
        return
    lines = {name: facts[name] for name in ("run", "folder", "command", "spec", "code")}
    lines["checkout"] = facts["commit"] and f"git checkout {facts['commit']}"
    lines["changes"] = facts["uncommitted_changes"]
    lines["versions"] = " ".join(f"{name}=={version}" for name, version in (facts["versions"] or {}).items())
    inputs = [f"{'inputs':10}{line}" for line in facts["changed_inputs"] or ["unchanged"]]
    text = [*(f"{name:10}{value}" for name, value in lines.items() if value), *inputs]
    show_text("".join(f"{printable(line, keep_lines=False)}\n" for line in text), output)
