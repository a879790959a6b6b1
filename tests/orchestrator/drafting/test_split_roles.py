"""Roles of files by their names.

Alone: pytest tests/orchestrator/drafting/test_split_roles.py
"""

import pytest

from orchestrator.drafting.split_roles import assign_roles, data_name, role_of
from orchestrator.errors import InputError


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("train_full.tsv", "train"),
        ("dev_matched.tsv.gz", "validation"),
        ("VALID.txt", "validation"),
        ("emerging.test.annotated", "test"),
        ("contest.csv", None),
        ("test/reviews.csv", None),
    ],
)
def test_a_name_speaks_of_its_split(name: str, role: str | None) -> None:
    assert role_of(name) == role


def test_one_file_is_for_training_whatever_its_name() -> None:
    assert assign_roles(["test.csv"]) == {"train": "test.csv"}


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["a.train.csv", "b.csv"], r"b\.csv"),
        (["train.csv", "training.csv"], "both"),
        (["dev.csv", "test.csv"], "none"),
    ],
)
def test_names_that_leave_it_open_are_refused(names: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        assign_roles(names)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("жалобы.train.csv", "жалобы"),
        ("cafe\u0301.csv", "café"),  # as macOS writes it
        ("हिन्दी समाचार.csv", "हिन्दी_समाचार"),
        ("ぬいぐるみ/train.csv", "ぬいぐるみ"),
        ("!!!.csv", "data"),
    ],
)
def test_names_keep_the_letters_of_every_script(path: str, name: str) -> None:
    assert data_name([path]) == name
