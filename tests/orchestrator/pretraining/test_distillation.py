"""A pretrained teacher and its student: the loss written out, training below Ray, the comparison; once on Ray.

Run alone: pytest tests/orchestrator/pretraining/test_distillation.py
"""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from bert_core.config import BertConfig
from bert_core.errors import CheckpointError
from bert_core.examples.packing import PackedBatch
from bert_core.heads import BertForPreTraining, BertForSequenceClassification
from orchestrator.base.settings import Settings
from orchestrator.execution.runner import run_spec
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.device_batch import DeviceBatch, MicroBatch
from orchestrator.pretraining.distillation import MaskedTokenLoss, compare_pretrained, load_teacher
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.step import GlobalCounts, count_globally
from orchestrator.registry import Registry
from orchestrator.specs.distill import LossWeightsSpec
from orchestrator.specs.loading import parse_spec
from tests.orchestrator.pretraining.small_run import WORDS, make_job, make_tokenizer, run

pytestmark = pytest.mark.training

CPU = torch.device("cpu")
TWO_LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def first_batch(job: PretrainJob) -> PackedBatch:
    return next(batch for _, batch in job.stream.batches(range(1), 0, 1))


def micro_batches(batch: PackedBatch, size: int) -> list[MicroBatch]:
    return list(DeviceBatch.copied(batch, CPU).cut(batch.split(size)))


def counts_of(batch: PackedBatch) -> GlobalCounts:
    return count_globally(batch, ("masked_lm", "next_sentence"), Worker())[0]


def save_teacher(job: PretrainJob, folder: Path, **config: int) -> str:
    """Random weights, far from zero, for the job's tokenizer."""
    shape = {"vocab_size": job.tokenizer.vocab_size, "initializer_range": 0.3, **TWO_LAYERS, **config}
    config_of_teacher = BertConfig(intermediate_size=64, **shape).with_dropout(0.0)
    BertForPreTraining.from_config(config_of_teacher, seed=9).save_pretrained(folder / "teacher")
    return str(folder / "teacher")


@pytest.mark.parametrize("weights", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (5, 2, 1)])
def test_the_loss_is_the_weighted_sum_written_out(weights: tuple[int, int, int], tmp_path: Path) -> None:
    job = make_job(tmp_path)
    # Embeddings beyond the tokenizer's: some models have them.
    folder = save_teacher(job, tmp_path, vocab_size=job.tokenizer.vocab_size + 8)
    soft_targets, labels, hidden_cosine = weights
    objective = LossWeightsSpec(
        soft_targets_weight=soft_targets, labels_weight=labels, hidden_cosine_weight=hidden_cosine, temperature=3.0
    )
    teacher = load_teacher(folder, CPU)
    shape = replace(teacher.config, vocab_size=job.tokenizer.vocab_size, num_hidden_layers=1)
    student = BertForPreTraining.from_config(shape)
    batch = first_batch(job)
    with torch.no_grad():
        (micro,) = micro_batches(batch, batch.num_sequences)
        _, found = MaskedTokenLoss(folder, objective)(student, micro, job.spec, counts_of(batch))
        ids, types = (torch.from_numpy(a.astype("int64"))[None] for a in (batch.input_ids, batch.token_type_ids))
        soft, masked, sentences, cosines = [], [], [], []
        for row, (begin, end) in enumerate(zip(batch.cu_seqlens, batch.cu_seqlens[1:], strict=False)):
            seqs = student.bert.pack(ids[:, begin:end], None, types[:, begin:end])
            own, theirs = student.bert.encode(seqs), teacher.bert.encode(seqs)
            cosines += list(F.cosine_similarity(own, theirs))
            relation = student.next_sentence(student.bert.pool(own[:1]))[0]
            sentences.append(-relation.log_softmax(0)[int(batch.sentence_labels[row])])
            for place, label in zip(batch.masked_positions, batch.masked_labels, strict=True):
                if begin <= place < end:
                    logits = student.predict(own[place - begin])
                    p = (teacher.predict(theirs[place - begin])[: len(logits)] / 3).softmax(0)
                    soft.append(9 * (p * (p.log() - (logits / 3).log_softmax(0))).sum())
                    masked.append(-logits.log_softmax(0)[int(label)])
    means = [torch.stack(part).mean() for part in (soft, masked, sentences, cosines)]
    expected = soft_targets * means[0] + labels * (means[1] + means[2]) + hidden_cosine * (1 - means[3])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert found > 0.01


