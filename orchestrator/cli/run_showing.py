"""`runs show` and `runs reproduce`: what is recorded of one run, the result and the next commands first.

The brief of a run fits a screen of 80 columns; the rest is `runs show --all`.
"""

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cells import printable, setting_cell
from orchestrator.cli.frame import command, current_settings
from orchestrator.cli.messages import say_now
from orchestrator.cli.next_commands import next_commands
from orchestrator.cli.output import show_record, show_text
from orchestrator.cli.reading import current_reading, format_options, output_option, output_options
from orchestrator.cli.registry_reading import find_run, open_registry
from orchestrator.measurements import COLLAPSED
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    from orchestrator.reports.run_facts import RunFacts

_MOST_SCORES, _MOST_STAGES = 6, 12


@command(example="orchestrator runs show 7f3a\norchestrator runs show my-sweep --all")
@click.argument("run_id", metavar="RUN")
@click.option("--all", "is_whole", is_flag=True, help="Everything recorded, with the whole spec.")
@output_options
def show(run_id: str, is_whole: bool) -> None:
    """Show a run: state, scores, files, next commands.

    Spec fields that differ from their defaults are shown as KEY=VALUE; a sweep also shows its best trial. --all, JSON
    and CSV have everything recorded: machine, attempts, every score; JSON also the counts of each data file.
    """
    from orchestrator.reports.run_facts import RunFacts

    with open_registry() as registry:
        facts = RunFacts(registry, find_run(registry, run_id), current_settings().home)
        if current_reading().is_brief and not is_whole and not current_reading().columns:
            show_record(_brief_record(facts))
            show_text("next\n" + "".join(f"  {line}\n" for line in next_commands(facts)))
        else:
            show_record(_whole_record(facts, current_reading().form))


def _brief_record(facts: "RunFacts") -> dict[str, Any]:
    """Fields of a run that matter most, in the order of reading."""
    from orchestrator.reports.run_facts import typed

    scores, best, code = facts.score_lines(only_held_out=True), facts.best_trial, facts.make_lines.get("code")
    hosts = {host for one in facts.attempts for group in one.workers or () for host in group["hosts"]}
    has_plain_start = [one.state for one in facts.attempts] == [RunState.COMPLETED] and len(hosts) < 2
    settings = f": {typed(best.settings)}" if best and best.settings else ""
    return {
        "run": f"{facts.run.id} {facts.run.name}",
        **facts.outcome,
        **({} if has_plain_start else facts.attempt_lines),
        "step": f"{facts.last_step:,}" if facts.last_step else None,
        **dict(islice(scores.items(), _MOST_SCORES)),
        "more scores": f"{len(scores) - _MOST_SCORES}: --all" if len(scores) > _MOST_SCORES else None,
        **({"trials": best.num_trials, "best trial": f"{best.name}{settings}"} if best else {}),
        **(_stages(facts.stage_lines) if facts.run.kind == "pipeline" else facts.changed_lines),
        **facts.data_lines,
        "code": code,
        **facts.files,
    }


def _stages(lines: Mapping[str, str]) -> dict[str, str]:
    """The stages of a pipeline; of many those that have not completed, and the newest."""
    more = len(lines) - _MOST_STAGES
    if more <= 0:
        return dict(lines)
    done = [name for name, line in lines.items() if f" {RunState.COMPLETED}" in line]
    left_out = set(done[: more + 1])
    shown = {name: line for name, line in lines.items() if name not in left_out}
    return {"stages": f"{len(lines)}, of which {len(left_out)} are not here, all of them completed: --all", **shown}


def _whole_record(facts: "RunFacts", form: str) -> dict[str, Any]:
    """All that is recorded of a run: nested in JSON, in a table as lines for a person, in CSV something of both."""
    from dataclasses import asdict

    from orchestrator.registry.parameters import flatten

    record: dict[str, Any] = asdict(facts.run)
    spec = record.pop("spec")
    make, best, is_table = facts.made_by, facts.best_trial, form == "table"
    notes = [asdict(one) for one in facts.registry.annotations.notes(facts.run.id)]
    record |= {
        "tags": facts.registry.tags(facts.run.id),
        "marks": facts.marks,
        **(facts.note_lines if is_table else {"notes": notes}),
        "attempts": len(facts.attempts),
        "last_step": facts.last_step,
        "last_checkpoint": facts.last_checkpoint,
        "models": [model.label for model in facts.models],
        **{f"metrics.{n}": bool(v) if is_table and n == COLLAPSED else v for n, v in facts.values.items()},
        "test_refused": facts.test_refusal,
    }
    if best is not None:
        record |= {"trials": best.num_trials, "best trial": best.name}
        record |= {"choice": best.choice} if best.choice else {}
        record |= {f"best {name}": setting_cell(v) if is_table else v for name, v in best.settings.items()}
    if is_table:
        record |= facts.stage_lines | facts.make_lines
    if make is not None and make.code is not None:
        record |= {"made_with.command": make.command, "made_with.overrides": make.overrides}
        record |= {f"made_with.code.{name}": value for name, value in make.code.items()}
        record |= {f"made_with.{name}": value for name, value in flatten(make.environment or {}).items()}
    if form == "json":
        starts = [asdict(one) for one in facts.attempts]
        return record | {"spec": spec, "parameters": facts.parameters, "data": facts.data, "starts": starts}
    parameters = {f"params.{name}": value for name, value in facts.parameters.items()}
    return record | facts.attempt_lines | facts.data_lines | parameters


@command(
    "reproduce", example="orchestrator runs reproduce 7f3a\norchestrator runs reproduce 7f3a --show spec -o again.yaml"
)
@click.argument("run_id", metavar="RUN")
@click.option(
    "--show", "part", type=click.Choice(["spec", "diff"]), help="Print the spec, or the uncommitted changes as a diff."
)
@format_options
@output_option("Write to FILE; .json sets the format.", expose_value=False)
def reproduce(run_id: str, part: str | None) -> None:
    """Show how to reproduce a run.

    Commit and uncommitted changes, command, spec, versions, and which inputs have changed since.
    """
    say_now(f"looking up run {run_id}")
    import yaml

    from orchestrator.execution.reproduction import kept_diff, reproduction_facts, spec_text

    reading = current_reading()
    with open_registry() as registry:
        run = find_run(registry, run_id)
        if part is not None:
            shown = (kept_diff if part == "diff" else spec_text)(run, registry)
            if reading.form == "table":
                show_text(shown, reading.output)
            else:
                show_record(yaml.safe_load(shown) if part == "spec" else {"diff": shown})
            return
        facts = reproduction_facts(run, registry, current_settings())
    if reading.form != "table":
        show_record(facts)
        return
    lines = {name: facts[name] for name in ("run", "folder", "command", "spec", "code")}
    lines["checkout"] = facts["commit"] and f"git checkout {facts['commit']}"
    lines["changes"] = facts["uncommitted_changes"]
    lines["versions"] = " ".join(f"{name}=={version}" for name, version in (facts["versions"] or {}).items())
    inputs = [f"{'inputs':10}{line}" for line in facts["changed_inputs"] or ["unchanged"]]
    text = [*(f"{name:10}{value}" for name, value in lines.items() if value), *inputs]
    show_text("".join(f"{printable(line, keep_lines=False)}\n" for line in text), reading.output)
