"""Each fault once, on three Ray nodes of this machine; all but the first are slow. Alone: pytest tests/chaos -m ray

More of them, at other places: `make chaos MINUTES=30 SEED=1`.
"""

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.chaos.__main__ import NUM_NODES, play, undisturbed
from tests.chaos.accounts import Accounts
from tests.chaos.episode import NotHereError
from tests.chaos.faults import FAULTS
from tests.chaos.hosts import Hosts, started_hosts
from tests.chaos.laboratory import write_inputs

SEED = 20261122
SHORT = "worker killed"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chaos")
    write_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with pytest.MonkeyPatch.context() as patched, started_hosts(NUM_NODES, patched.setenv) as started:
        yield started


@pytest.fixture(scope="module")
def references(folder: Path, hosts: Hosts) -> Callable[[str], Accounts]:
    return cache(lambda kind: undisturbed(kind, folder, hosts))


@pytest.mark.ray
@pytest.mark.parametrize(
    "name", [SHORT, *(pytest.param(name, marks=pytest.mark.slow) for name in FAULTS if name != SHORT)]
)
def test_a_run_leaves_the_same_accounts_whatever_happened_to_it(
    name: str, folder: Path, hosts: Hosts, references: Callable[[str], Accounts]
) -> None:
    kind, _ = FAULTS[name]
    number = list(FAULTS).index(name)
    try:
        outcome = play(number, name, random.Random(SEED + number), folder, hosts, references(kind))
    except NotHereError as error:
        pytest.skip(str(error))
    assert not outcome.problem