def test_parts_of_a_batch_add_up_to_its_loss(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    loss = MaskedTokenLoss(save_teacher(job, tmp_path), LossWeightsSpec(labels_weight=2.0, hidden_cosine_weight=1.0))
    student = BertForPreTraining.from_config(load_teacher(loss.teacher_folder, CPU).config, seed=1).eval()
    batch = first_batch(job)
    with torch.no_grad():
        (whole,), parts = (
            [loss(student, micro, job.spec, counts_of(batch))[1] for micro in micro_batches(batch, size)]
            for size in (batch.num_sequences, 3)
        )
    assert len(parts) == 3
    torch.testing.assert_close(torch.stack(parts).sum(), whole)


def test_a_teacher_has_the_residual_precision_of_its_students_run(tmp_path: Path) -> None:
    job = make_job(tmp_path, precision="bf16", residual_precision="bf16")
    loss = MaskedTokenLoss(save_teacher(job, tmp_path), LossWeightsSpec())
    (micro, *_) = micro_batches(first_batch(job), 3)
    student = BertForPreTraining.from_config(load_teacher(loss.teacher_folder, CPU).config)
    for spec, dtype in ((job.spec, torch.bfloat16), (make_job(tmp_path, precision="bf16").spec, torch.float32)):
        loss(student, micro, spec, counts_of(first_batch(job)))
        teacher = load_teacher(loss.teacher_folder, CPU, spec.residual_precision)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert teacher.bert.encode(micro.sequences).dtype == dtype
        assert load_teacher.cache_info().currsize == 1


def test_a_student_fills_masks_as_its_teacher_does(tmp_path: Path) -> None:
    job = make_job(tmp_path, model=TWO_LAYERS, steps=120)
    folder = str(tmp_path / "teacher")
    run(job, lambda event: None).model.save_pretrained(folder)
    assert job.validation is not None
    agreements = []
    for steps in (1, 120):
        student = replace(
            make_job(tmp_path, steps=steps),
            run_folder=str(tmp_path / f"student of {steps} steps"),
            init_folder=folder,
            num_hidden_layers=1,
            loss=MaskedTokenLoss(folder, LossWeightsSpec()),
        )
        model = run(student, lambda event: None).model
        assert model.config.num_hidden_layers == 1
        model.save_pretrained(tmp_path / "student")
        compared = compare_pretrained(str(tmp_path / "student"), folder, job.validation, job.spec)
        agreements.append(compared["agreement"])
    assert agreements[1] > 0.8 > agreements[0] + 0.1
    assert compared["parameter_ratio"] < 1


def test_a_model_agrees_with_itself_and_is_scored_as_in_pretraining(tmp_path: Path) -> None:
    job = make_job(tmp_path, steps=2)
    loop = run(job, lambda event: None)
    loop.model.save_pretrained(tmp_path / "model")
    expected = loop.evaluate(2)
    assert job.validation is not None
    compared = compare_pretrained(str(tmp_path / "model"), str(tmp_path / "model"), job.validation, job.spec)
    assert (compared["agreement"], compared["parameter_ratio"]) == (1.0, 1.0)
    assert compared["teacher.mlm_loss"] == pytest.approx(expected["mlm_loss"], abs=1e-5)
    assert compared["teacher.mlm_accuracy"] == pytest.approx(expected["mlm_accuracy"])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_models_are_compared_in_the_precision_of_the_run(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path, precision=precision)
    folder, predict, types = save_teacher(job, tmp_path), BertForPreTraining.predict, []

    def noted(model: BertForPreTraining, hidden: torch.Tensor) -> torch.Tensor:
        logits = predict(model, hidden)
        types.append(logits.dtype)
        return logits

    monkeypatch.setattr(BertForPreTraining, "predict", noted)
    assert job.validation is not None
    assert compare_pretrained(folder, folder, job.validation, job.spec)["agreement"] == 1.0
    assert set(types) == {torch.bfloat16 if precision == "bf16" else torch.float32}


def test_a_teacher_that_fills_no_masks_is_refused(tmp_path: Path) -> None:
    BertForSequenceClassification.from_config(BertConfig.from_shape(1, 128, vocab_size=50)).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="has no head"):
        load_teacher(str(tmp_path), CPU)


@pytest.mark.ray
def test_a_pretrained_model_is_distilled_on_a_corpus(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    generator = random.Random(5)
    themes = [" ".join(generator.sample(WORDS, 2)) for _ in range(120)]
    documents = ["\n".join(f"{theme} {theme} {theme}." for _ in range(5)) for theme in themes]
    Path("corpus.txt").write_text("\n\n".join(documents) + "\n")
    tokenizer = make_tokenizer()
    tokenizer.save("teacher")
    shape = {"vocab_size": tokenizer.vocab_size, "intermediate_size": 64, **TWO_LAYERS}
    BertForPreTraining.from_config(BertConfig(**shape)).save_pretrained("teacher")
    pretraining = {
        "corpus": {"files": ["corpus.txt"]},
        "tokenizer": "teacher",
        "validation_fraction": 0.1,
        "shard_bytes": 2048,
        "steps": 12,
        "phases": [{"max_seq_length": 48}],
        "global_batch_size": 8,
    }
    student = {"teacher": "teacher", "num_hidden_layers": 1, "pretraining": pretraining}
    spec = {"kind": "distill", "name": "small", **student}
    settings = Settings.from_options(home=str(tmp_path / "home"), environ={})
    run_id = run_spec(parse_spec(spec), settings=settings).id
    with Registry(settings.registry) as registry:
        metrics = registry.metrics.latest(run_id)
        assert {"mlm_loss", "teacher.mlm_loss", "agreement", "speed_ratio"} <= metrics.keys()
        assert metrics["parameter_ratio"] < 1
        model = registry.models.get("small")
        assert (model.head, BertConfig.from_pretrained(model.folder).num_hidden_layers) == ("pretraining", 1)
