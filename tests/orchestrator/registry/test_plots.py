"""Runs as pictures. Alone: pytest tests/orchestrator/registry/test_plots.py"""

from io import BytesIO
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from orchestrator.errors import InputError, NotFoundError
from orchestrator.registry import Registry
from orchestrator.registry.plots import plot_run
from orchestrator.results import MetricEvent, TrialResult
from orchestrator.run_states import RunState


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    with Registry(str(tmp_path / "registry.sqlite")) as opened:
        yield opened


def new_run(registry: Registry, kind: str, **options: str) -> str:
    return registry.lifecycle.create(kind=kind, name=kind, fingerprint="f", spec={"kind": kind}, **options)


def test_a_pretraining_run_is_drawn_with_a_panel_per_measurement(registry: Registry, tmp_path: Path) -> None:
    run_id = new_run(registry, "pretrain")
    values = [{"mlm_loss": 5.0 / step, "perplexity": 150.0 / step, "tokens_per_s": 1e4} for step in (1, 2, 3)]
    registry.metrics.record(run_id, [MetricEvent(step, "train", each) for step, each in enumerate(values, start=1)])
    output = tmp_path / "run.svg"
    plot_run(registry, run_id, str(output))
    assert output.read_text().count("<!-- step -->") == 3


@pytest.mark.parametrize("kind", ["sweep", "another kind"])
def test_a_run_with_trials_is_drawn_with_a_line_per_trial(registry: Registry, tmp_path: Path, kind: str) -> None:
    run_id = new_run(registry, kind, task="own", metric="f1")
    trials = [
        TrialResult(str(n), n, {}, RunState.COMPLETED, seed=n, best_step=5, metrics={"f1": 0.1 * n}) for n in (1, 2)
    ]
    registry.trials.record(run_id, trials)
    output = tmp_path / "sweep.png"
    plot_run(registry, run_id, str(output))
    assert output.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_drawn_leaves_the_old_one(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run(registry, "pretrain")
    registry.metrics.record(run_id, [MetricEvent(1, "train", {"mlm_loss": 5.0})])
    output = tmp_path / "run.png"
    plot_run(registry, run_id, str(output))
    before = output.read_bytes()

    def break_off(figure: Figure, file: BytesIO, **options: object) -> None:
        file.write(b"half")
        raise MemoryError

    monkeypatch.setattr(Figure, "savefig", break_off)
    with pytest.raises(MemoryError):
        plot_run(registry, run_id, str(output))
    assert output.read_bytes() == before


def test_nothing_measured_and_unknown_endings_are_refused(registry: Registry, tmp_path: Path) -> None:
    run_id = new_run(registry, "pretrain")
    with pytest.raises(NotFoundError, match="no measurements"):
        plot_run(registry, run_id, str(tmp_path / "run.png"))
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf"):
        plot_run(registry, run_id, str(tmp_path / "run.doc"))
