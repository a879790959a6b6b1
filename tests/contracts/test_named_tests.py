"""Tests that SECURITY.md and docs/reliability.md name beside their promises: each of them is there.

Alone: .venv/bin/pytest tests/contracts/test_named_tests.py
"""

import re

import pytest

from tests.contracts.imports import ROOT

NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.mark.parametrize(("page", "num_rows"), [("SECURITY.md", 12), ("docs/reliability.md", 50)])
def test_every_promise_names_tests_that_there_are(page: str, num_rows: int) -> None:
    rows = re.findall(r"^\| .+ \| (.*::.*) \|$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    missing = [
        f"{path}::{name}"
        for tests in rows
        for path, name in NAMED_TEST.findall(tests)
        if f"\ndef {name}(" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert len(rows) >= num_rows
    assert all(NAMED_TEST.search(tests) for tests in rows)
    assert missing == []
