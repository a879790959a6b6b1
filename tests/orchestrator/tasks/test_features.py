"""Windows, groups, truncation, words, answers. Alone: pytest tests/orchestrator/tasks/test_features.py"""

import json
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example as always
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import TRAINERS
from orchestrator.base.errors import SpecError, TaskDataError
from orchestrator.specs import TaskSpec
from orchestrator.tasks.features import truncate_longest_first
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.types.conll import NerExample
from orchestrator.tasks.types.squad import Answer, QaExample
from tests.orchestrator.tasks.definitions import SENTENCES, decode, define, features_of
from tests.shared_data import shared_file

CONTEXT = "Ada Lovelace wrote to Charles Babbage in London about the engine. It rained for nine days near Oslo."


def test_missing_labels_are_left_out_of_a_loss(tokenizer: Tokenizer) -> None:
    named = features_of("classification", ("a", "b"), [TextExample("0", "x")], tokenizer, max_seq_length=8)
    valued = features_of("regression", (), [TextExample("0", "x")], tokenizer, max_seq_length=8)
    tagged = features_of("ner", ("O", "B-PER"), [NerExample("0", ("Ada",))], tokenizer, max_seq_length=8)
    assert named.head_arrays.labels.tolist() == [-100]
    assert np.isnan(valued.head_arrays.labels).all()
    assert set(tagged.head_arrays.token_labels.tolist()) == {-100}


def test_groups_of_other_tasks_are_windows(tokenizer: Tokenizer) -> None:
    features = features_of("qa", (), [QaExample("0", "who", CONTEXT)], tokenizer, max_seq_length=16, doc_stride=4)
    assert features.num_windows > 1
    assert features.group_lengths.tolist() == features.lengths.tolist()
    assert features.windows_of(np.array([1, 0])).tolist() == [1, 0]


def pop_longest(a: int, b: int, budget: int) -> tuple[int, int]:
    while a + b > budget:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 25)), min_size=1))
def test_truncation_takes_tokens_one_by_one_from_the_longer_text(cases: list[tuple[int, int, int]]) -> None:
    a, b, budget = (np.array(column) for column in zip(*cases, strict=True))
    kept = truncate_longest_first(a, b, budget)
    assert list(zip(*(side.tolist() for side in kept), strict=True)) == [pop_longest(*case) for case in cases]


