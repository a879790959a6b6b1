"""Command that compares resumed runs with uninterrupted ones: `verify-resume`."""

import click

from orchestrator.cli.frame import GlobalOptionsCommand, current_settings, overrides_argument, spec_argument
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_rows
from orchestrator.cli.reading import reading_options

_DIGITS = 12


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator verify-resume experiments/pretrain_tiny_wikipedia.yaml \\\n"
    "    'corpus.files=[notes/*.txt]' tokenizer=tokenizers/notes --steps 10",
)
@spec_argument
@overrides_argument
@click.option("--steps", default=5, show_default=True, type=click.IntRange(min=1), help="Steps before the kill.")
@click.option(
    "--workers",
    multiple=True,
    type=click.IntRange(min=1),
    help="A number of workers to compare with; may be repeated. When left out: 1, or 2 for a spec with 1.",
)
@click.option("--keep", is_flag=True, help="Keep the runs, which are deleted when all is equal.")
@reading_options
def verify_resume(
    spec_path: str,
    overrides: tuple[str, ...],
    steps: int,
    workers: tuple[int, ...],
    keep: bool,
    form: str | None,
    output: str | None,
) -> int:
    """Compare a killed and resumed run with a straight one.

    It shows on this machine that a killed run ends as if nothing had happened. A pretraining runs for twice --steps:
    straight, with `kill -9` in the middle and a resume, and with another number of workers, from its start and from the
    resume on. Batches, weights and optimizer are compared bit by bit; with other workers the batches alone. Sweeps and
    distillations are carried out whole, and compared by scores, weights and predictions. Exit status 1: something
    differs.
    """
    from dataclasses import asdict

    say_now(f"reading the spec {spec_path}")
    from orchestrator.progress import show_progress
    from orchestrator.specs.loading import load_spec
    from orchestrator.verification.verify_resume import verify_resume as verify

    spec = load_spec(spec_path, overrides)
    with show_progress():
        verification = verify(spec, current_settings(), num_steps=steps, worker_counts=workers, keep=keep)
    rows = [asdict(comparison) for comparison in verification.comparisons]
    if form is None and output is None:
        rows = [row | {name: str(row[name])[:_DIGITS] for name in ("straight", "other")} for row in rows]
    show_rows(rows, list(rows[0]), form, output)
    if not verification.all_equal:
        notify(f"a run that was killed or shared differs; the runs are kept in {verification.home}")
        return 1
    return 0
