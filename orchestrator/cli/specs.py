"""Commands about specs: `init` drafts one from files of data, `plan` checks and estimates one; `schema`."""

import json
import shlex
import sys
import textwrap
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from orchestrator.base.console import is_terminal
from orchestrator.base.errors import InputError
from orchestrator.cli.frame import command, current_settings, given_options, overrides_argument, spec_argument
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_rows, show_text
from orchestrator.cli.reading import current_reading, format_options, output_option
from orchestrator.cli.registry_reading import tell_earlier
from orchestrator.drafting.request import DRAFT_KINDS, DraftRequest


@command(example="init reviews.csv\nrun reviews.yaml")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@output_option("Spec to write. Default: name of the data, as .yaml, here.")
@click.option("--force", is_flag=True, help="Overwrite an existing spec.")
@click.option("--model", metavar="NAME", help="Base model: folder, registered model, or Hub model id.")
@click.option(
    "--kind",
    type=click.Choice(DRAFT_KINDS),
    metavar="TYPE",
    help=f"What to train, if the data are ambiguous: {', '.join(DRAFT_KINDS)}.",
)
@click.option("--text", "text_columns", metavar="COLUMN", multiple=True, help="Text column; repeat for text pairs.")
@click.option("--label", "label_column", metavar="COLUMN", help="Label column.")
@click.option("--minutes", type=click.FloatRange(0.5), default=10.0, help="Target duration on this machine.")
def init(files: tuple[str, ...], force: bool, text_columns: tuple[str, ...], **asked: Any) -> None:
    """Write a spec (YAML) for your data.

    FILE: CSV, TSV, JSONL, Parquet, CoNLL, SQuAD JSON or plain text, also compressed. File names tell splits
    apart (train, dev, test); without a validation file the spec holds out a share of the training examples. FILE is
    never changed. In a pipe the spec's path goes to stdout.
    """
    notify(f"looking at {', '.join(files)}")
    from orchestrator.cluster.capacity import logical_cpus
    from orchestrator.drafting.draft import draft_spec
    from orchestrator.provenance.capture import read_machine

    if len(text_columns) > 2:
        raise InputError(f"--text {' --text '.join(text_columns)}: a task reads one column of text or two")
    here: dict[str, Any] = {"num_cores": logical_cpus(0), "gpus": read_machine().gpus, "settings": current_settings()}
    request = DraftRequest(files=files, text_columns=text_columns, **asked, **here)
    if request.model:
        from orchestrator.kinds.resolved import check_weights
        from orchestrator.registry.model_names import resolve_model

        check_weights(resolve_model(request.model, request.settings))
    draft = draft_spec(request)
    written = draft.write(files, replaces=force)
    fill = partial(textwrap.fill, width=80, break_long_words=False, break_on_hyphens=False)
    for topic, text in (*draft.findings, ("wrote", ", ".join(written))):
        notify(fill(text, initial_indent=f"{topic:<10}", subsequent_indent=" " * 10))
    notify("next:")
    for verb in ("plan", "run"):
        notify(f"  orchestrator{given_options()} {shlex.join((verb, draft.spec_path))}")
    if not is_terminal(sys.stdout):
        show_text(draft.spec_path)


@command(example="plan reviews.yaml\nplan experiments/pretrain_base.yaml execution.num_workers=8")
@spec_argument
@overrides_argument
@format_options
def plan(spec_path: str, overrides: tuple[str, ...]) -> None:
    """Check a spec and estimate steps, time, memory and disk.

    The time comes from an earlier run of the spec, or is measured by a few steps on this machine; tokenizers
    and evaluations are not measured. A spec that cannot run on the cluster of --address (default: this machine) is
    refused. With a dashboard URL, models, files and free resources are checked on the head node.
    """
    say_now(f"reading the spec {spec_path}")
    from orchestrator.specs.loading import load_spec

    spec = load_spec(spec_path, overrides)
    # torch among it: a wrong spec is told before
    from orchestrator.execution.runner import check_storage_and_capacity, plan_spec
    from orchestrator.kinds import resolved_inputs

    inputs = resolved_inputs(spec, current_settings())
    rows = [asdict(row) for row in plan_spec(spec, inputs)]
    show_rows(rows, ["stage", "what", "value"])
    tell_earlier(spec, "a new run {}")
    check_storage_and_capacity(spec, inputs)


@command(example="schema sweep")
@click.argument("kind", required=False)
@format_options
def schema(kind: str | None) -> None:
    """List the kinds of spec, or the fields of KIND.

    `identity` fields define the result: runs that agree in them have one fingerprint, by which pipelines find finished
    stages; `resume` cannot change them. `execution` fields (workers, devices, checkpoints) do not change the result.
    -f json prints a JSON Schema.
    """
    from orchestrator.base.nearest import did_you_mean
    from orchestrator.specs import SPEC_KINDS, spec_class
    from orchestrator.specs.documentation import document_fields

    if kind is None:
        kinds = [{"kind": name, "about": spec_class(name).title} for name in SPEC_KINDS]
        show_rows(kinds, ["kind", "about"])
        return
    if kind not in SPEC_KINDS:
        raise InputError(f"{kind!r} is no kind of spec{did_you_mean(kind, SPEC_KINDS)}")
    rows = list(document_fields(spec_class(kind)))
    form = current_reading().form
    if form == "json":
        show_text(json.dumps(spec_class(kind).model_json_schema(), indent=2, ensure_ascii=False))
    elif form == "csv":
        show_rows(map(asdict, rows), ["field", "type", "unit", "default", "role", "about"])
    else:
        for row in rows:
            unit = f" ({row.unit})" if row.unit else ""
            default = row.default if row.default in ("required", "left out", "see below") else f"default {row.default}"
            field = f"{row.field}: {row.type}{unit}; {default}; {row.role}"
            show_text(textwrap.fill(field, 80, subsequent_indent=" " * 8))
            show_text(textwrap.fill(row.about, 80, initial_indent="    ", subsequent_indent="    "))
