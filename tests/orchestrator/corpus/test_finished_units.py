"""A build of a token store that was ended in the middle goes on; in this process, without Ray.

Run alone: pytest tests/orchestrator/corpus/test_finished_units.py
As a program it builds a store, and kills itself in the unit of the given number: FOLDER UNIT.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import CorpusError
from orchestrator.base.results import DatasetResult
from orchestrator.corpus import build as build_module
from orchestrator.corpus.build import build_token_store
from orchestrator.specs import TextSource
from tests.orchestrator.pretraining.small_run import WORDS, make_tokenizer

NUM_UNITS = 10


def rows_in_this_process(
    bundles: Sequence[int],
    read: Callable[[dict[str, Any]], Iterator[pa.Table]],
    tokenize: Callable[[pa.Table], pa.Table],
    *_: object,
) -> Iterator[dict[str, Any]]:
    for number in bundles:
        for table in read({"id": _Ids([number])}):
            yield tokenize(table).to_pylist()[0]


class _Ids(list):
    def tolist(self) -> list[int]:
        return list(self)


def write_corpus(folder: Path) -> None:
    """Two files, each a bundle of its own, of five shards."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("a", "b"):
        text = "\n\n".join(f"{' '.join(WORDS)} {name}{number}." for number in range(45))
        (folder / f"{name}.txt").write_text(text)
        os.utime(folder / f"{name}.txt", (1, 1))


def build(folder: Path, storage: Path, tokenizer: Tokenizer, **options: Any) -> DatasetResult:
    return build_token_store(TextSource(files=(str(folder),)), tokenizer, 0.2, 1024, str(storage), **options)


def files_of(store: str) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in Path(store).rglob("*") if path.is_file()}


def kill_in_unit(number: int) -> None:
    """Kill this process when the shards of a unit are written and nothing says so yet."""
    written = iter(range(1000))
    write = build_module.write_unit

    def write_or_die(*args: Any) -> None:
        if next(written) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        write(*args)

    build_module.write_unit = write_or_die


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Build in this process; gives the stems of the units that are tokenized from now on."""
    monkeypatch.setattr(build_module, "_rows", rows_in_this_process)
    monkeypatch.setattr("orchestrator.corpus.document_batches.BUNDLE_BYTES", 1)
    monkeypatch.setattr(build_module, "write_documents", build_module.write_documents)
    stems: list[str] = []
    write = build_module.write_documents

    def note(documents: Any, folder: str, stem: str, *rest: Any) -> Any:
        stems.append(stem)
        return write(documents, folder, stem, *rest)

    monkeypatch.setattr(build_module, "write_documents", note)
    return stems


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "corpus")
    return tmp_path / "corpus"


@pytest.mark.runs
@pytest.mark.parametrize("unit", [0, 7])
@pytest.mark.core
def test_a_killed_build_loses_one_unit_and_ends_with_the_same_bytes(
    unit: int, corpus: Path, tmp_path: Path, tokenized: list[str]
) -> None:
    tokenizer = make_tokenizer()
    straight = build(corpus, tmp_path / "straight", tokenizer)
    all_units = list(tokenized)
    assert len(all_units) >= NUM_UNITS
    code = subprocess.run([sys.executable, "-m", __name__, str(tmp_path), str(unit)], check=False).returncode
    assert code == -signal.SIGKILL
    tokenized.clear()
    heard: list[tuple[int, int]] = []
    again = build(corpus, tmp_path / "storage", tokenizer, progress=lambda *at: heard.append(at))
    assert tokenized == all_units[unit:]
    assert heard[-1][0] == heard[-1][1]
    assert (again.fingerprint, again.counts, again.files) == (straight.fingerprint, straight.counts, straight.files)
    assert files_of(again.path) == files_of(straight.path)
    assert not (Path(again.path) / build_module.UNITS_FOLDER).exists()


def test_a_build_that_fails_at_the_end_tokenizes_nothing_again(
    corpus: Path, tmp_path: Path, tokenized: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("orchestrator.corpus.token_store.write_json", fail)
        with pytest.raises(OSError, match="No space"):
            build(corpus, tmp_path / "storage", make_tokenizer())
    tokenized.clear()
    assert build(corpus, tmp_path / "storage", make_tokenizer()).counts["num_documents"] == 90
    assert tokenized == []


@pytest.mark.parametrize("damage", ["the shard is gone", "the facts are cut", "the facts are of another form"])
@pytest.mark.heavy
def test_a_unit_that_is_damaged_is_tokenized_again(
    damage: str, corpus: Path, tmp_path: Path, tokenized: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(build_module, "delete_units", lambda folder: None)
        straight = build(corpus, tmp_path / "storage", make_tokenizer())
    store = Path(straight.path)
    expected = files_of(straight.path)
    (store / "manifest.json").unlink()
    facts = store / "units" / "000001-000002.json"
    if damage == "the shard is gone":
        (store / json.loads(facts.read_bytes())["shards"][0]["file"]).unlink()
    else:
        facts.write_bytes(facts.read_bytes()[:-9] if damage == "the facts are cut" else b"[]")
    tokenized.clear()
    again = build(corpus, tmp_path / "storage", make_tokenizer())
    assert tokenized == ["000001-000002"]
    assert files_of(again.path) == {name: data for name, data in expected.items() if not name.startswith("units/")}


def test_bad_text_is_met_again_after_it_was_mended(corpus: Path, tmp_path: Path, tokenized: list[str]) -> None:
    (corpus / "b.txt").write_bytes(b"Bad \xff byte.")
    with pytest.raises(CorpusError, match=r"b\.txt: line 1"):
        build(corpus, tmp_path / "storage", make_tokenizer())
    with pytest.raises(CorpusError, match=r"b\.txt: line 1"):
        build(corpus, tmp_path / "storage", make_tokenizer())
    write_corpus(corpus)
    assert build(corpus, tmp_path / "storage", make_tokenizer()).counts["num_documents"] == 90


def test_a_store_is_whole_though_another_build_of_it_still_writes(
    corpus: Path, tmp_path: Path, tokenized: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = os.rmdir

    def write_and_remove(folder: str, **options: Any) -> None:
        """Remove an empty folder just after the other build has written a unit into it."""
        if Path(folder).name == build_module.UNITS_FOLDER:
            unit = build_module.Unit(5, (), is_last=True)
            build_module.write_unit(str(Path(folder).parent), "000000-000000", unit)
        remove(folder, **options)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(os, "rmdir", write_and_remove)
        store = build(corpus, tmp_path / "storage", make_tokenizer())
    assert (Path(store.path) / build_module.UNITS_FOLDER).exists()
    again = build(corpus, tmp_path / "storage", make_tokenizer())
    assert (again.reused, again.fingerprint) == (True, store.fingerprint)
    assert not (Path(store.path) / build_module.UNITS_FOLDER).exists(), "the next build removes what was left"


if __name__ == "__main__":
    here = Path(sys.argv[1])
    build_module._rows = rows_in_this_process  # type: ignore[assignment]
    from orchestrator.corpus import document_batches

    document_batches.BUNDLE_BYTES = 1
    kill_in_unit(int(sys.argv[2]))
    build(here / "corpus", here / "storage", make_tokenizer())
