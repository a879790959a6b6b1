"""`mine`: pairs that rerankers and encoders learn from."""

import click

from orchestrator.cli.commands.evaluating import check_known
from orchestrator.cli.commands.output_files import write_pieces
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings, overrides_argument
from orchestrator.cli.messages import say_now, status_line
from orchestrator.cli.output_option import output_option


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator mine my-encoder own head=retrieval folder=docs -o pairs.jsonl\n"
    "orchestrator mine my-encoder cranfield --for encoder -o hard.jsonl",
)
@click.argument("model", metavar="MODEL")
@click.argument("task", metavar="TASK")
@overrides_argument
@click.option("--for", "learner", type=click.Choice(["reranker", "encoder"]), default="reranker", help="What learns.")
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test"]),
    default="train",
    show_default=True,
    help="The split whose queries are asked.",
)
@click.option(
    "--num-negatives",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="For each relevant document of a query.",
)
@click.option(
    "--num-candidates", type=click.IntRange(1), default=50, show_default=True, help="First hits that these come from."
)
@output_option("Write there instead of to stdout")
def mine(
    model: str,
    task: str,
    overrides: tuple[str, ...],
    learner: str,
    split: str,
    num_negatives: int,
    num_candidates: int,
    output: str | None,
) -> None:
    """Pairs for a reranker or an encoder to learn from.

    Each relevant document of a query is a pair, and so are others drawn from the first hits of MODEL, any encoder.
    TASK is a retrieval task's id with folder=DIR, or a spec file with one. Results are JSON lines with query, document
    and relevant, yes or no: what a sweep learns with head: classification, text_columns: [query, document] and
    label_column: relevant. Its model goes to `search --rerank MODEL --relevant-label yes`.

    With --for encoder a line is a query, its positive and a list of hard negatives: head: embedding, objective:
    in_batch_negatives, text_columns: [query, positive], negative_columns: [negatives].
    """
    say_now(f"loading {model}")
    from orchestrator.inference.blocks import json_lines
    from orchestrator.models.resolve import resolve_model
    from orchestrator.retrieval.mining import mine_pairs
    from orchestrator.retrieval.searching import INDEXES, collection_of
    from orchestrator.specs.loading import load_task_spec
    from orchestrator.storage import join
    from orchestrator.tasks import load_task

    spec = load_task_spec(task, overrides)
    check_known(spec)
    loaded = load_task(spec)
    collection_of(loaded)
    settings = current_settings()
    folder = resolve_model(model, settings)
    with status_line() as status:
        kept = join(settings.storage, INDEXES)
        counts = num_negatives, num_candidates
        pairs = mine_pairs(folder, loaded, split, *counts, status, kept, learner == "encoder")  # type: ignore[arg-type]
        write_pieces((json_lines([pair]) for pair in pairs), output)
