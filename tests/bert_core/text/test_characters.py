"""Characters of texts in every script. Alone: pytest tests/bert_core/text/test_characters.py"""

import pytest

from bert_core.text.characters import Characters


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("गुरु साधु है", True),
        ("ที่นี่", True),
        ("شُكْرًا لك أنت", True),
        ("שָׁלוֹם", True),
        ("がぎぐげご", True),
        ("小狗跑步", False),
        ("한국어 문장", False),
        ("Señor Nguyễn cafe\u0301 ❤\ufe0f", False),
        ("мой ёж", False),
    ],
)
def test_marks_carry_meaning_on_letters_without_case(text: str, expected: bool) -> None:
    assert Characters([text]).has_meaningful_marks is expected
