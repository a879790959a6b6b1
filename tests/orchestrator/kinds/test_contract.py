"""The contract of kinds of runs, held by every kind in the list.

pytest tests/orchestrator/kinds/test_contract.py
"""

from pathlib import Path
from typing import Any, get_args

import pytest

from orchestrator.base.errors import CorpusError, NotFoundError, TaskDataError
from orchestrator.base.settings import Settings
from orchestrator.kinds import KINDS, kind_of, resolved_inputs
from orchestrator.kinds.base import AnyKind
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.specs.loading import parse_spec
from orchestrator.specs.pipeline import AnySpec
from orchestrator.specs.precision import asks_auto, possible_fingerprints, with_precision
from orchestrator.specs.references import names_of, replace_names
from tests.orchestrator.kinds.samples import SAMPLES, complete
from tests.orchestrator.registry.samples import everything

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def test_every_spec_has_its_kind() -> None:
    assert [kind.spec for kind in KINDS] == list(get_args(AnySpec))
    for kind in KINDS:
        assert kind_of(parse_spec(SAMPLES[kind.name].spec)) is kind


@each_kind
class TestKind:
    """Promises of a kind that plans, the runner and the recorder rely on."""

    def test_a_spec_that_fits_is_planned_and_nothing_is_started(self, kind: AnyKind, settings: Settings) -> None:
        spec = parse_spec(SAMPLES[kind.name].spec)
        inputs = resolved_inputs(spec, settings)
        kind_of(spec).preflight(spec, inputs)
        facts = list(kind.facts(spec, inputs))
        assert all(what.strip() and value.strip() for what, value in facts)
        assert not settings.home.exists()

    def test_the_processes_take_no_more_than_the_run(self, kind: AnyKind) -> None:
        resources = kind.resources(parse_spec(SAMPLES[kind.name].spec))
        if kind.name != "pipeline":  # whose stages take theirs
            assert resources.processes
            assert resources.total["CPU"] > 0
        for name, total in resources.total.items():
            assert sum(group.count * group.resources.get(name, 0.0) for group in resources.processes) <= total

    @pytest.mark.parametrize("has_bf16", [True, False])
    def test_the_devices_decide_on_a_precision_that_the_spec_leaves_to_them(
        self, kind: AnyKind, has_bf16: bool, settings: Settings, no_cluster: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("orchestrator.kinds.base.have_bf16", lambda **arguments: has_bf16)
        spec = parse_spec(SAMPLES[kind.name].spec)
        inputs = resolved_inputs(spec, settings)
        if any(config is not None for config in kind.model_configs(spec, inputs)):
            assert kind.settle_precision(spec, inputs) == with_precision(spec, "fp32"), "tiny, and on CPUs"
        monkeypatch.setattr("orchestrator.kinds.base.NARROW", 0)
        settled = kind.settle_precision(spec, inputs)
        if kind.name == "pipeline":  # whose stages are runs, each on devices of its own
            assert settled == spec
        else:
            assert not asks_auto(settled)
            assert settled.fingerprint() in possible_fingerprints(spec)
            assert settled == with_precision(spec, "bf16" if has_bf16 else "fp32")

    def test_a_file_that_is_not_there_is_refused(self, kind: AnyKind, settings: Settings) -> None:
        for path in ("corpus.txt", "task.csv"):
            Path(path).unlink()
        spec = parse_spec(SAMPLES[kind.name].spec)
        with pytest.raises((CorpusError, TaskDataError), match=r"corpus\.txt|task\.csv"):
            kind_of(spec).preflight(spec, resolved_inputs(spec, settings))

    def test_the_input_identity_follows_the_files(self, kind: AnyKind, settings: Settings) -> None:
        spec = parse_spec(SAMPLES[kind.name].spec)
        before, again = (kind.input_identity(spec, resolved_inputs(spec, settings)) for _ in range(2))
        assert before == again
        Path("corpus.txt").write_text("a cat sat twice\n")
        Path("task.csv").write_text("text,label\na cat,a\na dog,b\na cow,a\n")
        assert kind.input_identity(spec, resolved_inputs(spec, settings)) != before

    def test_a_result_recorded_twice_is_recorded_once(self, kind: AnyKind, registry: Registry) -> None:
        recorder = Recorder(registry)
        run = recorder.start(SAMPLES[kind.name].spec, "f")
        complete(recorder, run.id, kind.name)
        once = everything(registry)
        complete(recorder, run.id, kind.name)
        assert everything(registry) == once
        assert registry.run(run.id).state == "COMPLETED"


NAMING = [sample.spec for sample in SAMPLES.values() if names_of(parse_spec(sample.spec))]


@pytest.mark.parametrize("values", NAMING, ids=lambda values: str(values["kind"]))
def test_a_model_or_tokenizer_that_is_not_there_is_refused(values: dict[str, Any], settings: Settings) -> None:
    spec = replace_names(parse_spec(values), lambda field, name: "absent")
    field, _ = names_of(spec)[0]
    with pytest.raises(NotFoundError, match=f"{field}: .*absent"):
        kind_of(spec).preflight(spec, resolved_inputs(spec, settings))
