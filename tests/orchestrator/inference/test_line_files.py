"""Files answered by this process and by workers on Ray: the same bytes, the same complaints; blocks of their lines.

Alone: .venv/bin/pytest tests/orchestrator/inference/test_line_files.py
"""

import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.base.errors import ClusterError, InputError
from orchestrator.base.settings import Settings
from orchestrator.inference import line_blocks as blocks
from orchestrator.inference import line_files
from orchestrator.inference.embedder import LineEmbedder
from orchestrator.inference.line_blocks import (
    BLOCK_LINES,
    LineBlock,
    LinePredictor,
    PredictedBlock,
    json_lines,
    line_blocks,
    predict_blocks,
)
from orchestrator.inference.line_files import predict_file
from orchestrator.inference.predictor import Predictor
from tests.orchestrator.tiny_models import WORDS


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings that name no cluster."""
    return Settings.from_options(home=tmp_path / "home", environ={})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Lines of many lengths, for more blocks than there are workers."""
    path, words = tmp_path / "lines.txt", WORDS.split()
    path.write_text("".join(" ".join(words[n % 5 : 6 + n % 11]) + "\n" for n in range(4 * BLOCK_LINES + 7)))
    return path


class Killed:
    """PredictedBlock with the lines; the process that meets `die` dies, the first time or always."""

    def __init__(self, folder: str, always: bool = False) -> None:
        self.died = Path(folder) / "died"
        self.always = always

    def __call__(self, block: LineBlock) -> PredictedBlock:
        if any("die" in line for _, line in block.lines) and (self.always or not self.died.exists()):
            self.died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return PredictedBlock("".join(line for _, line in block.lines).encode(), len(block.lines))


@pytest.mark.ray
@pytest.mark.core
def test_any_number_of_workers_gives_the_bytes_of_one_process(
    ray_cluster: None, settings: Settings, file: Path, classifier: str
) -> None:
    alone, one, two = (
        list(predict_file(Predictor.load, classifier, str(file), settings, num_workers)) for num_workers in (None, 1, 2)
    )
    assert len(alone) == 5
    assert alone == one == two


@pytest.mark.ray
def test_the_lines_of_a_worker_that_dies_are_answered_once(
    ray_cluster: None, settings: Settings, file: Path, tmp_path: Path
) -> None:
    with file.open("a") as end:
        end.write("die\n" + "after\n" * BLOCK_LINES)
    found = b"".join(answers.data for answers in predict_file(Killed, str(tmp_path), str(file), settings, 2))
    assert (tmp_path / "died").exists()
    assert found == file.read_bytes()


@pytest.mark.ray
@pytest.mark.slow
def test_a_line_that_kills_every_worker_ends_the_work(ray_cluster: None, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("die\n")
    with pytest.raises(ClusterError, match="--workers"):
        list(predict_file(partial(Killed, always=True), str(tmp_path), str(tmp_path / "lines.txt"), settings, 1))


@pytest.mark.ray
def test_what_a_node_does_not_reach_is_named(
    ray_cluster: None, settings: Settings, file: Path, encoder: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="nothing"):
        list(predict_file(LineEmbedder.load, str(tmp_path / "nothing"), str(file), settings, 1))


@pytest.mark.ray
def test_more_workers_than_there_is_room_for_are_refused(
    ray_cluster: None, settings: Settings, file: Path, encoder: str
) -> None:
    with pytest.raises(ClusterError, match=r"7 workers .* 6"):
        list(predict_file(LineEmbedder.load, encoder, str(file), settings, 7))
    with pytest.raises(ClusterError, match="1 GPUs"):
        list(predict_file(LineEmbedder.load, encoder, str(file), settings, 1, num_gpus=1))


@pytest.mark.ray
def test_a_cluster_gives_as_many_workers_as_fit(
    ray_cluster: None, settings: Settings, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(line_files, "predict_on_ray", lambda *arguments: asked.append(arguments[3]) or iter(()))
    on_cluster = Settings.from_options(home=settings.home, address="auto", environ={})
    for num_workers in (None, 2):
        list(predict_file(LineEmbedder.load, "folder", str(file), on_cluster, num_workers, on_progress=asked.append))
    assert asked == ["6 workers on Ray", 6, "2 workers on Ray", 2]


def test_a_file_that_is_not_there_is_named_before_the_model_is_loaded(settings: Settings, tmp_path: Path) -> None:
    def load(folder: str) -> LinePredictor:
        raise AssertionError("loaded")

    with pytest.raises(InputError, match=r"none\.txt"):
        list(predict_file(load, str(tmp_path), "none.txt", settings))


def test_a_damaged_model_is_told_as_itself(settings: Settings, file: Path, encoder: str, tmp_path: Path) -> None:
    from bert_core.errors import CheckpointError

    shutil.copytree(encoder, tmp_path / "bad")
    (tmp_path / "bad" / "model.safetensors").write_bytes(b"short")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        list(predict_file(LineEmbedder.load, str(tmp_path / "bad"), str(file), settings))


@given(st.lists(st.text(alphabet="ab \n", max_size=6), max_size=40))
def test_blocks_hold_every_line_once_in_order_and_are_as_full_as_may_be(lines: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_LINES", 4)
        patch.setattr(blocks, "BLOCK_CHARACTERS", 12)
        found = list(line_blocks(lines))
    together = [line for block in found for line in block.lines]
    assert together == [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    sizes = [sum(len(line) for _, line in block.lines) for block in found]
    assert all(len(block.lines) == 4 or size >= 12 for block, size in zip(found[:-1], sizes, strict=False))
    assert all(len(block.lines) <= 4 and size < 12 + 6 for block, size in zip(found, sizes, strict=True))


def test_no_more_than_a_block_is_read_ahead() -> None:
    read = []

    def lines() -> object:
        for number in range(10**9):
            read.append(number)
            yield "a line"

    first = next(line_blocks(lines()))  # type: ignore[arg-type]
    assert len(first.lines) == len(read) == blocks.BLOCK_LINES


def test_a_bad_line_is_named_with_its_file_after_the_answers_before_it() -> None:
    def answer(block: LineBlock) -> PredictedBlock:
        ((number, line),) = block.lines
        if line == "bad":
            raise InputError(f"line {number} is bad")
        return PredictedBlock(line.encode(), 1)

    found = predict_blocks(answer, (LineBlock(((n, line),)) for n, line in enumerate(["a", "b", "bad"], 1)), "file.txt")
    assert [next(found).data, next(found).data] == [b"a", b"b"]
    with pytest.raises(InputError, match=r"^file\.txt: line 3 is bad$"):
        next(found)


def test_json_lines_are_read_back() -> None:
    rows = [{"text": "Zürich\u2028\n", "label": 1}, {"text": "", "label": None}]
    data = json_lines(rows)
    assert [json.loads(line) for line in data.split(b"\n")[:-1]] == rows
    assert "Zürich".encode() in data
