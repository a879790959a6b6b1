"""`evaluate`: a model's scores on a task; `search`: documents that answer a query, and pairs to learn from."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.base.console import counted, show_progress
from orchestrator.base.errors import InputError, RegistryError
from orchestrator.cli.frame import command, current_settings, overrides_argument, precision_option, refuse_options
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_record, show_rows, show_table, show_text, write_pieces
from orchestrator.cli.predicting import (
    batch_size_option,
    device_option,
    find_model,
    is_named_as_data,
    model_argument,
    read_stdin,
)
from orchestrator.cli.reading import (
    READING,
    check_output,
    current_reading,
    format_options,
    options,
    output_option,
    output_options,
)
from orchestrator.cli.registry_reading import open_registry

if TYPE_CHECKING:
    from bert_core.constants import AskedPrecision
    from orchestrator.base.results import Split
    from orchestrator.inference.searching import Reranking
    from orchestrator.inference.task_scores import ErrorAnalysis
    from orchestrator.tasks.task import Task

_MAX_MATRIX_CLASSES = 10
"""Classes up to which the matrix of confusions is shown; of more, the commonest ones. As JSON it is always there."""
_MAX_CONFUSIONS = 10
_SHOWN_CHARACTERS = 100

_reranking_options = options(
    click.option("--rerank", metavar="MODEL", help="Rerank the top hits of a query with this cross-encoder."),
    click.option("--relevant-label", metavar="LABEL", help="With --rerank: the class label that means relevant."),
)
_candidates_option = partial(click.option, "--num-candidates", type=click.IntRange(1), default=50)
_split_option = partial(click.option, "--split", type=click.Choice(["train", "validation", "test"]))


def _find_reranking(rerank: str | None, relevant_label: str | None, num_candidates: int) -> "Reranking | None":
    """The reranking that the options ask for. Raises: UsageError for options without a model; NotFoundError."""
    if rerank is None:
        refuse_options(("relevant_label", "num_candidates"), "goes with --rerank MODEL")
        return None
    from orchestrator.inference.searching import Reranking
    from orchestrator.registry.model_names import resolve_model

    return Reranking(resolve_model(rerank, current_settings()), relevant_label, num_candidates)


@command(example="evaluate my-model new.csv --errors 5\nevaluate my-encoder cranfield folder=cranfield --rerank pairs")
@model_argument
@click.argument("task", metavar="TASK")
@overrides_argument
@_split_option(default="validation", help="Split to score.")
@batch_size_option
@click.option("--errors", "num_errors", type=click.IntRange(0), default=0, help="Show the N worst errors with text.")
@device_option(default="auto")
@precision_option(default="auto")
@_reranking_options
@_candidates_option(help="With --rerank: hits per query to rerank.")
@format_options
@output_option("Write scores to .json or .csv; .jsonl: a prediction for each example.")
def evaluate(
    model: str,
    task: str,
    overrides: tuple[str, ...],
    split: "Split",
    batch_size: int,
    num_errors: int,
    device: str,
    precision: "AskedPrecision",
    output: str | None,
    **reranking: Any,
) -> None:
    """Evaluate a model on a task, with an error analysis.

    Scores, then an error analysis: per class with a confusion matrix, per entity type, or for answerable and
    unanswerable questions.

    TASK is a labeled file, laid out as the model's training data; the id of the task that the model was trained on; the
    id of a known task (sst2, squad, ...), whose files are in folder=DIR or come from the Hub; or a spec with a task.
    KEY=VALUE sets a field of the task. The scores are not recorded: a spec of kind `evaluate` records them.
    """
    predictions = output if output is not None and output.endswith(".jsonl") else None
    if predictions is not None:
        click.get_current_context().meta[READING].pop("output")  # the record goes to stdout
    reading = current_reading()
    folder, settings = find_model(model), current_settings()
    from orchestrator.cluster.torch_devices import choose_device, computes_in_bf16
    from orchestrator.inference.task_scores import Scoring, analyze_errors, own_task_values, score_split, values_on_file
    from orchestrator.kinds.resolved import data_digests
    from orchestrator.registry.model_names import read_recorded_task
    from orchestrator.tasks.catalogue import KNOWN_TASKS

    recorded, is_named = read_recorded_task(model, settings), task in KNOWN_TASKS or task.endswith((".yaml", ".yml"))
    if not is_named and (is_named_as_data(task) or "/" in task or Path(task).is_file()):
        refuse_options(("split",), f"chooses among the files of a task, and {task} is one file, scored whole")
        own_values: Mapping[str, Any] | None = values_on_file(folder, task, split, recorded)
    else:
        own_values = own_task_values(recorded, task, overrides)
    with show_progress() as progress:
        scoring = Scoring(
            folder=folder,
            task=_load_task(task, overrides, own_values),
            split=split,
            storage=settings.storage,
            batch_size=batch_size,
            predictions=predictions,
            precision=precision,
            reranking=_find_reranking(**reranking),
        )
        result, loaded, predicted = score_split(scoring, device, progress.status)
    found = analyze_errors(loaded, split, predicted, num_errors)
    record = {"model": model, "task": result.task, "split": result.split, "num_examples": result.num_examples}
    computed_in = "bf16" if computes_in_bf16(choose_device(device, precision=precision), precision) else "fp32"
    record |= {"computed_in": computed_in} | dict(result.counts) | dict(result.metrics)
    if reading.form == "json":
        record |= dict(found.tables) | ({"mistakes": list(found.mistakes)} if num_errors else {})
    show_record(record)
    if reading.form == "table" and reading.output is None:
        _show_analysis(found, num_errors)
    with suppress(RegistryError), open_registry() as registry:
        if (used := registry.earlier_use(folder, data_digests(scoring.task, [split]), split)) is not None:
            notify(f"{used}; the scores may be too good")


def _show_analysis(found: "ErrorAnalysis", num_errors: int) -> None:
    tables = [_brief_confusions(rows) if name == "confusions" else (name, rows) for name, rows in found.tables.items()]
    if num_errors:
        shown = "" if len(found.mistakes) == found.num_mistakes else f"{len(found.mistakes)} of "
        tables.append((f"{shown}{counted(found.num_mistakes, 'mistake')}, the worst first", found.mistakes))
    for title, rows in tables:
        if rows:
            show_text(f"\n{title}")
            show_table(rows, list(rows[0]))
    if num_errors and not found.mistakes:
        show_text("\nno mistakes")


def _brief_confusions(matrix: "Sequence[Mapping[str, Any]]") -> "tuple[str, Sequence[Mapping[str, Any]]]":
    """The matrix of confusions, or of many classes the commonest ones: a wide matrix cannot be read."""
    if len(matrix) <= _MAX_MATRIX_CLASSES:
        return "confusions: gold in rows, predicted in columns", matrix
    confusions = [
        {"gold": gold, "predicted": label, "count": count}
        for (_, gold), *counts in (row.items() for row in matrix)
        for label, count in counts
        if label != gold and count
    ]
    commonest = sorted(confusions, key=lambda each: -each["count"])[:_MAX_CONFUSIONS]
    return f"confusions: the commonest {len(commonest)} of {len(confusions)}", commonest


@command(
    example='search my-encoder "lift of a wing" --documents corpus.jsonl\n'
    "search my-encoder cranfield --pairs pairs.jsonl"
)
@model_argument
@click.argument("queries", metavar="[TEXT ...]", nargs=-1)
@click.option("--documents", metavar="FILE", help="Text, one document per line, or JSONL: text, title, _id.")
@click.option("--index", metavar="DIR", help="Folder of the document index; built if missing.")
@click.option("--approximate", is_flag=True, help="HNSW index, for millions of documents; needs pip extra `search`.")
@click.option("--dimensions", type=click.IntRange(1), help="Truncate vectors to their first N dimensions.")
@click.option("--top-k", type=click.IntRange(1), default=10, help="Documents per query.")
@device_option(default="cpu")
@precision_option(default="fp32")
@_reranking_options
@_candidates_option(help="Hits per query to rerank, or with --pairs to draw negatives from.")
@click.option("--pairs", metavar="FILE", help="Mine training pairs from a retrieval TASK (see above).")
@click.option(
    "--for",
    "learner",
    type=click.Choice(["reranker", "encoder"]),
    default="reranker",
    help="With --pairs: model to train on them.",
)
@_split_option(default="train", help="With --pairs: split of TASK.")
@click.option("--num-negatives", type=click.IntRange(1), default=1, help="With --pairs: negatives per document.")
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
    precision: "AskedPrecision",
    pairs: str | None,
    learner: str,
    split: "Split",
    num_negatives: int,
    **reranking: Any,
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
        mined = {"split": split, "num_negatives": num_negatives, "num_candidates": reranking["num_candidates"]}
        _write_pairs(model, queries, pairs, learner=learner, **mined)
        return
    refuse_options(("learner", "split", "num_negatives"), "goes with --pairs")
    if documents is None and index is None:
        raise InputError("there is nothing to search; give --documents, or --index")
    folder = find_model(model)
    from orchestrator.inference.searching import open_searcher

    asked, reranker = queries, _find_reranking(**reranking)
    if not asked:
        from orchestrator.inference.embedder import read_texts

        asked = tuple(map(str.strip, read_texts(read_stdin("reading queries from the terminal, one a line"))))
    if not asked:
        raise InputError("there is no query; give some as arguments, or as lines of stdin")
    if empty := [number for number, query in enumerate(asked, start=1) if not query.strip()]:
        raise InputError(f"query {empty[0]} is empty; leave it out")
    kind, chosen = "hnsw" if approximate else "exact", dict[str, Any](device=device, precision=precision)
    with (
        show_progress() as progress,
        open_searcher(
            folder, documents, index, reranker, progress.status, kind, dimensions=dimensions, **chosen
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
        for row in rows:
            if len(row["text"]) > _SHOWN_CHARACTERS:
                row["text"] = row["text"][: _SHOWN_CHARACTERS - 1] + "…"
        columns = columns if len(asked) > 1 else columns[1:]
    show_rows(rows, columns)


def _write_pairs(model: str, task: tuple[str, ...], output: str, *, learner: str, **asked: Any) -> None:
    folder = find_model(model)
    from orchestrator.inference.line_blocks import json_lines
    from orchestrator.inference.searching import INDEXES, mine_pairs
    from orchestrator.storage import join

    loaded, kept = _load_task(task[0], task[1:]), join(current_settings().storage, INDEXES)
    with show_progress() as progress:
        found = mine_pairs(
            folder, loaded, on_progress=progress.status, cache=kept, for_encoder=learner == "encoder", **asked
        )
        write_pieces((json_lines([pair]) for pair in found), output)


def _load_task(task: str, overrides: Sequence[str], own_values: Mapping[str, Any] | None = None) -> "Task":
    """Load the task that `load_task_spec` finds. Raises: SpecError, NotFoundError."""
    from orchestrator.specs.loading import load_task_spec
    from orchestrator.tasks.catalogue import check_known
    from orchestrator.tasks.loading import load_task

    spec = load_task_spec(task, overrides, own_values)
    check_known(spec)
    return load_task(spec)
