"""Which tokens go on with a word. Alone: pytest tests/bert_core/text/test_word_pieces.py"""

import pytest

from bert_core.errors import TokenizerError
from bert_core.text.word_pieces import continues_word


@pytest.mark.parametrize(
    ("vocabulary", "expected"),
    [
        (["[PAD]", "[MASK]", "play", "##ing", ".", "##s", "▁"], ["##ing", "##s"]),
        (["<pad>", "<mask>", "Ġplay", "ing", ".", "Ġthe", "##", "Ġa"], ["ing", ".", "##"]),
        (["<pad>", "<mask>", "▁play", "ing", "▁", "s"], ["ing", "s"]),
    ],
    ids=["wordpiece", "byte-level", "unigram"],
)
def test_a_token_without_its_vocabularys_mark_of_a_word_goes_on(vocabulary: list[str], expected: list[str]) -> None:
    continues = continues_word(vocabulary, special_ids=(0, 1))
    assert [token for token, goes_on in zip(vocabulary, continues, strict=True) if goes_on] == expected


def test_a_vocabulary_without_marks_is_refused() -> None:
    with pytest.raises(TokenizerError, match='mask in units of "token"'):
        continues_word(["<pad>", "wor@@", "d", "s</w>"], special_ids=(0,))
