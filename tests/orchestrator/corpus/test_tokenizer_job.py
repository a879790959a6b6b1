"""Training a tokenizer from files, reusing it, and the report; no Ray.

Run alone: pytest tests/orchestrator/corpus/test_tokenizer_job.py
"""

import os
from pathlib import Path

import pytest

from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_pipelines import SPECIAL_TOKENS
from bert_core.text.tokenizer_training import TRAINERS, train_wordpiece
from orchestrator.base.errors import CorpusError
from orchestrator.corpus import tokenizer_job
from orchestrator.corpus.tokenizer_job import tokenizer_notes, tokenizer_report, train_tokenizer
from orchestrator.specs import TextSource, TokenizerSpec

SENTENCE = "The harbour of number {} lies north of the bridge."


@pytest.fixture
def spec(tmp_path: Path) -> TokenizerSpec:
    (tmp_path / "a.txt").write_text("\n\n".join(SENTENCE.format(i) for i in range(400)))
    return TokenizerSpec(corpus=TextSource(files=(str(tmp_path / "a.txt"),)), vocab_size=200)


def test_a_trained_tokenizer_is_a_folder_that_loads_with_its_report(spec: TokenizerSpec, tmp_path: Path) -> None:
    result = train_tokenizer(spec, str(tmp_path))
    tokenizer = Tokenizer.load(result.folder)
    assert (tokenizer.fingerprint, tokenizer.vocab_size) == (result.fingerprint, result.vocab_size)
    assert tokenizer.id("harbour") != tokenizer.unk_id
    assert 1.0 <= result.report["fertility"] < 1.5
    assert result.report["unknown_rate"] == 0.0


@pytest.mark.parametrize("algorithm", TRAINERS)
def test_the_spec_chooses_the_algorithm(spec: TokenizerSpec, tmp_path: Path, algorithm: str) -> None:
    chosen = spec.model_copy(update={"algorithm": algorithm, "vocab_size": 300})
    tokenizer = Tokenizer.load(train_tokenizer(chosen, str(tmp_path)).folder)
    plain = TRAINERS[algorithm]([SENTENCE] * 9, 300, True, 2)
    assert [tokenizer.token(i) for i in range(5)] == [plain.token(i) for i in range(5)]
    assert len(tokenizer.encode_ids([" harbour"])[0]) == 1


def test_sampled_languages_shape_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_text("\n\n".join(f"alpha beta {i}" for i in range(2000)))
    (tmp_path / "small.txt").write_text("\n\n".join(f"omega sigma {i}" for i in range(20)))
    files = tuple(str(tmp_path / name) for name in ("large.txt", "small.txt"))
    learned = {
        exponent: Tokenizer.load(
            train_tokenizer(
                TokenizerSpec(
                    corpus=TextSource(files=files, sampling_exponent=exponent), vocab_size=100, min_frequency=40
                ),
                str(tmp_path),
            ).folder
        )
        for exponent in (1.0, 0.3)
    }
    assert learned[1.0].id("omega") == learned[1.0].unk_id
    assert learned[0.3].id("omega") != learned[0.3].unk_id
    assert learned[0.3].id("alpha") != learned[0.3].unk_id


def test_a_trained_tokenizer_is_reused_until_a_file_changes(
    spec: TokenizerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train_tokenizer(spec, str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(tokenizer_job, "TRAINERS", {})
        assert train_tokenizer(spec, str(tmp_path)) == first
    os.utime(tmp_path / "a.txt", ns=(1, 1))
    second = train_tokenizer(spec, str(tmp_path))
    assert second.folder != first.folder
    assert second.fingerprint == first.fingerprint


@pytest.mark.parametrize("name", ["tokenizer.json", "manifest.json"])
def test_a_damaged_folder_is_trained_again(spec: TokenizerSpec, tmp_path: Path, name: str) -> None:
    first = train_tokenizer(spec, str(tmp_path))
    file = Path(first.folder) / name
    file.write_bytes(file.read_bytes()[:-10])
    assert train_tokenizer(spec, str(tmp_path)) == first
    assert Tokenizer.load(first.folder).fingerprint == first.fingerprint


def test_max_bytes_bounds_what_is_read(spec: TokenizerSpec, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha " * 200 + "\n\n" + "omega " * 2000)
    tokenizer = Tokenizer.load(train_tokenizer(spec.model_copy(update={"max_bytes": 2000}), str(tmp_path)).folder)
    assert tokenizer.id("alpha") != tokenizer.unk_id
    assert tokenizer.id("omega") == tokenizer.unk_id


def test_a_corpus_without_text_is_refused(spec: TokenizerSpec, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n")
    with pytest.raises(CorpusError, match=r"a\.txt"):
        train_tokenizer(spec, str(tmp_path))
    assert not (tmp_path / "tokenizers").exists()


def test_the_report_counts_pieces_unknowns_and_characters(tmp_path: Path) -> None:
    vocabulary = [*SPECIAL_TOKENS.values(), "boat", "##s", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    report = tokenizer_report(Tokenizer.load(tmp_path), ["boats boat.\nxyz boats"])
    assert report == {
        "fertility": 7 / 5,
        "unknown_rate": 1 / 5,
        "characters_per_token": 18 / 7,
        "num_words": 5.0,
    }


def test_a_vocabulary_without_most_characters_of_the_text_is_told(tmp_path: Path) -> None:
    documents = ("".join(chr(0x4E00 + (n * 7 + i * i) % 2000) for i in range(60)) for n in range(400))
    (tmp_path / "a.txt").write_text("\n\n".join(documents), encoding="utf-8")
    spec = TokenizerSpec(corpus=TextSource(files=(str(tmp_path / "a.txt"),)), vocab_size=200)
    assert any("[UNK]" in note for note in tokenizer_notes(spec, train_tokenizer(spec, str(tmp_path))))


def test_a_report_on_nothing_is_empty() -> None:
    tokenizer = train_wordpiece(["some words"], 100)
    assert tokenizer_report(tokenizer, [" \n"]) == {}
