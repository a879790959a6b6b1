"""YAML of specs: bare words, refusals, lines of values. Alone: pytest tests/orchestrator/specs/test_yaml_text.py"""

from pathlib import Path

import pytest

from orchestrator.base.errors import SpecError
from orchestrator.specs.yaml_text import MAX_FILE_BYTES, SourceLocation, parse_document, parse_value, read_document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("2E5", 2e5),
        (".5", 0.5),
        ("1_000", 1000),
        ("0x10", 16),
        ("007", "007"),
        ("no", "no"),
        ("true", True),
        ("2020-01-01", "2020-01-01"),
        ("12:30", "12:30"),
        ("~", None),
        ("[1, a]", [1, "a"]),
    ],
)
def test_bare_words_mean_what_a_person_expects(text: str, value: object) -> None:
    parsed = parse_value(text, "test")
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3: the key 'a'"),
        ("a:\n  x: 1\n  x: 2", "f.yaml:3: the key 'x'"),
        ("a: 1\n5: b", "f.yaml:2: the key 5"),
        ("a: [1\nb: 2", "f.yaml:2"),
        ("a: !!python/object/apply:os.getcwd []", "f.yaml:1"),
        ("a: &a [*a]", "f.yaml:1"),
        ("a: " + "[" * 1500, "f.yaml"),
        ("- 1", "f.yaml"),
        ("", "f.yaml"),
        ("a: \x00", "f.yaml"),
    ],
)
@pytest.mark.heavy
def test_what_no_spec_can_be_is_refused(text: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_document(text, "f.yaml")
    assert place in str(caught.value)


def test_an_alias_bomb_is_refused_before_it_unfolds() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]" for i in range(20)]
    with pytest.raises(SpecError, match="unfold"):
        parse_document("\n".join(lines), "bomb.yaml")


def test_merge_keys_work_and_own_values_win() -> None:
    values = parse_document("base: &b {x: 1, y: 1}\nc:\n  <<: *b\n  y: 2\n", "f.yaml").values
    assert values["c"] == {"x": 1, "y": 2}


def test_each_value_knows_its_line() -> None:
    places = parse_document("a: 1\nb:\n  - 2\n  - c: 3\n", "f.yaml").places
    assert places["b", 1, "c"] == SourceLocation("f.yaml", 4)
    assert str(places["a",]) == "f.yaml:1"


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_document(path)


def test_a_file_too_large_for_a_spec_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(SpecError, match="at most"):
        read_document(path)


def test_a_byte_order_mark_is_no_part_of_a_key(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(b"\xef\xbb\xbfkind: sweep\n")
    assert read_document(path).values == {"kind": "sweep"}
