"""Fine-tuning here and in transformers, from the same weights by the same recipe: validation scores and CPU time.

    python -m benchmarks.fine_tuning FOLDER --task sst2 --data glue/SST-2 --seeds 0 1 --set recipe.learning_rate=5.0e-5

FOLDER is a model in Hugging Face's layout. Both sides start from equal weights, head included, see the same batches in
the same order and the same learning rates; transformers pads each batch to its longest example, as its users do. Only
dropout is drawn differently. `KEY=VALUE` sets `recipe.…` and `task.…` fields, as for a sweep.
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from benchmarks.training_step import ENVIRONMENT
from bert_core.learning_rates import learning_rate_factor
from bert_core.text.tokenization import Tokenizer
from orchestrator.cluster.torch_devices import autocast
from orchestrator.finetuning.batches import make_batch
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.evaluation import score_model
from orchestrator.finetuning.heads import HeadModel
from orchestrator.finetuning.training import fine_tune
from orchestrator.finetuning.trial import prepare_trial_features
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.loading import parse_spec
from orchestrator.specs.yaml_text import parse_value
from orchestrator.tasks.features import Features
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.scoring import decode, majority_baseline, score
from orchestrator.tasks.task import Task
from orchestrator.training.batch_order import Schedule, epoch_batches

Scores = dict[str, float]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def read_spec(arguments: argparse.Namespace) -> SweepSpec:
    values: dict[str, Any] = {
        "kind": "sweep",
        "task": {"id": arguments.task, "folder": arguments.data},
        "recipe": {"init_from": arguments.folder},
    }
    for text in arguments.changes:
        key, _, value = text.partition("=")
        section, _, name = key.partition(".")
        values[section][name] = parse_value(value, text)
    spec = parse_spec(values)
    assert isinstance(spec, SweepSpec)
    return spec


def train_here(
    model: HeadModel, task: Task, train: Features[Any], validation: Features[Any], recipe: RecipeSpec
) -> Scores:
    def evaluate() -> tuple[float, Scores]:
        options = task.type.options_type.of_recipe(recipe)
        scored = score_model(model, task, validation, "validation", options, recipe.precision)
        return scored.metrics[task.metric], dict(scored.metrics)

    last: list[Scores] = []
    fine_tune(model, train, recipe, evaluate, lambda evaluation, _: last.append(evaluation.scored))
    return last[-1]


def padded(values: Tensor, features: Features[Any], windows: np.ndarray[Any, Any], fill: int) -> Tensor:
    rows = torch.split(values, features.lengths[windows].tolist())
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=fill)


def padded_batch(features: Features[Any], windows: np.ndarray[Any, Any], model: HeadModel) -> dict[str, Tensor]:
    batch = make_batch(features, windows, torch.device("cpu"))
    inputs = {
        "input_ids": padded(batch.seqs.input_ids, features, windows, model.config.pad_token_id or 0),
        "attention_mask": padded(torch.ones_like(batch.seqs.input_ids), features, windows, 0),
    }
    if model.config.type_vocab_size:
        inputs["token_type_ids"] = padded(batch.seqs.token_type_ids, features, windows, 0)
    if features.head == "ner":
        return {**inputs, "labels": padded(batch.targets, features, windows, -100)}
    if features.head == "qa":
        return {**inputs, "start_positions": batch.targets[:, 0], "end_positions": batch.targets[:, 1]}
    return {**inputs, "labels": batch.targets}


def forever(features: Features[Any], recipe: RecipeSpec) -> Iterator[np.ndarray[Any, Any]]:
    for epoch in itertools.count():
        yield from epoch_batches(features.lengths, recipe.batch_size, recipe.seed, epoch)


def train_there(reference: Any, model: HeadModel, train: Features[Any], recipe: RecipeSpec) -> None:
    schedule = Schedule(train.num_windows, recipe.batch_size, recipe.epochs, recipe.evaluations_per_epoch)
    plain = {id(p) for p in reference.parameters() if p.dim() < 2}
    groups = [
        {"params": [p for p in reference.parameters() if id(p) not in plain], "weight_decay": recipe.weight_decay},
        {"params": [p for p in reference.parameters() if id(p) in plain], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, eps=1e-6)
    num_warmup = round(recipe.warmup_ratio * schedule.num_steps)
    reference.train()
    for step, windows in enumerate(itertools.islice(forever(train, recipe), schedule.num_steps)):
        torch.manual_seed(recipe.seed * 1_000_003 + step)
        with autocast(torch.device("cpu"), recipe.precision):
            loss = reference(**padded_batch(train, windows, model)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), recipe.max_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * learning_rate_factor(step, schedule.num_steps, num_warmup)
        optimizer.step()


@torch.inference_mode()
def score_there(reference: Any, model: HeadModel, task: Task, features: Features[Any], recipe: RecipeSpec) -> Scores:
    reference.eval()
    rows: list[Tensor] = []
    for windows in np.array_split(np.arange(features.num_windows), -(-features.num_windows // 32)):
        batch = padded_batch(features, windows, model)
        with autocast(torch.device("cpu"), recipe.precision):
            output = reference(
                **{name: batch[name] for name in batch if "label" not in name and "position" not in name}
            )
        is_token = batch["attention_mask"].bool()
        if features.head == "qa":
            rows.append(torch.stack([output.start_logits[is_token], output.end_logits[is_token]], dim=1).float())
        else:
            rows.append((output.logits[is_token] if features.head == "ner" else output.logits).float())
    logits = torch.cat(rows).numpy()
    options = task.type.options_type.of_recipe(recipe)
    predictions = decode(task, features, task.examples("validation"), logits, options)
    return dict(score(task, "validation", predictions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="model to start from; without one there is nothing to compare")
    parser.add_argument("--task", default="sst2")
    parser.add_argument("--data", help="folder of the task's official files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", dest="changes", nargs="*", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    if arguments.folder is None:
        print("fine_tuning: name a model folder and a task's data, see --help")
        return
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):  # read when a process starts
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **ENVIRONMENT})
    spec = read_spec(arguments)
    task, tokenizer = load_task(spec.task), Tokenizer.load(Path(arguments.folder))
    print(f"{task.id}: majority baseline {majority_baseline(task, 'validation')[task.metric]:.4f} {task.metric}")
    with tempfile.TemporaryDirectory() as cache:
        train, validation = (
            prepare_trial_features(task, split, spec.recipe, tokenizer, cache) for split in ("train", "validation")
        )
        print(
            f"{train.num_windows:,} windows, {len(train.input_ids):,} tokens to train on; {spec.recipe!r}", flush=True
        )
        for seed in arguments.seeds:
            recipe = spec.recipe.model_copy(update={"seed": seed})
            model = build_model(task, recipe, arguments.folder, tokenizer)
            architecture = getattr(transformers, model.config.family.architecture(type(model).__name__))
            reference = architecture(transformers.AutoConfig.for_model(**model.config.to_dict()))
            reference.load_state_dict(model.weight_names.to_file(model.state_dict()), strict=False)
            started = time.process_time()
            here = train_here(model, task, train, validation, recipe)
            between = time.process_time()
            train_there(reference, model, train, recipe)
            there = score_there(reference, model, task, validation, recipe)
            ended = time.process_time()
            print(
                f"seed {seed}: here {here[task.metric]:.4f} in {between - started:.0f} s of CPU, transformers "
                f"{there[task.metric]:.4f} in {ended - between:.0f} s ({(ended - between) / (between - started):.1f}×)",
                flush=True,
            )


if __name__ == "__main__":
    main()
