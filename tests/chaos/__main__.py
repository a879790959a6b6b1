"""Episodes until the time is over; a line for each, and a table at the end: `python -m tests.chaos --minutes 30`.

Exit status 1 when an episode's accounts are not those of the undisturbed run.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.chaos.accounts import Accounts, check_nothing_is_left, read_accounts
from tests.chaos.episode import Episode, NotHereError
from tests.chaos.faults import FAULTS
from tests.chaos.hosts import Hosts, started_hosts
from tests.chaos.laboratory import Laboratory, write_inputs
from tests.waiting import PATIENCE_S

NUM_NODES = 3
LEFT_OUT = "left out"
"""Words for a fault that needs something that this machine lacks."""


@dataclass(frozen=True)
class Outcome:
    """How an episode ended."""

    fault: str
    seconds_to_recover: float | None
    problem: str = ""
    """Why the accounts do not agree; empty where they do."""


def main() -> int:
    """Inflict faults for some minutes and show the accounts."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", choices=FAULTS, help="this fault alone")
    parser.add_argument("--keep", action="store_true", help="keep the folders of episodes that fail")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    outcomes: list[Outcome] = []
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    write_inputs(folder)
    give_up_at = time.monotonic() + arguments.minutes * 60
    with started_hosts(NUM_NODES) as hosts:
        reference = cache(lambda kind: undisturbed(kind, folder, hosts))
        for number, (name, chance) in enumerate(chosen(arguments.seed, arguments.only)):
            if number and time.monotonic() > give_up_at:
                break
            try:
                outcomes.append(play(number, name, chance, folder, hosts, reference(FAULTS[name][0])))
            except NotHereError as error:
                print(f"{number:3d}  {LEFT_OUT}: {name} ({error})", flush=True)
    print(table(outcomes))
    failed = [outcome for outcome in outcomes if outcome.problem]
    if failed and arguments.keep:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if failed else 0


def chosen(seed: int, only: str | None) -> Iterator[tuple[str, random.Random]]:
    """Endless names of faults, each once before any comes again, with the chance that decides the rest."""
    order = random.Random(seed)
    while True:
        names = [only] if only else list(FAULTS)
        order.shuffle(names)
        for name in names:
            yield name, random.Random(order.randrange(2**32))


def undisturbed(kind: str, folder: Path, hosts: Hosts) -> Accounts:
    """The accounts of a run that nothing happens to."""
    laboratory = Laboratory(folder, folder / f"undisturbed-{kind}", kind, hosts)
    try:
        status = laboratory.run().wait(PATIENCE_S)
        assert status == 0, f"status {status}:\n{laboratory.messages()}"
        check_nothing_is_left(laboratory, hosts)
        return read_accounts(laboratory)
    finally:
        laboratory.close()


def play(number: int, name: str, chance: random.Random, folder: Path, hosts: Hosts, expected: Accounts) -> Outcome:
    """One episode; what goes wrong in it is its outcome. Raises: NotHereError when it needs what is not here."""
    kind, inflict = FAULTS[name]
    laboratory = Laboratory(folder, folder / f"episode-{number:03d}", kind, hosts)
    episode = Episode(laboratory, chance)
    began_at, problem = time.monotonic(), ""
    try:
        inflict(episode)
        compare(read_accounts(laboratory), expected)
        check_nothing_is_left(laboratory, hosts)
    except NotHereError:
        raise
    except Exception as error:
        problem = str(error) or type(error).__name__
        traceback.print_exc()
    finally:
        laboratory.close()
    print(
        f"{number:3d}  {'FAILED' if problem else 'equal '}  {time.monotonic() - began_at:4.0f} s  {name}"
        f" ({', '.join(episode.details)})",
        flush=True,
    )
    return Outcome(name, episode.seconds_to_recover, problem)


def compare(found: Accounts, expected: Accounts) -> None:
    """Check that two accounts are equal. Raises: AssertionError with what differs."""
    assert found.trials == expected.trials, "other trials"
    odd = set(found.measurements) ^ set(expected.measurements)
    assert not odd, f"{len(odd)} measurements differ, such as {sorted(odd)[:4]}"
    assert len(found.measurements) == len(expected.measurements), "a measurement is there twice"
    assert found.weights == expected.weights, "other weights"


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as a Markdown table, a row for each fault."""
    rows = defaultdict(list)
    for outcome in outcomes:
        rows[outcome.fault].append(outcome)
    lines = [
        "| fault | times tried | recovered | seconds to recover, median (longest) |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name in (name for name in FAULTS if name in rows):
        seconds = sorted(each.seconds_to_recover for each in rows[name] if each.seconds_to_recover is not None)
        times = f"{seconds[len(seconds) // 2]:.0f} ({seconds[-1]:.0f})" if seconds else "–"
        good = sum(not each.problem for each in rows[name])
        lines.append(f"| {name} | {len(rows[name])} | {good} | {times} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
