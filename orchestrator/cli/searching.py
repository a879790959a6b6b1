"""`search`: documents that answer a query, and pairs mined from a retrieval task."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.frame import command, current_settings, options, precision_option, refuse_options
from orchestrator.cli.messages import notify, status_line
from orchestrator.cli.output import show_rows, write_pieces
from orchestrator.cli.predicting import device_option, find_model, model_argument, read_stdin
from orchestrator.cli.reading import check_output, current_reading, output_options
from orchestrator.errors import InputError
from orchestrator.progress import counted

if TYPE_CHECKING:
    from orchestrator.results import Split
    from orchestrator.retrieval.searching import Reranking
    from orchestrator.specs.network import Precision
    from orchestrator.tasks import Task

_SHOWN_CHARACTERS = 100


reranking_options = options(
    click.option("--rerank", metavar="MODEL", help="Rerank the top hits with this cross-encoder."),
    click.option("--relevant-label", metavar="LABEL", help="For a classifier: the label that means relevant."),
    click.option(
        "--num-candidates", type=click.IntRange(1), default=50, help="Top hits to rerank, or to draw negatives from."
    ),
)
"""The arguments of `find_reranking`."""


def find_reranking(rerank: str | None, relevant_label: str | None, num_candidates: int) -> "Reranking | None":
    """The reranking that the options ask for; None without --rerank.

    Raises: InputError for a label without a model; NotFoundError.
    """
    if rerank is None:
        if relevant_label is not None:
            raise InputError("--relevant-label names a label of the model that reranks; give that with --rerank")
        return None
    from orchestrator.models.resolve import resolve_model
    from orchestrator.retrieval.searching import Reranking

    return Reranking(resolve_model(rerank, current_settings()), relevant_label, num_candidates)


@command(
    example='orchestrator search my-encoder "lift of a wing" --documents corpus.jsonl\n'
    "orchestrator search my-encoder cranfield --pairs pairs.jsonl"
)
@model_argument
@click.argument("queries", metavar="[TEXT ...]", nargs=-1)
@click.option("--documents", metavar="FILE", help="Text, one document per line, or JSONL: text, title, _id.")
@click.option("--index", metavar="DIR", help="Folder of the document index; built if missing.")
@click.option("--approximate", is_flag=True, help="HNSW index, for millions; needs pip extra `search`.")
@click.option("--dimensions", type=click.IntRange(1), help="Truncate vectors to their first N dimensions.")
@click.option("--top-k", type=click.IntRange(1), default=10, help="Documents per query.")
@device_option
@precision_option
@reranking_options
@click.option("--pairs", metavar="FILE", help="Mine training pairs from a retrieval TASK (see above).")
@click.option(
    "--for",
    "learner",
    type=click.Choice(["reranker", "encoder"]),
    default="reranker",
    help="Model that will learn from the pairs.",
)
@click.option("--split", type=click.Choice(["train", "validation", "test"]), default="train", help="Split of TASK.")
@click.option("--num-negatives", type=click.IntRange(1), default=1, help="Negatives per relevant document.")
@output_options
def search(
    model: str,
    queries: tuple[str, ...],
    documents: str | None,
    index: str | None,
    approximate: bool,
    dimensions: int | None,
    top_k: int,
    device: str,
    precision: "Precision",
    rerank: str | None,
    relevant_label: str | None,
    num_candidates: int,
    pairs: str | None,
    learner: str,
    split: "Split",
    num_negatives: int,
) -> None:
    """Search documents semantically with an encoder.

    TEXT is a query; without any, queries are lines of stdin. Cosine similarity, from an index or computed on the
    fly; --rerank reorders the top hits with a cross-encoder. An index works with the model that built it.

    --pairs mines training data: `search MODEL TASK [KEY=VALUE …] --pairs FILE`, where TASK is a retrieval task's id or
    a spec. Each relevant document of a query is a pair; hard negatives are drawn from the top --num-candidates hits.
    For a reranker a line has query, document and relevant (head: classification, text_columns: [query, document],
    label_column: relevant); for an encoder query, positive and negatives (head: embedding, objective:
    in_batch_negatives, text_columns: [query, positive], negative_columns: [negatives]).
    """
    if pairs is not None:
        refuse_options(("documents", "index", "top_k", "output", "form"), "does not go with --pairs")
        if not queries:
            raise click.UsageError("--pairs needs a task: orchestrator search MODEL TASK --pairs FILE")
        check_output(pairs)
        _write_pairs(model, queries, split, num_negatives, num_candidates, learner, pairs)
        return
    refuse_options(("learner", "split", "num_negatives"), "goes with --pairs")
    if documents is None and index is None:
        raise InputError("there is nothing to search; give --documents, or --index")
    folder = find_model(model)
    from orchestrator.retrieval.searching import open_searcher

    reranker = find_reranking(rerank, relevant_label, num_candidates)
    asked = queries or _queries_of_stdin()
    if empty := [number for number, query in enumerate(asked, start=1) if not query.strip()]:
        raise InputError(f"query {empty[0]} is empty; leave it out")
    kind = "hnsw" if approximate else "exact"
    with (
        status_line() as status,
        open_searcher(
            folder, documents, index, reranker, status, kind, device=device, precision=precision, dimensions=dimensions
        ) as searcher,
    ):
        left_out = searcher.index.counts["num_empty_documents"]
        if left_out:
            notify(f"not in the index: {counted(left_out, 'document')} without text")
        rows = [
            {"query": query, "rank": rank, **hit._asdict()}
            for query, hits in zip(asked, searcher.search(asked, top_k), strict=True)
            for rank, hit in enumerate(hits, start=1)
        ]
    columns = ["query", "rank", "id", "score", "text"]
    if current_reading().is_brief:
        rows = [{**row, "text": _beginning(row["text"])} for row in rows]
        columns = columns if len(asked) > 1 else columns[1:]
    show_rows(rows, columns)


def _beginning(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def _queries_of_stdin() -> tuple[str, ...]:
    from orchestrator.inference.embedder import read_text_lines

    lines = read_stdin("reading queries from the terminal, one a line")
    found = tuple(values["text"].strip() for _, values in read_text_lines(lines))
    if not found:
        raise InputError("there is no query; give some as arguments, or as lines of stdin")
    return found


def _write_pairs(
    model: str,
    task: tuple[str, ...],
    split: "Split",
    num_negatives: int,
    num_candidates: int,
    learner: str,
    output: str,
) -> None:
    """Write pairs of queries and documents that a reranker or an encoder learns from; a task may have KEY=VALUEs."""
    folder = find_model(model)
    from orchestrator.inference.blocks import json_lines
    from orchestrator.retrieval.mining import mine_pairs
    from orchestrator.retrieval.searching import INDEXES
    from orchestrator.storage import join

    loaded, kept = load_asked_task(task[0], task[1:]), join(current_settings().storage, INDEXES)
    with status_line() as status:
        found = mine_pairs(
            folder, loaded, split, num_negatives, num_candidates, status, kept, for_encoder=learner == "encoder"
        )
        write_pieces((json_lines([pair]) for pair in found), output)


def load_asked_task(task: str, overrides: Sequence[str], own_values: Mapping[str, Any] | None = None) -> "Task":
    """Load a task by its id, or that of a spec, as `load_task_spec` finds it. Raises: SpecError, NotFoundError."""
    from orchestrator.specs.loading import load_task_spec
    from orchestrator.tasks import load_task
    from orchestrator.tasks.catalogue import check_known

    spec = load_task_spec(task, overrides, own_values)
    check_known(spec)
    return load_task(spec)
