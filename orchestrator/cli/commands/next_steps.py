"""Commands to go on with after a run, ready to be pasted: look at it, use its model, take the model along."""

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli.frame import current_settings, given_options
from orchestrator.settings import ASKED_AT_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.registry.records import RunRecord
    from orchestrator.registry.registry import Registry

ASKED_BY_A_LINE = frozenset({"classification", "multi_label", "regression", "ner", "token_classification"})
"""Heads whose models answer a plain line of text: `TaskType.reads_plain_text`, of which reading a run loads nothing."""


def next_steps(run_id: str) -> list[str]:
    """Lines for a person whose run has completed: where its files are, and commands, each on an indented line.

    Of a job on a cluster, whose files and model are not here, only the command to look at it. The run is complete
    without these lines: what goes wrong here costs the lines alone.
    """
    from orchestrator.registry.registry import Registry

    outcome, commands = "completed", [f"orchestrator{given_options()} runs show {run_id}"]
    if not os.environ.get(ASKED_AT_VARIABLE):
        with suppress(Exception), Registry(current_settings().registry, read_only=True) as registry:
            run = registry.run(run_id)
            if run.storage_path is not None:
                outcome = f"completed; its files: {run.storage_path}"
            commands += model_commands(run, registry)
    return [outcome, "go on with:", *(f"  {command}" for command in commands)]


def model_commands(run: "RunRecord", registry: "Registry") -> list[str]:
    """Two commands, one that uses the model that a run left and one that copies it; none where there is no model.

    Of a pipeline it is the model of its newest stage that has one; of a trial its own, known by the trial's id.
    """
    run = _newest_with_model(run, registry)
    models = registry.models.left_by(run)
    if models:
        return _commands(models[0].label, models[0].head, models[0].folder, _labeled_file(run.spec))
    if run.parent_id is None or not run.model_folder:
        return []
    sweep = registry.run(run.parent_id)
    siblings, file = registry.models.left_by(sweep), _labeled_file(sweep.spec)
    return _commands(run.id, siblings[0].head, run.model_folder, file) if siblings else []


def _newest_with_model(run: "RunRecord", registry: "Registry") -> "RunRecord":
    """The run itself, or of a pipeline the newest of its stages that has left a model."""
    stages = registry.stages(run.id) if run.kind == "pipeline" else []
    return next((stage for stage in stages if stage.model_folder), run)


def _labeled_file(spec: "Mapping[str, Any]") -> str | None:
    """A task's file for validation, else the one that it is taken from; None where neither is on this machine."""
    files = (spec.get("task") or {}).get("files") or {}
    path = files.get("validation", files.get("train"))
    return path if path is not None and Path(path).is_file() else None


def _commands(model: str, head: str, folder: str, file: str | None) -> list[str]:
    orchestrator, name = f"orchestrator{given_options()}", shlex.quote(model)
    mask = _mask_token(folder) if head == "pretraining" else None
    if mask is not None:
        use = f'{orchestrator} fill-mask {name} "A {mask} of your own."'
    elif head in ("pretraining", "embedding"):
        use = f'echo "A text of your own." | {orchestrator} embed {name}'
    elif head in ASKED_BY_A_LINE:
        use = f'echo "A text of your own." | {orchestrator} predict {name}'
    else:
        use = f"{orchestrator} predict {name} {shlex.quote(file or 'FILE')}"
    return [use, f"{orchestrator} models export {name} {shlex.quote(model.replace('@', '-').replace('/', '-'))}"]


def _mask_token(folder: str) -> str | None:
    """The token that stands for a missing word; None of a model that reads from left to right, or cannot be read."""
    from bert_core.checkpoints.weight_files import WEIGHTS_FILE
    from bert_core.config import BertConfig
    from bert_core.text.tokenization import Tokenizer
    from orchestrator.storage import local_copy

    with suppress(Exception):  # whatever is wrong with the folder, the model is only spoken of here
        here = local_copy(folder, skip=(WEIGHTS_FILE,))
        if not BertConfig.from_pretrained(here).causal_attention:
            tokenizer = Tokenizer.load(here)
            return tokenizer.token(tokenizer.mask_id)
    return None
