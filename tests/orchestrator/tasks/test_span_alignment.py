"""Answers and words find their tokens again, whatever kind of tokenizer: spaces, accents, other scripts.

Alone: pytest tests/orchestrator/tasks/test_span_alignment.py
"""

import json
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import TRAINERS
from orchestrator.tasks.types.conll import NerExample
from orchestrator.tasks.types.squad import Answer, QaExample
from tests.orchestrator.tasks.definitions import features_of
from tests.orchestrator.tasks.sentences import SENTENCES

KINDS = [*TRAINERS, "published byte_bpe"]
WORDS = st.lists(st.text("abernt7éÑ漢字ß가", min_size=1, max_size=8), min_size=1, max_size=8)
SPACES = st.sampled_from([" ", "  ", "\n", " \t", "\u00a0"])


@lru_cache
def tokenizer_of(kind: str) -> Tokenizer:
    """`published byte_bpe` counts the space before a word to the word, and adds none before a text."""
    if kind in TRAINERS:
        return TRAINERS[kind](SENTENCES * 4, 400, kind != "byte_bpe", 2)
    with TemporaryDirectory() as folder:
        tokenizer_of("byte_bpe").save(folder)
        file = Path(folder) / "tokenizer.json"
        definition = json.loads(file.read_text())
        definition["pre_tokenizer"]["add_prefix_space"] = False
        definition["post_processor"] |= {"trim_offsets": False, "add_prefix_space": False}
        file.write_text(json.dumps(definition))
        return Tokenizer.load(folder)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(KINDS), WORDS, SPACES, SPACES, st.data())
def test_an_answer_of_whole_words_is_found_again(
    kind: str, words: list[str], lead: str, space: str, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    before = lead + "".join(word + space for word in words[:first])
    text = space.join(words[first : last + 1])
    context = before + text + "".join(space + word for word in words[last + 1 :]) + "."
    example = QaExample("0", "What?", context, (Answer(text, len(before)),))
    features = features_of("qa", (), [example], tokenizer_of(kind), max_seq_length=512)
    begin, end = int(features.head_arrays.start_positions[0]), int(features.head_arrays.end_positions[0])
    assert begin > 0
    assert context[features.head_arrays.offsets[begin, 0] : features.head_arrays.offsets[end, 1]] == text


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(KINDS), WORDS)
def test_every_word_starts_at_its_own_first_token(kind: str, words: list[str]) -> None:
    tokenizer = tokenizer_of(kind)
    features = features_of("ner", ("O",), [NerExample("0", tuple(words))], tokenizer, max_seq_length=512)
    bounds = [*features.head_arrays.word_starts.tolist(), len(features.input_ids) - 1]
    for word, start, stop in zip(words, bounds[:-1], bounds[1:], strict=True):
        assert features.input_ids[start:stop].tolist() == tokenizer.encode_words([word])[0]
    assert features.input_ids[[0, -1]].tolist() == [tokenizer.cls_id, tokenizer.sep_id]
