"""Inputs as people have them: each file, the command, and what comes of it. Files of these kinds that are made here are
read in the tests of drafts, readers, tokenizers and models.

Alone: pytest tests/orchestrator/cli/test_inputs.py
"""

import re
from pathlib import Path

import pytest
import yaml

from tests.orchestrator.cli.laboratory import Command
from tests.shared_data import shared_input

DRAFTED = [
    # files, head, words that are told
    ("a01_decimal_comma.csv", "regression", "decimal comma"),
    ("a02_class_names_with_commas.csv", "multi_label", "--kind classification"),
    ("a03_number_spellings.jsonl", "classification", "another spelling"),
    ("a04_nan_label.jsonl", "classification", "left out: 4"),
    ("a04_nan_score.jsonl", "regression", "left out: 3"),
    ("a05_other_spelling/train.csv a05_other_spelling/dev.csv", "classification", ""),
    ("a05_truth_values/train.jsonl a05_truth_values/dev.csv", "classification", ""),
    ("a06_column_per_label.csv", "multi_label", "--label toxic"),
    ("a07_python_lists.csv", "multi_label", ""),
    ("a11_array.json", "classification", ""),
    ("a11_array.jsonl", "classification", ""),
    ("a11_lines.json", "classification", ""),
    ("a11_pretty.jsonl", "classification", ""),
    ("a13_constant_dev/train.csv a13_constant_dev/dev.csv", "regression", "no correlation"),
    ("a14_no_break_space.conll", "ner", ""),
    ("a15_comments.conll", "ner", ""),
    ("a15_comments.conllu", "ner", ""),
    ("a16_bioes.conll", "ner", "another scheme"),
    ("a16_bilou.conll", "ner", "another scheme"),
    ("a16_lower_case.conll", "ner", "another scheme"),
    ("a16_underscores.conll", "ner", "another scheme"),
    ("a17_parts_of_speech.conll", "token_classification", "NNP: 25 %"),
    ("a17_parts_of_speech.jsonl", "token_classification", "has a tag of each word"),
    ("a18_spans.jsonl", "ner", ""),
    ("a18_entities.jsonl", "ner", ""),
    ("a23_flat.json", "qa", "40 examples"),
    ("a23_flat.jsonl", "qa", "40 examples"),
    ("a23_dict_answers.json", "qa", "answered: 100 %"),
    ("a24_truth_as_text.json", "qa", "answered: 100 %"),
    ("a24_empty_answer.json", "qa", "without an answer: 50 %"),
    ("a25_moved_answers.json", "qa", "40 records mended"),
    ("a26_hindi.json", "qa", "marks"),
    ("a30_long_word.csv.gz", "classification", "cut"),
    ("a31_chinese.csv", "classification", ""),
    ("a31_chinese.txt", "pretraining", ""),
    ("n04_lists_of_one_number.jsonl", "multi_label", ""),
    ("n05_minus_one.jsonl", "classification", "-1"),
    ("n05_dash.jsonl", "classification", "-"),
    ("n06_unlabeled_test/train.jsonl n06_unlabeled_test/test.jsonl", "classification", "none of its 20 rows"),
    ("n07_twins.csv", "classification", ""),
    ("n08_rows_without_label.jsonl", "classification", "left out: 4"),
    ("n09_many_categories.jsonl", "classification", "product_category from text"),
    ("n10_triples.jsonl", "embedding", "negative"),
    ("n10_triples.csv", "embedding", "negative"),
    ("n11_label_text.jsonl", "classification", "--label label_text"),
    ("n12_long_documents.csv.gz", "classification", "cut"),
    ("n15_quoted.tsv", "classification", ""),
    ("n16_number_as_text.jsonl", "classification", ""),
    ("n17_qa_table.csv", "qa", ""),
    ("n22_nested.jsonl", "classification", ""),
]

