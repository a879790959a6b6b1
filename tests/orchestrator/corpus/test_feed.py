"""The stream through Ray Data, in windows. Alone: pytest tests/orchestrator/corpus/test_feed.py"""

import threading
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray.remote_function
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.examples.packing import PackedBatch
from orchestrator.base.errors import CorpusError
from orchestrator.corpus import feed
from orchestrator.corpus.feed import (
    TARGET_S,
    PrefetchPace,
    built_ahead,
    from_table,
    prefetch_windows,
    ray_batches,
    to_table,
)
from orchestrator.corpus.stream import ExampleStream
from tests.orchestrator.corpus.shards import digests
from tests.orchestrator.pretraining.small_run import make_job


@pytest.mark.parametrize(
    ("token", "sentence"), [("masked_lm", "next_sentence"), ("masked_lm", "none"), ("left_to_right", "none")]
)
def test_a_table_gives_back_its_batches_without_copies(tmp_path: Path, token: str, sentence: str) -> None:
    """Batches without masks or without labels of sentences as well."""
    batches = list(make_job(tmp_path, token_objective=token, sentence_objective=sentence).stream.batches(range(3)))
    again = list(from_table(to_table(iter(batches))))
    assert digests(again) == digests(batches)
    assert all(not batch.input_ids.flags.owndata for _, batch in again)


def test_prefetch_windows_are_sized_by_the_phase_that_runs(tmp_path: Path) -> None:
    config = make_job(tmp_path).stream.config
    config = replace(config, phases=((128, 900_000, 256), (512, 100_000, 256)))
    windows = list(prefetch_windows(config, 0, 1, PrefetchPace()))
    assert [block_steps for _, block_steps in (windows[0], windows[-1])] == [8, 2]
    assert len(windows) == 900_000 // 64 + 1 + 100_000 // 16 == 20_313, "by the longest phase alone they were 62,500"
    for first_step in (0, 13, 899_990, 999_999):
        steps = [window for window, _ in prefetch_windows(config, first_step, 1, PrefetchPace())]
        assert (steps[0].start, steps[-1].stop) == (first_step, 1_000_000)
        assert all(before.stop == after.start for before, after in pairwise(steps))
        assert all(window.stop <= 900_000 or window.start >= 900_000 for window in steps)


@settings(deadline=None, max_examples=20)
@given(first_step=st.integers(0, 23), block_tokens=st.integers(1, 4000), sizes=st.lists(st.integers(1, 9), min_size=1))
@pytest.mark.heavy
def test_batches_do_not_depend_on_the_sizes_of_windows(
    small_stream: ExampleStream, first_step: int, block_tokens: int, sizes: list[int]
) -> None:
    class Sizes(PrefetchPace):
        def note(self, *_: float) -> None:
            self.num_blocks = sizes[(sizes.index(self.num_blocks) + 1) % len(sizes)]

    pace = Sizes()
    pace.num_blocks = sizes[0]
    build = partial(build_here, small_stream)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed, "BLOCK_TOKENS", block_tokens)
        windows = prefetch_windows(small_stream.config, first_step, 1, pace)
        found = list(built_ahead(windows, build, lambda table: table, pace))
    assert [step for step, _ in found] == list(range(first_step, 24))
    assert digests(found) == digests(list(small_stream.batches(range(first_step, 24))))


def build_here(stream: ExampleStream, steps: range, block_steps: int) -> list[pa.Table]:
    """Blocks of consecutive steps, built in this process."""
    parts = [steps[start : start + block_steps] for start in range(0, len(steps), block_steps)]
    return [to_table(stream.batches(part)) for part in parts]


@pytest.fixture(scope="module")
def small_stream(tmp_path_factory: pytest.TempPathFactory) -> ExampleStream:
    return make_job(tmp_path_factory.mktemp("job")).stream


