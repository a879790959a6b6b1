"""Models and files on the hub: fetched once, pinned to a commit, and what goes wrong on the way.

Alone: pytest tests/orchestrator/storage/test_hub.py
"""

import errno
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest
from huggingface_hub import constants, file_download

from bert_core.errors import CheckpointError
from orchestrator.base.errors import InputError, NotFoundError
from orchestrator.kinds.resolved import check_weights
from orchestrator.storage import digest_file, exists, local_copy, open_read, read_bytes, write_bytes
from orchestrator.storage.hub import MOST_BYTES, check_size, find_on_hub, hub_copy, pin
from tests.hub_server import Hub, serving_hub

WITHOUT_WEIGHTS = ("model.safetensors",)
MODEL = {"config.json": b"{}", "vocab.txt": b"[PAD]\n", "model.safetensors": b"weights", "tf_model.h5": b"not read"}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub, and an empty cache."""
    with serving_hub(tmp_path) as hub:
        yield hub


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def downloads(hub: Hub) -> list[str]:
    return [path.rpartition("/")[2] for path in hub.asked if path.startswith("GET") and "/resolve/" in path]


def test_a_model_is_fetched_once_without_what_nobody_reads(hub: Hub) -> None:
    uri = f"hf://org/name@{hub.commit('org/name', MODEL)}"
    assert pin("hf://org/name") == uri
    assert names(local_copy("hf://org/name", skip=WITHOUT_WEIGHTS)) == {"config.json", "vocab.txt"}
    assert names(local_copy(uri)) == {"config.json", "vocab.txt", "model.safetensors"}
    assert sorted(downloads(hub)) == ["config.json", "model.safetensors", "vocab.txt"]
    constants.HF_HUB_OFFLINE = True  # until the hub goes
    hub.asked.clear()
    assert pin("hf://org/name") == uri
    assert read_bytes(f"{local_copy('hf://org/name')}/model.safetensors") == b"weights"
    assert not hub.asked


def test_of_several_kinds_of_weights_the_first_is_fetched_with_its_shards(hub: Hub) -> None:
    index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
    shards = {"model-1.safetensors": b"1", "model-2.safetensors": b"2", "model-old.safetensors": b"3"}
    hub.commit(
        "org/shards", {"config.json": b"{}", "model.safetensors.index.json": index, **shards, "pytorch_model.bin": b""}
    )
    fetched = {"config.json", "model.safetensors.index.json", "model-1.safetensors", "model-2.safetensors"}
    assert names(local_copy("hf://org/shards")) == fetched
    hub.commit("org/pickle", {"config.json": b"{}", "pytorch_model.bin": b"p"})
    assert names(local_copy("hf://org/pickle")) == {"config.json", "pytorch_model.bin"}
    hub.commit("org/none", {"config.json": b"{}", "tf_model.h5": b"t"})
    with pytest.raises(CheckpointError, match="org/none"):
        check_weights("hf://org/none")


def test_a_branch_that_moves_leaves_the_commit_where_it_was(hub: Hub) -> None:
    first = pin(f"hf://org/name@{hub.commit('org/name', MODEL)}")
    hub.commit("org/name", {**MODEL, "model.safetensors": b"others"})
    assert read_bytes(f"{local_copy(first)}/model.safetensors") == b"weights"
    assert read_bytes(f"{local_copy('hf://org/name@main')}/model.safetensors") == b"others"


def test_a_name_that_leads_nowhere_is_told_by_what_is_wrong(hub: Hub) -> None:
    commit = hub.commit("org/name", MODEL)
    hub.commit("org/mine", MODEL, refusal="RepoNotFound")
    hub.commit("org/terms", MODEL, refusal="GatedRepo")
    for uri, error, word in (
        ("hf://org/nmae", NotFoundError, "org/nmae"),
        ("hf://org/mine", NotFoundError, "hf auth login"),
        ("hf://org/terms", InputError, "terms"),
        ("hf://org/name@v9", NotFoundError, "v9"),
        (f"hf://org/name@{'a' * 40}", NotFoundError, "a" * 40),
        (f"hf://org/name@{commit}/moved.txt", NotFoundError, "moved.txt"),
        ("hf://", InputError, "hf://ORG/NAME"),
    ):
        with pytest.raises(error, match=word):
            hub_copy(uri)
    assert exists("hf://org/name/config.json")
    assert not exists("hf://org/name/moved.txt")
    constants.HF_HUB_OFFLINE = True  # until the hub goes
    with pytest.raises(NotFoundError, match="HF_HUB_OFFLINE"):
        hub_copy("hf://org/other")
    constants.HF_HUB_OFFLINE = False


def test_without_a_network_only_what_is_in_the_cache_is_found(hub: Hub) -> None:
    hub.commit("org/name", MODEL)
    uri = pin("hf://org/name")
    local_copy(uri)
    constants.ENDPOINT = "http://127.0.0.1:9"  # until the hub goes; nobody listens there
    assert pin("hf://org/name") == uri
    assert read_bytes(f"{local_copy(uri)}/model.safetensors") == b"weights"
    for other in ("hf://org/other", f"hf://org/other@{'a' * 40}"):
        with pytest.raises(NotFoundError, match="cannot be reached"):
            local_copy(other)


def test_nothing_is_written_to_the_hub(hub: Hub) -> None:
    with pytest.raises(InputError, match="hf://"):
        write_bytes("hf://org/name/notes.txt", b"")
    assert not hub.asked


def test_a_cut_download_goes_on_and_one_that_never_ends_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    hub.commit("org/name", MODEL)
    local_copy("hf://org/name", skip=WITHOUT_WEIGHTS)
    hub.cuts = 1
    assert read_bytes(f"{local_copy('hf://org/name')}/model.safetensors") == b"weights"
    hub.commit("org/name", {**MODEL, "model.safetensors": b"others"})
    hub.cuts = 10**6
    with pytest.raises(InputError, match="org/name"):
        local_copy("hf://org/name")


def test_a_full_disk_is_foreseen_and_told_where_it_is_met(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.commit("org/name", MODEL)
    local_copy("hf://org/name", skip=WITHOUT_WEIGHTS)

    def fail(*args: object, **settings: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(file_download, "http_get", fail)
        with pytest.raises(InputError, match="full"):
            local_copy("hf://org/name")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=3))
    with pytest.raises(InputError, match="free"):
        local_copy("hf://org/name")


def test_a_model_that_is_too_large_is_fetched_by_hand_alone(hub: Hub) -> None:
    hub.commit("org/large", MODEL)
    hub.claimed_bytes = MOST_BYTES + 1
    with pytest.raises(InputError, match=r"8\.59 GB.*hf download org/large"):
        check_weights("hf://org/large")
    assert "model.safetensors" not in downloads(hub)
    file_download.hf_hub_download("org/large", "model.safetensors")
    assert check_size("hf://org/large") == 0


def parquet(texts: list[str]) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), buffer)
    return buffer.getvalue()


def test_parquet_files_of_a_pattern_are_one_table(hub: Hub) -> None:
    files = {"data/train-0.parquet": parquet(["a", "b"]), "data/train-1.parquet": parquet(["c"]), "a.jsonl": b"{}"}
    commit = hub.commit("datasets/org/set", {**files, "b.jsonl": b"{}", "data/more/train-2.parquet": parquet(["d"])})
    pattern = "hf://datasets/org/set/data/train-*.parquet"
    with open_read(pattern) as file:
        assert pyarrow.parquet.read_table(file)["text"].to_pylist() == ["a", "b", "c"]
    assert digest_file(pattern) != digest_file("hf://datasets/org/set/data/train-0.parquet")
    assert find_on_hub(pattern)[0][0] == f"hf://datasets/org/set@{commit}/data/train-0.parquet"
    assert len(find_on_hub("hf://datasets/org/set/data")) == len(find_on_hub("hf://datasets/org/set/**/*.parquet")) == 3
    for wrong in ("set/*.jsonl", "set/**.parquet", "set/*.csv", "none/a.parquet"):
        with pytest.raises(InputError):
            open_read(f"hf://datasets/org/{wrong}")
