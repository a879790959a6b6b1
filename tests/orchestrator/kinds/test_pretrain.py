"""Pretraining as a kind of run: what it refuses, plans, takes of the cluster and records; passes over its text.

pytest tests/orchestrator/kinds/test_pretrain.py
"""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from bert_core.errors import CheckpointError, TokenizerError
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.base.console.run_views import TrainingView
from orchestrator.base.errors import CorpusError, RunStoppedError, SpecError
from orchestrator.base.results import MessageEvent, MetricEvent
from orchestrator.base.settings import Settings
from orchestrator.cluster import gpus
from orchestrator.cluster.capacity import Processes
from orchestrator.kinds import pretrain as module
from orchestrator.kinds import pretraining_estimates
from orchestrator.kinds.preflight import needed_resources, warn_of_unused_gpus
from orchestrator.kinds.pretrain import PretrainKind, build_listener, decide_device, with_chosen_steps
from orchestrator.registry.recorder import Recorder
from orchestrator.specs import PretrainSpec
from orchestrator.specs.loading import parse_spec, spec_values
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.kinds.contexts import Notebook, context_of
from tests.orchestrator.kinds.samples import complete
from tests.orchestrator.small_specs import PRETRAIN, SWEEP, TOKENIZER, check, pipeline, plan, plan_lines


def test_a_tokenizer_that_the_model_was_not_trained_with(settings: Settings) -> None:
    train_wordpiece(["quite other words here"], vocab_size=200, min_frequency=1).save("others")
    model = {**PRETRAIN, "init_from": "short", "tokenizer": "others", "phases": [{"max_seq_length": 40}]}
    with pytest.raises(TokenizerError, match="vocab_size"):
        check(settings, model=model)


def test_a_pretraining_registers_its_model_under_the_specs_name(recorder: Recorder) -> None:
    run = recorder.start({"kind": "pretrain", "name": "tiny wiki", "seed": 3}, "f")
    recorder.record_events(run.id, [MetricEvent(100, "train", {"mlm_loss": 2.0})])
    complete(recorder, run.id, "pretrain")
    registry = recorder.registry
    assert registry.metrics.latest(run.id) == {"mlm_loss": 2.5, "perplexity": 12.2, "train.mlm_loss": 2.0}
    model = registry.models.get("tiny wiki")
    assert (model.run_id, model.head, model.folder) == (run.id, "pretraining", registry.run(run.id).model_folder)
    assert registry.run(run.id).seed == 3


def test_the_steps_of_a_run_that_goes_on_are_counted_from_where_it_does(recorder: Recorder) -> None:
    run = recorder.start({"kind": "pretrain", "name": "longer", "init_step": 40}, "f")
    recorder.record_events(run.id, [MetricEvent(100, "train", {"mlm_loss": 2.0})])
    assert PretrainKind().summary_lines(run.id, recorder.registry)[0].startswith("60 steps, 41 to 100, in ")


def test_a_plan_of_a_pretraining(settings: Settings) -> None:
    phases = [{"max_seq_length": 32, "share": 0.9}, {"max_seq_length": 64, "share": 0.1}]
    asked = {**PRETRAIN, "phases": phases, "global_batch_size": 8, "precision": "fp32"}
    rows = plan_lines(settings, asked)
    assert rows == [
        ("kind", "pretrain"),
        ("text", "1 file, 21 bytes as stored"),
        ("steps", "9 of 8 examples up to 32 tokens"),
        ("steps", "1 of 8 examples up to 64 tokens"),
        ("tokens", "at most 2,816"),
        ("passes over the text", "40 (6 tokens)"),
        ("parameters", "497,936"),
        ("memory of a worker", "8.0 MB and activations"),
        ("disk", "17.9 MB of checkpoints, 2.0 MB of model and snapshots, 10 bytes of token store"),
        ("resources", "2 CPU, and 1 GPU if available"),
    ]


