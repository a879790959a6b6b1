"""What every worker of a pretraining run is given: one frozen value that travels by pickle."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from bert_core.checkpoints.pretrained import WEIGHTS_FILE
from bert_core.config import BertConfig
from bert_core.distillation import student_of
from bert_core.examples.packing import PackedBatch
from bert_core.examples.sentence_objectives import SegmentConfig
from bert_core.heads import BertForPreTraining
from bert_core.losses import PretrainingSums
from bert_core.masking import MaskingConfig
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_files import TOKENIZER_FILES
from orchestrator.corpus.shuffle_windows import ShardReader
from orchestrator.corpus.stream import ExampleStream, StreamConfig
from orchestrator.errors import CorpusError, SpecError
from orchestrator.models.config import build_config
from orchestrator.results import Event
from orchestrator.specs import PretrainSpec
from orchestrator.storage import local_copy

Emit = Callable[[Event], None]
StepLoss = Callable[[BertForPreTraining, PackedBatch, PretrainSpec, Tensor], tuple[PretrainingSums, Tensor]]
"""From a model, a part of a worker's batch and the global batch's counts (3,) of predicted positions, sequences and
tokens: the part's sums, and its share of the loss."""


@dataclass(frozen=True)
class PretrainJob:
    """One attempt at a run."""

    run_folder: str
    """The run's place on the storage."""
    attempt: int
    spec: PretrainSpec
    tokenizer: Tokenizer
    init_folder: str | None
    """A model folder to continue from; None starts from random weights."""
    stream: ExampleStream
    held_out: ExampleStream | None
    """None when no documents are held out."""
    loss: StepLoss | None = None
    """What a step makes smaller; the labels' loss when None."""
    num_hidden_layers: int | None = None
    """Layers that are taken of the model to continue from, evenly spread; all when None."""

    def identity(self) -> dict[str, str]:
        """What must be the same for a checkpoint to be continued."""
        return {
            "spec": self.spec.fingerprint(),
            "corpus": self.stream.store.fingerprint,
            "tokenizer": self.tokenizer.fingerprint,
            "loss": repr(self.loss),
            "layers": repr(self.num_hidden_layers),
        }


@dataclass(frozen=True)
class Worker:
    """Which part of the work a process does, and where."""

    rank: int = 0
    num_workers: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


def build_stream(spec: PretrainSpec, shards: ShardReader, tokenizer: Tokenizer) -> ExampleStream:
    """The run's batches, numbered."""
    config = StreamConfig(
        seed=spec.seed,
        phases=spec.phase_steps(),
        global_batch_size=spec.global_batch_size,
        window_shards=spec.shuffle_window_shards,
        masking=build_masking(spec, tokenizer),
        layout=tokenizer.segment_layout,
        segments=SegmentConfig(spec.sentence_objective, spec.cross_documents, spec.short_seq_prob),
    )
    if shards.num_shards == 0:
        raise CorpusError("the corpus has no documents to train on; name more files or lower validation_fraction")
    stream = ExampleStream.open(shards, config)
    if min(stream.examples_per_epoch(phase) for phase in range(len(config.phases))) == 0:
        raise CorpusError(
            "every document has a single token, and a sentence order needs two; set sentence_objective to none, or "
            "name other files"
        )
    if spec.sentence_objective == "next_sentence" and stream.fewest_window_documents() < 2:
        raise CorpusError(
            "a shuffle window may hold a single document, and next-sentence prediction draws its random segments from "
            "another one; raise shuffle_window_shards or shard_bytes, add documents, or set sentence_objective to "
            "sentence_order or none"
        )
    return stream


def build_masking(spec: PretrainSpec, tokenizer: Tokenizer) -> MaskingConfig:
    """What is masked. Raises: TokenizerError when the vocabulary does not tell where the words to mask begin."""
    word_pieces = None if spec.mask_unit == "token" else tokenizer.word_boundaries
    return MaskingConfig(
        tokenizer.vocab_size, tokenizer.mask_id, spec.mlm_probability, spec.mask_mix, spec.mask_unit, word_pieces
    )


def build_held_out(spec: PretrainSpec, shards: ShardReader, tokenizer: Tokenizer) -> ExampleStream | None:
    """One pass over held-out examples, the same at every evaluation; None with fewer than two held-out documents."""
    longest = max(phase.max_seq_length for phase in spec.phases)
    one_phase = (spec.phases[0].model_copy(update={"max_seq_length": longest, "share": 1.0}),)
    # All of it is one window: how training is shuffled must not decide whether there are documents to draw from.
    whole = spec.model_copy(update={"phases": one_phase, "shuffle_window_shards": max(1, shards.num_shards)})
    if sum(len(shards.document_lengths(shard)) for shard in range(shards.num_shards)) < 2:
        return None
    stream = build_stream(whole, shards, tokenizer)
    size = min(spec.execution.evaluation_examples, stream.examples_per_epoch())
    size -= size % spec.execution.num_workers
    if size == 0:
        return None
    return build_stream(whole.model_copy(update={"steps": 1, "global_batch_size": size}), shards, tokenizer)


def check_start(init_folder: str, tokenizer: Tokenizer) -> None:
    """See that a model to continue from reads this tokenizer's ids. Raises: TokenizerError."""
    folder = local_copy(init_folder, skip=(WEIGHTS_FILE,))
    tokenizer.check_fits(BertConfig.from_pretrained(folder).vocab_size)
    if any((folder / name).exists() for name in TOKENIZER_FILES):
        tokenizer.check_agrees(Tokenizer.load(folder))


def build_model(job: PretrainJob) -> BertForPreTraining:
    """The model a run starts from: random weights by the seed, or another model's."""
    if job.init_folder is None:
        config = build_config(job.spec.model, job.tokenizer.vocab_size, job.tokenizer.pad_id)
        return BertForPreTraining.from_config(config, seed=job.spec.seed)
    asked = {name: getattr(job.spec.model, name) for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")}
    config = replace(
        BertConfig.from_pretrained(local_copy(job.init_folder)),
        **{name: value for name, value in asked.items() if value is not None},
    )
    if job.spec.sentence_objective != "none" and not config.sentence_head:
        raise SpecError(
            f"sentence_objective is {job.spec.sentence_objective}, but {config.model_type} of {job.init_folder} has no "
            "head for pairs of segments; set it to none"
        )
    longest = max(phase.max_seq_length for phase in job.spec.phases)
    if longest > config.max_seq_length:
        raise SpecError(
            f"phases.max_seq_length {longest} is longer than the {config.max_seq_length} positions of "
            f"{job.init_folder}; lower it"
        )
    model = BertForPreTraining.from_pretrained(local_copy(job.init_folder), config, seed=job.spec.seed)
    return model if job.num_hidden_layers is None else student_of(model, job.num_hidden_layers)