@settings(deadline=None, max_examples=50)
@given(
    num_words=st.lists(st.tuples(st.integers(0, 30), st.none() | st.integers(0, 30)), min_size=1, max_size=6),
    length=st.integers(8, 20),
    stride=st.none() | st.integers(1, 12),
)
@always(num_words=[(3, 3)], length=8, stride=None)
def test_windows_of_a_long_document_have_all_of_it_and_the_shorter_text_each(
    num_words: list[tuple[int, int | None]], length: int, stride: int | None
) -> None:
    tokenizer = tokenizer_of("wordpiece")
    the, river = (tokenizer.encode_ids([word])[0] for word in ("the", "river"))
    pairs = [("the " * a, None if b is None else "river " * b) for a, b in num_words]
    examples = [TextExample(str(n), *pair) for n, pair in enumerate(pairs)]
    pooled = {"long_documents": "max", "window_stride": stride}
    cut, whole = (
        features_of("regression", (), examples, tokenizer, max_seq_length=length, **options) for options in ({}, pooled)
    )
    assert whole.lengths.max() <= length
    assert len(whole.group_lengths) == len(examples)
    for number, (a, b) in enumerate(num_words):
        windows = whole.windows_of(np.array([number]))
        tokens = [whole.input_ids[whole.token_index(np.array([window]))].tolist() for window in windows]
        longer, shorter = sorted([(a, the), (b or 0, river)], key=itemgetter(0), reverse=True)
        budget = length - 2 - (b is not None)
        kept = min(shorter[0], budget // 2) if a + (b or 0) > budget else shorter[0]
        assert {window.count(*shorter[1]) for window in tokens} == {kept}
        num_read = sum(window.count(*longer[1]) for window in tokens)
        assert num_read >= longer[0] if stride else num_read == longer[0]
        if len(windows) == 1:
            assert tokens[0] == cut.input_ids[cut.token_index(np.array([number]))].tolist()


def test_token_index_gathers_windows_in_the_order_asked_for(tokenizer: Tokenizer) -> None:
    texts = ["the house", "a river near Oslo", "the engine drives"]
    examples = [TextExample(str(i), text, None, "a") for i, text in enumerate(texts)]
    features = features_of("classification", ("a", "b"), examples, tokenizer, max_seq_length=32)
    bounds = features.cu_seqlens
    expected = [i for window in (2, 0, 2) for i in range(bounds[window], bounds[window + 1])]
    assert features.token_index(np.array([2, 0, 2])).tolist() == expected


def test_lengths_that_leave_no_room_are_named(tokenizer: Tokenizer) -> None:
    question = QaExample("0", "who wrote about it", CONTEXT)
    with pytest.raises(SpecError, match=r"max_seq_length 8 leaves no room for a passage.*max_query_length"):
        features_of("qa", (), [question], tokenizer, max_seq_length=8)
    with pytest.raises(SpecError, match="max_seq_length 3 leaves no room"):
        features_of("ner", ("O",), [NerExample("0", ("a",))], tokenizer, max_seq_length=3)
    with pytest.raises(TaskDataError, match="no example to tokenize"):
        features_of("ner", ("O",), [], tokenizer, max_seq_length=8)


def test_outputs_that_do_not_fit_are_named(tokenizer: Tokenizer) -> None:
    classes = define("classification", ("no", "yes"))
    examples = [TextExample("0", "a")]
    features = features_of("classification", classes.labels, examples, tokenizer, max_seq_length=8)
    with pytest.raises(DataError, match="2 outputs for 1 examples"):
        decode(classes, features, examples, np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"shape \(1, 3\); task mine has 2 classes"):
        decode(classes, features, examples, np.zeros((1, 3)))
    with pytest.raises(DataError, match="not finite; the model has diverged"):
        decode(classes, features, examples, np.full((1, 2), np.nan))


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
@pytest.mark.heavy
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


Both = tuple[Tokenizer, Any]


@pytest.fixture(scope="module")
def passages() -> list[QaExample]:
    spec = TaskSpec(id="squad", folder=str(shared_file("squad")), max_validation_examples=300)
    return list(load_task(spec).examples("validation"))


@pytest.fixture(scope="module", params=TRAINERS)
def both(request: pytest.FixtureRequest, passages: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A tokenizer of each kind, and the one that transformers reads from its folder."""
    from transformers import AutoTokenizer

    folder: Path = tmp_path_factory.mktemp("tokenizer")
    texts = sorted({example.context for example in passages})
    tokenizer = TRAINERS[request.param](texts, 2000, request.param != "byte_bpe", 2)
    tokenizer.save(folder)
    return tokenizer, AutoTokenizer.from_pretrained(str(folder))


@pytest.mark.heavy
def test_passages_are_cut_into_the_same_windows(passages: list[Any], both: Both) -> None:
    tokenizer, reference = both
    num_windows = 0
    for example in passages:
        ours = features_of("qa", (), [example], tokenizer, max_seq_length=160, doc_stride=40)
        room = 160 - len(tokenizer.encode_ids([example.question])[0]) - tokenizer.segment_layout.num_pair_specials
        theirs = reference(
            example.question,
            example.context,
            truncation="only_second",
            max_length=160,
            stride=room - 40,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
        )
        assert ours.input_ids.tolist() == [i for window in theirs["input_ids"] for i in window]
        assert ours.token_type_ids.tolist() == [i for window in theirs["token_type_ids"] for i in window]
        offsets = np.array([pair for window in theirs["offset_mapping"] for pair in window])
        # The library leaves the space with the word that a window of byte-level BPE begins with.
        offsets[:, 0] += [example.context[start:end].startswith(" ") for start, end in offsets]
        on_passage = ours.head_arrays.offsets[:, 0] >= 0
        assert (ours.head_arrays.offsets[on_passage] == offsets[on_passage]).all()
        num_windows += ours.num_windows
    assert num_windows > len(passages), "some passage must be longer than a window"


@pytest.mark.parametrize("max_seq_length", [512, 39, 40])
@pytest.mark.heavy
def test_pairs_become_the_same_tokens(both: Both, max_seq_length: int) -> None:
    """The first text has one more where an odd number of tokens is shared evenly, as in BERT's code."""
    tokenizer, reference = both
    spec = TaskSpec(id="mrpc", folder=str(shared_file("glue/MRPC")))
    pairs: list[Any] = list(load_task(spec).examples("validation"))
    ours = features_of(
        "classification", ("not_equivalent", "equivalent"), pairs, tokenizer, max_seq_length=max_seq_length
    )
    even = (max_seq_length - tokenizer.segment_layout.num_pair_specials) % 2 == 0
    assert (ours.counts["num_truncated"] == 0) == (max_seq_length == 512)
    num_equal = 0
    for window, pair in enumerate(pairs):
        theirs = reference(
            pair.text, pair.text_pair, truncation="longest_first", max_length=max_seq_length, return_token_type_ids=True
        )
        tokens = slice(ours.cu_seqlens[window], ours.cu_seqlens[window + 1])
        equal = ours.input_ids[tokens].tolist() == theirs["input_ids"]
        assert not equal or ours.token_type_ids[tokens].tolist() == theirs["token_type_ids"]
        assert len(theirs["input_ids"]) == ours.lengths[window]
        num_equal += equal
    assert num_equal == len(pairs) or not even
