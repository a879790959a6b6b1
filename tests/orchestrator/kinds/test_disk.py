"""A disk that is too small for a run is foreseen: told in the plan, refused before the run starts.

Run alone: pytest tests/orchestrator/kinds/test_disk.py
"""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.base.errors import InputError
from orchestrator.base.settings import Settings
from orchestrator.corpus.input_files import find_files
from orchestrator.corpus.token_store import store_folder, store_options
from orchestrator.execution.runner import check_storage_and_capacity, plan_spec, run_spec
from orchestrator.kinds import resolved_inputs
from orchestrator.kinds.preflight import check_disk, disk_need
from orchestrator.specs import PretrainSpec
from orchestrator.specs.loading import parse_spec
from tests.orchestrator.small_specs import DISTILL, PRETRAIN, PROBE, STORE, SWEEP, TOKENIZER, pipeline

NUM_PARAMETERS = 497_936
PRETRAINED_BYTES = (3 * 12 + 4) * NUM_PARAMETERS
"""Bytes of PRETRAIN's checkpoints, two that are kept and a new one, and of its model."""


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that sets how many bytes are free; the folders that were asked about are its attribute `asked`."""

    def set_free(num_bytes: int) -> None:
        def disk_usage(path: Path) -> SimpleNamespace:
            set_free.asked.append(path)  # type: ignore[attr-defined]
            return SimpleNamespace(free=num_bytes)

        monkeypatch.setattr(shutil, "disk_usage", disk_usage)

    set_free.asked = []  # type: ignore[attr-defined]
    return set_free


def needed(settings: Settings, values: dict[str, Any]) -> dict[str, int]:
    spec = parse_spec(values)
    room = disk_need(spec, resolved_inputs(spec, settings))
    assert room is not None
    return {use.what: use.num_bytes for use in room.uses}


def test_a_run_that_does_not_fit_is_refused_with_both_sizes(settings: Settings, free: Any) -> None:
    free(PRETRAINED_BYTES - 1)
    message = (
        rf"{settings.storage} has 19\.9 MB free, and this run writes about 19\.9 MB "
        r"\(17\.9 MB of checkpoints, .*\); make room there, give another --storage"
    )
    spec = parse_spec(PRETRAIN)
    with pytest.raises(InputError, match=message):
        run_spec(spec, settings=settings)
    with pytest.raises(InputError, match=message):
        check_storage_and_capacity(spec, resolved_inputs(spec, settings))
    assert not (settings.home / "registry.sqlite").exists(), "nothing has been recorded"


def test_a_plan_tells_both_sizes_in_one_line(settings: Settings, free: Any) -> None:
    for num_bytes, verdict in ((10**6, ": does not fit"), (10**9, "")):
        free(num_bytes)
        spec = parse_spec(PRETRAIN)
        rows = plan_spec(spec, resolved_inputs(spec, settings))
        (row,) = (row for row in rows if row.what == "disk in all")
        assert row.value.startswith("19.9 MB of the 1")
        assert row.value.endswith(f"that are free in {settings.storage}{verdict}")
    assert free.asked[-1] == Path.cwd(), "the storage is not there yet; its file system is that of the folder above"


def test_what_earlier_attempts_have_left_is_not_written_again(settings: Settings, free: Any, tmp_path: Path) -> None:
    spec = parse_spec(PRETRAIN)
    inputs = resolved_inputs(spec, settings)
    checkpoint = tmp_path / "run" / "checkpoints" / "000001" / "state.safetensors"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(bytes(PRETRAINED_BYTES // 2))
    free(PRETRAINED_BYTES // 2 + 10**6)
    check_disk(spec, inputs, [str(tmp_path / "run"), str(tmp_path / "was never made")])
    with pytest.raises(InputError, match=r"and this run writes about 19\.9 MB "):
        check_disk(spec, inputs)
    free(PRETRAINED_BYTES // 4)
    with pytest.raises(InputError, match=r"and this run writes about 10\.0 MB more "):
        check_disk(spec, inputs, [str(tmp_path / "run")])


@pytest.mark.parametrize(("num_bytes", "warnings"), [(1.05, 1), (1.2, 0)])
def test_a_tight_fit_is_a_warning(
    settings: Settings, free: Any, caplog: pytest.LogCaptureFixture, num_bytes: float, warnings: int
) -> None:
    free(round(num_bytes * PRETRAINED_BYTES))
    spec = parse_spec(PRETRAIN)
    check_disk(spec, resolved_inputs(spec, settings))
    assert [record.getMessage().count("leaves less than 10%") for record in caplog.records] == [1] * warnings


def test_an_object_store_has_room(free: Any) -> None:
    free(0)
    settings = Settings.from_options(storage="s3://bucket/storage", environ={})
    spec = parse_spec(PRETRAIN)
    check_disk(spec, resolved_inputs(spec, settings))
    assert disk_need(spec, resolved_inputs(spec, settings)) is None


def test_a_token_store_counts_once_and_not_where_it_is_there(settings: Settings) -> None:
    Path("corpus.txt").write_text("a cat sat\n" * 100_000)
    assert needed(settings, PRETRAIN)["token store"] == 500_000
    assert needed(settings, pipeline(first=PRETRAIN, second={**PRETRAIN, "seed": 1}, store=STORE)) == needed(
        settings, PRETRAIN
    )
    spec = parse_spec(PRETRAIN)
    assert isinstance(spec, PretrainSpec)
    tokenizer = resolved_inputs(spec, settings).tokenizer("words")
    options = store_options(spec.corpus, tokenizer, spec.validation_fraction, spec.shard_bytes)
    folder = Path(store_folder(settings.storage, options, find_files(spec.corpus)))
    folder.mkdir(parents=True)
    (folder / "manifest.json").touch()
    assert "token store" not in needed(settings, PRETRAIN)


def test_what_runs_at_a_time_counts(settings: Settings) -> None:
    one = needed(settings, SWEEP)
    four = needed(settings, {**SWEEP, "seeds": [0, 1, 2, 3], "execution": {"max_concurrent_trials": 4}})
    assert four["checkpoints"] == 4 * one["checkpoints"] > 0
    assert four["models"] == 5 / 2 * one["models"]
    assert needed(settings, PROBE).keys() == needed(settings, DISTILL).keys() == one.keys()


def test_what_only_the_run_decides_is_left_out(settings: Settings) -> None:
    assert needed(settings, TOKENIZER) == {}
    again = {**PRETRAIN, "tokenizer": "@words"}
    assert needed(settings, pipeline(words={**TOKENIZER, "vocab_size": 120}, model=again))["checkpoints"] > 0
