"""Searching: documents are read, an index is built once and searched by the same model alone; reranking.

Alone: .venv/bin/pytest tests/orchestrator/inference/test_searching.py
"""

import gzip
import json
import shutil
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from bert_core.errors import CheckpointError
from orchestrator.base.errors import InputError
from orchestrator.inference import predict
from orchestrator.inference.document_index import CollectionDocument, DocumentFile, FoundDocument
from orchestrator.inference.searching import Reranker, Reranking, open_searcher, rank_queries, relevance_of
from orchestrator.inference.text_vectors import load_embedder
from orchestrator.specs import TaskSpec
from orchestrator.specs.task import Head
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.types.regression import ValuePrediction
from tests.orchestrator.tasks.definitions import define

QUERIES = ["a cold mat", "planes"]
TEXTS = {"a": "cats rest on the mat", "b": "wings lift planes", "d": "rain falls into a cold river"}


def quiet(line: str) -> None:
    assert line


def search(
    encoder: str, documents: str | None, index: str | None, k: int = 10, reranking: Reranking | None = None
) -> list[list[FoundDocument]]:
    with open_searcher(encoder, documents, index, reranking, quiet) as searcher:
        return list(searcher.search(QUERIES, k))


def test_hits_agree_with_cosines(encoder: str, documents: str) -> None:
    embedder = load_embedder(encoder)
    vectors, queries = embedder.embed(list(TEXTS.values())), embedder.embed(QUERIES)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, vectors)]
    for hits, cosines in zip(search(encoder, documents, None), unit[0] @ unit[1].T, strict=True):
        assert [hit.id for hit in hits] == [list(TEXTS)[row] for row in np.argsort(-cosines)]
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(cosines)[::-1], atol=1e-6)
        assert all(hit.text == TEXTS[hit.id] for hit in hits)
    assert [len(hits) for hits in search(encoder, documents, None, k=2)] == [2, 2]


def test_a_model_for_dot_products_is_searched_by_them(encoder: str, documents: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(encoder, tmp_path / "dot"))
    (folder / "manifest.json").unlink(missing_ok=True)
    rules = json.loads((folder / "config_sentence_transformers.json").read_text())
    (folder / "config_sentence_transformers.json").write_text(json.dumps(rules | {"similarity_fn_name": "dot"}))
    embedder = load_embedder(str(folder))
    products = embedder.embed(QUERIES) @ embedder.embed(list(TEXTS.values())).T
    for hits, scores in zip(search(str(folder), documents, None), products, strict=True):
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(scores)[::-1], rtol=1e-5)


def test_an_index_is_built_once_and_needs_the_documents_no_more(encoder: str, documents: str, tmp_path: Path) -> None:
    index = str(tmp_path / "index")
    first = search(encoder, documents, index)
    made_at = Path(index, "manifest.json").stat().st_mtime_ns
    assert search(encoder, documents, index) == first
    Path(documents).unlink()
    assert search(encoder, None, index) == first
    assert Path(index, "manifest.json").stat().st_mtime_ns == made_at
    with open_searcher(encoder, None, index, None, quiet) as searcher:
        assert searcher.index.counts == {"num_documents": 3, "num_empty_documents": 1, "num_truncated_documents": 0}


def test_an_index_on_an_object_store_is_searched_again(encoder: str, documents: str) -> None:
    index = f"memory://{uuid4().hex}/index"
    first = search(encoder, documents, index)
    Path(documents).unlink()
    assert search(encoder, None, index) == first


def test_an_index_of_another_model_or_other_documents_is_refused(
    encoder: str, other_encoder: str, documents: str, tmp_path: Path
) -> None:
    index = str(tmp_path / "index")
    search(encoder, documents, index)
    with pytest.raises(InputError, match="model"):
        search(other_encoder, documents, index)
    with Path(documents).open("a") as file:
        file.write("\none more\n")
    with pytest.raises(InputError, match="documents"):
        search(encoder, documents, index)
    with (
        pytest.raises(InputError, match=r"exact.*--approximate"),
        open_searcher(encoder, None, index, None, quiet, kind="hnsw"),
    ):
        pass
    with pytest.raises(InputError, match="nowhere"):
        search(encoder, None, str(tmp_path / "nowhere"))


def test_a_damaged_index_is_refused(encoder: str, documents: str, tmp_path: Path) -> None:
    index = tmp_path / "index"
    search(encoder, documents, str(index))
    (index / "documents.jsonl").write_text("cut")
    with pytest.raises(CheckpointError, match=r"documents\.jsonl"):
        search(encoder, None, str(index))