REFUSED = [
    # command, words that must be there
    ("init n01_percent.csv", "percent"),
    ("init n02_thousands.csv", "thousands"),
    ("init n03_label_as_object.jsonl", "object"),
    ("init n03_categories_as_object.jsonl", "object"),
    ("init n18_beir", "n18_beir/*.jsonl"),
    ("init n20_single_quotes.csv", "single quotes"),
    ("init a09_backslash_quotes.csv", "backslash"),
    ("init a09_stray_quotes.csv", "quot"),
    ("init a17_parts_of_speech.conll --kind ner", "NNP"),
    ("init a17_parts_of_speech.jsonl --kind ner", "NNP"),
    ("init a24_no_answers_key.json", "answers"),
    ("init rows.csv --model a34_nan_weights", "not finite"),
    ("init rows.csv --model a35_pickle", "pytorch_model.bin"),
    ("init rows.csv --model a35_lfs_pointer", "git lfs pull"),
    ("init rows.csv --model a36_same_name_twice", "id2label"),
    ("init rows.csv --model a37_modernbert", "config.json"),
    ("predict models/classifier n13_array_to_predict.json", "jq"),
    ("fill-mask a34_nan_weights words", "not finite"),
    ("fill-mask a35_lfs_pointer words", "git lfs pull"),
    ("embed a34_nan_weights rows.csv", "not finite"),
]

ANSWERED = [
    # command, words of stdout
    ("predict models/ner a19_no_words.jsonl --format jsonl", '"tags": []'),
    ("predict a36_list_of_names rows.csv --format jsonl", '"prediction": '),
    ("predict a36_label2id_alone rows.csv --format jsonl", '"prediction": '),
    ("predict models/qa_hindi a26_marks.jsonl --format jsonl", "साधु"),
    ("corpus show a28_vocab/text.txt --tokenizer a28_vocab/bom", ""),
    ("corpus show a28_vocab/text.txt --tokenizer a28_vocab/blank_lines", ""),
    ("corpus show a28_vocab/text.txt --tokenizer a28_vocab/blank_end", ""),
    ("corpus show a28_vocab/text.txt --tokenizer a28_vocab/double", ""),
    ("corpus show a28_vocab/text.txt --tokenizer a28_vocab/return_inside", ""),
    ("corpus show a29_added_tokens/text.txt --tokenizer a29_added_tokens", "[E1] cat [E2] sat"),
]


def resolved(arguments: str) -> list[str]:
    """Arguments whose names of inputs are paths."""
    is_input = re.compile(r"[an]\d\d_.*|models/.*|rows\.csv").fullmatch
    return [str(shared_input(word)) if is_input(word) else word for word in arguments.split()]


@pytest.mark.parametrize(("files", "head", "words"), DRAFTED, ids=lambda value: str(value)[:30])
def test_what_is_in_a_file_is_drafted(command: Command, tmp_path: Path, files: str, head: str, words: str) -> None:
    outcome = command("init", *resolved(files), "--output", "drafted.yaml")
    assert outcome.status == 0, outcome.err
    spec = yaml.safe_load((tmp_path / "drafted.yaml").read_text())["stages"]
    assert (spec["finetuning"]["task"]["head"] if "finetuning" in spec else "pretraining") == head
    assert words in " ".join(outcome.err.split())


@pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=lambda value: str(value)[:50])
def test_what_cannot_be_read_is_refused_by_its_name(
    command: Command, tmp_path: Path, arguments: str, words: str
) -> None:
    outcome = command(*resolved(arguments))
    assert outcome.status == 2
    assert words in " ".join(outcome.err.split())
    assert list(tmp_path.glob("*.yaml")) == []


@pytest.mark.parametrize(("arguments", "words"), ANSWERED, ids=lambda value: str(value)[:50])
def test_what_can_be_read_is_answered(command: Command, arguments: str, words: str) -> None:
    outcome = command(*resolved(arguments))
    assert outcome.status == 0, outcome.err
    assert words in outcome.out
