"""What a person is shown of files, documents and examples. Alone: pytest tests/orchestrator/corpus/test_preview.py"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from bert_core.objectives import NO_SENTENCE_OBJECTIVE, SENTENCE_OBJECTIVES
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import train_byte_bpe, train_wordpiece
from orchestrator.corpus.document_readers import Document
from orchestrator.corpus.preview import (
    SampleStore,
    open_sample_store,
    preview_examples,
    preview_sentences,
)
from orchestrator.corpus.stream import ExampleStream, SplitShards
from orchestrator.pretraining.streams import build_stream
from orchestrator.specs import PretrainSpec, TextSource
from tests.orchestrator.pretraining.small_run import WORDS, make_store, make_tokenizer

OBJECTIVES = pytest.mark.parametrize("objective", [*SENTENCE_OBJECTIVES, NO_SENTENCE_OBJECTIVE])
STEPS, BATCH_SIZE = 6, 8


def open_stream(folder: Path, tokenizer: Tokenizer, **changes: object) -> ExampleStream:
    """Examples of a run with two phases."""
    values = {
        "corpus": {"files": ["generated"]},
        "tokenizer": "generated",
        "steps": STEPS,
        "phases": [{"max_seq_length": 48, "share": 0.5}, {"max_seq_length": 24, "share": 0.5}],
        "global_batch_size": BATCH_SIZE,
        "mask_mix": [0.4, 0.3, 0.3],
    }
    store = make_store(folder, tokenizer)
    return build_stream(PretrainSpec(**(values | changes)), SplitShards(store, "train"), tokenizer)


def test_sentences_stand_with_their_document_and_word_pieces() -> None:
    documents = [Document("a", "Badan kefel. Ligim!\nMotor", "en"), Document("b", "Nudan", "en")]
    tokenizer = make_tokenizer()
    plain, cut = list(preview_sentences(documents)), list(preview_sentences(documents, tokenizer))
    texts = [("a", "Badan kefel."), ("a", "Ligim!"), ("a", "Motor"), ("b", "Nudan")]
    assert [(sentence.document, sentence.text) for sentence in plain] == texts
    assert [sentence.pieces for sentence in plain] == [None] * 4
    encoded = tokenizer.encode_ids([text for _, text in texts])
    assert [[tokenizer.id(piece) for piece in sentence.pieces or ()] for sentence in cut] == encoded


@OBJECTIVES
def test_examples_are_those_that_the_run_trains_on(objective: str, tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    stream = open_stream(tmp_path, tokenizer, sentence_objective=objective)
    shown = preview_examples(stream, tokenizer, phase=1, epoch=0, first=0, num_examples=BATCH_SIZE)
    ((_, batch),) = stream.batches(range(STEPS // 2, STEPS // 2 + 1))
    tokens = [token for example in shown for token in example.tokens]
    assert [tokenizer.id(token.token) for token in tokens] == batch.input_ids.tolist()
    hidden = [position for position, token in enumerate(tokens) if token.change]
    assert hidden == batch.masked_positions.tolist()
    assert [tokenizer.id(tokens[position].truth or "") for position in hidden] == batch.masked_labels.tolist()
    assert [example.step for example in shown] == [STEPS // 2] * BATCH_SIZE
    if objective == NO_SENTENCE_OBJECTIVE:
        assert {(example.sentence_label, example.sentence_answer) for example in shown} == {(None, None)}
    else:
        assert [example.sentence_label for example in shown] == batch.sentence_labels.tolist()
        answers = SENTENCE_OBJECTIVES[objective].answers
        assert [example.sentence_answer for example in shown] == [answers[n] for n in batch.sentence_labels]
        assert [token.segment for token in tokens] == batch.token_type_ids.tolist()


def test_a_hidden_token_is_masked_replaced_or_kept(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    shown = preview_examples(open_stream(tmp_path, tokenizer), tokenizer, 0, 0, 0, 60)
    tokens = [token for example in shown for token in example.tokens]
    changed = {name: [token for token in tokens if token.change == name] for name in ("masked", "replaced", "kept")}
    assert {token.token for token in changed["masked"]} == {"[MASK]"}
    assert all(token.token != token.truth for token in changed["replaced"])
    assert all(token.token == token.truth for token in changed["kept"])
    assert min(map(len, changed.values())) > 10
    assert {token.truth for token in tokens if not token.change} == {None}
    assert {token.token for token in tokens if token.is_special} == {"[CLS]", "[SEP]"}
    assert not any(token.is_special for token in tokens if token.change)


def test_two_separators_end_the_first_segment_where_the_tokenizer_puts_two(tmp_path: Path) -> None:
    tokenizer = train_byte_bpe([" ".join(WORDS)] * 20, vocab_size=400, min_frequency=1)
    for example in preview_examples(open_stream(tmp_path, tokenizer), tokenizer, 0, 0, 0, 20):
        first = [token for token in example.tokens if token.segment == 0]
        second = [token for token in example.tokens if token.segment == 1]
        assert [token.token for token in first if token.is_special] == ["<s>", "</s>", "</s>"]
        assert [token.token for token in second if token.is_special] == ["</s>"]
        assert [first[-2].is_special, first[-1].is_special, second[0].is_special] == [True, True, False]


def test_a_sequence_over_several_documents_has_a_segment_for_each(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    stream = open_stream(tmp_path, tokenizer, sentence_objective=NO_SENTENCE_OBJECTIVE, cross_documents=True)
    shown = preview_examples(stream, tokenizer, 0, 0, 0, 20)
    for example in shown:
        ends = [token.segment for token in example.tokens if token.is_special and token.token == "[SEP]"]
        assert ends == list(range(len(ends)))
    assert max(example.tokens[-1].segment for example in shown) >= 1


def test_examples_run_on_into_the_next_epoch_and_beyond_the_last_step(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    stream = open_stream(tmp_path, tokenizer)
    last = stream.examples_per_epoch() - 1
    shown = preview_examples(stream, tokenizer, 0, 0, last, 2)
    assert [(example.epoch, example.example) for example in shown] == [(0, last), (1, 0)]
    assert shown[1] == preview_examples(stream, tokenizer, 0, 1, 0, 1)[0]
    assert last >= STEPS // 2 * BATCH_SIZE
    assert [example.step for example in shown] == [None, None]


TEXTS = [f"The {animal} sat on the {place}. It was warm." for animal in ("cat", "dog") for place in "abcdefghijklm"]
SHARD_BYTES = 300

Open = Callable[..., AbstractContextManager[SampleStore]]


@pytest.fixture
def source(tmp_path: Path) -> TextSource:
    """Documents in two files, which fill several shards."""
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS[:20]))
    (tmp_path / "b.txt").write_text("\n\n".join(TEXTS[20:]))
    return TextSource(files=(str(tmp_path / "*.txt"),))


@pytest.fixture
def tokenizer() -> Tokenizer:
    """A tokenizer of the documents."""
    return train_wordpiece(TEXTS, vocab_size=100, min_frequency=1)


@pytest.fixture
def open_sample(tmp_path: Path, source: TextSource, tokenizer: Tokenizer) -> Open:
    """Open the documents' store on a storage of its own."""
    return partial(open_sample_store, source, tokenizer, 0.2, SHARD_BYTES, str(tmp_path / "storage"))


