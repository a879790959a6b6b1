"""Command group `models`: the registered models."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orchestrator.cli.frame import (
    AtDashboard,
    GlobalOptionsGroup,
    current_settings,
    reading_options,
)
from orchestrator.cli.output import notify, show_record, show_rows, show_text

if TYPE_CHECKING:
    pass


@click.group(cls=GlobalOptionsGroup)
def models() -> None:
    """Registered models."""


@models.command("list", example="orchestrator models list", at_dashboard=AtDashboard.SENT)
@reading_options
def list_models(form: str | None, output: str | None) -> None:
    """Every registered model, newest first."""
    from orchestrator.cli.commands.registry_reading import open_registry, records_of

    with open_registry() as registry:
        rows = records_of(registry.models.frame())
    for row in rows:
        row["model"] = f"{row['name']}@{row['version']}"
    columns = ["model", "head", "task", "num_parameters", "run_id", "created_at"]
    if form not in (None, "table") or output:
        columns = ["model", "name", "version", *columns[1:], "folder", "digest"]
    show_rows(rows, columns, form, output, empty="no models yet: a pretraining run or a sweep leaves one")


@models.command("show", example="orchestrator models show demo-pretrained", at_dashboard=AtDashboard.SENT)
@click.argument("model", metavar="MODEL")
@reading_options
def show_model(model: str, form: str | None, output: str | None) -> None:
    """One model: where it lies, where it came from, its shape. MODEL is a name or name@version."""
    from orchestrator.cli.commands.registry_reading import open_registry
    from orchestrator.storage import join, read_json

    with open_registry() as registry:
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


@models.command(example="orchestrator models export demo-pretrained exported/", at_dashboard=AtDashboard.REFUSED)
@click.argument("model", metavar="MODEL")
@click.argument("folder", metavar="FOLDER")
def export(model: str, folder: str) -> None:
    """Copy a model's folder to a new place.

    Whole or not at all; `transformers` loads it from there.
    """
    from orchestrator.models.export import export_model

    show_text(export_model(model, folder, current_settings()))
