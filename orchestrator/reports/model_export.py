"""Export of models: a folder copied out of the storage, and its card, for whoever gets it without the registry.

A card says in Markdown what the registry knows; what is not recorded is listed as not known.
"""

import logging
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bert_core.checkpoints.manifest import MANIFEST_FILE, check_manifest
from orchestrator.base.console import counted
from orchestrator.base.errors import InputError, NotFoundError, RegistryError
from orchestrator.base.formatting import MISSING, setting_cell
from orchestrator.base.metric_names import score_bounds
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.registry.group_records import choice_words, scored_trials
from orchestrator.registry.lineage import LineageTree
from orchestrator.registry.model_names import resolve_model
from orchestrator.registry.records import ModelRecord, RunRecord
from orchestrator.reports.run_facts import counts_text, measured_rows
from orchestrator.storage import exists, join, local_copy, read_json, write_folder
from orchestrator.storage.uris import absolute

_SHAPE = {
    "model_type": "family",
    "num_hidden_layers": "layers",
    "hidden_size": "hidden size",
    "num_attention_heads": "attention heads",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "longest input, in tokens",
}
logger = logging.getLogger(__name__)


def export_model(model: str, target: str, settings: Settings) -> str:
    """Copy a model's folder to a new one, whole or not at all. Raises: InputError, CheckpointError, NotFoundError."""
    source = Path(local_copy(resolve_model(model, settings)))
    if exists(target):
        raise InputError(f"{target} is there already; name a folder that is not")
    if (source / MANIFEST_FILE).exists():
        check_manifest(source, "train it again, or export another version")
    with write_folder(target) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    return target


def note_export(model: str, target: str, settings: Settings) -> None:
    """Record in the lineage of a registered model that it was exported, where that can be.

    An export is whole without that: a registry that is not there, or cannot be written, stays as it is.
    """
    with Registry(settings.registry, read_only=True) as reading:
        if reading.current_revision() is None:
            return
    try:
        with Registry(settings.registry) as registry:
            registry.lineage.record_export(absolute(resolve_model(model, settings)), target)
    except RegistryError as error:
        logger.warning(f"the export is not recorded in the registry: {error}")


