"""The training loop in plain processes: learning, exact resume, damage, S3. Alone:
pytest tests/orchestrator/pretraining/test_loop.py"""

import dataclasses
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from bert_core.errors import CheckpointError
from bert_core.examples.packing import PackedBatch
from bert_core.heads import BertForPreTraining
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import train_byte_bpe, train_wordpiece
from orchestrator import storage
from orchestrator.base.errors import RunFailedError, RunStoppedError
from orchestrator.base.results import CheckpointEvent, DriftEvent, Event, MessageEvent, MetricEvent
from orchestrator.corpus.stream import SplitShards
from orchestrator.inference.pretraining_heads import next_sentence
from orchestrator.pretraining import step as step_module
from orchestrator.pretraining.batch_trace import TRACE_VARIABLE, read_trace
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.loop import TrainingLoop
from orchestrator.pretraining.streams import build_stream, build_validation
from orchestrator.storage import digest_file
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.snapshots import snapshot_folders
from tests.orchestrator.pretraining.several_workers import run_group
from tests.orchestrator.pretraining.small_run import WORDS, final_digests, keeping_losses, make_job, make_store, run
from tests.orchestrator.s3_server import new_s3_root

pytestmark = pytest.mark.training

SEED = 20261120
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
LEFT_TO_RIGHT = {"token_objective": "left_to_right", "sentence_objective": "none"}
REPLACED = {"token_objective": "replaced_tokens", "sentence_objective": "none"}
OBJECTIVES = pytest.mark.parametrize("objective", [{}, REPLACED], ids=["masked", "replaced"])
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def metrics(events: list[Event], split: str, name: str) -> dict[int, float]:
    return {e.step: e.values[name] for e in events if isinstance(e, MetricEvent) and e.split == split}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    folder = tmp_path_factory.mktemp("straight")
    events: list[Event] = []
    run(make_job(folder), events.append)
    return folder, events


def test_both_objectives_are_learnt(tmp_path: Path) -> None:
    events: list[Event] = []
    model = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2} | NO_DROPOUT
    run(
        make_job(tmp_path, steps=200, global_batch_size=32, learning_rate=3e-3, model=model, mlm_probability=0.2),
        events.append,
    )
    mlm, nsp = metrics(events, "validation", "mlm_loss"), metrics(events, "validation", "nsp_accuracy")
    assert mlm[200] < 0.4 * mlm[24]
    assert nsp[200] > 0.75


def test_metrics_have_their_names(straight: tuple[Path, list[Event]]) -> None:
    _, events = straight
    names = {name for e in events if isinstance(e, MetricEvent) and e.split == "train" for name in e.values}
    assert names == {
        "loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy", "perplexity", "tokens_per_s", "grad_norm",
        "learning_rate", "data_wait_s", "data_wait_share", "checkpoint_s",
    }  # fmt: skip


def test_checkpoints_come_at_their_steps_and_old_ones_go(straight: tuple[Path, list[Event]]) -> None:
    folder, events = straight
    assert [e.step for e in events if isinstance(e, CheckpointEvent)] == [5, 10, 15, 20, 24]
    names = sorted(path.name for path in (folder / "run" / "checkpoints").iterdir())
    assert names == [f"step-000000{step}-attempt-1" for step in (20, 24)]


