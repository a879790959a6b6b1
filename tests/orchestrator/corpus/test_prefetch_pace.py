"""Sizes of prefetch windows by time. Alone: pytest tests/orchestrator/corpus/test_prefetch_pace.py"""

import pytest

from orchestrator.corpus.prefetch_pace import TARGET_S, PrefetchPace, WindowTimes

BLOCK_TOKENS, BLOCK_BYTES = 200_000, 1_500_000


def window(pace: PrefetchPace, train_tokens_per_s: float, build_tokens_per_s: float = 1e9) -> WindowTimes:
    """Times of a window of the pace's size, at two speeds, and half a second for the start of its pipeline."""
    num_tokens = pace.num_blocks * BLOCK_TOKENS
    return WindowTimes(
        pace.num_blocks,
        num_tokens,
        pace.num_blocks * BLOCK_BYTES,
        build_s=0.5 + num_tokens / build_tokens_per_s,
        train_s=num_tokens / train_tokens_per_s,
    )


def sizes(pace: PrefetchPace, num_windows: int, train_tokens_per_s: float) -> list[int]:
    found = []
    for _ in range(num_windows):
        found.append(pace.num_blocks)
        pace.note(window(pace, train_tokens_per_s))
    return found


def test_windows_of_a_fast_device_double_until_they_last_long_enough() -> None:
    assert sizes(PrefetchPace(), 8, train_tokens_per_s=8e6) == [8, 16, 32, 64, 128, 200, 200, 200]
    pace = PrefetchPace()
    sizes(pace, 8, train_tokens_per_s=8e6)
    assert window(pace, 8e6).train_s == pytest.approx(TARGET_S)


def test_windows_take_no_more_memory_than_they_may() -> None:
    assert sizes(PrefetchPace(max_window_bytes=40 * BLOCK_BYTES), 6, train_tokens_per_s=8e6) == [8, 16, 32, 40, 40, 40]
    assert sizes(PrefetchPace(max_window_bytes=BLOCK_BYTES / 2), 3, train_tokens_per_s=8e6) == [8, 1, 1]


def test_an_evaluation_within_a_window_makes_the_next_no_smaller() -> None:
    pace = PrefetchPace()
    sizes(pace, 6, train_tokens_per_s=8e6)
    assert sizes(pace, 2, train_tokens_per_s=20_000) == [200, 200]


def test_slow_data_tasks_are_told_once_and_only_of_windows_of_full_size() -> None:
    warnings: list[str] = []
    pace = PrefetchPace(warn=warnings.append)
    while (slow := window(pace, 8e6, build_tokens_per_s=1e6)).build_s < TARGET_S:
        pace.note(slow)
        assert not warnings, "what a pipeline costs at its start is not told as the speed of its tasks"
    for _ in range(3):
        pace.note(window(pace, 8e6, build_tokens_per_s=1e6))
    assert pace.num_blocks == 23, "longer windows of slow tasks would gain nothing"
    assert warnings == ["data tasks deliver 901,961 tokens/s, training takes 8,000,000: raise execution.data_cpus"]
