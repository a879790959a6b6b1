"""What a job is made of. Alone: pytest tests/orchestrator/pretraining/test_job.py"""

from pathlib import Path

import numpy as np
import pytest

from bert_core.errors import ConfigError, TokenizerError
from bert_core.examples.segments import TokenizedDocuments
from bert_core.heads import BertForPreTraining
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.errors import CorpusError
from orchestrator.models.config import build_config
from orchestrator.pretraining.job import build_masking, build_stream, build_validation, check_start
from orchestrator.specs import ModelSpec, PretrainSpec
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


@pytest.mark.parametrize(("num_shards", "window"), [(1, 16), (4, 1), (3, 2)])
def test_a_window_that_may_hold_one_document_is_refused(num_shards: int, window: int) -> None:
    with pytest.raises(CorpusError, match="raise shuffle_window_shards"):
        build_stream(spec(shuffle_window_shards=window), FewDocuments(num_shards), make_tokenizer())
    for objective in ("sentence_order", "none"):
        alone = spec(shuffle_window_shards=window, sentence_objective=objective)
        assert build_stream(alone, FewDocuments(num_shards), make_tokenizer()).examples_per_epoch() == num_shards


def test_a_corpus_without_training_documents_is_refused() -> None:
    with pytest.raises(CorpusError, match="no documents to train on"):
        build_stream(spec(), FewDocuments(0), make_tokenizer())


def test_documents_of_one_token_have_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FewDocuments, "document_lengths", lambda store, shard: np.array([1]))
    with pytest.raises(CorpusError, match="no document has the 2 tokens that sentence_objective sentence_order needs"):
        build_stream(spec(sentence_objective="sentence_order"), FewDocuments(3), make_tokenizer())


def test_the_table_of_words_is_made_where_a_unit_needs_it() -> None:
    tokenizer = make_tokenizer()
    assert build_masking(spec(), tokenizer).word_boundaries is None
    word_boundaries = build_masking(spec(mask_unit="span"), tokenizer).word_boundaries
    assert word_boundaries is not None
    pieces = [tokenizer.token(number) for number in np.flatnonzero(word_boundaries.joined)]
    assert len(pieces) > 5
    assert all(piece.startswith("##") for piece in pieces)


def test_a_model_is_continued_with_its_own_vocabulary_only(tmp_path: Path) -> None:
    own, other = make_tokenizer(), train_wordpiece(["quite another text"] * 3, vocab_size=60, min_frequency=1)
    assert other.vocab_size <= own.vocab_size
    config = build_config(ModelSpec(hidden_size=32), own.vocab_size)
    BertForPreTraining(config).save_pretrained(tmp_path)
    check_start(str(tmp_path), other)  # nothing is known against it
    own.save(tmp_path)
    check_start(str(tmp_path), own)
    with pytest.raises(TokenizerError, match="is not the checkpoint's"):
        check_start(str(tmp_path), other)


def test_sizes_can_be_changed_number_by_number() -> None:
    config = build_config(ModelSpec(size="mini", num_hidden_layers=2, hidden_size=128), vocab_size=500)
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (2, 128, 2)
    assert config.intermediate_size == 512
    with pytest.raises(ConfigError, match="num_attention_heads"):
        build_config(ModelSpec(num_attention_heads=3), vocab_size=500)


def test_phases_share_all_steps() -> None:
    tenths = tuple({"share": 0.1} for _ in range(10))
    assert sum(steps for _, steps in spec(steps=6, phases=tenths).phase_steps()) == 6
    assert min(steps for _, steps in spec(steps=6, phases=tenths).phase_steps()) >= 0
    assert spec(steps=100, phases=({"share": 0.9}, {"share": 0.1, "max_seq_length": 512})).phase_steps() == (
        (128, 90),
        (512, 10),
    )


def test_a_job_knows_what_it_is(tmp_path: Path) -> None:
    assert set(make_job(tmp_path).identity()) == {"spec", "corpus", "tokenizer", "loss", "layers"}
