"""Gauges of runs, on a real Ray: what Prometheus reads. Alone: pytest tests/orchestrator/cluster/test_gauges.py"""

import urllib.request
from typing import Any

import pytest

from orchestrator.cluster import gauges
from orchestrator.cluster.gauges import RunGauges
from orchestrator.results import MetricEvent
from tests.waiting import PATIENCE_S, wait_until

EVENT = MetricEvent(40, "train", {"loss": 2.5, "nsp-f1": 0.5})


class FakeGauge:
    def __init__(self) -> None:
        self.values: list[tuple[float, dict[str, str]]] = []

    def set(self, value: float, labels: dict[str, str]) -> None:
        self.values.append((value, labels))


def test_each_measurement_and_the_step_have_the_runs_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, FakeGauge] = {}
    monkeypatch.setattr(gauges, "_gauge", lambda name: made.setdefault(name, FakeGauge()))
    for run in ("a1", "b2"):
        RunGauges(run, "first try").show(EVENT)
    assert {name: gauge.values[0][0] for name, gauge in made.items()} == {"loss": 2.5, "nsp-f1": 0.5, "step": 40.0}
    assert [labels["run"] for _, labels in made["loss"].values] == ["a1", "b2"]
    assert made["step"].values[0][1] == {"run": "a1", "name": "first try", "split": "train"}


@pytest.mark.ray
def test_prometheus_reads_them_where_ray_exports_its_own(ray_cluster: Any) -> None:
    import ray

    RunGauges("7f3a", "first try").show(EVENT)
    (node,) = ray.nodes()
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"

    def lines() -> list[str]:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            return [line for line in answer.read().decode().splitlines() if line.startswith("ray_bert_")]

    wait_until(lambda: len(lines()) >= 3, "Ray exports no gauge of the run")
    found = {line.partition("{")[0]: line for line in lines()}
    assert set(found) == {"ray_bert_loss", "ray_bert_nsp_f1", "ray_bert_step"}
    assert 'run="7f3a"' in found["ray_bert_loss"]
    assert 'name="first try"' in found["ray_bert_loss"]
    assert found["ray_bert_loss"].endswith(" 2.5")
