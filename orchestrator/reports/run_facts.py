"""Facts of a recorded run: `runs show`, `compare`, `report` and the end of `run` only lay them out.

`RunFacts` reads each fact when it is first asked for. Below it are the records of a run, which fit a screen of 80
columns or have everything, and short lines of text.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from orchestrator.base.console import counted, duration, names_text
from orchestrator.base.formatting import cell, field_cell, setting_cell
from orchestrator.base.metric_names import BASELINE, COLLAPSED, baseline_of, is_of_the_machine
from orchestrator.base.run_states import RunState
from orchestrator.registry.records import AttemptRecord, Flag, ModelRecord, RunRecord
from orchestrator.registry.registry import Registry

TEST, TRAIN = "test.", "train."
"""Beginnings of the names of scores on the test split, and of measurements in training."""
_COUNTS_SHOWN = ("num_documents", "num_tokens", "num_bad_records")
"""Counts of a corpus that are shown; of other data all are."""
_MAX_FILES_NAMED = 3
_MOST_SCORES = 6
"""Scores that a brief record has."""
_VERSIONS_SHOWN = ("python", "torch", "cuda", "ray")
_DIGEST_CHARS = 12


@dataclass(frozen=True)
class BestTrial:
    name: str
    """Id, number and seed."""
    num_trials: str
    """Number of trials, and of those with a score."""
    choice: str
    """Words on what its score was chosen from; empty for a single trial."""
    settings: Mapping[str, Any]
    """Values of the fields in which trials differ, by path."""


@dataclass(frozen=True)
class RunFacts:
    """Record of a run, a trial, a sweep or a pipeline, in values and in short lines of text."""

    registry: Registry
    run: RunRecord
    home: Path | None = None
    """Folder with the table of prices; None: a cost is told without its price."""

    @cached_property
    def attempts(self) -> list[AttemptRecord]:
        return self.registry.attempts(self.run.id)

    @cached_property
    def made_by(self) -> AttemptRecord | None:
        """Newest attempt of a run; of a trial the newest of its sweep that ran its code, or else the newest one."""
        attempts = self.attempts
        if self.run.parent_id is not None:
            from orchestrator.provenance.capture import SourceCode

            attempts, version = self.registry.attempts(self.run.parent_id), self.run.code_version
            of_its_code = [one for one in attempts if one.code and SourceCode(**one.code).code_version == version]
            attempts = of_its_code or attempts
        return attempts[-1] if attempts else None

    @property
    def command(self) -> str | None:
        """Command of the first attempt, of a trial its sweep's: a later one only resumed it."""
        attempts = self.attempts if self.run.parent_id is None else self.registry.attempts(self.run.parent_id)
        return attempts[0].command if attempts else None

    @cached_property
    def values(self) -> dict[str, float]:
        return self.registry.metrics.latest(self.run.id)

    @cached_property
    def last_step(self) -> int | None:
        return self.registry.metrics.last_step(self.run.id)

    @cached_property
    def test_refusal(self) -> str | None:
        """Reason why scores on the test split are refused; None where they are not."""
        return self.registry.test_refusals([self.run.id]).get(self.run.id)

    @cached_property
    def trials(self) -> list[dict[str, Any]]:
        return list(self.registry.trials.table(self.run.id).records)

    @cached_property
    def stages(self) -> list[RunRecord]:
        """Stages of a pipeline, in order; none of any other run."""
        return self.registry.stages(self.run.id)[::-1] if self.run.kind == "pipeline" else []

    @cached_property
    def models(self) -> list[ModelRecord]:
        return self.registry.models.left_by(self.run)

    @cached_property
    def data(self) -> list[dict[str, Any]]:
        return list(self.registry.datasets.table(self.run.id).records)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        return self.registry.parameters(self.run.id)

    @property
    def last_checkpoint(self) -> str | None:
        checkpoints = self.registry.checkpoints.of_run(self.run.id)
        return checkpoints[-1].path if checkpoints else None

    @property
    def flags(self) -> list[str]:
        """Flags of the run; inherited ones name their run: `archived with 7f3a`."""
        kinds: tuple[Flag, ...] = ("archived", "pinned")
        bearers = {flag: self.registry.annotations.bearers(self.run.id, flag) for flag in kinds}
        return [flag if by[0] == self.run.id else f"{flag} with {by[0]}" for flag, by in bearers.items() if by]

    @property
    def cost(self) -> str | None:
        """Line of resources used and their price; None where nothing is recorded."""
        from orchestrator.registry.costs import load_prices, usage_of, with_price

        usage = usage_of(self.run, self.registry)
        return None if usage is None else with_price(usage, load_prices(self.home) if self.home else None)

    @cached_property
    def best_trial(self) -> BestTrial | None:
        """Best trial of a sweep with a scored one; None for any other run."""
        from orchestrator.registry.group_records import choice_words, replicate_text, scored_trials
        from orchestrator.registry.parameters import varied_parameters

        scored = scored_trials(self.trials, str(self.run.metric))
        if not scored:
            return None
        best = scored[0]
        return BestTrial(
            f"{best['id']} (number {best['number']}, {replicate_text(best)})",
            f"{len(self.trials)}, {len(scored)} with a score",
            choice_words(len(scored)),
            {name.removeprefix("params."): best.get(name) for name in varied_parameters(self.trials)},
        )

    @property
    def outcome(self) -> dict[str, Any]:
        """Kind, state, error, tags, flags, notes, time and cost."""
        from orchestrator.registry.tables import is_internal

        run = self.run
        return {
            **{name: getattr(run, name) for name in ("kind", "state", "error", "task")},
            "tags": [tag for tag in self.registry.annotations.tags(run.id) if not is_internal(tag)],
            "marks": self.flags,
            **self.note_lines,
            "created": run.created_at,
            "took": None if run.seconds is None else duration(run.seconds),
            "host": None if run.parent_id is None else run.host,
            "cost": self.cost,
        }

    @property
    def files(self) -> dict[str, Any]:
        """Paths of the run's files; the last checkpoint unless the run has completed."""
        return {
            "folder": self.run.storage_path,
            "last checkpoint": None if self.run.state == RunState.COMPLETED else self.last_checkpoint,
            "model": self.run.model_folder,
            "registered as": [model.label for model in self.models],
            "predictions": self.run.predictions_path,
        }

    def score_lines(self, *, only_held_out: bool = False) -> dict[str, str]:
        """Each measurement in a line, the one that ranks first.

        Args:
            only_held_out: leave out what was measured of the machine, and in training where there is anything else.
        """
        values = self.values
        if only_held_out:
            held_out = {name: value for name, value in values.items() if not name.startswith(TRAIN)}
            values = {name: value for name, value in (held_out or values).items() if not is_of_the_machine(name)}
        choice = self.best_trial.choice if self.best_trial else ""
        return score_lines(values, self.run.metric, self.test_refusal, choice)

    @property
    def note_lines(self) -> dict[str, str]:
        """Notes of people: `note.1: 2026-11-23 ann: looks good`."""
        return {
            f"note.{number}": f"{one.written_at:%Y-%m-%d}{f' {one.author}' if one.author else ''}: {one.text}"
            for number, one in enumerate(self.registry.annotations.notes(self.run.id), start=1)
        }

    @cached_property
    def stage_names(self) -> dict[str, str]:
        """Name of each stage of a pipeline by its run's id: the last part, or the whole where two end alike."""
        num_called = Counter(map(stage_name, self.stages))
        return {one.id: stage_name(one) if num_called[stage_name(one)] == 1 else one.name for one in self.stages}

    @cached_property
    def stage_scores(self) -> dict[str, float]:
        """Ranking scores of a pipeline's stages, as `finetuning.accuracy`."""
        found = [(stage, self.registry.metrics.latest(stage.id).get(str(stage.metric))) for stage in self.stages]
        return {f"{self.stage_names[stage.id]}.{stage.metric}": score for stage, score in found if score is not None}

    @property
    def stage_lines(self) -> dict[str, str]:
        """Line for each stage of a pipeline, by name; with its progress unless it has completed."""
        lines = {}
        for stage in self.stages:
            told = [f"{stage.id} {stage.kind} {stage.state}"]
            if (score := self.stage_scores.get(f"{self.stage_names[stage.id]}.{stage.metric}")) is not None:
                told.append(f"{stage.metric} {cell(score)}")
            if stage.state != RunState.COMPLETED:
                trials = self.registry.trials.table(stage.id).records
                num_ended = sum(bool(one["finished_at"]) and one["state"] != RunState.STOPPED for one in trials)
                step = self.registry.metrics.last_step(stage.id)
                told += [f"{num_ended} of {counted(len(trials), 'trial')} ended"] if trials else []
                told += [f"step {step:,}"] if step else []
            lines[f"stage {self.stage_names[stage.id]}"] = ", ".join(told)
        return lines

    @property
    def changed_lines(self) -> dict[str, str]:
        """Spec fields that differ from their defaults, a line for each section, as they are typed on a command line."""
        from orchestrator.registry.parameters import flatten

        sections: dict[str, dict[str, Any]] = defaultdict(dict)
        for path, value in flatten(changed_spec(self.run)).items():
            section, _, name = path.partition(".")
            if path not in ("kind", "name", "tags"):
                sections[f"spec.{section}" if name else "spec"][name or path] = value
        return {section: typed(values) for section, values in sections.items()}

    @property
    def attempt_lines(self) -> dict[str, str]:
        return {f"attempt.{one.number}": attempt_line(one) for one in self.attempts}

    @property
    def data_lines(self) -> dict[str, str]:
        return {f"data.{number}": data_line(row) for number, row in enumerate(self.data, start=1)}

    @property
    def make_lines(self) -> dict[str, str | None]:
        """Lines on code, command and machine; none where nothing was recorded."""
        make = self.made_by
        if make is None or make.code is None:
            return {}
        return {"code": code_line(make.code), "command": self.command, "machine": machine_line(make.environment or {})}


