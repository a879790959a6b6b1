"""Lengths of documents beside a token store, and what a run reads before its first step; no Ray.

Run alone: pytest tests/orchestrator/corpus/test_document_lengths.py
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator import storage
from orchestrator.corpus import held_out, token_store
from orchestrator.corpus.held_out import ChosenShards, choose_shards
from orchestrator.corpus.manifest import Manifest, ShardInfo
from orchestrator.corpus.stream import SplitShards
from orchestrator.corpus.token_store import TokenStore
from tests.orchestrator.pretraining import small_run


def make_store(folder: Path) -> TokenStore:
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
    store = make_store(tmp_path)
    expected = [store.read_document_lengths(shard).tolist() for shard in store.shards("train")]
    monkeypatch.setattr(TokenStore, "read_document_lengths", None)
    assert lengths_of(store) == expected
    assert sorted(store.manifest.lengths) == ["held_out", "train"]


@pytest.mark.parametrize("damage", ["older store", "gone", "altered", "cut"])
def test_without_a_good_side_file_the_shards_are_read(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path)
    expected, file = lengths_of(store), tmp_path / "lengths-train.bin"
    if damage == "older store":
        store = replace(store, manifest=replace(store.manifest, lengths={}))
    elif damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-4] + (b"\1\0\0\0" if damage == "altered" else b""))
    assert lengths_of(store) == expected
    assert ("lengths-train.bin" in caplog.text) == (damage != "older store")


def test_lengths_are_kept_on_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    expected = lengths_of(make_store(tmp_path / "store"))
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
    store = TokenStore(str(tmp_path), Manifest("f", 100, {}, shards))
    monkeypatch.setattr(token_store, "open_lengths", lambda *_: np.full(3000, 9, np.int32))
    split = SplitShards(store, "train")
    monkeypatch.setattr(CountedShards, "num_walks", 0)
    assert sum(int(split.document_lengths(shard).sum()) for shard in range(split.num_shards)) == 27_000
    assert len({split.fingerprint for _ in range(50)}) == 1
    assert CountedShards.num_walks < 10


def test_of_many_held_out_tokens_the_seed_chooses_some_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = SplitShards(make_store(tmp_path), "train")
    sizes = [int(shards.document_lengths(shard).sum()) for shard in range(3)]
    monkeypatch.setattr(held_out, "HELD_OUT_TOKENS", max(sizes) + 1)
    drawn = {seed: choose_shards(shards, seed) for seed in range(20)}
    assert all(isinstance(each, ChosenShards) and each.num_shards == 2 for each in drawn.values())
    assert choose_shards(shards, 7) == drawn[7]
    assert len({tuple(each.chosen) for each in drawn.values()}) > 3
    first = drawn[0]
    assert first.read_documents(0).tokens.tolist() == shards.read_documents(first.chosen[0]).tokens.tolist()
    assert first.document_lengths(1).tolist() == shards.document_lengths(first.chosen[1]).tolist()
    assert first.fingerprint != shards.fingerprint


def test_validation_of_a_huge_split_reads_the_chosen_shards_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = small_run.make_job(tmp_path)
    store = TokenStore.open(str(tmp_path / "store"))
    monkeypatch.setattr(held_out, "HELD_OUT_TOKENS", 1)
    validation = small_run.build_validation(job.spec, SplitShards(store, "train"), job.tokenizer)
    assert validation is not None
    assert validation.store.num_shards == 1
