"""Command group `models`: the registered models."""

from dataclasses import asdict

import click

from orchestrator.cli.commands.lineage_drawing import descendants, lineage
from orchestrator.cli.frame import GlobalOptionsGroup, WritingCommand, current_settings
from orchestrator.cli.messages import notify, tell_more
from orchestrator.cli.output import num_rows_shown, show_record, show_rows, show_text, shows_briefly
from orchestrator.cli.output_option import output_option
from orchestrator.cli.reading import output_options, page_options

_PAGE = 30


@click.group(cls=GlobalOptionsGroup)
def models() -> None:
    """Registered models."""


@models.command("list", example="orchestrator models list")
@page_options("models, the newest ones", _PAGE)
def list_models(limit: int | None, offset: int, form: str | None, output: str | None) -> None:
    """The newest registered models."""
    from orchestrator.cli.commands.registry_reading import open_registry

    limit = limit or num_rows_shown(_PAGE, form, output)
    with open_registry() as registry:
        rows, aliases = registry.models.table(limit=limit, offset=offset).records, registry.models.aliases()
        num_models = registry.models.count() if offset or len(rows) == limit else len(rows)
    for row in rows:
        row["model"] = f"{row['name']}@{row['version']}"
        row["aliases"] = aliases.get((row["name"], row["version"]), [])
    columns = ["model", *(["aliases"] if aliases else []), "head", "task", "num_parameters", "run_id", "created_at"]
    if not shows_briefly(form, output):
        columns = ["model", "name", "version", *columns[1:], "folder", "digest"]
    empty = (
        f"there are {num_models:,} models" if num_models else "no models yet: a pretraining run or a sweep leaves one"
    )
    show_rows(rows, columns, form, output, empty=empty, spare=["num_parameters", "task", "run_id"])
    tell_more(len(rows), num_models, offset)


@models.command("show", example="orchestrator models show demo-pretrained")
@click.argument("model", metavar="MODEL")
@output_options
def show_model(model: str, form: str | None, output: str | None) -> None:
    """One model: where it lies, where it came from, its shape.

    MODEL is a name, name@version or name@alias.
    """
    from orchestrator.cli.commands.registry_reading import open_registry
    from orchestrator.storage import join, read_json

    with open_registry() as registry:
        found = registry.models.get(model)
        aliases = registry.models.aliases().get((found.name, found.version), [])
    record = asdict(found) | ({"aliases": aliases} if aliases else {})
    try:
        config = read_json(join(found.folder, "config.json"))
    except FileNotFoundError:
        notify(f"its folder {found.folder} is gone")
        config = {}
    shape = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
    record |= {name: config[name] for name in shape if name in config}
    show_record(record, form, output)


@models.command(example="orchestrator models alias reviews@3 production")
@click.argument("model", metavar="MODEL")
@click.argument("alias", metavar="ALIAS")
def alias(model: str, alias: str) -> None:
    """Let a name of your own mean a version of a model.

    NAME@ALIAS is taken wherever a model is named, and means the version that the alias has then. An alias that is there
    already is moved.
    """
    from orchestrator.cli.commands.registry_reading import open_registry
    from orchestrator.registry import Registry

    open_registry().close()
    with Registry(current_settings().registry) as registry:
        found, before = registry.models.set_alias(model, alias)
    moved = f", before {found.name}@{before}" if before not in (None, found.version) else ""
    notify(f"{found.name}@{alias} is {found.label}{moved}")


@models.command(example="orchestrator models unalias reviews@production")
@click.argument("model", metavar="MODEL")
def unalias(model: str) -> None:
    """Forget an alias, given as NAME@ALIAS."""
    from orchestrator.cli.commands.registry_reading import open_registry
    from orchestrator.errors import InputError
    from orchestrator.registry import Registry

    name, _, alias = model.rpartition("@")
    if not name:
        raise InputError(f"{model!r} names no alias; give NAME@ALIAS")
    open_registry().close()
    with Registry(current_settings().registry) as registry:
        registry.models.remove_alias(name, alias)
    notify(f"forgot {model}")


@models.command(example="orchestrator models card reviews@production -o README.md")
@click.argument("model", metavar="MODEL")
@output_option("File to write; stdout when left out")
def card(model: str, output: str | None) -> None:
    """Write a model card from the record, in Markdown.

    Data, recipe, scores with baseline and the interval over seeds, where the model came from, and what is not known.
    """
    from orchestrator.cli.commands.registry_reading import open_registry
    from orchestrator.models.card import write_card

    with open_registry() as registry:
        text = write_card(model, registry)
    show_text(text, output)


@models.command(
    cls=WritingCommand,
    what="FOLDER",
    example="orchestrator models export demo-pretrained -o exported/",
    output_help="Folder to make.",
)
@click.argument("model", metavar="MODEL")
def export(model: str, output: str) -> None:
    """Copy a model's folder to a new place.

    Whole or not at all; `transformers` loads it from there.
    """
    from orchestrator.models.export import export_model, note_export

    settings = current_settings()
    show_text(export_model(model, output, settings))
    note_export(model, output, settings)


models.add_command(lineage)
models.add_command(descendants)