@pytest.mark.core
def test_a_killed_run_resumes_to_the_same_bits(straight: tuple[Path, list[Event]], tmp_path: Path) -> None:
    generator = random.Random(SEED)
    for _ in range(2):
        after = generator.randrange(1, 12)
        print(f"kill -9 after {after} events")
        command = [sys.executable, "-m", "tests.orchestrator.pretraining.small_run", str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(after):
                child.stdout.readline()
            child.kill()
    events: list[Event] = []
    run(make_job(tmp_path, attempt=2), events.append)
    assert final_digests(tmp_path) == final_digests(straight[0])
    resumed, whole = metrics(events, "train", "mlm_loss"), metrics(straight[1], "train", "mlm_loss")
    assert all(whole[step] == value for step, value in resumed.items())


@pytest.mark.parametrize(("num_confirmed", "first"), [(0, 2), (3, 6)])
def test_resuming_tells_again_what_may_not_be_recorded(tmp_path: Path, num_confirmed: int, first: int) -> None:
    def stop_after_checkpoint(event: Event) -> None:
        if isinstance(event, CheckpointEvent) and event.step == 10:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        run(make_job(tmp_path), stop_after_checkpoint, num_confirmed=lambda: num_confirmed)
    events: list[Event] = []
    run(make_job(tmp_path, attempt=2), events.append)
    every_step = [2, 4, 5, 6, 8, 10, 12, 14, 15, 16, 18, 20, 22, 24]
    assert sorted(metrics(events, "train", "loss")) == [step for step in every_step if step >= first]


def test_a_finished_run_resumes_as_a_no_op(straight: tuple[Path, list[Event]]) -> None:
    folder, _ = straight
    before = final_digests(folder)
    events: list[Event] = []
    run(make_job(folder, attempt=2), events.append)
    assert final_digests(folder) == before
    assert [e.text for e in events if isinstance(e, MessageEvent)] == ["goes on at step 24 of 24"]


@pytest.mark.core
def test_a_damaged_checkpoint_is_passed_over(straight: tuple[Path, list[Event]], tmp_path: Path) -> None:
    run(make_job(tmp_path), lambda event: None)
    weights = tmp_path / "run" / "checkpoints" / "step-00000024-attempt-1" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    events: list[Event] = []
    run(make_job(tmp_path, attempt=2), events.append)
    warnings = [e.text for e in events if isinstance(e, MessageEvent) and e.level == "warning"]
    assert len(warnings) == 1
    assert "model.safetensors" in warnings[0]
    assert final_digests(tmp_path) == final_digests(straight[0])


def test_no_whole_checkpoint_is_an_error_and_not_a_new_start(tmp_path: Path) -> None:
    run(make_job(tmp_path), lambda event: None)
    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        (folder / "optimizer.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        run(make_job(tmp_path, attempt=2), lambda event: None)


@pytest.mark.parametrize("text", ["", '{"attempt": null, "checkpoints": []}'])
def test_a_damaged_list_of_checkpoints_is_named(tmp_path: Path, text: str) -> None:
    job = make_job(tmp_path)
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "checkpoints.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"checkpoints\.json"):
        run(job, lambda event: None)


@pytest.mark.parametrize("part", ["tokenizer", "corpus", "torch", "code"])
def test_what_has_changed_since_the_checkpoint_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    loop = TrainingLoop(make_job(tmp_path), Worker(), lambda event: None)
    loop.save_checkpoint(5)
    changed = loop.job.identity() | {part: "another"}
    monkeypatch.setattr(PretrainJob, "identity", lambda job: changed)
    with pytest.raises(CheckpointError, match=rf"\b{part}: "):
        loop.restore()


def test_a_tokenizer_of_another_size_is_named_before_the_shapes_of_tensors(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    TrainingLoop(job, Worker(), lambda event: None).save_checkpoint(5)
    other = train_wordpiece([" ".join(WORDS)] * 20, vocab_size=job.tokenizer.vocab_size - 5, min_frequency=1)
    changed = dataclasses.replace(job, tokenizer=other)
    with pytest.raises(CheckpointError, match="tokenizer"):
        TrainingLoop(changed, Worker(), lambda event: None).restore()
    allowed: list[Event] = []
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        TrainingLoop(dataclasses.replace(changed, allow_drift=True), Worker(), allowed.append).restore()
    assert allowed == [], "no run is marked that does not go on"


def test_another_spec_does_not_continue_a_run(tmp_path: Path) -> None:
    TrainingLoop(make_job(tmp_path), Worker(), lambda event: None).save_checkpoint(5)
    with pytest.raises(CheckpointError, match=r"spec\.learning_rate: 0\.01 → 0\.003"):
        run(make_job(tmp_path, attempt=2, learning_rate=3e-3), lambda event: None)
    events: list[Event] = []
    job = dataclasses.replace(make_job(tmp_path, attempt=2, learning_rate=3e-3), allow_drift=True)
    assert TrainingLoop(job, Worker(), events.append).restore() == 5
    assert DriftEvent(5, ("spec.learning_rate: 0.01 → 0.003",)) in events


@pytest.mark.core
def test_a_superseded_attempt_leaves_no_trace(tmp_path: Path) -> None:
    run(make_job(tmp_path, attempt=2), lambda event: None)
    before = sorted((path, digest_file(str(path))) for path in (tmp_path / "run").rglob("*") if path.is_file())
    with pytest.raises(RunStoppedError, match="attempt 2"):
        TrainingLoop(make_job(tmp_path, attempt=1), Worker(), lambda event: None).save_checkpoint(24)
    assert before == sorted((path, digest_file(str(path))) for path in (tmp_path / "run").rglob("*") if path.is_file())


SNAPSHOTS = {"execution": {"checkpoint_every_steps": 5, "snapshot_steps": [0, 7, 15, 24]}}


def snapshot_digests(folder: Path) -> dict[int, str]:
    """SHA-256 of the weights of each snapshot."""
    found = snapshot_folders(str(folder / "run"))
    return {step: digest_file(f"{path}/model.safetensors") for step, path in found.items()}


def test_snapshots_are_models_with_tokenizers_and_change_no_bit_of_the_run(
    straight: tuple[Path, list[Event]], tmp_path: Path
) -> None:
    loop = run(make_job(tmp_path, **SNAPSHOTS), lambda event: None)
    assert final_digests(tmp_path) == final_digests(straight[0])
    folders = snapshot_folders(str(tmp_path / "run"))
    assert list(folders) == [0, 7, 15, 24]
    first, last = (BertForPreTraining.from_pretrained(Path(folders[step])) for step in (0, 24))
    start = TrainingLoop(make_job(tmp_path / "start"), Worker(), lambda event: None).model
    for model, expected in ((first, start), (last, loop.model)):
        assert all(torch.equal(value, expected.state_dict()[name]) for name, value in model.state_dict().items())
    assert Tokenizer.load(Path(folders[7])).fingerprint == loop.job.tokenizer.fingerprint


def test_a_resumed_run_has_the_snapshots_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    run(make_job(tmp_path / "straight", **SNAPSHOTS), lambda event: None)

    def stop(event: Event) -> None:
        if isinstance(event, CheckpointEvent) and event.step == 15:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        run(make_job(tmp_path / "resumed", **SNAPSHOTS), stop)
    run(make_job(tmp_path / "resumed", attempt=2, **SNAPSHOTS), lambda event: None)
    assert list(snapshot_digests(tmp_path / "straight")) == [0, 7, 15, 24]
    assert snapshot_digests(tmp_path / "resumed") == snapshot_digests(tmp_path / "straight")


@pytest.mark.core
@OBJECTIVES
def test_accumulation_changes_neither_loss_nor_gradient(tmp_path: Path, objective: dict[str, object]) -> None:
    model = SMALL | NO_DROPOUT
    results = []
    for number, micro in enumerate(({}, {"micro_batch_size": 3}, {"micro_batch_tokens": 48})):
        events: list[Event] = []
        run(make_job(tmp_path / str(number), steps=4, model=model, **micro, **objective), events.append)
        results.append((metrics(events, "train", "loss")[4], metrics(events, "train", "grad_norm")[4]))
    assert results[1:] == [pytest.approx(results[0], rel=1e-4)] * 2


def test_bf16_trains_like_fp32_and_resumes_exactly(tmp_path: Path) -> None:
    losses = []
    for number, precisions in enumerate((("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16"))):
        chosen = dict(zip(("precision", "residual_precision"), precisions, strict=True))
        events: list[Event] = []
        run(make_job(tmp_path / str(number), **chosen), events.append)
        losses.append(metrics(events, "validation", "mlm_loss")[24])
    assert len(set(losses)) == 3
    assert losses == pytest.approx([losses[0]] * 3, rel=0.05)
    broken_off, resumed = tmp_path / "broken off", []
    run(make_job(broken_off, **chosen), resumed.append, note_step=lambda step: step == 10)
    run(make_job(broken_off, attempt=2, **chosen), resumed.append)
    assert metrics(resumed, "validation", "mlm_loss")[24] == losses[2]


@pytest.mark.parametrize("steps", [24, 1])
@pytest.mark.core
def test_numbers_that_are_none_end_the_run_before_a_checkpoint(tmp_path: Path, steps: int) -> None:
    with pytest.raises(RunFailedError, match="lower learning_rate"):
        run(make_job(tmp_path, steps=steps, warmup_ratio=0.0, learning_rate=1e30), lambda event: None)
    assert Checkpoints(str(tmp_path / "run")).newest_first() == []


@pytest.mark.core
@OBJECTIVES
def test_several_workers_learn_the_same_as_one_of_the_same_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: dict[str, object]
) -> None:
    small = {"steps": 6, "global_batch_size": 7, **objective}
    changes = {"micro_batch_size": 3, "model": SMALL | NO_DROPOUT, **small}
    (tmp_path / "one").mkdir()
    monkeypatch.setenv(TRACE_VARIABLE, str(tmp_path / "trace-of-one"))
    execution = {"log_every_steps": 2, "checkpoint_every_steps": 5}
    losses: list[float] = []
    job = make_job(tmp_path / "one", model=SMALL | NO_DROPOUT, execution=execution, **small)
    one = run(job, keeping_losses(losses))
    monkeypatch.setenv(TRACE_VARIABLE, str(tmp_path / "trace-of-two"))
    assert [status for status, _ in run_group(tmp_path, 2, changes=changes, keeps=True)] == [0, 0]
    weights = [load_file(tmp_path / f"rank-{rank}.safetensors") for rank in range(2)]
    for name, value in one.model.state_dict().items():
        assert torch.equal(weights[0][name], weights[1][name])
        torch.testing.assert_close(weights[0][name], value, rtol=1e-4, atol=1e-5)
    assert json.loads((tmp_path / "rank-0.json").read_text()) == pytest.approx(losses, rel=1e-5)
    traces = [read_trace(tmp_path / f"trace-of-{count}") for count in ("one", "two")]
    assert traces[0] == traces[1]
    assert len(traces[0]) == 6


@pytest.mark.parametrize("num_workers", [3, 60])
def test_validation_is_the_same_for_any_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_workers: int
) -> None:
    alone = TrainingLoop(make_job(tmp_path), Worker(), lambda event: None).evaluate(0)
    sums = torch.zeros(())

    def add_to_those_before(totals: torch.Tensor, worker: Worker) -> None:
        nonlocal sums
        totals += sums
        sums = totals.clone()

    monkeypatch.setattr(step_module, "all_reduce_sum", add_to_those_before)
    job = make_job(tmp_path, global_batch_size=60, execution={"num_workers": num_workers})
    for rank in reversed(range(num_workers)):  # the last one always has examples
        together = TrainingLoop(job, Worker(rank, num_workers), lambda event: None).evaluate(0)
    assert together == pytest.approx(alone, rel=1e-6)
    counts = [name for name in alone if name.endswith("accuracy")]
    assert {name: together[name] for name in counts} == {name: alone[name] for name in counts}


def test_left_to_right_is_learnt_and_measured_by_its_own_names(tmp_path: Path) -> None:
    events: list[Event] = []
    model = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2} | NO_DROPOUT
    run(make_job(tmp_path, steps=100, learning_rate=5e-3, model=model, **LEFT_TO_RIGHT), events.append)
    losses = metrics(events, "validation", "ltr_loss")
    assert losses[100] < 0.5 * losses[8]
    names = {name for e in events if isinstance(e, MetricEvent) and e.split == "validation" for name in e.values}
    assert names == {"loss", "ltr_loss", "ltr_accuracy", "perplexity"}


