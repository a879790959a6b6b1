"""Distillation of a pretrained model: on a corpus, the student fills the masks as its teacher does.

DistilBERT (Sanh et al. 2019, section 3), whose weights were 5 for soft targets, 2 for labels and 1 for the cosine.

Shapes: B sequences, T tokens, P predicted positions, H hidden, V vocabulary.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import ray
import torch
from torch import Tensor

from bert_core.constants import AskedPrecision, Precision
from bert_core.distillation import hidden_cosine_loss, soft_target_loss
from bert_core.errors import CheckpointError
from bert_core.heads import BertForPreTraining
from bert_core.heads.pretraining import LossSums
from bert_core.losses import cross_entropy_sums
from bert_core.objectives.masked_lm import MaskedLM
from orchestrator.base.results import PretrainResult
from orchestrator.cluster.gpus import waiting_for
from orchestrator.cluster.torch_devices import autocast, choose_device
from orchestrator.corpus.stream import ExampleStream, SplitShards
from orchestrator.corpus.token_store import TokenStore
from orchestrator.pretraining.device_batch import DeviceBatch, MicroBatch
from orchestrator.pretraining.job import PretrainListener, PretrainRequest, check_start
from orchestrator.pretraining.launch import run_pretraining
from orchestrator.pretraining.step import GlobalCounts, Sums, loss_of_sums
from orchestrator.pretraining.streams import build_validation
from orchestrator.specs import PretrainSpec
from orchestrator.specs.distill import DistillSpec, LossWeightsSpec
from orchestrator.storage import join, local_copy
from orchestrator.storage.model_folder import weights_digest
from orchestrator.training.clocks import clock_of

_PART_SIZE = 32
"""Examples that are compared and timed at a time."""


@dataclass(frozen=True)
class MaskedTokenLoss:
    """A `StepLoss` with a teacher. The sums are those of the labels, so that runs with and without one compare."""

    teacher_folder: str
    objective: LossWeightsSpec

    def __call__(
        self, model: BertForPreTraining, micro: MicroBatch, spec: PretrainSpec, counts: GlobalCounts
    ) -> tuple[Sums, Tensor]:
        seqs, labels, objective = micro.sequences, micro.labels, self.objective
        device = seqs.input_ids.device
        teacher = load_teacher(self.teacher_folder, device, spec.residual_precision)
        positions = labels.masked_positions
        names = list(counts.num_predictions)
        with autocast(device, spec.precision):
            # Soft targets need the student's logits: the labels' loss is then made of the same.
            in_head = [name for name in names if name != MaskedLM.name or not objective.soft_targets_weight]
            hidden = model.bert.encode(seqs)  # (T, H)
            sums = model.packed_loss_sums(seqs, labels, in_head, hidden)
            with torch.no_grad():
                theirs = teacher.bert.encode(seqs)  # (T, H)
            soft = None
            if objective.soft_targets_weight:
                logits = model.predict(hidden[positions])  # (P, V)
                sums[MaskedLM.name] = LossSums(*cross_entropy_sums(logits, labels.masked_labels))
                sums = {name: sums[name] for name in names}
                with torch.no_grad():
                    targets = teacher.predict(theirs[positions])  # (P, V)
                # Embeddings beyond the tokenizer's, which some models have, drop out.
                width = min(logits.shape[1], targets.shape[1])
                soft = soft_target_loss(logits[:, :width], targets[:, :width], objective.temperature)
            loss = objective.labels_weight * loss_of_sums(sums, counts)
            if soft is not None:
                share = len(positions) / counts.num_predictions[MaskedLM.name]
                loss = loss + objective.soft_targets_weight * share * soft
            if objective.hidden_cosine_weight:
                share = seqs.num_tokens / counts.num_tokens
                loss = loss + objective.hidden_cosine_weight * share * hidden_cosine_loss(hidden, theirs)
        return sums, loss


@lru_cache(maxsize=1)
def load_teacher(folder: str, device: torch.device, residual_precision: Precision = "fp32") -> BertForPreTraining:
    """A pretrained model, read once per process. Raises: CheckpointError when it has no head for masked tokens."""
    model = _load(folder, device, residual_precision)
    if model.was_without("prediction"):
        raise CheckpointError(
            f"{folder} has no head for masked tokens and cannot teach them; name a pretrained model as teacher, or "
            "give a task in place of pretraining"
        )
    return model


def _load(folder: str, device: torch.device, residual_precision: Precision) -> BertForPreTraining:
    """A pretrained model on a device, with the residual stream of a run."""
    model = BertForPreTraining.from_pretrained(local_copy(folder))
    if residual_precision == "bf16":
        model.bert.residual_dtype = torch.bfloat16
    return model.to(device)


def distill_on_corpus(
    spec: DistillSpec, request: PretrainRequest, teacher_folder: str, listener: PretrainListener
) -> PretrainResult:
    """Pretrain a student with a teacher on the connected Ray, and compare both on the held-out documents.

    Args:
        request: of the student's pretraining; with `num_hidden_layers` it starts from the teacher.
        listener: told of what happens, as in any pretraining.

    Raises: TokenizerError when the teacher has another vocabulary; what `run_pretraining` raises.
    """
    check_start(teacher_folder, request.tokenizer)
    from_teacher = spec.num_hidden_layers is not None
    request = replace(
        request,
        loss=MaskedTokenLoss(teacher_folder, spec.objective),
        init_folder=teacher_folder if from_teacher else request.init_folder,
        num_hidden_layers=spec.num_hidden_layers,
        teacher_digest=weights_digest(teacher_folder),
    )
    result = run_pretraining(request, listener)
    shards = SplitShards(TokenStore.open(result.datasets[0].path), "validation")
    validation = build_validation(request.spec, shards, request.tokenizer)
    if validation is None:
        return result
    num_gpus = int(request.use_gpu)
    compare: Any = ray.remote(num_cpus=request.spec.execution.cpus_per_worker, num_gpus=num_gpus)(compare_pretrained)
    folders = (join(request.run_folder, "model"), teacher_folder)
    work = compare.remote(*folders, validation, request.spec, "cuda" if num_gpus else "cpu")
    with waiting_for(work, "the student is trained, but not compared with its teacher"):
        compared = ray.get(work)
    return replace(result, metrics={**result.metrics, **compared})


@torch.inference_mode()
def compare_pretrained(
    student_folder: str, teacher_folder: str, validation: ExampleStream, spec: PretrainSpec, device_name: str = "cpu"
) -> dict[str, float]:
    """Both on the held-out examples: `agreement`, the share of masks that they fill alike, the teacher's scores, sizes
    and speeds, which are taken part by part in turn. Both compute in the precision of the run.
    """
    torch.set_num_threads(spec.threads_per_worker)
    device = choose_device(device_name, spec.allow_tf32, spec.precision)
    models = [_load(folder, device, spec.residual_precision) for folder in (student_folder, teacher_folder)]
    parts = [part for _, batch in validation.batches(range(1), 0, 1) for part in batch.split(_PART_SIZE)]
    micros = [next(DeviceBatch.copied(part, device).cut([part])) for part in parts]
    for model in models:
        _answer(model, micros[0], spec.precision)  # warms up
    clock, seconds = clock_of(device), [0.0, 0.0]
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    for micro in micros:
        answers = []
        for number, model in enumerate(models):
            clock.wait()
            begun = clock.mark()
            answers.append(_answer(model, micro, spec.precision))
            seconds[number] += clock.seconds_between(begun, clock.mark())
        own, theirs = (logits.float() for logits in answers)  # (P, V) each
        num_alike = (own.argmax(1) == theirs.argmax(1)).sum(dtype=torch.float32)
        sums += torch.stack([num_alike, *cross_entropy_sums(theirs, micro.labels.masked_labels)])
    num_alike, loss, num_correct, num_predictions = sums.tolist()
    num_examples = sum(part.num_sequences for part in parts)
    own_size, their_size = (float(sum(p.numel() for p in model.parameters())) for model in models)
    own_speed, their_speed = (num_examples / spent for spent in seconds)
    return {
        "agreement": num_alike / num_predictions,
        "teacher.mlm_loss": loss / num_predictions,
        "teacher.mlm_accuracy": num_correct / num_predictions,
        "num_parameters": own_size,
        "teacher.num_parameters": their_size,
        "parameter_ratio": own_size / their_size,
        "examples_per_s": own_speed,
        "teacher.examples_per_s": their_speed,
        "speed_ratio": own_speed / their_speed,
    }


def _answer(model: BertForPreTraining, micro: MicroBatch, precision: AskedPrecision) -> Tensor:
    with autocast(micro.sequences.input_ids.device, precision):
        return model.predict(model.bert.encode(micro.sequences, micro.labels.masked_positions))
