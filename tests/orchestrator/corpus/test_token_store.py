"""The token store's format: written, opened, read, every kind of damage noticed; documents' lengths; no Ray.

Run alone: pytest tests/orchestrator/corpus/test_token_store.py
"""

import hashlib
import json
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator import storage
from orchestrator.base.errors import ClusterError, CorpusError
from orchestrator.base.results import FileCount
from orchestrator.corpus.stream import SplitShards
from orchestrator.corpus.token_store import MANIFEST, Manifest, ShardInfo, TokenStore, write_shard
from tests.orchestrator.corpus.shards import document_ids
from tests.orchestrator.pretraining import small_run

TOKENS = np.arange(10, 22, dtype=np.uint16)
LENGTHS = [[3, 2], [4], [1, 1, 1]]


def make_store(folder: Path) -> TokenStore:
    train = write_shard(str(folder), "00-train.parquet", "train", ["a", "b", "c"], TOKENS, LENGTHS)
    validation = write_shard(str(folder), "00-held_out.parquet", "validation", ["d"], TOKENS[:2], [[2]])
    files = (FileCount("corpus.txt", 100, 4),)
    Manifest("f" * 64, 30522, {"shard_bytes": 1024}, (train, validation), files).save(str(folder))
    return TokenStore.open(str(folder))


def test_a_shard_reads_back_as_it_was_written(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (shard,) = store.shards("train")
    documents = store.read_shard(shard)
    assert documents.tokens.dtype == np.uint16
    np.testing.assert_array_equal(documents.tokens, TOKENS)
    np.testing.assert_array_equal(documents.sentence_offsets, [0, 3, 5, 9, 10, 11, 12])
    np.testing.assert_array_equal(documents.document_offsets, [0, 2, 3, 6])
    assert document_ids(store, shard) == ["a", "b", "c"]


def test_document_lengths_are_read_alone(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (shard,) = store.shards("train")
    assert store.read_document_lengths(shard).tolist() == [5, 4, 3]
    (tmp_path / shard.file).write_bytes(b"no Parquet")
    with pytest.raises(CorpusError, match=r"00-train\.parquet"):
        store.read_document_lengths(shard)


def test_counts_are_per_split_and_in_all(tmp_path: Path) -> None:
    manifest = make_store(tmp_path).manifest
    assert manifest.counts("train") == {"num_documents": 3, "num_sentences": 6, "num_tokens": 12}
    assert manifest.counts("validation") == {"num_documents": 1, "num_sentences": 1, "num_tokens": 2}
    assert manifest.counts() == {"num_documents": 4, "num_sentences": 7, "num_tokens": 14}


def test_the_digest_knows_content_and_order_but_not_the_place(tmp_path: Path) -> None:
    first, second = make_store(tmp_path / "one"), make_store(tmp_path / "two")
    assert first.manifest.digest == second.manifest.digest
    assert first.manifest.fingerprint == second.manifest.fingerprint
    turned = Manifest("f" * 64, 30522, {}, tuple(reversed(first.manifest.shards)))
    assert turned.digest != first.manifest.digest


def test_a_large_vocabulary_keeps_four_bytes(tmp_path: Path) -> None:
    tokens = np.array([70_000, 5], np.uint32)
    shard = write_shard(str(tmp_path), "s.parquet", "train", ["a"], tokens, [[2]])
    store = TokenStore(str(tmp_path), Manifest("f", 80_000, {}, (shard,)))
    np.testing.assert_array_equal(store.read_shard(shard).tokens, tokens)


def test_a_folder_without_a_manifest_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no manifest"):
        TokenStore.open(str(tmp_path))


def test_validation_documents_keep_their_name_in_manifests_and_random_numbers(tmp_path: Path) -> None:
    """A run that a newer version resumes goes on with the examples that it would have had."""
    store = make_store(tmp_path)
    shards = json.loads((tmp_path / MANIFEST).read_text())["shards"]
    assert [shard["split"] for shard in shards] == ["train", "held_out"]
    lines = "".join(f"{shard['split']} {shard['sha256']}\n" for shard in shards)
    assert store.manifest.digest == hashlib.sha256(lines.encode()).hexdigest()
    assert SplitShards(store, "validation").fingerprint == f"{store.manifest.digest}/held_out"


def test_a_manifest_cut_at_any_length_is_refused(tmp_path: Path) -> None:
    make_store(tmp_path)
    whole = (tmp_path / MANIFEST).read_bytes()
    for length in range(0, len(whole) - 2, 37):
        (tmp_path / MANIFEST).write_bytes(whole[:length])
        with pytest.raises(CorpusError, match=MANIFEST):
            TokenStore.open(str(tmp_path))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"num_tokens": 12', '"num_tokens": 13'),
        ("00-train.parquet", 'x", "color": "red'),
        ("token-store-1", "token-store-9"),
        ('"split": "train"', '"split": "held_out"'),
    ],
)
def test_an_altered_manifest_is_refused(tmp_path: Path, old: str, new: str) -> None:
    make_store(tmp_path)
    text = (tmp_path / MANIFEST).read_text()
    assert old in text
    (tmp_path / MANIFEST).write_text(text.replace(old, new, 1))
    with pytest.raises(CorpusError, match=MANIFEST):
        TokenStore.open(str(tmp_path))