def test_a_plan_of_a_run_that_goes_on_has_the_steps_that_are_left(settings: Settings) -> None:
    phases = [{"max_seq_length": 32, "share": 0.5}, {"max_seq_length": 64, "share": 0.5, "global_batch_size": 4}]
    stable = {**PRETRAIN, "phases": phases, "global_batch_size": 8}
    rows = plan_lines(settings, pipeline(stable=stable, longer={**stable, "init_from": "@stable", "init_step": 6}))
    assert [value for what, value in rows if what == "steps"] == ["4 of 4 examples up to 64 tokens"]
    assert dict(rows)["tokens"] == "at most 1,024"
    assert dict(rows)["passes over the text"] == "8 (6 tokens)"


def test_a_plan_says_what_the_precision_comes_to(settings: Settings) -> None:
    rows = plan(settings, {**PRETRAIN, "execution": {"device": "cpu"}})
    assert rows["precision"] in ("bf16 on this machine (auto)", "fp32 on this machine (auto)")


def test_snapshots_and_states_beside_them_count_in_the_plan(settings: Settings) -> None:
    for execution, size in (({}, "6.0 MB"), ({"snapshot_optimizer": True}, "17.9 MB")):
        kept = {**PRETRAIN, "execution": {"snapshot_steps": [10, 0], **execution}}
        assert f"{size} of model and snapshots" in plan(settings, kept)["disk"]


def test_a_run_goes_on_from_steps_whose_state_another_keeps(settings: Settings) -> None:
    def going_on(step: int, **execution: object) -> dict[str, Any]:
        stable = {**PRETRAIN, "execution": {"snapshot_steps": [4], **execution}}
        return {"stable": stable, "longer": {**PRETRAIN, "init_from": "@stable", "init_step": step, "steps": 20}}

    check(settings, **going_on(10))
    check(settings, **going_on(4, snapshot_optimizer=True))
    with pytest.raises(SpecError, match=r"execution\.snapshot_optimizer"):
        check(settings, **going_on(10, snapshot_optimizer=True, snapshot_steps=[]))
    with pytest.raises(SpecError, match="init_step"):
        check(settings, **going_on(4))
    stages = going_on(10)
    stages["longer"]["optimizer"] = "muon"
    with pytest.raises(SpecError, match="optimizer is muon"):
        check(settings, **stages)
    phases = [{"max_seq_length": 40}]
    with pytest.raises(SpecError, match="init_step"):
        check(
            settings, model={**PRETRAIN, "init_from": "short", "tokenizer": "short", "init_step": 4, "phases": phases}
        )


def test_a_start_without_a_head_for_pairs_is_refused_before_it_is_trained(settings: Settings) -> None:
    first = {**PRETRAIN, "sentence_objective": "none", "model": {"size": "tiny", "family": "roberta"}}
    second = {**PRETRAIN, "init_from": "@first"}
    check(settings, first=first, second={**second, "sentence_objective": "none"})
    with pytest.raises(SpecError, match="no head for pairs"):
        check(settings, first=first, second=second)


def test_a_start_that_predicts_spans_is_refused_where_no_spans_are_masked(settings: Settings) -> None:
    first = {**PRETRAIN, "mask_unit": "span", "model": {"size": "tiny", "span_boundary_objective": True}}
    second = {**PRETRAIN, "init_from": "@first"}
    check(settings, first=first, second={**second, "mask_unit": "span"})
    with pytest.raises(SpecError, match="mask_unit"):
        check(settings, first=first, second=second)


def test_a_plan_leaves_out_what_only_the_run_decides(settings: Settings) -> None:
    sweep = {
        **SWEEP,
        "space": {"init_from": ["short", "random"]},
        "recipe": {"tokenizer": "words", "max_seq_length": 40},
    }
    rows = plan(settings, pipeline(task=sweep, model={**PRETRAIN, "init_from": "@task"}))
    assert rows["steps"].startswith("10 of")
    assert "parameters" not in rows