def write_card(name: str, registry: Registry) -> str:
    """Write the card of a registered model, as `registry.models.get` takes its name. Raises: NotFoundError."""
    model = registry.models.get(name)
    run = trial = None
    if model.run_id is not None:
        with suppress(NotFoundError):
            run = trial = registry.run(model.run_id)
    parts: list[str] = []
    if run is not None:
        trials = registry.run_records(registry.trials.table(run.id).values("id"))
        trial = next((one for one in trials if one.model_folder == model.folder), run)
        parts = [_data(run, registry), _recipe(trial, registry), _scores(run, trial, registry)]
    parts = [_head(model, run, trial), *parts, _lineage(model, registry), _limits(run, trial, registry)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(model: ModelRecord, run: RunRecord | None, trial: RunRecord | None) -> str:
    """Table of what the model is, the run that registered it, and the trial that made it, where it was a sweep's."""
    facts: dict[str, Any] = {"head": model.head, "parameters": f"{model.num_parameters:,}"}
    with suppress(OSError, ValueError):
        config = read_json(join(model.folder, "config.json"))
        facts |= {label: config[field] for field, label in _SHAPE.items() if field in config}
    facts |= {"registered": f"{model.created_at:%Y-%m-%d %H:%M} UTC", "SHA-256 of the weights": model.digest}
    if run is not None and trial is not None:
        made_by = f"{run.kind} {run.name}, run {run.id}" + (f", trial {trial.id}" if trial is not run else "")
        facts |= {"made by": made_by, "seed": trial.seed}
    rows = [(label, value) for label, value in facts.items() if value is not None]
    return f"# {_text(model.label)}\n\n" + _table(("", ""), rows)


def _data(run: RunRecord, registry: Registry) -> str:
    rows = [
        (data["kind"], data["name"], counts_text(data["counts"]), data["fingerprint"][:16])
        for run_id in filter(None, (run.parent_id, run.id))
        for data in registry.datasets.table(run_id).records
    ]
    return "## Data\n\n" + _table(("kind", "name", "size", "fingerprint"), list(dict.fromkeys(rows))) if rows else ""


def _recipe(trial: RunRecord, registry: Registry) -> str:
    own = sorted(registry.parameters(trial.id).items())
    texts = [(path, setting_cell(value)) for path, value in own if not path.startswith("data.")]
    rows = [(path, text) for path, text in texts if text != MISSING]
    return "## Recipe\n\n" + _table(("setting", "value"), rows) if rows else ""


def _scores(run: RunRecord, trial: RunRecord, registry: Registry) -> str:
    values = registry.metrics.latest(run.id) | registry.metrics.latest(trial.id)
    if not values:
        return ""
    is_ranked = trial.metric in values
    return "\n\n".join(
        [
            "## Scores",
            _table(("measurement", "value", "baseline"), list(measured_rows(values, trial.metric))),
            *([_choice(run, trial, registry)] if is_ranked else []),
            *(f"The test score is refused: {why}." for why in registry.test_refusals([trial.id]).values()),
            *([_seeds(trial, registry)] if is_ranked else []),
        ]
    )


def _choice(run: RunRecord, trial: RunRecord, registry: Registry) -> str:
    """Sentence on the split of scores without one in their name, and on what was chosen on it."""
    scored = scored_trials(registry.trials.table(run.id).records, str(trial.metric))
    is_best = bool(scored) and scored[0]["id"] == trial.id
    words = choice_words(len(scored)) if is_best else ""
    of_many = f", as was the model itself: the {words}" if words else ""
    return f"Names without a split are of the validation data, on which the model's best step was chosen{of_many}."


def _seeds(run: RunRecord, registry: Registry) -> str:
    """Paragraph on how much the score that ranks the run depends on the seed, by the run's group on the leaderboard."""
    metric = str(run.metric)
    groups = *registry.groups_of([run.id], archived=False), *registry.groups_of([run.id])
    group = next((group for group in groups if any(one.id == run.id for one in group.runs)), None)
    summary = None if group is None else group.summary
    noise = None if group is None else registry.seed_noise(group)
    if summary is None or noise is None:
        return f"How far {metric} would differ with another seed is not known: no recipe has several that differ."
    low, high = noise.interval(summary, score_bounds(metric))
    ends = f"; the lowest is {summary.lowest:.4f}, the highest {summary.highest:.4f}" if summary.n > 1 else ""
    return (
        f"Over {counted(summary.n, 'seed')} of this recipe {metric} has the mean {summary.mean:.4f}, with the 95 % "
        f"interval {low:.4f} to {high:.4f} by the noise of seeds over all recipes of the task{ends}."
    )


def _lineage(model: ModelRecord, registry: Registry) -> str:
    """List of the data, models and tokenizers that it was made of; files are left out."""
    lines: list[str] = []

    def collect(tree: LineageTree, indent: str) -> None:
        for branch in tree.branches:
            if branch.node.kind != "file":
                lines.append(f"{indent}- {branch.role}: {branch.node.kind} `{branch.node.name}`")
                collect(branch, indent + "  ")

    collect(registry.lineage.tree(model.label), "")
    return "## Lineage\n\n" + "\n".join(lines) if lines else ""


def _limits(run: RunRecord | None, trial: RunRecord | None, registry: Registry) -> str:
    """List of what the card does not know, and of what follows from how the model was made."""
    limits = []
    if run is None or trial is None:
        limits.append("The run that made it is not in the registry: data, recipe and scores are not known.")
    else:
        values = registry.metrics.latest(run.id) | registry.metrics.latest(trial.id)
        if not any(name.startswith("test.") for name in values) and run.metric is not None:
            limits.append(
                "No score on a test split is recorded: a score on the validation split by which a recipe was chosen "
                "is too good."
            )
        if not registry.datasets.table(run.parent_id or run.id).records:
            limits.append("Which data it was trained on is not recorded.")
    limits += [
        "Whether the data holds errors, private or one-sided texts was not examined, and no license is recorded.",
        "It was not tried on texts of other kinds, times or languages than those of its data.",
    ]
    return "## Limits\n\n" + "\n".join(f"- {limit}" for limit in limits)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(_text(value) for value in line)} |" for line in lines)


def _text(value: Any) -> str:
    """A value in a cell: nothing in it is read as Markdown or HTML that would leave the cell."""
    text = " ".join(str(value).split())
    for sign, harmless in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|")):
        text = text.replace(sign, harmless)
    return text
