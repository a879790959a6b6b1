"""A run made again here, and the two compared: scores, data, weights and predictions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InputError, SpecError
from orchestrator.execution.origin import working_at_origin
from orchestrator.execution.reproduction import Reproduction
from orchestrator.execution.runner import run_spec
from orchestrator.measurements import is_of_the_machine
from orchestrator.models.resolve import WEIGHTS_FILE
from orchestrator.registry import Registry
from orchestrator.registry.place_tags import REPRODUCES
from orchestrator.registry.records import RunRecord
from orchestrator.settings import Settings
from orchestrator.specs.loading import parse_spec
from orchestrator.storage import digest_file, exists, join
from orchestrator.tasks.row_texts import digest_without_texts

_DIGEST_CHARS = 12


@dataclass(frozen=True)
class Outcome:
    """One result of a run beside that of the run that was made again."""

    what: str
    then: Any
    now: Any

    @property
    def is_same(self) -> bool:
        """Whether both are the same, NaN included."""
        return bool(self.then == self.now) or (self.then != self.then and self.now != self.now)


def run_reproduction(
    reproduction: Reproduction, settings: Settings, *, on_started: Callable[[str], None] = lambda run_id: None
) -> RunRecord:
    """Make a run again with the code, the data and the machine of now, as a new run with a tag that names the old one.

    Raises: InputError for a pipeline, whose finished stages would be taken again, and for a spec that only its own code
        reads; what `run_spec` raises.
    """
    run, values = reproduction.run, reproduction.values
    if values is None:
        commands = "; ".join(command.partition("  #")[0] + " --run" for command in reproduction.commands)
        raise InputError(f"run {run.id} is a pipeline, whose finished stages would be used again; instead: {commands}")
    try:
        spec = parse_spec(values)
    except SpecError:
        raise InputError(
            f"run {run.id} cannot be made again by this version, which does not read its spec; the commands that do so "
            f"with its own code: orchestrator runs reproduce {run.id}"
        ) from None
    spec = spec.model_copy(update={"tags": (*spec.tags, f"{REPRODUCES}{run.id}")})
    with Registry(settings.registry, read_only=True) as registry:
        maker = run if run.parent_id is None else registry.run(run.parent_id)
    with working_at_origin(maker.storage_path, settings) as there:
        return run_spec(spec, settings=there, on_started=on_started)


def compare_outcomes(registry: Registry, old_id: str, new_id: str) -> list[Outcome]:
    """Compare the results of a run with those of the run that made it again; a trial with that one's only trial.

    Raises: InputError where a trial was made again by a sweep that ended without any.
    """
    old, new = registry.run(old_id), registry.run(new_id)
    if old.parent_id is not None and new.parent_id is None:
        trials = registry.trials.table(new.id).records
        if not trials:
            raise InputError(
                f"run {new.id}, which was to make trial {old.id} again, is {new.state} without any trial; "
                f"see why: orchestrator runs show {new.id}"
            )
        new = registry.run(str(trials[0]["id"]))
    return [*_outcomes(registry, old, new, ""), *_trial_outcomes(registry, old, new)]


def _trial_outcomes(registry: Registry, old: RunRecord, new: RunRecord) -> Iterator[Outcome]:
    """Yield the score that ranks each trial of two sweeps, by the trial's number."""
    numbered = [{row["number"]: row for row in registry.trials.table(run.id).records} for run in (old, new)]
    score = f"metrics.{old.metric}"
    for number in sorted(set(numbered[0]) | set(numbered[1])):
        then, now = (rows.get(number, {}).get(score) for rows in numbered)
        yield Outcome(f"trial {number}: {old.metric}", then, now)


def _outcomes(registry: Registry, old: RunRecord, new: RunRecord, beginning: str) -> Iterator[Outcome]:
    scores = [registry.metrics.latest(run.id) for run in (old, new)]
    for name in dict.fromkeys([*scores[0], *scores[1]]):
        if not is_of_the_machine(name):
            yield Outcome(f"{beginning}{name}", scores[0].get(name), scores[1].get(name))
    data = [
        {
            f"{row['kind']} {row['name']}": row["fingerprint"][:_DIGEST_CHARS]
            for row in registry.datasets.table(run.id).records
        }
        for run in (old, new)
    ]
    for name in dict.fromkeys([*data[0], *data[1]]):
        yield Outcome(f"{beginning}data: {name}", data[0].get(name), data[1].get(name))
    for what, digest_of in (("weights", _weights), ("predictions", _predictions)):
        then, now = (digest_of(registry, run) for run in (old, new))
        if then is not None or now is not None:
            yield Outcome(f"{beginning}{what}", then, now)


def _weights(registry: Registry, run: RunRecord) -> str | None:
    """Digest of the weights that a run left; None where it left none, or they are gone and were never registered."""
    for model in registry.models.of_run(run.id):
        return model.digest[:_DIGEST_CHARS]
    return None if run.model_folder is None else _digest(join(run.model_folder, WEIGHTS_FILE))


def _predictions(registry: Registry, run: RunRecord) -> str | None:
    path = run.predictions_path
    if path is None or not exists(path):
        return None
    try:
        return digest_without_texts(path)[:_DIGEST_CHARS]
    except (ValueError, AttributeError):  # a damaged file differs from every other
        return _digest(path)


def _digest(path: str) -> str | None:
    return digest_file(path)[:_DIGEST_CHARS] if exists(path) else None
