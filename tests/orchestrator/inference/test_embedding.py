"""Lines as vectors: what a line says stays beside its vector, a matrix is written row by row.

Alone: .venv/bin/pytest tests/orchestrator/inference/test_embedding.py
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.base.errors import InputError
from orchestrator.inference import embed
from orchestrator.inference.embedder import LineEmbedder, write_matrix
from orchestrator.inference.text_vectors import embedder_fingerprint, embedding_size, load_embedder


def test_lines_keep_their_order_and_what_they_say(encoder: str) -> None:
    rows = list(embed(encoder, ["cats rest\n", "\n", '{"id": 7, "text": "rain falls"}\n']))
    assert [values for values, _ in rows] == [{"text": "cats rest"}, {"id": 7, "text": "rain falls"}]
    expected = load_embedder(encoder).embed(["cats rest", "rain falls"])
    np.testing.assert_array_equal(np.stack([vector for _, vector in rows]), expected)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"txt": "a"}', "line 3.*'text'"),
        ('{"text": 5}', "line 3.*text"),
        ("\u200b\x00", "line 3"),
        (b"caf\xe9".decode(errors="surrogateescape"), "line 3"),
    ],
)
def test_a_broken_line_is_named(encoder: str, line: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        list(embed(encoder, ["fine", "", line]))


def test_a_key_that_the_vector_would_replace_is_named(encoder: str) -> None:
    with pytest.raises(InputError, match=r"line 7 .*'embedding'"):
        LineEmbedder.load(encoder).answer([{"text": "cats", "embedding": [0.5]}], [7])


def test_lines_are_read_as_they_are_needed(encoder: str) -> None:
    def lines() -> object:
        yield from ["cats rest"] * 5000
        raise AssertionError("read to its end before the first vector was given")

    values, vector = next(embed(encoder, lines()))  # type: ignore[arg-type]
    assert (values["text"], vector.shape) == ("cats rest", (16,))


@pytest.mark.parametrize("num_vectors", [0, 1, 12_345])
def test_a_matrix_is_read_by_numpy(num_vectors: int, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((num_vectors, 3), dtype=np.float32)
    pieces = (some.tobytes() for some in np.array_split(rows, 4))
    assert write_matrix(tmp_path / "m.npy", pieces, 3) == num_vectors
    np.testing.assert_array_equal(np.load(tmp_path / "m.npy"), rows)


def test_a_matrix_that_breaks_off_leaves_no_file(tmp_path: Path) -> None:
    def rows() -> object:
        yield np.zeros(3, np.float32).tobytes()
        raise InputError("line 2")

    with pytest.raises(InputError):
        write_matrix(tmp_path / "m.npy", rows(), 3)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_fingerprints_tell_weights_and_pooling_apart(encoder: str, other_encoder: str) -> None:
    embedder = load_embedder(encoder)
    own = embedder_fingerprint(embedder, encoder)
    assert own == embedder_fingerprint(load_embedder(encoder), encoder)
    assert own != embedder_fingerprint(load_embedder(other_encoder), other_encoder)
    embedder.max_seq_length = 8
    assert own != embedder_fingerprint(embedder, encoder)


def test_a_folder_says_how_many_numbers_are_kept_unless_others_are_asked_for(encoder: str, tmp_path: Path) -> None:
    embedder, folder = load_embedder(encoder), str(tmp_path)
    embedder.model.embedding = replace(embedder.model.embedding, truncate_dim=5)
    embedder.save(folder)
    for asked, kept in ((None, 5), (3, 3), (16, 16)):
        assert load_embedder(folder, dimensions=asked).dimension == embedding_size(folder, asked) == kept
    assert embedder_fingerprint(embedder, folder) != embedder_fingerprint(load_embedder(encoder), folder)


def test_vectors_in_bf16_are_rounded_and_an_index_of_them_is_another(encoder: str) -> None:
    exact, rounded = load_embedder(encoder), load_embedder(encoder, precision="bf16")
    vectors, others = (embedder.embed(["cats rest", "rain falls"]) for embedder in (exact, rounded))
    assert others.dtype == np.float32
    assert (vectors != others).any()
    np.testing.assert_allclose(others, vectors, atol=0.05)
    assert embedder_fingerprint(exact, encoder) != embedder_fingerprint(rounded, encoder)