def test_replaced_tokens_are_measured_by_their_own_names_and_both_models_go_on(tmp_path: Path) -> None:
    events: list[Event] = []
    phases = [{"max_seq_length": 48, "share": 0.5, "mlm_probability": 0.4}, {"max_seq_length": 48, "share": 0.5}]
    loop = run(make_job(tmp_path, generator_size=0.5, phases=phases, **REPLACED), events.append)
    names = {name for e in events if isinstance(e, MetricEvent) and e.split == "validation" for name in e.values}
    assert names == {"loss", "generator_loss", "replaced_share", "rtd_loss", "rtd_accuracy"}
    parts = [metrics(events, "validation", name) for name in ("loss", "generator_loss", "rtd_loss")]
    assert parts[0][24] == pytest.approx(parts[1][24] + 50 * parts[2][24])
    shares = metrics(events, "train", "replaced_share")
    assert shares[12] > 2 * shares[14] > 0, "masking rates are those of phases"
    loop.write_model(tmp_path / "model")
    assert Tokenizer.load(tmp_path / "model" / "generator").fingerprint == loop.job.tokenizer.fingerprint
    more: list[Event] = []
    run(make_job(tmp_path / "more", init_folder=str(tmp_path / "model"), steps=2, **REPLACED), more.append)
    for name in ("generator_loss", "rtd_loss"):
        assert metrics(more, "train", name)[2] < metrics(events, "train", name)[2]


