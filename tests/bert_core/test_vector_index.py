"""Indexes of vectors: exact against a full sort, approximate against exact, folders whole or refused.

Alone: pytest tests/bert_core/test_vector_index.py
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bert_core import vector_index
from bert_core.checkpoints.manifest import write_manifest
from bert_core.errors import CheckpointError, ConfigError, DataError
from bert_core.vector_index import ExactIndex, Hit, VectorIndex, build_index, load_index, save_index

KINDS = ["exact", "hnsw"]


def vectors(num: int, dimension: int = 16, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((num, dimension), dtype=np.float32)


def names(num: int) -> list[str]:
    return [f"v{i}" for i in range(num)]


@pytest.fixture(params=KINDS)
def index(request: pytest.FixtureRequest) -> VectorIndex:
    """300 random vectors in either kind of index."""
    return build_index(names(300), vectors(300), kind=request.param)


@pytest.mark.parametrize("metric", ["cosine", "dot"])
@settings(max_examples=20)
@given(num=st.integers(1, 40), num_queries=st.integers(0, 9), k=st.integers(1, 50), block=st.integers(1, 50))
def test_exact_search_agrees_with_a_full_sort(metric: str, num: int, num_queries: int, k: int, block: int) -> None:
    stored, queries = vectors(num), vectors(num_queries, seed=1)
    scores = queries.astype(np.float64) @ stored.T.astype(np.float64)
    if metric == "cosine":
        scores /= np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(stored, axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_index, "_VECTORS_AT_A_TIME", block)
        patch.setattr(vector_index, "_QUERIES_AT_A_TIME", 4)
        found = build_index(names(num), stored, metric).search(queries, k)
    for hits, row in zip(found, scores, strict=True):
        best = np.argsort(-row)[:k]
        assert [hit.id for hit in hits] == [f"v{i}" for i in best]
        assert [hit.score for hit in hits] == pytest.approx(list(row[best]), abs=1e-5)


def test_approximate_search_finds_nearly_all_that_exact_search_finds() -> None:
    stored, queries = vectors(4000, 32), vectors(100, 32, seed=1)
    found, approximate = (build_index(names(4000), stored, kind=kind).search(queries, 10) for kind in KINDS)
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(ids(found), ids(approximate), strict=True)]
    assert np.mean(shares) >= 0.95


def ids(found: list[list[Hit]]) -> list[list[str]]:
    return [[hit.id for hit in hits] for hits in found]


def test_more_than_there_is_gives_what_there_is(index: VectorIndex) -> None:
    hits = index.search(vectors(1, seed=1), 1000)[0]
    assert len({hit.id for hit in hits}) == len(hits) >= 290
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_of_equal_vectors_the_first_comes_first() -> None:
    index = build_index(names(5), np.ones((5, 2), np.float32), "dot")
    assert ids(index.search(np.ones((1, 2)), 5)) == [names(5)]
    many = build_index(names(5000), np.ones((5000, 2), np.float32), "dot")
    for k in (1, 2, 10):
        assert ids(many.search(np.ones((1, 2)), k)) == [names(k)]


def test_a_zero_vector_is_near_nothing() -> None:
    index = build_index(["zero", "one"], np.array([[0.0, 0.0], [1.0, 0.0]]))
    assert index.search(np.array([[1.0, 0.0]]), 2) == [[Hit("one", 1.0), Hit("zero", 0.0)]]


def test_a_folder_comes_back_whole(index: VectorIndex, tmp_path: Path) -> None:
    save_index(index, tmp_path / "index")
    again = load_index(tmp_path / "index")
    assert type(again) is type(index)
    assert (again.metric, again.dimension) == ("cosine", 16)
    found, expected = (one.search(vectors(7, seed=1), 5) for one in (again, index))
    assert ids(found) == ids(expected)
    for hits, others in zip(found, expected, strict=True):
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in others], abs=1e-6)


def test_a_loaded_exact_index_stays_on_the_disk(tmp_path: Path) -> None:
    save_index(build_index(names(3), vectors(3)), tmp_path / "index")
    loaded = load_index(tmp_path / "index")
    assert isinstance(loaded, ExactIndex)
    assert isinstance(loaded.vectors, np.memmap)


def test_a_save_that_breaks_off_leaves_the_older_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_index(build_index(["old"], vectors(1)), tmp_path / "index")
    newer = build_index(["new"], vectors(1))
    monkeypatch.setattr(newer, "write", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_index(newer, tmp_path / "index")
    assert load_index(tmp_path / "index").ids == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["index"]


def test_a_damaged_folder_is_refused(index: VectorIndex, tmp_path: Path) -> None:
    save_index(index, tmp_path / "index")
    file = tmp_path / "index" / index.file_name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{index.file_name} is altered"):
        load_index(tmp_path / "index")
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        load_index(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [("index.json", '{"kind": "tree"}', "holds no index"), ("graph.faiss", "no graph", "no graph that Faiss can read")],
)
def test_a_folder_of_something_else_is_refused(tmp_path: Path, file: str, content: str, message: str) -> None:
    save_index(build_index(names(3), vectors(3), kind="hnsw"), tmp_path / "index")
    (tmp_path / "index" / file).write_text(content)
    write_manifest(tmp_path / "index", ["index.json", "ids.json", "graph.faiss"])
    with pytest.raises(CheckpointError, match=message):
        load_index(tmp_path / "index")


def test_ids_of_any_text_come_back(tmp_path: Path) -> None:
    save_index(build_index(['"', "ü\n"], vectors(2)), tmp_path / "index")
    assert load_index(tmp_path / "index").ids == ['"', "ü\n"]
    assert json.loads((tmp_path / "index/ids.json").read_text()) == ['"', "ü\n"]


def test_without_faiss_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigError, match=r"pip install 'bert-orchestrator\[search\]'"):
        build_index(names(3), vectors(3), kind="hnsw")


@pytest.mark.parametrize(
    ("given_ids", "given_vectors"),
    [
        (["a"], vectors(2)),
        ([], vectors(0)),
        (["a", "a"], vectors(2)),
        (["a"], np.ones(3)),
        (["a", "b"], np.array([[0.0], [np.nan]])),
    ],
)
def test_what_is_no_index_is_refused(given_ids: list[str], given_vectors: NDArray[np.float32]) -> None:
    with pytest.raises(DataError):
        build_index(given_ids, given_vectors)


def test_queries_that_do_not_fit_are_named(index: VectorIndex) -> None:
    with pytest.raises(DataError, match="queries have 3 dimensions, the index 16"):
        index.search(vectors(1, 3))
    with pytest.raises(DataError, match="k is 0"):
        index.search(vectors(1), 0)
