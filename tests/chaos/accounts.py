"""Accounts of a run that has ended: what must be equal, whatever happened on the way."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.base.metric_names import is_of_the_machine
from orchestrator.base.run_states import RunState
from orchestrator.storage import digest_file
from tests.chaos.hosts import Hosts
from tests.chaos.laboratory import Laboratory
from tests.waiting import wait_until


@dataclass(frozen=True)
class Accounts:
    """What a run left."""

    weights: str
    """SHA-256 of the run's model file."""
    measurements: tuple[tuple[Any, ...], ...]
    """Rows (split, name, step, value) of the run, and of its trials by their parameters."""
    trials: tuple[str, ...]
    """Keys of the completed trials."""


def read_accounts(laboratory: Laboratory) -> Accounts:
    """The accounts of the laboratory's run, which must have completed."""
    with laboratory.open_registry() as registry:
        record = registry.run(laboratory.run_id())
        assert record.state == RunState.COMPLETED, f"{record.state}: {record.error}\n{laboratory.messages()}"
        assert record.model_folder is not None
        weights = digest_file(f"{record.model_folder}/model.safetensors")
        trials = registry.runs("kind = 'trial'", sort="created_at")
        parameters = {trial_id: sorted(registry.parameters(trial_id).items()) for trial_id in trials["id"]}
        keys = {trial_id: repr([(name, str(value)) for name, value in own]) for trial_id, own in parameters.items()}
        rows = []
        for run_id, name in {record.id: "", **keys}.items():
            frame = registry.metrics.history(run_id).frame()
            rows += [
                (name, row.split, row.name, row.step, row.value)
                for row in frame[["split", "name", "step", "value"]].itertuples(index=False, name="Row")
                if not is_of_the_machine(row.name)
            ]
        assert set(trials["state"]) <= {RunState.COMPLETED}, f"trials ended {sorted(set(trials['state']))}"
    return Accounts(weights, tuple(sorted(rows)), tuple(sorted(keys.values())))


def check_nothing_is_left(laboratory: Laboratory, hosts: Hosts) -> None:
    """Check that no worker, no temporary file and no half folder is left of a run that has ended.

    Marks of drivers that were killed stay until `gc`.
    """
    wait_until(lambda: not hosts.training_workers(), "training workers outlive their run")
    run_folder = laboratory.home / "storage" / "runs" / laboratory.run_id()
    temporary = (path for path in laboratory.home.rglob("*") if path.name.endswith(".tmp") or ".tmp." in path.name)
    left = [path for path in temporary if not path.name.startswith(".attempt-")]
    assert not left, f"temporary files are left: {left}"
    assert not (run_folder / "ray").exists(), "Ray's scratch folder is left"
    pointer = run_folder / "checkpoints.json"
    named = json.loads(pointer.read_text())["checkpoints"] if pointer.exists() else []
    there = [folder.name for folder in (run_folder / "checkpoints").glob("*")]
    assert sorted(there) == sorted(Path(entry["path"]).name for entry in named)
