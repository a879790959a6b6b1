"""`init`: from files of data to a spec that can be run."""

import shlex
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from orchestrator.cli.frame import GlobalOptionsCommand, current_settings, given_options
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_text
from orchestrator.cli.reading import output_option
from orchestrator.drafting.request import DRAFT_KINDS, DraftRequest
from orchestrator.progress import is_terminal

if TYPE_CHECKING:
    from orchestrator.drafting.draft import Draft

_WIDTH = 80
_TOPIC = 10


@click.command(cls=GlobalOptionsCommand, example="orchestrator init reviews.csv\norchestrator run reviews.yaml")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@output_option("Spec to write. Default: name of the data, as .yaml, here.")
@click.option("--force", is_flag=True, help="Overwrite an existing spec.")
@click.option("--model", metavar="NAME", help="Base model: folder, registered model, or Hub model id.")
@click.option(
    "--kind",
    type=click.Choice(DRAFT_KINDS),
    metavar="TYPE",
    help=f"What to train, where the data is ambiguous: {', '.join(DRAFT_KINDS)}.",
)
@click.option("--text", "texts", metavar="COLUMN", multiple=True, help="Text column; repeat for text pairs.")
@click.option("--label", metavar="COLUMN", help="Label column.")
@click.option(
    "--minutes",
    type=click.FloatRange(0.5),
    default=10.0,
    show_default=True,
    metavar="MINUTES",
    help="Target duration of the run on this machine.",
)
def init(
    files: tuple[str, ...],
    output: str | None,
    force: bool,
    model: str | None,
    kind: str | None,
    texts: tuple[str, ...],
    label: str | None,
    minutes: float,
) -> None:
    """Write a spec (YAML) for your data.

    FILE: CSV, TSV, JSONL, Parquet, CoNLL, SQuAD JSON or plain text, also compressed. File names tell splits
    apart (train, dev, test); without a validation file the spec holds out a share of the training examples. FILE is
    never changed. In a pipe the spec's path goes to stdout.
    """
    notify(f"looking at {', '.join(files)}")
    from orchestrator.cluster.capacity import logical_cpus
    from orchestrator.drafting.draft import draft_spec
    from orchestrator.errors import InputError
    from orchestrator.provenance.machine import read_machine

    if len(texts) > 2:
        raise InputError(f"--text {' --text '.join(texts)}: a task reads one column of text or two")
    request = DraftRequest(
        files=files,
        output=output,
        kind=kind,  # type: ignore[arg-type]  # one of the choices
        text_columns=texts,
        label_column=label,
        model=model,
        minutes=minutes,
        num_cores=logical_cpus(0),
        gpus=read_machine().gpus,
        settings=current_settings(),
    )
    if model:
        from orchestrator.models.resolve import resolve_model
        from orchestrator.models.weight_checks import check_weights

        check_weights(resolve_model(model, request.settings))
    draft = draft_spec(request)
    _check_targets(draft, files, force=force)
    for line in _summary(draft, draft.write()):
        notify(line)
    if not is_terminal(sys.stdout):
        show_text(draft.spec_path)


def _check_targets(draft: "Draft", inputs: Sequence[str], *, force: bool) -> None:
    """Check that no file is in the way. Raises: InputError, naming those that are."""
    from orchestrator.errors import InputError
    from orchestrator.storage import exists
    from orchestrator.storage.uris import absolute

    targets = [*draft.side_files, draft.spec_path]
    remedy = "name another spec with -o FILE"
    for target in targets:
        if absolute(target) in map(absolute, inputs):
            raise InputError(f"{target} would be written over, and it is the data itself; {remedy}")
    there = ", ".join(filter(exists, targets))
    if there and not force:
        raise InputError(f"there already: {there}; write over with --force, or {remedy}")


def _summary(draft: "Draft", written: Iterable[str]) -> Iterable[str]:
    """The findings, what was written, and the next commands, folded at spaces to the width of a terminal."""
    for topic, text in (*draft.findings, ("wrote", ", ".join(written))):
        yield textwrap.fill(
            text,
            _WIDTH,
            initial_indent=f"{topic:<{_TOPIC}}",
            subsequent_indent=" " * _TOPIC,
            break_long_words=False,
            break_on_hyphens=False,
        )
    yield "next:"
    for verb in ("plan", "run"):
        yield f"  orchestrator{given_options()} {shlex.join((verb, draft.spec_path))}"