def test_an_empty_folder_is_built_into_and_another_thing_is_left_alone(
    encoder: str, documents: str, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    index.mkdir()
    assert search(encoder, documents, str(index)) == search(encoder, None, str(index))
    for other in (encoder, documents):
        with pytest.raises(InputError, match="no index"):
            search(encoder, documents, other)


def test_an_index_that_cannot_be_built_leaves_no_folder(encoder: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    with pytest.raises(InputError, match=r"empty\.txt"):
        search(encoder, str(empty), str(tmp_path / "index"))
    empty.write_text('fine\n{"text": ""}\n\u200b\x00\n')
    with pytest.raises(InputError, match="document 3"):
        search(encoder, str(empty), str(tmp_path / "index"))
    assert [path.name for path in tmp_path.iterdir()] == ["empty.txt"]


def test_a_query_without_tokens_is_named(encoder: str, documents: str) -> None:
    with open_searcher(encoder, documents, None, None, quiet) as searcher, pytest.raises(InputError, match="query 2"):
        list(searcher.search(["cats", "\u200b\x00"], 1))


def test_documents_of_a_task_are_embedded_once_for_a_model(
    encoder: str, other_encoder: str, collection: TaskSpec, tmp_path: Path
) -> None:
    task, cache = load_task(collection), tmp_path / "kept"

    def rank(model: str) -> tuple[object, bool]:
        said: list[str] = []
        found = rank_queries(model, task, "validation", None, said.append, str(cache))
        return found, any(line.startswith("embedding") for line in said)

    first = rank_queries(encoder, task, "validation", None, quiet)
    assert [rank(encoder), rank(encoder)] == [(first, True), (first, False)]
    assert rank(other_encoder)[1]
    with Path(str(collection.folder), "corpus.jsonl").open("a") as file:
        file.write('\n{"_id": "e", "text": "old stones"}\n')
    assert rank(encoder)[1]
    assert len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("label", [None, "yes"])
def test_reranked_hits_have_the_scores_of_the_pairs(
    label: str | None, encoder: str, scorer: str, classifier: str, documents: str
) -> None:
    model = scorer if label is None else classifier
    for query, hits in zip(QUERIES, search(encoder, documents, None, reranking=Reranking(model, label)), strict=True):
        assert {hit.id for hit in hits} == set(TEXTS)
        rows = list(predict(model, [f"{query}\t{hit.text}" for hit in hits], precision="fp32"))
        expected = [row["value"] if label is None else row["probabilities"][label] for row in rows]
        np.testing.assert_allclose([hit.score for hit in hits], expected, atol=1e-6)
        assert expected == sorted(expected, reverse=True)


def test_hits_beyond_the_candidates_stay_as_they_were(encoder: str, scorer: str, documents: str) -> None:
    plain = search(encoder, documents, None)
    for before, after in zip(
        plain, search(encoder, documents, None, reranking=Reranking(scorer, None, 2)), strict=True
    ):
        assert {hit.id for hit in after[:2]} == {hit.id for hit in before[:2]}
        assert after[2:] == before[2:]
    one = search(encoder, documents, None, k=1, reranking=Reranking(scorer, None, 3))
    best = search(encoder, documents, None, k=3, reranking=Reranking(scorer, None, 3))
    assert one == [hits[:1] for hits in best], "the candidates are more than what is shown"


@pytest.mark.parametrize(
    ("model", "label", "complaint"),
    [
        ("scorer", "yes", "'yes'"),
        ("classifier", None, "no, yes"),
        ("classifier", "maybe", "no, yes.*'maybe'"),
        ("encoder", None, "embedding"),
    ],
)
def test_a_model_that_says_nothing_of_pairs_cannot_rerank(
    model: str, label: str | None, complaint: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(InputError, match=complaint):
        Reranker(Reranking(request.getfixturevalue(model), label))


def test_documents_have_titles_before_texts_and_empty_ones_are_counted(documents: str) -> None:
    file = DocumentFile(documents)
    expected = [
        CollectionDocument("a", "cats rest on the mat"),
        CollectionDocument("b", "wings lift planes"),
        CollectionDocument("d", "rain falls into a cold river"),
    ]
    assert list(file) == expected
    assert list(file) == expected, "a file is read anew each time"
    assert file.num_empty == 1


def test_lines_of_text_go_by_their_number_also_from_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress("\ufeffone\u2028line\r\n\n  two \n".encode()))
    assert list(DocumentFile(str(path))) == [CollectionDocument("1", "one\u2028line"), CollectionDocument("3", "two")]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"id": 1, "text": "a"}\n{"id": "1", "text": "b"}', "line 2.*'1'"),
        (b'{"id": 1, "txt": "a"}', "line 1.*text"),
        (b'{"text": "a", "title": 3}', "line 1.*title"),
        (b'fine\n{"text": ', "line 2"),
        (b"caf\xe9", "line 1"),
    ],
)
def test_a_broken_line_is_named(content: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"documents\.jsonl: {complaint}"):
        list(DocumentFile(str(path)))


def test_a_table_is_not_taken_for_lines_of_text(tmp_path: Path) -> None:
    (tmp_path / "documents.csv").write_text("_id,text\n1,a\n")
    with pytest.raises(InputError, match=r"documents\.csv is a table"):
        list(DocumentFile(str(tmp_path / "documents.csv")))


@pytest.mark.parametrize("text", ['[\n {"_id": "a", "text": "a"}\n]\n', '[{"text": "a"}]\n', "text,_id\na,1\n"])
def test_an_array_and_a_table_of_another_name_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "documents.json").write_text(text)
    with pytest.raises(InputError, match=r"documents\.json begins as"):
        list(DocumentFile(str(tmp_path / "documents.json")))


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
def test_a_file_that_is_missing_or_damaged_is_named(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"documents.jsonl{ending}"
    if ending:
        path.write_bytes(b"no such compression")
    with pytest.raises(InputError, match=r"documents\.jsonl"):
        list(DocumentFile(str(path)))


@pytest.mark.parametrize("head", ["multi_label", "ner", "qa", "multiple_choice", "sentence_selection", "embedding"])
def test_a_type_without_scores_for_pairs_cannot_rerank(head: Head) -> None:
    with pytest.raises(InputError, match=head):
        relevance_of(define(head), None, "model")


def test_relevance_is_the_value_or_the_probability_of_a_class() -> None:
    value = relevance_of(define("regression"), None, "model")
    assert value(ValuePrediction(0.5)) == 0.5
    with pytest.raises(InputError, match="'yes'"):
        relevance_of(define("regression"), "yes", "model")
    with pytest.raises(InputError, match="no, yes"):
        relevance_of(define("classification", ("no", "yes")), "x", "model")
    with pytest.raises(InputError, match="pairs"):
        relevance_of(define("regression", text_columns=("review",)), None, "model")
