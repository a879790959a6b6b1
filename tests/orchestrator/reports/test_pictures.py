"""Runs as pictures. Alone: pytest tests/orchestrator/reports/test_pictures.py"""

from pathlib import Path

import pytest

from orchestrator.errors import InputError, NotFoundError
from orchestrator.registry import Registry
from orchestrator.reports.pictures import plot_run
from orchestrator.results import MetricEvent
from tests.orchestrator.registry.samples import new_run
from tests.orchestrator.reports.samples import add_sweep


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    with Registry(str(tmp_path / "registry.sqlite")) as opened:
        yield opened


@pytest.mark.heavy
def test_a_pretraining_run_is_drawn_with_a_panel_per_measurement(registry: Registry, tmp_path: Path) -> None:
    run_id = new_run(registry, kind="pretrain")
    for step in (1, 2, 3):
        values = {"mlm_loss": 5.0 / step, "perplexity": 150.0 / step, "tokens_per_s": 1e4, "gradient_norm": 1.0}
        registry.metrics.record(run_id, [MetricEvent(step, "train", values)])
    plot_run(registry, registry.run(run_id), str(tmp_path / "run.svg"))
    assert (tmp_path / "run.svg").read_text().count("<!-- step -->") == 3


def test_the_lines_of_a_sweep_are_named_by_what_varies(registry: Registry, tmp_path: Path) -> None:
    sweep = registry.run(add_sweep(registry, tmp_path))
    plot_run(registry, sweep, str(tmp_path / "sweep.svg"))
    assert "<!-- accuracy -->" in (tmp_path / "sweep.svg").read_text()
    plot_run(registry, sweep, str(tmp_path / "sweep.png"))
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_measured_and_unknown_endings_are_refused(registry: Registry, tmp_path: Path) -> None:
    run = registry.run(new_run(registry))
    with pytest.raises(NotFoundError, match=run.id):
        plot_run(registry, run, str(tmp_path / "run.png"))
    with pytest.raises(InputError, match=r"run\.doc"):
        plot_run(registry, run, str(tmp_path / "run.doc"))
