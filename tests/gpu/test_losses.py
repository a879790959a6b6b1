"""bf16 against fp32 while learning, and the text that is learned. Run alone: pytest tests/gpu/test_losses.py"""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu import losses
from benchmarks.gpu.results import Report
from benchmarks.gpu.texts import first_batches, generated_text, real_text
from tests.gpu.devices import ON_EACH_DEVICE, rows_of


@ON_EACH_DEVICE
def test_losses_in_bf16_are_those_of_fp32(device: str, tmp_path: Path) -> None:
    *runs, plain, residual = rows_of(losses.measure, device, Report(tmp_path / "r", ""))
    assert plain["ok"], plain
    assert residual["ok"], residual
    assert residual["precision"] == "bf16, bf16 residual against fp32"
    assert len({row["last quarter"] for row in runs}) == len(runs) == 4


def test_a_loss_that_goes_astray_in_bf16_is_found() -> None:
    (run, _) = losses.COMPARED
    row = losses.compare("text", {losses.REFERENCE: 4.0, run: 4.2, losses.ANOTHER_SEED: 4.02}, run)
    assert row["gap"] == pytest.approx(0.05)
    assert row["gap of another seed"] == pytest.approx(0.005)
    assert row["ok"] is False


def test_generated_documents_keep_to_their_topic_and_few_words_follow_a_word() -> None:
    text = generated_text(num_documents=50, num_words=40, num_topics=2)
    words = text.documents.tokens.reshape(50, 200)
    topics = (words - 5) // 20
    assert set(topics.ravel()) == {0, 1}
    assert (topics == topics[:, :1]).all()
    followers: dict[int, set[int]] = {}
    for word, after in zip(words[:, :-1].ravel(), words[:, 1:].ravel(), strict=True):
        followers.setdefault(int(word), set()).add(int(after))
    assert max(map(len, followers.values())) <= 4
    assert text.vocab_size == 45


def test_batches_of_a_text_are_the_same_each_time_and_go_on_into_the_next_epoch() -> None:
    text = generated_text(num_documents=4, num_words=20)
    first, again = (first_batches(text, 60, 4, 32, seed=1) for _ in range(2))
    assert all(np.array_equal(a.input_ids, b.input_ids) for a, b in zip(first, again, strict=True))
    assert len({batch.input_ids.tobytes() for batch in first}) == 60
    share = sum(len(batch.masked_positions) for batch in first) / sum(len(batch.input_ids) for batch in first)
    assert 0.1 < share < 0.16


def test_real_text_is_read_from_compressed_lines(tmp_path: Path) -> None:
    lines = [json.dumps({"text": "The cat sat. The dog ran! Did it rain? It did."}) for _ in range(20)]
    (tmp_path / "a.jsonl.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    text = real_text(tmp_path, max_characters=300, vocab_size=60)
    assert text.documents.num_documents == 7  # 46 characters each
    assert len(text.documents.sentence_offsets) == 7 * 4 + 1
    (batch,) = first_batches(text, 1, 2, 24, seed=0)
    assert batch.num_sequences == 2
