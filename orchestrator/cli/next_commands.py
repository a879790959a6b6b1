"""Commands that go on from a run, ready to be pasted: after the run has ended, and below `runs show`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.base.run_states import RunState
from orchestrator.cli.frame import given_options, resume_command

if TYPE_CHECKING:
    from orchestrator.reports.run_facts import RunFacts

_OF_PAIRS = frozenset({"classification", "multi_label", "regression"})
"""Heads whose models read one text, or two where their task has two columns of text."""
_ASKED_BY_A_LINE = _OF_PAIRS | {"ner", "token_classification"}
"""Heads whose models answer a plain line of text: `RequestForm.parse_text`, of which reading a run loads nothing."""


def next_commands(facts: "RunFacts") -> list[str]:
    """Commands that use what a run left, go on with it, or show more of it."""
    own, run = f"orchestrator{given_options()}", facts.run
    commands = model_commands(facts)
    if run.state in (RunState.PENDING, RunState.RUNNING) and run.parent_id is None:
        commands += [f"{own} runs logs {run.id} --follow", f"{own} stop {run.id}"]
    if run.state in (RunState.FAILED, RunState.STOPPED, RunState.LOST) and run.parent_id is None:
        commands += [resume_command(run.id), f"{own} runs logs {run.id}"]
    if run.kind == "sweep":
        commands.append(f"{own} runs trials {run.id}")
    score, history = f"validation.{run.metric}", facts.registry.metrics.history
    if any(history(trial["id"], score).records for trial in facts.trials) if facts.trials else facts.last_step:
        commands.append(f"{own} runs plot {run.id} -o {run.id}.png")
    return [*commands, f"{own} runs show {run.id} --all"]


def model_commands(facts: "RunFacts") -> list[str]:
    """Two commands, one that uses the model that a run left and one that copies it; none where there is no model.

    Of a pipeline it is the model of its newest stage that has one; of a trial its own, known by the trial's id.
    """
    registry, model, folder = facts.registry, facts.run.id, facts.run.model_folder
    run = next((stage for stage in reversed(facts.stages) if stage.model_folder), facts.run)
    models = registry.models.left_by(run)
    if models:
        model, folder = models[0].label, models[0].folder
    elif run.parent_id is not None and folder:
        run = registry.run(run.parent_id)
        models = registry.models.left_by(run)
    if not models or not folder:
        return []
    from orchestrator.storage.model_folder import mask_token, recorded_text_columns

    own, name, head = f"orchestrator{given_options()}", shlex.quote(model), models[0].head
    mask = mask_token(folder) if head == "pretraining" else None
    if mask is not None:
        use = f'{own} fill-mask {name} "A {mask} of your own."'
    elif head in ("pretraining", "embedding"):
        use = f'echo "A text of your own." | {own} embed {name}'
    elif head in _ASKED_BY_A_LINE and not (head in _OF_PAIRS and len(recorded_text_columns(folder)) == 2):
        use = f'echo "A text of your own." | {own} predict {name}'
    else:
        files = (run.spec.get("task") or {}).get("files") or {}
        file = files.get("validation", files.get("train"))
        file = file if file is not None and Path(file).is_file() else "FILE"
        use = f"{own} predict {name} {shlex.quote(file)}"
    return [use, f"{own} models export {name} -o {shlex.quote(model.replace('@', '-').replace('/', '-'))}"]
