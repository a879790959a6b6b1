"""Processor time of a process and those below it.

Alone: .venv/bin/pytest tests/orchestrator/costs/test_processor_time.py
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.costs.processor_time import ProcessorTime
from tests.orchestrator.costs.processes import TICKS, write_process
from tests.waiting import wait_until

SPIN = "import time\nwhile time.process_time() < 0.5: pass\nprint('spun', flush=True)\nimport sys; sys.stdin.read()"


def test_what_lies_below_counts_from_now_on_and_nothing_beside_it(tmp_path: Path) -> None:
    write_process(tmp_path, 10, 1, 5 * TICKS)
    write_process(tmp_path, 20, 1, 100 * TICKS)
    used = ProcessorTime(root=10, proc=tmp_path)
    assert (used.is_measured, used.seconds()) == (True, 0.0)
    write_process(tmp_path, 10, 1, 6 * TICKS)
    write_process(tmp_path, 11, 10, 2 * TICKS)
    write_process(tmp_path, 12, 11, 4 * TICKS)
    write_process(tmp_path, 20, 1, 200 * TICKS)
    assert used.seconds() == 1 + 2 + 4


def test_a_process_that_has_ended_keeps_what_it_used_and_its_number_may_come_again(tmp_path: Path) -> None:
    write_process(tmp_path, 10, 1, 0)
    used = ProcessorTime(root=10, proc=tmp_path)
    write_process(tmp_path, 11, 10, 3 * TICKS, begun=8)
    assert used.seconds() == 3
    write_process(tmp_path, 11, 10, 1 * TICKS, begun=9)
    assert used.seconds() == 3 + 1
    (tmp_path / "11" / "stat").unlink()
    assert used.seconds() == 3 + 1


def test_a_system_without_the_folder_measures_nothing(tmp_path: Path) -> None:
    used = ProcessorTime(proc=tmp_path / "none")
    assert (used.is_measured, used.seconds()) == (False, 0.0)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="a system without /proc")
def test_a_child_that_computes_is_measured() -> None:
    used = ProcessorTime()
    begun = time.process_time()
    with subprocess.Popen([sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        wait_until(lambda: used.seconds() >= 0.5 - 2 / TICKS, "the child's time is not seen")
        child.communicate()
    own = time.process_time() - begun
    assert used.seconds() < 0.5 + own + 1.0, "no more than the child and this process have used"
