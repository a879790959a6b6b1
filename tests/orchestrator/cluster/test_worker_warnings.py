"""Warnings of Ray's processes, below Ray: what is collected, what travels, what the driver logs.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_worker_warnings.py
"""

import logging
import pickle

import pytest

from orchestrator.cluster.worker_warnings import CollectedWarnings, WarningRelay, WithWarnings
from orchestrator.progress import attached


def test_warnings_of_both_packages_are_kept_until_they_are_taken() -> None:
    warnings = CollectedWarnings()
    own, core = logging.getLogger("orchestrator.some"), logging.getLogger("bert_core.some")
    with attached(warnings):
        own.info("a line")
        own.warning("%d bytes are %s", 7, "left")
        core.warning("fewer at a time")
        own.warning("7 bytes are left")
        logging.getLogger("another").warning("not ours")
    own.warning("after the work")
    assert warnings.take() == ("7 bytes are left", "fewer at a time")
    assert warnings.take() == ()


def test_a_text_is_logged_once_whichever_process_it_comes_from(caplog: pytest.LogCaptureFixture) -> None:
    relay = WarningRelay()
    answers = [WithWarnings(1, ("100% full", "old")), WithWarnings(2, ("old", "another")), WithWarnings(3)]
    travelled = pickle.loads(pickle.dumps(answers))
    assert [relay.receive(answer) for answer in travelled] == [1, 2, 3]
    assert caplog.messages == ["100% full", "old", "another"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
