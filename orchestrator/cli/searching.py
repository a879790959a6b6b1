"""`search`: documents that answer a query, and pairs mined from a retrieval task."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.cli.frame import GlobalOptionsCommand, current_settings, precision_option, refuse_options
from orchestrator.cli.messages import notify, say_now, status_line
from orchestrator.cli.output import show_rows, shows_briefly, write_pieces
from orchestrator.cli.reading import check_output, output_options
from orchestrator.errors import InputError
from orchestrator.progress import counted, is_terminal

if TYPE_CHECKING:
    from orchestrator.retrieval.searching import Reranking
    from orchestrator.settings import Settings
    from orchestrator.specs.network import Precision

T = TypeVar("T")

_SHOWN_CHARACTERS = 100


@dataclass(frozen=True)
class RerankingOptions:
    """Values of `--rerank`, `--relevant-label` and `--num-candidates`."""

    model: str | None
    relevant_label: str | None
    num_candidates: int

    def resolve(self, settings: "Settings") -> "Reranking | None":
        """Turn the options into a `Reranking`; None without --rerank.

        Raises: InputError for a label without a model; NotFoundError.
        """
        from orchestrator.models.resolve import resolve_model

        if self.model is None:
            if self.relevant_label is not None:
                raise InputError("--relevant-label names a label of the model that reranks; give that with --rerank")
            return None
        from orchestrator.retrieval.searching import Reranking

        return Reranking(resolve_model(self.model, settings), self.relevant_label, self.num_candidates)


def reranking_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options that ask for a reranker; the command gets them as one value, `reranking`."""

    @wraps(command)
    def with_reranking(
        *args: Any, rerank: str | None, relevant_label: str | None, num_candidates: int, **kwargs: Any
    ) -> T:
        return command(*args, reranking=RerankingOptions(rerank, relevant_label, num_candidates), **kwargs)

    for option in (
        click.option(
            "--num-candidates",
            type=click.IntRange(1),
            default=50,
            show_default=True,
            metavar="N",
            help="Top hits to rerank, or to draw negatives from.",
        ),
        click.option("--relevant-label", metavar="LABEL", help="For a classifier: the label that means relevant."),
        click.option("--rerank", metavar="MODEL", help="Rerank the top hits with this cross-encoder."),
    ):
        with_reranking = option(with_reranking)
    return with_reranking


def _check_pairs(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if not context.resilient_parsing:
        check_output(value)
    return value


@click.command(
    cls=GlobalOptionsCommand,
    example='orchestrator search my-encoder "lift of a wing" --documents corpus.jsonl\n'
    "orchestrator search my-encoder cranfield --pairs pairs.jsonl",
)
@click.argument("model", metavar="MODEL")
@click.argument("queries", metavar="[TEXT ...]", nargs=-1)
@click.option("--documents", metavar="FILE", help="Text, one document per line, or JSONL: text, title, _id.")
@click.option("--index", metavar="DIR", help="Folder of the document index; built if missing.")
@click.option("--approximate", is_flag=True, help="HNSW index, for millions; needs pip extra `search`.")
@click.option("--dimensions", type=click.IntRange(1), metavar="N", help="Truncate vectors to their first N dimensions.")
@click.option(
    "--top-k", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="Documents per query."
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Device on this machine; cuda: its GPU.",
)
@precision_option
@reranking_options
@click.option(
    "--pairs",
    metavar="FILE",
    callback=_check_pairs,
    help="Mine training pairs from a retrieval TASK (see above).",
)
@click.option(
    "--for",
    "learner",
    type=click.Choice(["reranker", "encoder"]),
    default="reranker",
    show_default=True,
    help="Model that will learn from the pairs.",
)
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test"]),
    default="train",
    show_default=True,
    help="Split of TASK.",
)
@click.option(
    "--num-negatives",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Negatives per relevant document.",
)
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
    reranking: RerankingOptions,
    pairs: str | None,
    learner: str,
    split: str,
    num_negatives: int,
    form: str | None,
    output: str | None,
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
        _write_pairs(model, queries[0], queries[1:], learner, split, num_negatives, reranking.num_candidates, pairs)
        return
    refuse_options(("learner", "split", "num_negatives"), "goes with --pairs")
    if documents is None and index is None:
        raise InputError("there is nothing to search; give --documents, or --index")
    say_now(f"loading {model}")
    from orchestrator.models.resolve import resolve_model
    from orchestrator.retrieval.searching import open_searcher

    settings = current_settings()
    folder = resolve_model(model, settings)
    reranker = reranking.resolve(settings)
    asked = list(queries) or _queries_of_stdin()
    for number, query in enumerate(asked, start=1):
        if not query.strip():
            raise InputError(f"query {number} is empty; leave it out")
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
    if shows_briefly(form, output):
        rows = [{**row, "text": _beginning(row["text"])} for row in rows]
        columns = columns if len(asked) > 1 else columns[1:]
    show_rows(rows, columns, form, output)


def _write_pairs(
    model: str,
    task: str,
    overrides: tuple[str, ...],
    learner: str,
    split: str,
    num_negatives: int,
    num_candidates: int,
    output: str,
) -> None:
    """Write pairs of queries and documents that a reranker or an encoder learns from."""
    say_now(f"loading {model}")
    from orchestrator.inference.blocks import json_lines
    from orchestrator.models.resolve import resolve_model
    from orchestrator.retrieval.mining import mine_pairs
    from orchestrator.retrieval.searching import INDEXES, collection_of
    from orchestrator.specs.loading import load_task_spec
    from orchestrator.storage import join
    from orchestrator.tasks import load_task
    from orchestrator.tasks.catalogue import check_known

    spec = load_task_spec(task, overrides)
    check_known(spec)
    loaded = load_task(spec)
    collection_of(loaded)
    settings = current_settings()
    folder = resolve_model(model, settings)
    with status_line() as status:
        kept = join(settings.storage, INDEXES)
        counts = num_negatives, num_candidates
        found = mine_pairs(folder, loaded, split, *counts, status, kept, learner == "encoder")  # type: ignore[arg-type]
        write_pieces((json_lines([pair]) for pair in found), output)


def _queries_of_stdin() -> list[str]:
    from orchestrator.inference.embedder import read_text_lines

    if is_terminal(sys.stdin):
        notify("reading queries from the terminal, one a line; end with Ctrl-D")
    with click.open_file("-", encoding="utf-8", errors="surrogateescape") as lines:
        found = [values["text"].strip() for _, values in read_text_lines(lines)]
    if not found:
        raise InputError("there is no query; give some as arguments, or as lines of stdin")
    return found


def _beginning(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