def brief_record(facts: RunFacts) -> dict[str, Any]:
    """Fields of a run that matter most, in the order of reading."""
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
        **(facts.stage_lines if facts.run.kind == "pipeline" else facts.changed_lines),
        **facts.data_lines,
        "code": code,
        **facts.files,
    }


def full_record(facts: RunFacts, form: str) -> dict[str, Any]:
    """Complete record of a run: nested in JSON; short lines in a table; flat values and lines in CSV."""
    from orchestrator.registry.parameters import flatten

    record: dict[str, Any] = asdict(facts.run)
    spec = record.pop("spec")
    make, best, is_table = facts.made_by, facts.best_trial, form == "table"
    notes = [asdict(one) for one in facts.registry.annotations.notes(facts.run.id)]
    record |= {
        "tags": facts.registry.annotations.tags(facts.run.id),
        "marks": facts.flags,
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
        record |= {"made_with.command": facts.command, "made_with.overrides": make.overrides}
        record |= {f"made_with.code.{name}": value for name, value in make.code.items()}
        record |= {f"made_with.{name}": value for name, value in flatten(make.environment or {}).items()}
    if form == "json":
        starts = [asdict(one) for one in facts.attempts]
        return record | {"spec": spec, "parameters": facts.parameters, "data": facts.data, "starts": starts}
    parameters = {f"params.{name}": value for name, value in facts.parameters.items()}
    return record | facts.attempt_lines | facts.data_lines | parameters


def stage_name(stage: RunRecord) -> str:
    return stage.name.rpartition("/")[2]


def stages_text(stages: Iterable[RunRecord]) -> str:
    """Ending of a message about a pipeline, whose stages have what is asked for."""
    named = ", ".join(f"{stage.id} ({stage_name(stage)})" for stage in stages)
    return f"; its stages have them: {named}" if named else ""


def typed(settings: Mapping[str, Any]) -> str:
    """Settings as `KEY=VALUE`; lists without spaces, so that no line breaks within one."""

    def text(value: Any) -> str:
        return f"[{','.join(map(setting_cell, value))}]" if isinstance(value, list | tuple) else setting_cell(value)

    return " ".join(f"{name}={text(value)}" for name, value in settings.items())


def score_lines(
    values: Mapping[str, float], metric: str | None, refusal: str | None = None, choice: str = ""
) -> dict[str, str]:
    """Each score with its baseline, the one that ranks first: `accuracy: 0.8400 (baseline 0.5000)`.

    Args:
        refusal: reason why scores on the test split are refused; None where they are not.
        choice: words on what the score that ranks was chosen from.
    """
    lines = {}
    for name, text, baseline in measured_rows(values, metric):
        remarks = [f"baseline {baseline}"] if baseline else []
        remarks += [choice] if choice and name == metric else []
        remarks += [f"refused: {refusal}"] if refusal and name.startswith(TEST) else []
        lines[name] = text + (f" ({'; '.join(remarks)})" if remarks else "")
    return lines


def measured_rows(values: Mapping[str, float], metric: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield each measurement, the one that ranks first: its name, its text, and its baseline's, empty without one."""
    for name in sorted((name for name in values if BASELINE not in name), key=lambda name: (name != metric, name)):
        value = bool(values[name]) if name.rpartition(".")[2] == COLLAPSED else values[name]
        baseline = values.get(baseline_of(name))
        yield name, field_cell(name, value), "" if baseline is None else cell(baseline)


def changed_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    from orchestrator.specs.recipe import RecipeSpec

    defaults = RecipeSpec().model_dump(mode="json")
    return {name: value for name, value in recipe.items() if name not in defaults or value != defaults[name]}


def changed_spec(run: RunRecord) -> dict[str, Any]:
    """Spec of a run (recipe of a trial) without fields at their defaults; whole where it cannot be parsed."""
    from orchestrator.base.errors import SpecError
    from orchestrator.specs.loading import parse_spec

    if run.parent_id is not None:
        return changed_recipe(run.spec)
    try:
        changed = parse_spec(dict(run.spec)).model_dump(mode="json", exclude_defaults=True)
    except SpecError:  # of another version
        return dict(run.spec)
    for name, stage in changed.get("stages", {}).items():
        changed["stages"][name] = {"kind": run.spec["stages"][name]["kind"], **stage}
    return {"kind": run.kind, **changed}


def attempt_line(attempt: AttemptRecord) -> str:
    """One line on an attempt: how it ended, where its driver ran, its job on the cluster, its workers by steps.

    The workers read `; steps 0-80: 4 workers on a, b; from step 80: 2 workers on a`.
    """
    from orchestrator.base.results import WorkersEvent

    place = f"process {attempt.pid} on {attempt.host}" if attempt.host else "an unknown host"
    job = f", job {attempt.job_id}" if attempt.job_id else ""
    groups = [WorkersEvent(**group) for group in attempt.workers or ()]
    steps = [f"steps {one.first_step:,}-{after.first_step:,}" for one, after in pairwise(groups)]
    steps += [f"from step {one.first_step:,}" for one in groups[-1:]]
    workers = "".join(f"; {some}: {group}" for some, group in zip(steps, groups, strict=True))
    return f"{attempt.state}: {place}{job}; began {attempt.started_at:%Y-%m-%d %H:%M}{workers}"


def data_line(row: Mapping[str, Any]) -> str:
    """One line on data of a run: its name, its counts without zeros, and its path."""
    return f"{row['name']}: {counts_text(row['counts'])}; at {row['path']}"


def counts_text(counts: Mapping[str, int]) -> str:
    names = [name for name in _COUNTS_SHOWN if name in counts] or [name for name in counts if counts[name]]
    return ", ".join(f"{counts[name]:,} {name.removeprefix('num_').replace('_', ' ')}" for name in names)


def code_line(code: Mapping[str, Any]) -> str:
    """One line on code: `0.1.0, commit 1f2e3d4c5b6a and uncommitted changes of 2 files (a.py, b.py)`.

    >>> code_line({"version": "0.1.0", "commit": None, "reason": "git is not installed"})
    '0.1.0, no commit: git is not installed'
    """
    commit = code.get("commit")
    if not commit:
        return f"{code['version']}, no commit: {code.get('reason') or 'unknown why'}"
    if not code.get("diff_digest"):
        return f"{code['version']}, commit {commit[:_DIGEST_CHARS]}"
    files = code.get("changed_files") or ()
    changes = f"uncommitted changes of {counted(len(files), 'file')} ({names_text(files, _MAX_FILES_NAMED)})"
    return f"{code['version']}, commit {commit[:_DIGEST_CHARS]} and {changes}"


def machine_line(machine: Mapping[str, Any]) -> str | None:
    """One line on a machine and its versions; None where nothing was recorded."""
    if not machine:
        return None
    gpus = machine.get("gpus") or ()
    driver = f", driver {machine['gpu_driver']}" if machine.get("gpu_driver") else ""
    memory = machine.get("memory_bytes")
    versions = machine.get("versions", {})
    parts = [
        machine.get("processor"),
        f"{machine['num_cores']} cores" if machine.get("num_cores") else None,
        f"{memory / 2**30:.0f} GiB" if memory else None,
        f"{', '.join(f'{gpus.count(each)} × {each}' for each in dict.fromkeys(gpus))}{driver}" if gpus else "no GPU",
        f"{machine.get('user')} on {machine.get('hostname')}",
        *(f"{name} {versions[name]}" for name in _VERSIONS_SHOWN if name in versions),
    ]
    return ", ".join(part for part in parts if part)
