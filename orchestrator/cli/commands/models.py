"""`models`, `evaluate`, `fill-mask`, `next-sentence`: models and what they say."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.searching import reranking_of, reranking_options
from orchestrator.cli.frame import (
    GlobalOptionsCommand,
    GlobalOptionsGroup,
    current_settings,
    overrides_argument,
    reading_options,
)
from orchestrator.cli.output import notify, show_record, show_rows, show_text, status_line

if TYPE_CHECKING:
    from orchestrator.specs import TaskSpec


@click.group(cls=GlobalOptionsGroup)
def models() -> None:
    """Registered models."""


@models.command("list", example="orchestrator models list")
@reading_options
def list_models(form: str | None, output: str | None) -> None:
    """Every registered model, newest first."""
    from orchestrator.cli.commands.runs import records_of
    from orchestrator.registry import Registry

    with Registry(current_settings().registry) as registry:
        rows = records_of(registry.models.frame())
    for row in rows:
        row["model"] = f"{row['name']}@{row['version']}"
    columns = ["model", "head", "task", "num_parameters", "run_id", "created_at"]
    if form not in (None, "table") or output:
        columns = ["model", "name", "version", *columns[1:], "folder", "digest"]
    show_rows(rows, columns, form, output, empty="no models yet: a pretraining run or a sweep leaves one")


@models.command("show", example="orchestrator models show demo-pretrained")
@click.argument("model", metavar="MODEL")
@reading_options
def show_model(model: str, form: str | None, output: str | None) -> None:
    """One model: where it lies, where it came from, its shape. MODEL is a name or name@version."""
    from orchestrator.registry import Registry
    from orchestrator.storage import join, read_json

    with Registry(current_settings().registry) as registry:
        found = registry.models.get(model)
    record = asdict(found)
    try:
        config = read_json(join(found.folder, "config.json"))
    except FileNotFoundError:
        notify(f"its folder {found.folder} is gone")
        config = {}
    shape = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
    record |= {name: config[name] for name in shape if name in config}
    show_record(record, form, output)


@models.command(example="orchestrator models export demo-pretrained exported/")
@click.argument("model", metavar="MODEL")
@click.argument("folder", metavar="FOLDER")
def export(model: str, folder: str) -> None:
    """Copy a model's folder to a new place.

    Whole or not at all; `transformers` loads it from there.
    """
    from orchestrator.models.export import export_model

    show_text(export_model(model, folder, current_settings()))


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator evaluate my-model sst2 folder=data/glue/SST-2\n"
    "orchestrator evaluate my-encoder cranfield folder=cranfield --rerank pairs",
)
@click.argument("model", metavar="MODEL")
@click.argument("task", metavar="TASK")
@overrides_argument
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test"]),
    default="validation",
    show_default=True,
    help="The split to score.",
)
@click.option("--batch-size", type=click.IntRange(1), default=64, show_default=True, help="Examples of a forward pass.")
@click.option("--predictions", metavar="FILE", help="Write each example's prediction there, as JSONL.")
@reranking_options
@reading_options
def evaluate(
    model: str,
    task: str,
    overrides: tuple[str, ...],
    split: str,
    batch_size: int,
    predictions: str | None,
    rerank: str | None,
    relevant: str | None,
    candidates: int,
    form: str | None,
    output: str | None,
) -> None:
    """Score a model on a split of a task.

    MODEL is a registered name, a run or a folder. TASK is a known task's id with folder=DIR, or a spec file with a
    task; KEY=VALUE sets fields of the task. The score is shown, not recorded: a spec of kind evaluate records it.
    """
    from orchestrator.inference import scoring
    from orchestrator.models.resolve import resolve_model
    from orchestrator.specs.loading import load_task_spec
    from orchestrator.tasks import load_task

    spec = load_task_spec(task, overrides)
    check_known(spec)
    settings = current_settings()
    with status_line() as status:
        result = scoring.evaluate(
            resolve_model(model, settings),
            load_task(spec),
            split,  # type: ignore[arg-type]
            settings.storage,
            batch_size,
            predictions,
            reranking_of(rerank, relevant, candidates, settings),
            status,
        )
    record = {"model": model, "task": result.task, "split": result.split, "num_examples": result.num_examples}
    show_record(record | dict(result.counts) | dict(result.metrics), form, output)


def check_known(task: "TaskSpec") -> None:
    """Raise NotFoundError for a task that is neither known nor a person's own."""
    from orchestrator.errors import NotFoundError
    from orchestrator.specs.problems import nearest
    from orchestrator.tasks.catalogue import KNOWN_TASKS

    if task.id not in KNOWN_TASKS and task.head is None and not task.files:
        raise NotFoundError(
            f"no known task is called {task.id!r}{nearest(task.id, KNOWN_TASKS)} "
            "(a task of one's own needs head=… and files.validation=…)"
        )


@click.command(
    "fill-mask", cls=GlobalOptionsCommand, example='orchestrator fill-mask my-model "Paris is the [MASK] of France."'
)
@click.argument("model", metavar="MODEL")
@click.argument("text")
@click.option("--top-k", type=click.IntRange(1), default=5, show_default=True, help="Guesses for each [MASK].")
@reading_options
def fill_mask(model: str, text: str, top_k: int, form: str | None, output: str | None) -> None:
    """The likeliest tokens for each [MASK] of a text."""
    from orchestrator.inference import pretraining_heads
    from orchestrator.models.resolve import resolve_model

    folder = resolve_model(model, current_settings())
    rows = [asdict(guess) for guess in pretraining_heads.fill_mask(folder, text, top_k)]
    show_rows(rows, ["mask", "rank", "token", "probability", "text"], form, output)


@click.command(
    "next-sentence",
    cls=GlobalOptionsCommand,
    example='orchestrator next-sentence my-model "He went home." "Then he slept."',
)
@click.argument("model", metavar="MODEL")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@reading_options
def next_sentence(model: str, first: str, second: str, form: str | None, output: str | None) -> None:
    """How likely the text B follows the text A."""
    from orchestrator.inference import pretraining_heads
    from orchestrator.models.resolve import resolve_model

    folder = resolve_model(model, current_settings())
    show_record(asdict(pretraining_heads.next_sentence(folder, first, second)), form, output)
