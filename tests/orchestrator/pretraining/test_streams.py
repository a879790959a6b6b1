"""Streams of examples as a spec asks for them. Alone: pytest tests/orchestrator/pretraining/test_streams.py"""

from pathlib import Path

import numpy as np
import pytest

from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import TokenizedDocuments
from orchestrator.base.errors import CorpusError
from orchestrator.corpus.stream import SplitShards
from orchestrator.corpus.token_store import TokenStore
from orchestrator.pretraining import streams
from orchestrator.pretraining.streams import build_masking, build_stream, build_validation
from orchestrator.specs import PretrainSpec
from tests.orchestrator.pretraining.small_run import make_job, make_tokenizer


class FewDocuments:
    """Shards of one document each."""

    fingerprint = "few"

    def __init__(self, num_shards: int) -> None:
        self.num_shards = num_shards

    def document_lengths(self, shard: int) -> np.ndarray:
        return np.array([30])

    def read_documents(self, shard: int) -> TokenizedDocuments:
        return TokenizedDocuments(np.arange(30, dtype=np.uint16), np.arange(0, 31, 10), np.array([0, 3]))


def spec(**changes: object) -> PretrainSpec:
    return PretrainSpec(corpus={"files": ["x"]}, tokenizer="x", **({"steps": 5} | changes))


def test_one_validation_document_is_no_evaluation() -> None:
    assert build_validation(spec(), FewDocuments(1), make_tokenizer()) is None
    assert build_validation(spec(), FewDocuments(0), make_tokenizer()) is None
    assert build_validation(spec(), FewDocuments(2), make_tokenizer()) is not None
    assert build_validation(spec(shuffle_window_shards=1), FewDocuments(2), make_tokenizer()) is not None
    of_a_token = FewDocuments(2)
    of_a_token.document_lengths = lambda shard: np.array([1])  # type: ignore[method-assign]
    assert build_validation(spec(sentence_objective="sentence_order"), of_a_token, make_tokenizer()) is None


@pytest.mark.parametrize(("num_shards", "window"), [(1, 16), (4, 1), (3, 2)])
def test_a_window_that_may_hold_one_document_is_refused(num_shards: int, window: int) -> None:
    with pytest.raises(CorpusError, match="raise shuffle_window_shards"):
        build_stream(spec(shuffle_window_shards=window), FewDocuments(num_shards), make_tokenizer())
    for objective in ("sentence_order", "none"):
        alone = spec(shuffle_window_shards=window, sentence_objective=objective)
        assert build_stream(alone, FewDocuments(num_shards), make_tokenizer()).examples_per_epoch() == num_shards


@pytest.mark.parametrize("objective", ["next_sentence", "none"])
def test_an_entry_is_read_in_its_share_or_has_weight_0(monkeypatch: pytest.MonkeyPatch, objective: str) -> None:
    monkeypatch.setattr(FewDocuments, "entries", [0, 0, 0, 1], raising=False)

    def build(*weights: float) -> None:
        corpus = {"files": ["x", "y"], "weights": weights}
        values = {"corpus": corpus, "tokenizer": "x", "steps": 5, "sentence_objective": objective}
        build_stream(PretrainSpec(**values), FewDocuments(4), make_tokenizer())

    build(1.0, 0.0)  # whose one document is too few for pairs
    with pytest.raises(CorpusError, match=r"corpus\.files: y would never be read"):
        build(1.0, 1e-6)


def test_a_corpus_without_training_documents_is_refused() -> None:
    with pytest.raises(CorpusError, match="no documents to train on"):
        build_stream(spec(), FewDocuments(0), make_tokenizer())


def test_documents_of_one_token_have_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FewDocuments, "document_lengths", lambda store, shard: np.array([1]))
    with pytest.raises(CorpusError, match="no document has the 2 tokens that sentence_objective sentence_order needs"):
        build_stream(spec(sentence_objective="sentence_order"), FewDocuments(3), make_tokenizer())


def test_the_table_of_words_is_made_where_a_unit_needs_it() -> None:
    tokenizer = make_tokenizer()
    (masking,) = build_masking(spec(), tokenizer)
    assert masking.word_boundaries is None
    word_boundaries = build_masking(spec(mask_unit="span"), tokenizer)[0].word_boundaries
    assert word_boundaries is not None
    pieces = [tokenizer.token(number) for number in np.flatnonzero(word_boundaries.joined)]
    assert len(pieces) > 5
    assert all(piece.startswith("##") for piece in pieces)


def test_a_phase_may_mask_at_a_rate_of_its_own(tmp_path: Path) -> None:
    alike, other = {"share": 0.5}, {"share": 0.5, "mlm_probability": 0.4, "mask_mix": (1.0, 0.0, 0.0)}
    plain, changed = (make_job(tmp_path, steps=4, phases=[first, alike]) for first in (alike, other))
    assert changed.validation is not None
    assert changed.validation.config.masking[0].mlm_probability == 0.15
    batches = [[batch for _, batch in job.stream.batches(range(4))] for job in (plain, changed)]
    shares = [[len(batch.masked_positions) / len(batch.input_ids) for batch in each] for each in batches]
    assert all(high > 2 * low for high, low in zip(shares[1][:2], shares[0][:2], strict=True))
    first = batches[1][0]
    assert set(first.input_ids[first.masked_positions].tolist()) == {changed.tokenizer.mask_id}
    for one, two in zip(batches[0][2:], batches[1][2:], strict=True):
        assert np.array_equal(one.masked_positions, two.masked_positions)
        assert np.array_equal(one.input_ids, two.input_ids)


@pytest.mark.parametrize("num_workers", [2, 3, 7, 40])
def test_workers_share_all_validation_examples_whatever_their_number(tmp_path: Path, num_workers: int) -> None:
    job = make_job(tmp_path, execution={"num_workers": num_workers}, global_batch_size=7 * 40 * 3)
    one = make_job(tmp_path).validation
    assert one is not None
    assert job.validation is not None
    assert job.validation.config.phases[0][2] == one.config.phases[0][2] == 40
    (whole,) = [batch for _, batch in one.batches(range(1))]
    shares = [
        [batch for _, batch in job.validation.batches(range(1), rank, num_workers)] for rank in range(num_workers)
    ]
    sizes = [sum(batch.num_sequences for batch in share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    together = PackedBatch.concatenate([batch for share in shares for batch in share])
    for name in PackedBatch.__dataclass_fields__:
        assert np.array_equal(getattr(together, name), getattr(whole, name)), name


def test_an_evaluation_of_a_huge_split_does_not_load_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(tmp_path, execution={"evaluation_examples": 12})
    monkeypatch.setattr(streams, "HELD_OUT_TOKENS", 1)
    train = SplitShards(TokenStore.open(str(tmp_path / "store")), "train")
    validation = build_validation(job.spec, train, job.tokenizer)
    assert validation is not None
    read: list[int] = []
    read_documents = SplitShards.read_documents

    def note(shards: SplitShards, shard: int) -> TokenizedDocuments:
        read.append(shard)
        return read_documents(shards, shard)

    monkeypatch.setattr(SplitShards, "read_documents", note)
    ((_, batch),) = validation.batches(range(1))
    assert batch.num_sequences == 12
    assert len(read) == 1
