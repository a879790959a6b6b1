"""Each fault once, on three Ray nodes of this machine; slow. Alone: pytest tests/chaos -m ray

More of them, at other places: `make chaos MINUTES=30 SEED=1`. Each test is a process of its own: Ray keeps the token of
the first cluster that a process has met.
"""

import subprocess
import sys

import pytest

from tests.chaos.__main__ import LEFT_OUT
from tests.chaos.faults import FAULTS

SEED = 20261122


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_run_leaves_the_same_accounts_whatever_happened_to_it(name: str) -> None:
    seed = SEED + list(FAULTS).index(name)
    command = [sys.executable, "-m", "tests.chaos", "--minutes", "0", "--seed", str(seed), "--only", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if LEFT_OUT in done.stdout:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