def test_a_window_is_built_while_the_one_before_it_is_worked_on_and_no_further(small_stream: ExampleStream) -> None:
    begun: list[range] = []
    has_begun = threading.Semaphore(0)

    def build(steps: range, block_steps: int) -> list[pa.Table]:
        begun.append(steps)
        has_begun.release()
        return build_here(small_stream, steps, block_steps)

    windows = iter([(range(start, start + 4), 2) for start in range(0, 16, 4)])
    with closing(built_ahead(windows, build, lambda table: table, PrefetchPace())) as batches:
        for step, _ in batches:
            if step % 4 == 0:
                for _ in range(2 if step == 0 else int(step < 12)):
                    assert has_begun.acquire(timeout=600)
            assert [steps.start for steps in begun] == list(range(0, min(step // 4 + 2, 4) * 4, 4))


def collect(stream: ExampleStream, first_step: int, num_workers: int) -> list[tuple[int, PackedBatch]]:
    ranks = [dict(ray_batches(stream, first_step, rank=rank, num_workers=num_workers)) for rank in range(num_workers)]
    assert all(list(parts) == list(range(first_step, stream.config.num_steps)) for parts in ranks)
    return [(step, PackedBatch.concatenate([parts[step] for parts in ranks])) for step in ranks[0]]


@pytest.mark.ray
@pytest.mark.core
def test_one_and_two_workers_see_the_same_sequence_of_batches(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BLOCK_TOKENS", 2 * 8 * 48)
    stream = make_job(tmp_path).stream
    straight = digests(list(stream.batches(range(24))))
    assert digests(collect(stream, 0, 1)) == straight
    assert digests(collect(stream, 0, 2)) == straight


@pytest.fixture
def asked_cpus(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """CPUs that each task of Ray Data asks for from now on, in the order in which the tasks are submitted."""
    asked: list[float] = []
    submit = ray.remote_function.RemoteFunction._remote

    def note(function: Any, *args: Any, **options: Any) -> Any:
        if function._function_name.startswith("ray.data"):
            cpus = options.get("num_cpus", function._num_cpus)
            asked.append(1.0 if cpus is None else cpus)
        return submit(function, *args, **options)

    monkeypatch.setattr(ray.remote_function.RemoteFunction, "_remote", note)
    return asked


@pytest.mark.ray
def test_no_task_wants_more_than_its_share_of_a_cpu(ray_cluster: None, tmp_path: Path, asked_cpus: list[float]) -> None:
    assert len(list(ray_batches(make_job(tmp_path).stream, 20, rank=0, num_workers=1, num_cpus=0.5))) == 4
    assert asked_cpus
    assert max(asked_cpus) <= 0.5


@pytest.mark.ray
def test_a_damaged_shard_is_named_through_ray(ray_cluster: None, tmp_path: Path) -> None:
    stream = make_job(tmp_path).stream
    shard = tmp_path / "store" / "shard-1.parquet"
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(CorpusError, match=r"shard-1\.parquet"):
        list(ray_batches(stream, 0, rank=0, num_workers=1))


BLOCK_TOKENS, BLOCK_BYTES = 200_000, 1_500_000


def note(pace: PrefetchPace, train_tokens_per_s: float, build_tokens_per_s: float = 1e9) -> float:
    """Note a window of the pace's size at two speeds, and half a second for its start. Returns its training time."""
    num_tokens = pace.num_blocks * BLOCK_TOKENS
    build_s, train_s = 0.5 + num_tokens / build_tokens_per_s, num_tokens / train_tokens_per_s
    pace.note(pace.num_blocks, pace.num_blocks * BLOCK_BYTES, build_s, train_s)
    return train_s


def sizes_of(pace: PrefetchPace, num_windows: int, train_tokens_per_s: float) -> list[int]:
    found = []
    for _ in range(num_windows):
        found.append(pace.num_blocks)
        note(pace, train_tokens_per_s)
    return found


def test_windows_of_a_fast_device_double_until_they_last_long_enough() -> None:
    assert sizes_of(PrefetchPace(), 8, train_tokens_per_s=8e6) == [8, 16, 32, 64, 128, 200, 200, 200]
    pace = PrefetchPace()
    sizes_of(pace, 8, train_tokens_per_s=8e6)
    assert note(pace, 8e6) == pytest.approx(TARGET_S)


def test_windows_take_no_more_memory_than_they_may() -> None:
    assert sizes_of(PrefetchPace(max_window_bytes=40 * BLOCK_BYTES), 6, train_tokens_per_s=8e6) == [
        8,
        16,
        32,
        40,
        40,
        40,
    ]
    assert sizes_of(PrefetchPace(max_window_bytes=BLOCK_BYTES / 2), 3, train_tokens_per_s=8e6) == [8, 1, 1]


def test_an_evaluation_within_a_window_makes_the_next_no_smaller() -> None:
    pace = PrefetchPace()
    sizes_of(pace, 6, train_tokens_per_s=8e6)
    assert sizes_of(pace, 2, train_tokens_per_s=20_000) == [200, 200]


def test_windows_of_slow_data_tasks_stop_growing_at_their_speed() -> None:
    pace = PrefetchPace()
    for _ in range(8):
        note(pace, 8e6, build_tokens_per_s=1e6)
    assert pace.num_blocks == 23, "longer windows of slow tasks would gain nothing"
