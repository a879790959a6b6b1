"""Small files, specs over them, and the questions that plans ask of these: what tests of kinds and plans share."""

import json
import shutil
from pathlib import Path
from typing import Any

from bert_core.checkpoints.tensor_files import save_tensors
from bert_core.config import BertConfig
from bert_core.model import BertModel
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.base.settings import Settings
from orchestrator.kinds import kind_of, resolved_inputs
from orchestrator.kinds.plan import plan_rows
from orchestrator.specs.loading import parse_spec
from orchestrator.training.snapshots import Snapshots

CORPUS = {"files": ["corpus.txt"]}
TOKENIZER = {"kind": "tokenizer", "corpus": CORPUS, "vocab_size": 100}
STORE = {"kind": "corpus", "corpus": CORPUS, "tokenizer": "words"}
PRETRAIN = {"kind": "pretrain", "corpus": CORPUS, "tokenizer": "words", "steps": 10}
TASK = {"id": "own", "head": "classification", "text_columns": ["text"], "labels": ["a", "b"]}
FILES = {"train": "task.csv", "validation": "task.csv"}
SWEEP = {"kind": "sweep", "task": {**TASK, "files": FILES}, "recipe": {"tokenizer": "words"}}
CLASSIFIER = "BertForSequenceClassification"
DISTILL = {"kind": "distill", "teacher": "short", "task": SWEEP["task"], "recipe": {"max_seq_length": 40}}
PROBE = {"kind": "probe", "run": "probed/model", "task": SWEEP["task"], "recipe": {"max_seq_length": 40}}
EVALUATE = {"kind": "evaluate", "model": "short", "task": SWEEP["task"]}


def write_inputs(folder: Path) -> Settings:
    """Write texts, the tokenizer `words`, and `short`, a classifier of 40 positions that reads it, without weights.

    `probed` is the folder of a run that has left such a model, and snapshots of the steps 0, 5 and 10.

    Returns: settings whose home, not made yet, is beside them.
    """
    (folder / "corpus.txt").write_text("a cat\nsat\n\na cat sat\n")
    (folder / "task.csv").write_text("text,label\na cat,a\na dog,b\n")
    tokenizer = train_wordpiece(["a cat sat"], vocab_size=100, min_frequency=1)
    tokenizer.save(folder / "words")
    shutil.copytree(folder / "words", folder / "short")
    config = BertConfig.from_size("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=40)
    (folder / "short" / "config.json").write_text(json.dumps({**config.to_dict(), "architectures": [CLASSIFIER]}))

    model = BertModel.from_config(config)
    save_tensors(model.weight_names.to_file(model.state_dict()), folder / "short" / "model.safetensors")

    def copy_short(target: Path) -> None:
        shutil.copytree(folder / "short", target, dirs_exist_ok=True)

    copy_short(folder / "probed" / "model")
    for step in (0, 5, 10):
        Snapshots(str(folder / "probed")).save(step, copy_short)
    return Settings.from_options(home=str(folder / "home"), environ={})


def pipeline(**stages: dict[str, Any]) -> dict[str, Any]:
    """A pipeline of these stages."""
    return {"kind": "pipeline", "name": "all", "stages": stages}


def check(settings: Settings, **stages: dict[str, Any]) -> None:
    """Check a pipeline of these stages as a run does before it starts."""
    spec = parse_spec(pipeline(**stages))
    kind_of(spec).preflight(spec, resolved_inputs(spec, settings))


def plan(settings: Settings, values: dict[str, Any]) -> dict[str, str]:
    """The plan of a spec: values by what they are about; of several stages the last one's."""
    return dict(plan_lines(settings, values))


def plan_lines(settings: Settings, values: dict[str, Any]) -> list[tuple[str, str]]:
    """The plan of a spec, line by line; of several stages the last one's."""
    spec = parse_spec(values)
    rows = plan_rows(spec, resolved_inputs(spec, settings))
    last = list(spec.stage_specs())[-1]
    return [(row.what, row.value) for row in rows if row.stage == last and row.what != "disk in all"]


def input_identity(settings: Settings, values: dict[str, Any]) -> list[Any]:
    """What tells one state of a spec's input files from another."""
    spec = parse_spec(values)
    return kind_of(spec).input_identity(spec, resolved_inputs(spec, settings))
