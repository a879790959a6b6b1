"""Frames of the board while its list is scrolled from end to end in a real browser, and the server's answers meanwhile.

    python -m benchmarks.board_scrolling [LOCATION] [--sweeps 5000] [--trips 2] [--server]

Without LOCATION a registry is generated: a sweep has 19 trials, so 5,000 of them are 100,000 rows. Each trip steps down
the whole height, a step in each frame; then come jumps to random places, each timed until its rows are there. Before
that windows are read without a browser; `--server` does that alone, the rest needs Chromium. The numbers of record are
in benchmarks/results/.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.generated_registry import NUM_TRIALS, fill
from orchestrator.board.app import build_app
from orchestrator.board.kept_orders import KeptOrders, ListQuery
from orchestrator.board.run_rows import Window, run_rows
from orchestrator.registry import Registry
from tests.browser import Browser, find_browser, open_browser
from tests.web_server import answering

NUM_FRAMES, NUM_JUMPS, NUM_ANSWERS = 600, 40, 5
SORTS = ("-created_at", "-seconds", "state", "name", "-metrics.accuracy", "score", "params.learning_rate")
PAUSE_MS = 100.0
"""A frame that takes longer is a pause that a person sees."""
SCROLL = """new Promise((done) => {
  const box = document.getElementById("window"), frames = [], waiting = [];
  let left = %d, last = performance.now();
  const step = (box.scrollHeight - box.clientHeight) / left;
  box.scrollTop = 0;
  requestAnimationFrame(function frame(now) {
    frames.push(now - last);
    last = now;
    waiting.push([...document.querySelectorAll("#whole .row")].filter((row) => !row.querySelector("input")).length);
    box.scrollTop += step;
    if (--left > 0) requestAnimationFrame(frame); else done({ frames: frames.slice(1), waiting });
  });
})"""
"""Script: scrolls down in so many frames; milliseconds of each, and rows in it that were not there yet."""
SHOWN = """(() => {
  const box = document.getElementById("window");
  const first = Math.floor(box.scrollTop / 32);
  const row = [...document.querySelectorAll("#whole .row")].find((each) => parseFloat(each.style.top) >= first * 32);
  return Boolean(row?.querySelector("input"));
})()"""
"""Script: whether the first row in sight is there."""
ANSWERS = """performance.getEntriesByType("resource").filter((entry) => entry.name.includes("/rows"))
  .map((entry) => entry.duration)"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("location", nargs="?")
    parser.add_argument("--sweeps", type=int, default=5_000)
    parser.add_argument("--trips", type=int, default=2)
    parser.add_argument("--server", action="store_true", help="windows without a browser alone")
    options = parser.parse_args()
    program = find_browser()
    if program is None and not options.server:
        raise SystemExit("Chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        location = options.location or str(Path(folder) / "registry.sqlite")
        with Registry(location) as registry:
            if options.location is None:
                fill(registry, options.sweeps)
            print(f"{registry.num_runs():,} rows, {NUM_TRIALS} trials a sweep; load {os.getloadavg()[0]:.1f}\n")
            measure_answers(registry)
            if program is None or options.server:
                return
            print("| list | frames | p50 ms | p99 ms | longest ms | pauses | answers | p50 ms | p99 ms | longest ms |")
            print("| --- " * 10 + "|")
            with answering(build_app(registry)) as url, open_browser(program, Path(folder) / "profile") as browser:
                browser.look_as(width=1280, height=800, scheme="light")
                for sort in ("-created_at", "name", "-seconds"):
                    measure(browser, f"{url}/?trials=yes&sort={sort}", sort, options.trips)


def measure_answers(registry: Registry) -> None:
    """Print what a window of 100 rows takes at three places of each list, and what sorting the list takes, once."""
    places = [int(registry.num_runs() * part) for part in (0.0, 0.5, 0.99)]
    print(f"| sorted by | {' | '.join(f'offset {place:,}' for place in places)} | the order itself |")
    print("| --- " * 5 + "|")
    for sort in SORTS:
        orders, query = KeptOrders(registry), ListQuery(sort=sort, trials=True)
        sorting = taken(partial(orders.of, query), 1)
        asked = [partial(run_rows, registry, orders, Window(query, place)) for place in places]
        windows = [taken(window, NUM_ANSWERS) for window in asked]
        print(f"| `{sort}` | {' | '.join([*windows, sorting])} |", flush=True)
    print()


def taken(read: Callable[[], object], num_times: int) -> str:
    """Median ms of CPU of this process, and of the clock in brackets, in which PostgreSQL's server has worked too."""
    cpu, clock = [], []
    for _ in range(num_times):
        begun = time.process_time(), time.perf_counter()
        read()
        cpu.append(1_000 * (time.process_time() - begun[0]))
        clock.append(1_000 * (time.perf_counter() - begun[1]))
    return f"{median(cpu):.0f} ({median(clock):.0f})"


def measure(browser: Browser, url: str, sort: str, num_trips: int) -> None:
    """Scroll one list and print its lines."""
    browser.open(url)
    browser.wait_for(SHOWN)
    browser.value("performance.setResourceTimingBufferSize(100000)")
    frames: list[float] = []
    for _ in range(num_trips):
        browser.value("performance.clearResourceTimings()")
        found: dict[str, Any] = browser.value(SCROLL % NUM_FRAMES)
        frames += found["frames"]
        browser.wait_for(SHOWN)
    line(f"by `{sort}`, end to end", frames, browser.value(ANSWERS))
    browser.value("performance.clearResourceTimings()")
    rng, waits = random.Random(0), []
    for _ in range(NUM_JUMPS):
        begun_at = time.perf_counter()
        browser.value(f"(box => box.scrollTop = box.scrollHeight * {rng.random()})(document.getElementById('window'))")
        browser.wait_for(f"new Promise((done) => requestAnimationFrame(() => setTimeout(() => done({SHOWN}), 0)))")
        waits.append(1_000 * (time.perf_counter() - begun_at))
    line(f"by `{sort}`, jumps until the rows are there", waits, browser.value(ANSWERS))


def line(what: str, frames: list[float], answers: list[float]) -> None:
    pauses = sum(each > PAUSE_MS for each in frames)
    print(f"| {what} | {told(frames)} | {pauses} | {told(answers)} |", flush=True)


def told(times: list[float]) -> str:
    """Number of times in ms, their median, their 99th percentile and the longest."""
    if len(times) < 2:
        return f"{len(times)} | – | – | –"
    cuts = quantiles(times, n=100, method="inclusive")
    return f"{len(times)} | {cuts[49]:.0f} | {cuts[98]:.0f} | {max(times):.0f}"


if __name__ == "__main__":
    main()