def test_pretraining_continues_from_a_model(tmp_path: Path) -> None:
    first = make_job(tmp_path / "first", steps=60)
    before: list[Event] = []
    loop = run(first, before.append)
    loop.model.save_pretrained(tmp_path / "model")
    events: list[Event] = []
    run(make_job(tmp_path / "second", init_folder=str(tmp_path / "model"), steps=2), events.append)
    assert metrics(events, "train", "mlm_loss")[2] < metrics(before, "train", "mlm_loss")[2]


def test_a_run_that_ends_early_ends_what_makes_its_batches(tmp_path: Path) -> None:
    """Even while the error, which holds on to the frames it came through, is looked at."""
    job = make_job(tmp_path)
    ended: list[int] = []

    def batches(first_step: int) -> Iterator[tuple[int, PackedBatch]]:
        try:
            yield from job.stream.batches(range(first_step, job.spec.steps))
        finally:
            ended.append(first_step)

    def stop(event: Event) -> None:
        if isinstance(event, MetricEvent):
            raise InterruptedError

    with pytest.raises(InterruptedError) as stopped:
        TrainingLoop(job, Worker(), stop).train(batches)
    assert stopped.value.__traceback__ is not None
    assert ended == [0]


def test_torch_threads_are_those_of_the_spec(tmp_path: Path) -> None:
    run(make_job(tmp_path, steps=1, threads_per_worker=2), lambda event: None)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def test_a_killed_run_resumes_on_s3_to_the_bits_of_a_local_one(
    s3_server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    run(make_job(tmp_path), lambda event: None)
    root = new_s3_root()
    command = [sys.executable, "-m", "tests.orchestrator.pretraining.small_run", root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | s3_server) as child:
        assert child.stdout is not None
        while "CheckpointEvent 10" not in (line := child.stdout.readline()):
            assert line, "the run has ended"
        child.kill()
    assert Checkpoints(storage.join(root, "run")).newest_first()[0].step >= 10
    run(make_job(root, attempt=2), lambda event: None)
    assert final_digests(root) == final_digests(tmp_path)
    folders = storage.names_in(storage.join(root, "run", "checkpoints"))
    named = Checkpoints(storage.join(root, "run")).newest_first()
    assert folders == sorted(event.path.rpartition("/")[2] for event in named), "no half folder stays"


def test_a_bert_of_byte_level_pieces_is_pretrained_on_pairs(tmp_path: Path) -> None:
    tokenizer = train_byte_bpe([" ".join(WORDS)] * 20, vocab_size=320)
    job = make_job(tmp_path)
    store = make_store(tmp_path / "pieces", tokenizer)
    train, validation = SplitShards(store, "train"), SplitShards(store, "validation")
    stream = build_stream(job.spec, train, tokenizer)
    job = replace(job, tokenizer=tokenizer, stream=stream, validation=build_validation(job.spec, validation, tokenizer))

    ((_, batch),) = stream.batches(range(1))
    sequence = batch.input_ids[: batch.cu_seqlens[1]]
    assert sequence[0] == tokenizer.cls_id
    separators = np.flatnonzero(sequence == tokenizer.sep_id)
    assert len(separators) == 3
    assert separators[1] == separators[0] + 1
    assert separators[2] == len(sequence) - 1
    assert not batch.token_type_ids.any()  # as in what transformers is given for such a tokenizer

    events: list[Event] = []
    loop = run(job, events.append)
    losses = [e.values["loss"] for e in events if isinstance(e, MetricEvent) and e.split == "train"]
    assert losses[-1] < 0.8 * losses[0]

    folder = tmp_path / "model"
    loop.model.save_pretrained(folder)
    tokenizer.save(folder)
    texts = "badan kefel badan kefel", "kefel badan"
    theirs = transformers.BertForPreTraining.from_pretrained(folder).eval()
    with torch.no_grad():
        encoded = transformers.AutoTokenizer.from_pretrained(folder)(*texts, return_tensors="pt")
        expected = theirs(**encoded).seq_relationship_logits.softmax(-1)[0, 0].item()
    assert next_sentence(str(folder), *texts).probability == pytest.approx(expected, abs=1e-5)
