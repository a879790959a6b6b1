"""Sentences: where they end, that nothing is lost, that dirty text passes.

Run alone: pytest tests/orchestrator/corpus/test_sentence_splitting.py
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.corpus.sentence_splitting import MAX_SENTENCE_CHARACTERS, split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Dr. Smith met J. R. Brown in Washington, D.C. on Jan. 5. He left.",
         ["Dr. Smith met J. R. Brown in Washington, D.C. on Jan. 5.", "He left."]),
        ('He said "Stop." Then he paid $3.50.', ['He said "Stop."', "Then he paid $3.50."]),
        ('"Really?" she asked. No.', ['"Really?" she asked.', "No."]),
        ("No full stop\nnext paragraph\n\n \nlast", ["No full stop", "next paragraph", "last"]),
        ("T\u00a0. J.\u2028Smith came.", ["T . J. Smith came."]),
        (" \n\t\n", []),
    ],
)  # fmt: skip
def test_sentences_end_where_a_reader_would_say(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@given(
    st.text(st.sampled_from("abTM.!?\"'() \n\r\t\0\u00a0\u2028\u3000\u0085éÉß0…“”’。😀\u0301"), max_size=60) | st.text()
)
def test_no_character_is_lost_and_no_sentence_is_empty(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)


def test_an_endless_sentence_is_cut_at_spaces() -> None:
    words = " ".join(f"word{i}" for i in range(10_000))
    sentences = split_sentences(words)
    assert " ".join(sentences) == words
    assert max(map(len, sentences)) <= MAX_SENTENCE_CHARACTERS
    assert "".join(split_sentences("x" * 100_000)) == "x" * 100_000
