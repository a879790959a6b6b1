"""`search`: documents that answer a query."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import notify, say_now, status_line
from orchestrator.cli.output import show_rows, shows_briefly
from orchestrator.cli.precision_option import precision_option
from orchestrator.cli.reading import reading_options
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
            help="First hits that are reranked.",
        ),
        click.option("--relevant-label", metavar="LABEL", help="Of a classifier that reranks: the label that counts."),
        click.option("--rerank", metavar="MODEL", help="Score the first hits again by a model fine-tuned on pairs."),
    ):
        with_reranking = option(with_reranking)
    return with_reranking


@click.command(
    cls=GlobalOptionsCommand,
    example='orchestrator search my-encoder "lift of a wing" --documents corpus.jsonl\n'
    "orchestrator search my-encoder --index ix/ --rerank my-pairs < queries.txt",
)
@click.argument("model", metavar="MODEL")
@click.argument("queries", metavar="[QUERY ...]", nargs=-1)
@click.option("--documents", metavar="FILE", help="Text, one document a line, or JSONL with text, title, _id.")
@click.option("--index", metavar="DIR", help="Folder of the documents' vectors; built there if there is none.")
@click.option("--approximate", is_flag=True, help="Build a graph, for millions of documents; needs the extra `search`.")
@click.option("--dimensions", type=click.IntRange(1), help="First numbers of a vector that are kept; all by default.")
@click.option("--top-k", type=click.IntRange(1), default=10, show_default=True, help="Documents for each query.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where the models compute; cuda is a GPU of this machine.",
)
@precision_option
@reranking_options
@reading_options
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
    form: str | None,
    output: str | None,
) -> None:
    """The documents nearest to each query.

    Nearest by the cosine of their vectors, which lie in an index or are made anew. With --rerank the first hits are put
    in order by a model that reads query and document together, and their score is that model's.

    Queries are arguments, or lines of stdin where there are none. MODEL is any encoder; an index can be searched with
    the model alone that built it.
    """
    if documents is None and index is None:
        raise InputError("there is nothing to search; name --documents, or the --index of some")
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