def test_a_plan_tells_choices_of_a_network_that_another_model_brings(settings: Settings) -> None:
    model = {"size": "tiny", "hidden_act": "relu", "hidden_dropout_prob": 0.0}
    asked = {**PRETRAIN, "model": model, "tokenizer": "short", "phases": [{"max_seq_length": 40}]}
    assert "network" not in plan(settings, asked)
    rows = plan(settings, asked | {"init_from": "short"})
    assert rows["network"] == "that of short; not used: model.hidden_act, model.size"


def test_workers_hold_a_gpu_each_beside_cpus_for_their_data(settings: Settings) -> None:
    execution = {"num_workers": 4, "device": "gpu", "cpus_per_worker": 2, "data_cpus": 3}
    resources = PretrainKind().resources(PretrainSpec.model_validate({**PRETRAIN, "execution": execution}))
    assert resources.total == {"CPU": 20.0, "GPU": 4.0}
    assert resources.processes == [Processes(4, {"CPU": 2.0, "GPU": 1.0})]


def test_an_elastic_run_asks_for_the_fewest_workers_and_plans_both(settings: Settings) -> None:
    execution = {"num_workers": {"min": 2, "max": 8}}
    spec = PretrainSpec.model_validate({**PRETRAIN, "execution": execution})
    resources = PretrainKind().resources(spec)
    assert (resources.total, resources.processes) == ({"CPU": 4.0}, [Processes(2, {"CPU": 2.0})])
    rows = plan(settings, pipeline(model={**PRETRAIN, "execution": execution}))
    assert rows["workers"].startswith("2 to 8, as there is room; every step has the same batch, and weights differ")
    assert "workers" not in plan(settings, pipeline(model=PRETRAIN))