def test_the_whole_text_is_a_store_that_is_gone_afterwards(open_sample: Open, tmp_path: Path) -> None:
    with open_sample() as sample:
        assert sample.origin == "whole_text"
        assert sample.store.manifest.counts()["num_documents"] == len(TEXTS)
        assert len(sample.store.shards("train")) > 2
        assert sum(sample.store.read_shard(shard).num_documents for shard in sample.store.manifest.shards) == len(TEXTS)
    assert not Path(sample.store.folder).exists()
    assert not (tmp_path / "storage").exists()


@pytest.mark.parametrize("sample_bytes", [1, SHARD_BYTES, 2 * SHARD_BYTES])
def test_of_more_text_only_the_first_is_read(open_sample: Open, sample_bytes: int) -> None:
    with open_sample() as whole, open_sample(sample_bytes=sample_bytes) as part:
        assert (whole.share, part.origin) == (1.0, "first_text")
        num_documents = part.store.manifest.counts()["num_documents"]
        assert 0 < num_documents < len(TEXTS)
        assert part.share == pytest.approx(num_documents / len(TEXTS), abs=0.1)
        if sample_bytes >= SHARD_BYTES:
            shards = part.store.manifest.shards
            assert [shard.sha256 for shard in shards] == [s.sha256 for s in whole.store.manifest.shards[: len(shards)]]


@pytest.fixture
def weighted(tmp_path: Path, source: TextSource) -> TextSource:
    """The two files as entries with weights."""
    assert source.files  # they are there
    return TextSource(files=(str(tmp_path / "a.txt"), str(tmp_path / "b.txt")), weights=(1.0, 3.0))


def test_the_first_text_of_every_entry_with_a_weight_is_read(weighted: TextSource, tokenizer: Tokenizer) -> None:
    with open_sample_store(weighted, tokenizer, 0.0, SHARD_BYTES, "storage", sample_bytes=2) as sample:
        assert [shard.entry for shard in sample.store.manifest.shards] == [0, 1]
        assert sample.origin == "first_text"


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("name", ["source", "weighted"])
def test_the_whole_text_gives_the_store_of_a_run(
    name: str, request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    from orchestrator.corpus.build import build_token_store

    source: TextSource = request.getfixturevalue(name)
    how = tokenizer, 0.2, SHARD_BYTES, str(tmp_path / "storage")
    with open_sample_store(source, *how) as sample:
        result = build_token_store(source, *how)
        assert sample.store.manifest.fingerprint == result.fingerprint
        assert {shard.entry for shard in sample.store.manifest.shards} == ({0, 1} if source.weights else {0})
    other = source.model_copy(update={"weights": source.weights[::-1]})
    with open_sample_store(other, *how, sample_bytes=1) as found:
        assert (found.origin, found.store.folder) == ("token_store", result.path), "whatever the weights are"
        assert found.store.manifest.shards == sample.store.manifest.shards