def test_a_host_that_does_not_see_the_store_is_named_and_nothing_is_to_be_deleted(tmp_path: Path) -> None:
    """A task for batches may run on a host without the storage, on which there is no worker that has looked."""
    store = make_store(tmp_path / "store")
    (shard,) = store.shards("train")
    (tmp_path / "store").rename(tmp_path / "not-mounted-here")
    for read in (lambda: store.read_shard(shard), lambda: store.read_document_lengths(shard)):
        with pytest.raises(ClusterError) as refusal:
            read()
        assert f"host {socket.gethostname()} does not see {tmp_path}/store, which the driver has" in str(refusal.value)
        assert "delete" not in str(refusal.value)


def test_a_flipped_bit_or_a_cut_in_a_shard_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (shard,) = store.shards("train")
    file = tmp_path / shard.file
    whole = file.read_bytes()
    for position in range(0, len(whole), 101):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        file.write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"00-train\.parquet"):
            store.read_shard(shard)
    file.write_bytes(whole[:-1])
    with pytest.raises(CorpusError, match="build the corpus"):
        store.read_shard(shard)
    file.unlink()
    with pytest.raises(CorpusError, match="cannot be read"):
        store.read_shard(shard)


def store_with_lengths(folder: Path) -> TokenStore:
    tokenizer = small_run.make_tokenizer()
    store = small_run.make_store(folder, tokenizer).write_lengths()
    store.manifest.save(str(folder))
    return TokenStore.open(str(folder))


def lengths_of(store: TokenStore) -> list[list[int]]:
    shards = SplitShards(store, "train")
    return [shards.document_lengths(shard).tolist() for shard in range(shards.num_shards)]


def test_lengths_come_from_the_side_file_and_are_those_of_the_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_with_lengths(tmp_path)
    expected = [store.read_document_lengths(shard).tolist() for shard in store.shards("train")]
    monkeypatch.setattr(TokenStore, "read_document_lengths", None)
    assert lengths_of(store) == expected
    assert sorted(store.manifest.lengths) == ["held_out", "train"]


def test_without_a_side_file_the_shards_are_read(tmp_path: Path) -> None:
    store = store_with_lengths(tmp_path)
    assert lengths_of(replace(store, manifest=replace(store.manifest, lengths={}))) == lengths_of(store)


@pytest.mark.parametrize("damage", ["gone", "altered", "cut"])
def test_without_a_good_side_file_the_shards_are_read(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, file = store_with_lengths(tmp_path), tmp_path / "lengths-train.bin"
    expected = lengths_of(store)
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-4] + (b"\1\0\0\0" if damage == "altered" else b""))
    assert lengths_of(store) == expected
    assert "lengths-train.bin" in caplog.text


def test_lengths_are_kept_on_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    expected = lengths_of(store_with_lengths(tmp_path / "store"))
    for file in (tmp_path / "store").iterdir():
        storage.write_bytes(f"memory://lengths/{file.name}", file.read_bytes())
    assert lengths_of(TokenStore.open("memory://lengths")) == expected


class CountedShards(tuple):
    """A manifest's shards, which count how often somebody walks over all of them."""

    num_walks = 0

    def __iter__(self):
        CountedShards.num_walks += 1
        return super().__iter__()


def test_a_manifest_is_walked_over_a_few_times_whatever_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = CountedShards(ShardInfo(f"{n}", "train", 1, 1, 9, "f" * 64) for n in range(3000))
    (tmp_path / "lengths-train.bin").write_bytes(np.full(3000, 9, "<i4").tobytes())
    lengths = {"train": storage.digest_file(str(tmp_path / "lengths-train.bin"))}
    store = TokenStore(str(tmp_path), Manifest("f", 100, {}, shards, lengths=lengths))
    split = SplitShards(store, "train")
    monkeypatch.setattr(CountedShards, "num_walks", 0)
    assert sum(int(split.document_lengths(shard).sum()) for shard in range(split.num_shards)) == 27_000
    assert len({split.fingerprint for _ in range(50)}) == 1
    assert CountedShards.num_walks < 10