@pytest.mark.parametrize(
    ("device", "num_gpus", "takes", "said"),
    [
        ("auto", 2.0, True, []),
        ("auto", 3.0, True, []),
        (
            "auto",
            1.0,
            False,
            ["a GPU for each worker; GPUs needed: 2, there: 1; lower execution.num_workers to use GPUs"],
        ),
        ("auto", 0.0, False, []),
        ("cpu", 2.0, False, []),
        ("gpu", 1.0, True, []),
    ],
)
def test_a_check_of_room_and_a_run_decide_alike_on_gpus(
    device: str,
    num_gpus: float,
    takes: bool,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec = PretrainSpec.model_validate({**PRETRAIN, "execution": {"num_workers": 2, "device": device}})
    have = {"CPU": 8.0, "GPU": num_gpus}
    monkeypatch.setattr(module, "cluster_resources", lambda: have)
    monkeypatch.setattr(module, "are_gpus_unusable", lambda *about: False)
    monkeypatch.setattr(module, "log_device", lambda *about: None)
    with caplog.at_level(logging.INFO):
        assert decide_device(spec) is takes
    assert [line.partition("auto takes ")[2] for line in caplog.messages] == said
    warn_of_unused_gpus(spec, have)
    assert [line.partition("auto takes ")[2] for line in caplog.messages] == 2 * said, "a plan says so too"
    caplog.clear()
    warn_of_unused_gpus(parse_spec(pipeline(model=spec_values(spec))), have)
    assert [line.partition(": ")[0] for line in caplog.messages] == ["stages.model"] * len(said)
    needed = needed_resources(spec, have)
    assert needed.total.get("GPU", 0.0) == 2.0 * takes
    assert needed.processes == [Processes(2, {"CPU": 1.0, "GPU": 1.0} if takes else {"CPU": 1.0})]


@pytest.mark.parametrize(
    ("device", "refusal", "takes", "said"),
    [
        ("auto", None, True, ["training on 2 × H200"]),
        ("auto", "the driver is too old", False, ["training on the CPU: the driver is too old"]),
        ("gpu", "the driver is too old", True, []),
        ("cpu", "the driver is too old", False, []),
    ],
)
def test_all_workers_are_on_cpus_where_auto_finds_no_gpu_that_torch_can_use(
    device: str,
    refusal: str | None,
    takes: bool,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec = PretrainSpec.model_validate({**PRETRAIN, "execution": {"num_workers": 2, "device": device}})
    for place in (module, gpus):
        monkeypatch.setattr(place, "cluster_resources", lambda: {"CPU": 8.0, "GPU": 2.0})
    monkeypatch.setattr(gpus, "gpu_types", lambda: ["H200"])
    monkeypatch.setattr(gpus, "find_gpu_problem", lambda labels: refusal)
    with caplog.at_level(logging.INFO):
        assert decide_device(spec) is takes
    assert caplog.messages == said


def test_training_is_recorded_and_shown_as_it_goes(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    book = Notebook()
    listener = build_listener(PretrainSpec.model_validate({**PRETRAIN, "steps": 100}), context_of(settings, book))
    caplog.set_level(logging.INFO)
    values = {"mlm_loss": 9.0, "tokens_per_s": 7.0}
    events = [*(MetricEvent(step, "train", values) for step in (1, 2)), MessageEvent("diverging", "warning")]
    for event in events:
        listener.on_event(event)
    assert book.recorded == [("record_events", ("r1", [event])) for event in events]
    assert [view.step for view in book.views if isinstance(view, TrainingView)] == [1, 2]
    first, warning = caplog.records
    assert first.message.startswith("step 1/"), "the run's log has the first line of a tenth of the steps"
    assert (warning.name, warning.levelno, warning.message) == (
        "orchestrator.kinds.base",
        logging.WARNING,
        "diverging",
    )


def test_the_number_of_steps_that_was_chosen_is_the_runs(settings: Settings, recorder: Recorder) -> None:
    asked = PretrainSpec.model_validate({**PRETRAIN, "steps": "auto", "execution": {"max_hours": 2.0}})
    run = recorder.start(spec_values(asked), asked.fingerprint())
    context = context_of(settings, Notebook(), run_id=run.id, recorder=recorder)
    assert with_chosen_steps(asked, context) == asked
    build_listener(asked, context).on_steps(1234)
    settled = with_chosen_steps(asked, context)
    record = recorder.registry.run(run.id)
    assert (settled.steps, parse_spec(record.spec), record.state) == (1234, settled, "RUNNING")
    assert not recorder.registry.runs("params.steps = 1234").empty
    assert with_chosen_steps(settled, context) == settled


def test_a_plan_of_steps_that_fit_into_hours_tells_the_hours(settings: Settings) -> None:
    rows = plan(settings, {**PRETRAIN, "steps": "auto", "execution": {"max_hours": 2.0}})
    assert "2 h" in rows["steps"]
    assert "parameters" in rows


def test_a_superseded_pretraining_stops_at_its_next_event(settings: Settings) -> None:
    book = Notebook()
    context = context_of(settings, book)
    context.superseded.set()
    listener = build_listener(PretrainSpec.model_validate(PRETRAIN), context)
    with pytest.raises(RunStoppedError, match="r1"):
        listener.on_event(MetricEvent(1, "train", {"mlm_loss": 9.0}))
    assert book.recorded == []


def save_checkpoint(run_folder: Path, *texts: Path) -> None:
    """A checkpoint of step 40, which carries the sizes of some text files as they are."""
    model = torch.nn.Linear(1, 1)
    sizes = {str(text): f"{text.stat().st_size} bytes" for text in texts}
    extra = {"details": {"corpus": sizes}}
    Checkpoints(str(run_folder)).save(40, model, torch.optim.AdamW(model.parameters()), extra)


def test_text_of_another_size_is_refused_before_anything_is_tokenized(tmp_path: Path) -> None:
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for text in texts:
        text.write_text("one line\n")
    spec = PretrainSpec.model_validate({**PRETRAIN, "corpus": {"files": [str(text) for text in texts]}})
    kind, folder = PretrainKind(), str(tmp_path / "run")
    kind.check_resume(spec, folder)  # there is no checkpoint yet
    save_checkpoint(tmp_path / "run", *texts)
    kind.check_resume(spec, folder)
    texts[1].write_text("one line\nanother line\n")
    with pytest.raises(CheckpointError, match=r"b\.txt"):
        kind.check_resume(spec, folder)
    few = spec.corpus.model_copy(update={"max_documents": 1})
    kind.check_resume(spec.model_copy(update={"corpus": few}), folder)  # what is read may be as it was


def test_a_damaged_checkpoint_is_left_to_those_who_read_it_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one line\n")
    spec = PretrainSpec.model_validate({**PRETRAIN, "corpus": {"files": [str(tmp_path / "a.txt")]}})
    save_checkpoint(tmp_path / "run")
    (state,) = (tmp_path / "run").rglob("state.json")
    state.write_text('{"extra"')
    assert Checkpoints(str(tmp_path / "run")).newest_extra() is None
    PretrainKind().check_resume(spec, str(tmp_path / "run"))


SENTENCES = "".join(f"a cat\nsat {'a cat ' * (number % 7)}\n\n" for number in range(200))
LONG = {"phases": [{"max_seq_length": 16}], "global_batch_size": 4, "steps": 500}


def told(settings: Settings, **changes: Any) -> str:
    """Value of the row in which the plan of a pretraining tells its passes over the text."""
    return plan(settings, {**PRETRAIN, **LONG, **changes})["passes over the text"]


def number(text: str) -> float:
    """The number of passes in such a text."""
    return float(text.removeprefix("about ").split()[0].replace(",", ""))


@pytest.fixture
def sentences(settings: Settings) -> None:
    Path("corpus.txt").write_text(SENTENCES)


@pytest.mark.usefixtures("sentences")
def test_a_short_text_is_counted(settings: Settings) -> None:
    text = told(settings)
    assert "about" not in text
    assert number(text) == pytest.approx(500 * 4 / 200, rel=0.1), "each of these documents is one example"


@pytest.mark.usefixtures("sentences")
def test_of_a_long_text_the_beginning_is_looked_at(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = number(told(settings))
    monkeypatch.setattr(pretraining_estimates, "SAMPLE_BYTES", len(SENTENCES) // 3)
    text = told(settings)
    assert text.startswith("about ")
    assert "estimated from its first" in text
    assert number(text) == pytest.approx(counted, rel=0.25)


@pytest.mark.usefixtures("sentences")
def test_a_tokenizer_that_a_stage_will_train_is_stood_in_for(settings: Settings) -> None:
    stages = {"words": TOKENIZER, "model": {**PRETRAIN, **LONG, "tokenizer": "@words"}}
    text = plan(settings, pipeline(**stages))["passes over the text"]
    assert text.startswith("about ")
    assert number(text) == pytest.approx(number(told(settings)), rel=0.5)


@pytest.mark.usefixtures("sentences")
def test_very_many_passes_are_noted(settings: Settings) -> None:
    assert "note" not in plan(settings, {**PRETRAIN, **LONG})
    assert "lower steps or add text" in plan(settings, {**PRETRAIN, **LONG, "steps": 50_000})["note"]


@pytest.mark.parametrize("tokenizer", ["words", "@words"])
def test_next_sentences_of_documents_of_one_sentence_are_refused(settings: Settings, tokenizer: str) -> None:
    Path("corpus.txt").write_text("a cat sat\n\na cat sat\n")
    asked = {**PRETRAIN, **LONG, "tokenizer": tokenizer}
    with pytest.raises(CorpusError, match="sentence_objective next_sentence"):
        plan(settings, pipeline(words=TOKENIZER, model=asked))
    for objective in ("none", "sentence_order"):
        plan(settings, pipeline(words=TOKENIZER, model={**asked, "sentence_objective": objective}))


def test_a_text_with_too_few_documents_is_refused(settings: Settings) -> None:
    Path("corpus.txt").write_text("a cat sat\n")
    with pytest.raises(CorpusError, match="sentence_objective"):
        told(settings)
