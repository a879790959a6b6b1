"""The job of a pretraining run: one frozen value that every worker gets, by pickle, and what is built from it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bert_core.checkpoints.pretrained import WEIGHTS_FILE
from bert_core.config import BertConfig
from bert_core.distillation import student_of
from bert_core.heads import BertForPreTraining
from bert_core.masking import MaskingConfig
from bert_core.objectives import NO_SENTENCE_OBJECTIVE, SENTENCE_OBJECTIVES, TOKEN_OBJECTIVES
from bert_core.objectives.base import SentenceObjective
from bert_core.objectives.packed_batches import SegmentConfig
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_files import TOKENIZER_FILES
from orchestrator.corpus.shuffle_windows import ShardReader
from orchestrator.corpus.stream import ExampleStream, StreamConfig
from orchestrator.errors import CorpusError, SpecError
from orchestrator.models.config import build_config
from orchestrator.pretraining.loss import StepLoss
from orchestrator.results import Event
from orchestrator.specs import PretrainSpec
from orchestrator.storage import local_copy

Emit = Callable[[Event], None]
"""A function that takes the events of a run."""


@dataclass(frozen=True)
class PretrainJob:
    """One attempt at a pretraining run."""

    run_folder: str
    """Folder of the run on the storage."""
    attempt: int
    spec: PretrainSpec
    tokenizer: Tokenizer
    init_folder: str | None
    """Folder of a model to continue from; None starts from random weights."""
    stream: ExampleStream
    """The examples to train on."""
    validation: ExampleStream | None
    """The examples of an evaluation; None when no documents are kept out of training."""
    loss: StepLoss | None = None
    """The loss that a step makes smaller; the loss of the labels when None."""
    num_hidden_layers: int | None = None
    """Number of layers to take from the model to continue from, evenly spread; all when None."""

    def identity(self) -> dict[str, str]:
        """Digests of everything that must not change between a checkpoint and the attempt that continues it."""
        return {
            "spec": self.spec.fingerprint(),
            "corpus": self.stream.store.fingerprint,
            "tokenizer": self.tokenizer.fingerprint,
            "loss": repr(self.loss),
            "layers": repr(self.num_hidden_layers),
        }


def build_stream(spec: PretrainSpec, shards: ShardReader, tokenizer: Tokenizer) -> ExampleStream:
    """The numbered batches of a run. Raises: CorpusError when the documents are too few or too short."""
    config = StreamConfig(
        seed=spec.seed,
        phases=spec.phase_steps(),
        global_batch_size=spec.global_batch_size,
        window_shards=spec.shuffle_window_shards,
        masking=build_masking(spec, tokenizer),
        layout=tokenizer.segment_layout,
        segments=SegmentConfig(spec.sentence_objective, spec.cross_documents, spec.short_seq_prob),
        token_objective=spec.token_objective,
    )
    if shards.num_shards == 0:
        raise CorpusError("the corpus has no documents to train on; name more files or lower validation_fraction")
    stream = ExampleStream.open(shards, config)
    if spec.sentence_objective != NO_SENTENCE_OBJECTIVE:
        _check_documents(stream, SENTENCE_OBJECTIVES[spec.sentence_objective])
    return stream


def _check_documents(stream: ExampleStream, objective: SentenceObjective) -> None:
    """See that documents are as long and as many as an objective needs. Raises: CorpusError."""
    if min(stream.examples_per_epoch(phase) for phase in range(len(stream.config.phases))) == 0:
        raise CorpusError(
            f"no document has the {objective.min_document_tokens} tokens that sentence_objective {objective.name} "
            "needs; set it to none, or name other files"
        )
    fewest = stream.fewest_window_documents()
    if fewest < objective.min_window_documents:
        others = [other.name for other in SENTENCE_OBJECTIVES.values() if other.min_window_documents <= fewest]
        raise CorpusError(
            f"a shuffle window may hold as few documents as {fewest}, and sentence_objective {objective.name} takes an "
            f"example from {objective.min_window_documents}; raise shuffle_window_shards or shard_bytes, add "
            f"documents, or set sentence_objective to {' or '.join([*others, NO_SENTENCE_OBJECTIVE])}"
        )


def build_masking(spec: PretrainSpec, tokenizer: Tokenizer) -> MaskingConfig:
    """The masks of a run. Raises: TokenizerError when words are masked and the vocabulary does not mark them."""
    word_boundaries = None if spec.mask_unit == "token" else tokenizer.word_boundaries
    return MaskingConfig(
        tokenizer.vocab_size, tokenizer.mask_id, spec.mlm_probability, spec.mask_mix, spec.mask_unit, word_boundaries
    )


def build_validation(spec: PretrainSpec, shards: ShardReader, tokenizer: Tokenizer) -> ExampleStream | None:
    """One batch of validation examples, the same at every evaluation; None with fewer than two documents."""
    longest = max(phase.max_seq_length for phase in spec.phases)
    one_phase = (spec.phases[0].model_copy(update={"max_seq_length": longest, "share": 1.0}),)
    # All shards are one window: how training is shuffled must not decide whether there are documents to draw from.
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
    """The model that a run starts from: with random weights drawn by the seed, or with those of another model."""
    is_causal = TOKEN_OBJECTIVES[job.spec.token_objective].is_causal
    if job.init_folder is None:
        config = build_config(job.spec.model, job.tokenizer.vocab_size, job.tokenizer.pad_id)
        return BertForPreTraining.from_config(replace(config, causal_attention=is_causal), seed=job.spec.seed)
    asked = {name: getattr(job.spec.model, name) for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")}
    config = replace(
        BertConfig.from_pretrained(local_copy(job.init_folder)),
        **{name: value for name, value in asked.items() if value is not None},
    )
    if job.spec.sentence_objective != NO_SENTENCE_OBJECTIVE and not config.sentence_head:
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
    if config.causal_attention != is_causal:
        # Only now, as the folder's weights go by the names of its own family.
        changed = BertForPreTraining.from_config(replace(model.config, causal_attention=is_causal))
        changed.load_state_dict(model.state_dict())
        model = changed
    return model if job.num_hidden_layers is None else student_of(model, job.num_hidden_layers)
