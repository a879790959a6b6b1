"""Command group `models`: registered models, their aliases and their lineage."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orchestrator.cli.frame import GlobalOptionsGroup, current_settings
from orchestrator.cli.messages import notify
from orchestrator.cli.output import page_size, show_record, show_rows, show_text
from orchestrator.cli.reading import TABLE_ENDINGS, current_reading, format_options, output_option, output_options
from orchestrator.cli.registry_reading import open_for_writing, open_registry, table_command

if TYPE_CHECKING:
    from orchestrator.registry import Registry

_model_argument = click.argument("model", metavar="MODEL")


@click.group(cls=GlobalOptionsGroup)
def models() -> None:
    """Manage registered models.

    MODEL is a name (its newest version), NAME@VERSION or NAME@ALIAS.
    """


@models.add_command
@table_command("list", example="models list")
def list_models(registry: "Registry") -> None:
    """List registered models, newest first."""
    rows = registry.models.table(limit=page_size(), offset=current_reading().offset).records
    aliases = registry.models.aliases()
    for row in rows:
        row["model"] = f"{row['name']}@{row['version']}"
        row["aliases"] = aliases.get((row["name"], row["version"]), [])
    columns = ["model", *(["aliases"] if aliases else []), "head", "task", "num_parameters", "run_id", "created_at"]
    if not current_reading().is_brief:
        columns = ["model", "name", "version", *columns[1:], "folder", "digest"]
    empty = "no models yet: a pretraining run or a sweep leaves one"
    show_rows(rows, columns, empty=empty, spare=["num_parameters", "task", "run_id"], total=registry.models.count())


@models.command("show", example="models show reviews\nmodels show reviews -o README.md")
@_model_argument
@format_options
@output_option("Write to FILE; .json, .csv and .md set the format.", endings=(*TABLE_ENDINGS, ".md"))
def show_model(model: str, output: str | None) -> None:
    """Show a model: folder, run, architecture; -o .md: its card.

    The card has data, recipe, scores with baseline and interval over seeds, lineage, and what is not known.
    """
    if output is not None and output.endswith(".md") and current_reading().form == "table":
        from orchestrator.reports.model_export import write_card

        with open_registry() as registry:
            text = write_card(model, registry)
        show_text(text, output)
        return
    from orchestrator.storage import join, read_json

    with open_registry() as registry:
        found = registry.models.get(model)
        aliases = registry.models.aliases().get((found.name, found.version))
        tasks = [run.task for run in registry.run_records([found.run_id or ""]) if run.task]
    record = asdict(found) | ({"task": tasks[0]} if tasks else {}) | ({"aliases": aliases} if aliases else {})
    try:
        config = read_json(join(found.folder, "config.json"))
    except FileNotFoundError:
        notify(f"its folder {found.folder} is gone")
        config = {}
    shape = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
    record |= {name: config[name] for name in shape if name in config}
    show_record(record)


@models.command(example="models alias reviews@3 production\nmodels alias reviews@production --rm")
@_model_argument
@click.argument("alias", metavar="[ALIAS]", required=False)
@click.option("--rm", "is_removed", is_flag=True, help="Remove the alias; MODEL is then NAME@ALIAS.")
def alias(model: str, alias: str | None, is_removed: bool) -> None:
    """Point an alias at a model version.

    Use NAME@ALIAS wherever a model is expected. An existing alias is moved.
    """
    if is_removed == (alias is not None):
        raise click.UsageError("give MODEL ALIAS, or NAME@ALIAS --rm")
    with open_for_writing() as registry:
        if alias is not None:
            found, before = registry.models.set_alias(model, alias)
            moved = f", before {found.name}@{before}" if before not in (None, found.version) else ""
            notify(f"{found.name}@{alias} is {found.label}{moved}")
            return
        name, _, removed = model.rpartition("@")
        if not name:
            raise click.UsageError(f"{model!r} is no alias; give NAME@ALIAS")
        registry.models.remove_alias(name, removed)
        notify(f"removed {model}")


@models.command(example="models lineage reviews/finetuning\nmodels lineage text.txt --down")
@_model_argument
@click.option("--down", is_flag=True, help="Descendants instead of ancestors.")
@output_options
def lineage(model: str, down: bool) -> None:
    """Draw the lineage of a model, run, file or tokenizer.

    MODEL may also be a run, a path, or a digest prefix. A node is STALE when one of its ancestors has changed
    or has a newer version.
    """
    with open_registry() as registry:
        tree = registry.lineage.tree(model, downward=down)
    reading = current_reading()
    if reading.form == "json":
        show_record(tree.record())
    elif reading.form == "csv":
        show_rows(tree.rows(), ["depth", "kind", "name", "digest", "role", "run", "stale"])
    else:
        show_text("".join(f"{line}\n" for line in tree.lines()), reading.output)
        if not tree.branches:
            notify("nothing was made of it" if down else "what it was made of is not recorded")


@models.command(example="models export demo-pretrained -o exported/")
@_model_argument
@click.option("-o", "--output", required=True, metavar="FOLDER", help="New folder to write.")
def export(model: str, output: str) -> None:
    """Export a model as a folder that `transformers` loads."""
    from orchestrator.reports.model_export import export_model, note_export

    settings = current_settings()
    show_text(export_model(model, output, settings))
    note_export(model, output, settings)
