"""Filler changes neither losses nor gradients, and no count. Alone:
pytest tests/orchestrator/pretraining/test_filled_batches.py"""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks._attention_choice import forced_attention
from bert_core.examples.packing import SizeBucket
from bert_core.objectives import active_objectives
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.device_batch import DeviceBatch, MicroBatch, filled_micro_batch
from orchestrator.pretraining.job import PretrainJob, build_model
from orchestrator.pretraining.step import add_sums, count_globally, empty_totals, label_loss
from tests.orchestrator.pretraining.batches_on_host import on_host
from tests.orchestrator.pretraining.small_run import make_job

CPU = torch.device("cpu")
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SINGLE = {"sentence_objective": "none"}
RUNS: dict[str, dict[str, object]] = {
    "bert, masked_lm and next_sentence": {},
    "albert, sentence order": {"model": SMALL | {"family": "albert"}, "sentence_objective": "sentence_order"},
    "roberta, single sequences": {"model": SMALL | {"family": "roberta"}, **SINGLE},
    "distilbert": {"model": SMALL | {"family": "distilbert"}, **SINGLE},
    "flaubert": {"model": SMALL | {"family": "flaubert"}, **SINGLE},
    "modern, rotary": {"model": SMALL | {"family": "modern"}, **SINGLE},
    "span boundary": {"mask_unit": "span", "model": SMALL | {"span_boundary_objective": True}, **SINGLE},
}


@dataclass(frozen=True)
class Computed:
    """Loss, totals and gradients of a step on one batch."""

    loss: Tensor
    totals: Tensor
    gradients: dict[str, Tensor | None]


def without_dropout(folder: Path, **changes: object) -> PretrainJob:
    model = {**SMALL, **changes.pop("model", {}), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # type: ignore[dict-item]
    return make_job(folder, model=model, **changes)


def compute(job: PretrainJob, micro: MicroBatch, host: DeviceBatch) -> Computed:
    """Loss, totals and gradients of a micro-batch; counts are those of the batch on the host."""
    model = build_model(job)
    objectives = active_objectives(job.spec.chosen_objectives, model.config)
    counts, _ = count_globally(host.host, objectives, Worker())
    sums, loss = label_loss(model, micro, job.spec, counts)
    loss.backward()
    totals = empty_totals(objectives, CPU)
    add_sums(totals, sums, 0)
    return Computed(loss.detach(), totals, {name: p.grad for name, p in model.named_parameters()})


@pytest.mark.training
@pytest.mark.parametrize("backend", ["grouped", "fused", "reference"])
@pytest.mark.parametrize("name", RUNS)
def test_filler_changes_no_loss_no_gradient_and_no_count(tmp_path: Path, name: str, backend: str) -> None:
    job = without_dropout(tmp_path, **RUNS[name])
    ((_, batch),) = job.stream.batches(range(1))
    bucket = SizeBucket.of(batch, 48)
    plain, filled = DeviceBatch.copied(batch, CPU), DeviceBatch.copied(batch, CPU, bucket)
    (micro,) = plain.cut([batch])
    large = filled_micro_batch(filled.values, bucket)
    assert large.sequences.num_tokens > micro.sequences.num_tokens
    with forced_attention(backend):
        expected, found = compute(job, micro, plain), compute(job, large, filled)
    torch.testing.assert_close(found.loss, expected.loss, atol=0, rtol=1e-6)
    torch.testing.assert_close(found.totals, expected.totals, atol=0, rtol=1e-6)
    assert torch.equal(found.totals[2::3], expected.totals[2::3]), "numbers of predictions are counted exactly"
    largest = max(float(gradient.abs().max()) for gradient in expected.gradients.values() if gradient is not None)
    for parameter, gradient in expected.gradients.items():
        torch.testing.assert_close(found.gradients[parameter], gradient, atol=1e-6 * largest, rtol=1e-5, msg=parameter)


def test_a_filled_batch_is_cut_into_the_micro_batches_of_its_own_sequences(tmp_path: Path) -> None:
    """A step whose memory ran out is computed again in smaller micro-batches, without filler."""
    ((_, batch),) = make_job(tmp_path).stream.batches(range(1))
    filled = DeviceBatch.copied(batch, CPU, SizeBucket.of(batch, 48))
    parts = batch.split(3)
    for micro, part in zip(filled.cut(parts), parts, strict=True):
        back = on_host(micro)
        assert all((getattr(back, name) == value).all() for name, value in vars(part).items())


def test_a_filled_micro_batch_is_what_the_bucket_filled(tmp_path: Path) -> None:
    ((_, batch),) = make_job(tmp_path).stream.batches(range(1))
    bucket = SizeBucket.of(batch, 48)
    filled = DeviceBatch.copied(batch, CPU, bucket)
    micro = filled_micro_batch(filled.values, bucket)
    back = on_host(micro)
    assert all((getattr(back, name) == value).all() for name, value in vars(bucket.fill(batch)).items())
    assert bucket.num_fillers > 0
    assert micro.sequences.max_seqlen == bucket.max_seqlen
