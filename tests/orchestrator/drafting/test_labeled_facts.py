"""Facts of labeled files, and the choice of examples for validation.

Alone: pytest tests/orchestrator/drafting/test_labeled_facts.py
"""

from pathlib import Path

import pytest

from orchestrator.drafting.dev_split import choose_validation
from orchestrator.drafting.labeled_facts import check_splits, num_leaks, read_split
from orchestrator.errors import InputError
from orchestrator.specs.task import TaskSpec
from tests.orchestrator.drafting.made_files import review, write, write_questions, write_reviews

TASK = TaskSpec(id="own", head="classification", text_columns=("text",), label_column="label")


def test_doubles_empties_and_broken_rows_are_counted(tmp_path: Path) -> None:
    rows = ["good one,pos", "Good  One,neg", "good one,pos", ",pos", "bad one,neg", "no label,", *["x y,pos"] * 20]
    facts = read_split(TASK, str(write(tmp_path / "a.csv", "text,label\n" + "\n".join(rows) + "\n")))
    assert (facts.num_examples, facts.num_empty, facts.num_doubles, facts.num_contradictions) == (25, 1, 21, 1)
    assert (facts.num_bad_records, facts.first_problem) == (1, "line 7: label is empty")
    assert facts.labels == {"pos": 23, "neg": 2}


def test_a_file_of_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"text,label\n" + b"caf\xe9,pos\n" * 20 + b"tea,neg\n" * 20)
    with pytest.raises(InputError, match=r"20 of 40 .*UTF-8"):
        read_split(TASK, str(tmp_path / "a.csv"))


def test_a_label_that_training_never_shows_is_refused(tmp_path: Path) -> None:
    train = read_split(TASK, str(write_reviews(tmp_path / "train.csv")))
    dev = read_split(TASK, str(write(tmp_path / "dev.csv", "text,label\nso so,middle\n")))
    with pytest.raises(InputError, match=r"dev\.csv.*'middle'"):
        check_splits(TASK, {"train": train, "validation": dev})


def test_texts_that_two_files_share_are_counted(tmp_path: Path) -> None:
    train = read_split(TASK, str(write_reviews(tmp_path / "train.csv")))
    dev = read_split(TASK, str(write_reviews(tmp_path / "dev.csv", first=50, num_rows=30)))
    assert num_leaks(train, dev) == 10


def test_validation_has_each_label_in_its_share_and_no_text_of_training(tmp_path: Path) -> None:
    facts = read_split(TASK, str(write_reviews(tmp_path / "a.csv", 300)))
    kept = choose_validation(facts, seed=0)
    labels = [facts.strata[facts.groups[key]] for key in kept]
    assert (labels.count("pos"), labels.count("neg")) == (40, 20)
    assert kept == choose_validation(facts, seed=0) != choose_validation(facts, seed=1)


def test_copies_stay_together_and_order_does_not_matter(tmp_path: Path) -> None:
    rows = [f'"{text}",{label}' for text, label in map(review, range(40))] * 2
    one, other = (
        read_split(TASK, str(write(tmp_path / name, "text,label\n" + "\n".join(order) + "\n")))
        for name, order in (("a.csv", rows), ("b.csv", rows[::-1]))
    )
    kept = choose_validation(one, seed=3)
    assert kept == choose_validation(other, seed=3)
    assert all(one.row_groups.count(key) == 2 for key in kept)


def test_questions_about_one_passage_are_one_group(tmp_path: Path) -> None:
    facts = read_split(TaskSpec(id="own", head="qa"), str(write_questions(tmp_path / "a.json", 20)))
    assert (facts.num_examples, len(facts.groups)) == (40, 20)


def test_where_each_label_has_one_text_nothing_can_be_kept(tmp_path: Path) -> None:
    rows = ["one text,a"] * 10 + ["another,b"] * 10
    facts = read_split(TASK, str(write(tmp_path / "a.csv", "text,label\n" + "\n".join(rows) + "\n")))
    with pytest.raises(InputError, match="label"):
        choose_validation(facts, seed=0)
