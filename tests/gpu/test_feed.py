"""Share of a step that waits for fed batches. Run alone: pytest tests/gpu/test_feed.py"""

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.gpu import feed
from benchmarks.gpu.measured_figures import NOT_YET
from benchmarks.gpu.measured_tables import goal_table
from benchmarks.gpu.results import NOT_REACHED, Report, StageRecord
from benchmarks.gpu.setting import Budget, Setting
from benchmarks.gpu.sides import HERE, build_side_model
from benchmarks.gpu.texts import generated_text
from bert_core.examples.packing import PackedBatch
from orchestrator.pretraining.device_batch import DeviceBatch, lay_end_to_end, num_values
from orchestrator.pretraining.device_feed import one_step_ahead
from tests.gpu.devices import ON_EACH_DEVICE, rows_of, small_setting

SMALL = small_setting("cpu")
TEXT = generated_text(100, 48)


class CopiesToTheHost:
    """Copies to a device that is the host; it notes the thread that sends."""

    def __init__(self) -> None:
        self.senders: set[str] = set()

    def send(self, batch: PackedBatch) -> Tensor:
        self.senders.add(threading.current_thread().name)
        return torch.from_numpy(lay_end_to_end(batch, np.empty(num_values(batch), np.int32)))

    def receive(self, sent: Tensor) -> Tensor:
        return sent


@ON_EACH_DEVICE
def test_fed_steps_and_the_others_have_their_times(device: str, tmp_path: Path) -> None:
    (row,) = rows_of(feed.measure, device, Report(tmp_path / "r", ""))
    assert row["ms, batches lie there"] > 0
    assert 0 < row["ms of waiting, by the clock"] < row["ms, batches are fed"]
    assert row["met"] is None, "tiny steps say nothing of a card"


@pytest.mark.parametrize(("fed_ms", "share", "met"), [(10.1, 0.0099, True), (12.5, 0.2, False), (9.0, -0.11, True)])
def test_the_share_is_what_a_fed_step_takes_longer(
    fed_ms: float, share: float, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter([500.0, 900.0] + [10.0, fed_ms] * 4)  # the first round does not count

    def ms(setting: Setting, function: Callable[[], object], repeats: int) -> float:
        function()
        return next(told)

    learner = build_side_model(SMALL, HERE, SMALL.build_config("base"))
    monkeypatch.setattr(Setting, "ms", ms)
    row = feed.compare(Setting(torch.device("cpu")), learner, TEXT, batch_size=4, width=16, num_steps=2)
    assert (row["ms, batches lie there"], row["ms, batches are fed"]) == (10.0, fed_ms)
    assert row["share that waits"] == pytest.approx(share, abs=0.002)
    assert row["met"] is met


def test_the_thread_of_a_card_brings_the_batches_and_ends_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    copies, fed = CopiesToTheHost(), list[list[int]]()

    def as_on_a_card(
        batches: Iterator[tuple[int, PackedBatch]], device: torch.device
    ) -> Iterator[tuple[int, DeviceBatch]]:
        for step, batch in one_step_ahead(batches, copies):
            fed.append(batch.host.input_ids.tolist())
            yield step, batch

    monkeypatch.setattr(feed, "device_batches", as_on_a_card)
    learner = build_side_model(SMALL, HERE, SMALL.build_config("base"))
    feed.compare(SMALL, learner, TEXT, batch_size=4, width=16, num_steps=3)
    assert all(name.startswith("device-feed") for name in copies.senders)
    assert len(copies.senders) == 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("device-feed")]
    assert len(fed) == 9, "two rounds, and the one before them"
    assert fed[:3] == fed[3:6] == fed[6:], "each round has the batches that lie on the device"


def test_batches_are_built_when_they_are_asked_for() -> None:
    found = [batch.input_ids.tolist() for batch in islice(feed.repeated_batches(TEXT, 2, 4, 16), 5)]
    assert found[0] == found[2] == found[4] != found[1] == found[3]


def test_without_time_the_row_says_so(tmp_path: Path) -> None:
    rows = list(feed.measure(Setting(torch.device("cpu")), Budget(0), Report(tmp_path / "r", "")))
    assert [(row["size"], row["outcome"]) for row in rows] == [("base", NOT_REACHED), ("mini", NOT_REACHED)]


def test_the_page_has_the_share_among_the_goals(tmp_path: Path) -> None:
    report = Report(tmp_path / "r", "")
    assert goal_table(report).splitlines()[-1].endswith(f"| nothing | {NOT_YET} |")
    rows = [{"size": "mini", "share that waits": 0.4}, {"size": "base", "share that waits": 0.0123}]
    report.stages["feed"] = StageRecord("", rows)
    assert goal_table(report).splitlines()[-1].endswith("| nothing | 1.2 % |")
