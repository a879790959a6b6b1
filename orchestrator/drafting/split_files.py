"""Files written from one labeled file, which stays as it is: a split's in its layout, and texts for a vocabulary."""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from orchestrator.drafting.example_views import text_key, view_of
from orchestrator.drafting.input_layout import Layout
from orchestrator.specs.task import TaskSpec
from orchestrator.storage.delimited_lines import csv_lines, tsv_lines
from orchestrator.tasks.table_files import column_names, read_rows, table_name
from orchestrator.tasks.text_files import BadRecords, plain_name, read_decompressed
from orchestrator.tasks.types import TASK_TYPES

_ENDINGS: Mapping[Layout, str] = {"tagged": ".conll", "questions": ".json"}
_VOCABULARY_BYTES = 64 << 20
"""Text that a vocabulary is learned from, at most."""
Row = tuple[object, ...]


def split_ending(path: str, layout: Layout) -> str:
    """Ending of a split's file: the original's, without compression."""
    plain = plain_name(path)
    return _ENDINGS.get(layout, plain[plain.rfind(".") :])


def split_chunks(
    task: TaskSpec, path: str, layout: Layout, rows: NDArray[np.bool_], groups: Set[int]
) -> Iterator[bytes]:
    """The content of a split's file, in pieces.

    Args:
        rows: whether each record belongs to the split, by its number; records behind the end do not.
        groups: keys of the passages that do, where the layout has no rows.
    """
    if layout == "questions":
        return _questions(path, groups)
    if layout == "tagged":
        return _sentences(task, path, rows)
    return _table(task, path, rows)


def vocabulary_texts(task: TaskSpec, path: str, left_out: Set[int]) -> Iterator[bytes]:
    """Yield the different texts of a file, or the first of very many, an empty line between them.

    Args:
        left_out: keys of the groups of examples that are kept for validation.
    """
    assert task.head is not None, "a draft's task says its head"
    seen: set[int] = set()
    room = _VOCABULARY_BYTES
    task_type = TASK_TYPES[task.head]
    for example in task_type.reader(task, None).read(path, BadRecords(path, "skip")):
        view = view_of(example, task_type)
        for text in view.texts if view.group_key not in left_out else ():
            line, key = " ".join(text.split()), text_key(text)
            if line and key not in seen:
                seen.add(key)
                document = f"{line}\n\n".encode()
                room -= len(document)
                yield document
        if room <= 0:
            return


def _table(task: TaskSpec, path: str, rows: NDArray[np.bool_]) -> Iterator[bytes]:
    wanted = (*task.text_columns, task.label_column or "")
    columns = tuple(dict.fromkeys((*column_names(path, BadRecords(path, "skip")), *wanted)))
    records = (
        values
        for number, values in enumerate(_whole_records(path, columns, wanted))
        if number < len(rows) and rows[number]
    )
    return _WRITERS[str(table_name(path))](columns, records)


def _whole_records(path: str, columns: tuple[str, ...], wanted: tuple[str, ...]) -> Iterator[Row]:
    """Yield all columns of every record whose wanted columns can be read: the records that a task numbers.

    A reading of all columns passes over a record that is broken in another column, so that its numbers differ. The two
    readings are matched by the records' places; such a record comes with its wanted columns alone, the others empty.
    """
    whole = read_rows(path, columns, BadRecords(path, "skip"))
    whole_place, whole_values = next(whole, ("", ()))
    for place, values in read_rows(path, wanted, BadRecords(path, "skip")):
        if place == whole_place:
            yield whole_values
            whole_place, whole_values = next(whole, ("", ()))
        else:
            known = dict(zip(wanted, values, strict=True))
            yield tuple(known.get(column) for column in columns)


def _csv(columns: tuple[str, ...], records: Iterable[Row]) -> Iterator[bytes]:
    return map(str.encode, csv_lines(chain([columns], records)))


def _tsv(columns: tuple[str, ...], records: Iterable[Row]) -> Iterator[bytes]:
    return map(str.encode, tsv_lines(columns, chain([columns], records)))


def _jsonl(columns: tuple[str, ...], records: Iterable[Row]) -> Iterator[bytes]:
    for record in records:
        yield (json.dumps(dict(zip(columns, record, strict=True)), ensure_ascii=False) + "\n").encode()


def _parquet(columns: tuple[str, ...], records: Iterable[Row]) -> Iterator[bytes]:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist([dict(zip(columns, record, strict=True)) for record in records])
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    yield buffer.getvalue()


_WRITERS: Mapping[str, Callable[[tuple[str, ...], Iterable[Row]], Iterator[bytes]]] = {
    "CSV": _csv,
    "TSV": _tsv,
    "JSONL": _jsonl,
    "Parquet": _parquet,
}


def _sentences(task: TaskSpec, path: str, rows: NDArray[np.bool_]) -> Iterator[bytes]:
    """Sentences as words and tags, other columns left out."""
    for example in TASK_TYPES["ner"].reader(task, None).read(path, BadRecords(path, "skip")):
        if int(example.id) < len(rows) and rows[int(example.id)]:
            lines = (f"{word}\t{tag}\n" for word, tag in zip(example.words, example.tags, strict=True))
            yield ("".join(lines) + "\n").encode()


def _questions(path: str, groups: Set[int]) -> Iterator[bytes]:
    """Articles with the paragraphs whose passage belongs to the split."""
    content = json.loads(read_decompressed(path))
    articles = []
    for article in content["data"]:
        kept = [part for part in article["paragraphs"] if text_key(part["context"]) in groups]
        if kept:
            articles.append({**article, "paragraphs": kept})
    yield json.dumps({**content, "data": articles}, ensure_ascii=False).encode()
