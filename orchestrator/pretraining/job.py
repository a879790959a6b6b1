"""Request and job of a pretraining run; the job is one frozen value that every worker gets, by pickle."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.config import BertConfig
from bert_core.distillation import student_of
from bert_core.heads import BertForPreTraining
from bert_core.heads.replaced_tokens import GeneratorAndDiscriminator
from bert_core.objectives import NO_SENTENCE_OBJECTIVE, TOKEN_OBJECTIVES
from bert_core.objectives.replaced_tokens import ReplacedTokens
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_files import TOKENIZER_FILES
from orchestrator.base.errors import SpecError
from orchestrator.base.results import DatasetResult, Event, FileCount
from orchestrator.cluster.capacity import Processes
from orchestrator.corpus.input_files import InputFile
from orchestrator.corpus.stream import ExampleStream
from orchestrator.pretraining.step import StepLoss, new_model
from orchestrator.specs import PretrainSpec
from orchestrator.specs.network import DROPOUT_FIELDS, build_config
from orchestrator.storage import local_copy
from orchestrator.training.checkpoints import versions

_MAX_FILES = 1000
"""Text files whose sizes a checkpoint carries at most."""
Emit = Callable[[Event], None]
"""A function that takes the events of a run."""


@dataclass(frozen=True, kw_only=True)
class PretrainRequest:
    """One attempt at a pretraining run, as the driver asks for it."""

    spec: PretrainSpec
    storage: str
    """Root of the storage, where runs share token stores."""
    run_folder: str
    attempt: int
    tokenizer: Tokenizer
    init_folder: str | None
    """Folder of a model to continue from; None starts from random weights."""
    init_state: str | None = None
    """Folder of the training state after the spec's `init_step`; None starts at step 0 with a new optimizer."""
    loss: StepLoss | None = None
    """Loss that a step makes smaller; the loss of the labels when None."""
    num_hidden_layers: int | None = None
    """Number of layers to take from the model to continue from, evenly spread; None takes all."""
    teacher_digest: str | None = None
    """SHA-256 of the weights of the teacher in `loss`; None for a loss without one."""
    allow_drift: bool = False
    """Whether to go on from a checkpoint although what the run reads has changed since."""
    left_s: float = math.inf
    """Seconds that earlier attempts have left of the run's hours."""
    use_gpu: bool = False


@dataclass(frozen=True)
class PretrainListener:
    """Callbacks in the driver. What one of them raises ends the run."""

    on_event: Callable[[Event], None]
    """Told of measurements and messages of the workers; of some of them twice after a restart."""
    on_dataset: Callable[[DatasetResult], None]
    """Told of the token store, before training starts."""
    on_tokenizing: Callable[[int, int], None]
    """Told how many bytes of the corpus have been read, and of how many."""
    on_steps: Callable[[int], None] = lambda num_steps: None
    """Told the number of steps, where it was chosen, before the run's own begin."""
    on_wait: Callable[[], None] = lambda: None
    """Called several times a second."""


@dataclass(frozen=True, kw_only=True)
class PretrainJob(PretrainRequest):
    """An attempt as the workers carry it out, with its examples."""

    stream: ExampleStream
    validation: ExampleStream | None
    """The examples of an evaluation; None when no documents are kept out of training."""
    text_sizes: Mapping[str, str] = field(default_factory=dict)
    """Sizes of the corpus's first text files, by path."""

    def identity(self) -> dict[str, str]:
        """Digests of everything that must not change between a checkpoint and the attempt that continues it."""
        return {
            "spec": self.spec.fingerprint(),
            "tokenizer": self.tokenizer.fingerprint,
            "corpus": self.stream.store.fingerprint,
            **({} if self.teacher_digest is None else {"teacher": self.teacher_digest}),
            **versions(),
        }

    def identity_details(self) -> dict[str, Any]:
        """Values behind the digests: fields of the spec and sizes of the text files."""
        return {"spec": self.spec.identity_values(), "corpus": dict(self.text_sizes)}


def text_sizes(files: Sequence[FileCount | InputFile]) -> dict[str, str]:
    """Sizes of a corpus's first text files by path, as a checkpoint carries them."""
    return {file.path: f"{file.num_bytes} bytes" for file in files[:_MAX_FILES]}


def worker_processes(spec: PretrainSpec, use_gpu: bool) -> Processes:
    """The training workers of a spec, as a cluster has to place them; of a range the fewest.

    Workers of a range, with which Ray Train fills the cluster, reserve the CPUs of their data pipelines too.
    """
    execution = spec.execution
    num_cpus = execution.cpus_per_worker + (execution.data_cpus if execution.is_elastic else 0.0)
    resources = {"CPU": num_cpus} | ({"GPU": 1.0} if use_gpu else {})
    return Processes(execution.min_workers, resources, execution.node_labels)


def check_start(init_folder: str, tokenizer: Tokenizer) -> None:
    """Check that a model to continue from reads this tokenizer's ids. Raises: TokenizerError."""
    folder = local_copy(init_folder, skip=(WEIGHTS_FILE,))
    tokenizer.check_fits(BertConfig.from_pretrained(folder).vocab_size)
    if any((folder / name).exists() for name in TOKENIZER_FILES):
        tokenizer.check_agrees(Tokenizer.load(folder))


def check_init_state(spec: PretrainSpec, saved: Mapping[str, Any]) -> None:
    """Check that a spec's optimizer can go on from another run's state, by the state's JSON. Raises: SpecError."""
    known = saved.get("details", {}).get("spec")
    for name in ("optimizer", "adam_bias_correction", "token_objective") if known is not None else ():
        own, theirs = getattr(spec, name), known.get(name, PretrainSpec.model_fields[name].default)
        has_other_weights = name != "token_objective" or ReplacedTokens.name in (own, theirs)
        if own != theirs and has_other_weights:
            raise SpecError(
                f"{name} is {own}, and the optimizer of {spec.init_from} has the state of {theirs}; set it to that, or "
                "leave init_step out to start with a new optimizer"
            )


def fitted(spec: PretrainSpec, config: BertConfig) -> BertConfig:
    """The configuration of a model with a position for each token of the spec's phases.

    Raises: SpecError where phases change rotary positions of a model that has others, or are longer than its positions;
        where it has no head for the sentence objective.
    """
    if spec.sentence_objective != NO_SENTENCE_OBJECTIVE and not config.sentence_head:
        raise SpecError(
            f"sentence_objective is {spec.sentence_objective}, but {config.model_type} of {spec.init_from} has no head "
            "for pairs of segments; set it to none"
        )
    if spec.sentence_objective != NO_SENTENCE_OBJECTIVE and config.head_input_size > config.hidden_size:
        raise SpecError(
            f"sentence_objective is {spec.sentence_objective}, and the pooler of {spec.init_from} reads several layers "
            f"(layer_pooling {config.layer_pooling}), where pretraining has the last one; set it to none, or start "
            "from another model"
        )
    longest = max(phase.max_seq_length for phase in spec.phases)
    changes_base = next((phase.rotary_base for phase in spec.phases if phase.rotary_base), None)
    if changes_base and config.position_embedding_type != "rotary":
        raise SpecError(
            f"phases.rotary_base {changes_base:g} is for rotary positions, and the model has "
            f"{config.position_embedding_type} ones; leave it out, or take another model.family or init_from"
        )
    if longest <= config.max_seq_length:
        return config
    if not changes_base:
        raise SpecError(
            f"phases.max_seq_length {longest} is longer than the {config.max_seq_length} positions of "
            f"{spec.init_from}; lower it, start from another model or, with rotary positions, give phases.rotary_base"
        )
    return replace(config, max_position_embeddings=longest + config.position_offset)


def build_model(job: PretrainJob) -> BertForPreTraining:
    """The model that a run starts from: with random weights drawn by the seed, or with those of another model."""
    is_causal = TOKEN_OBJECTIVES[job.spec.token_objective].is_causal
    if job.init_folder is None:
        config = fitted(job.spec, build_config(job.spec.model, job.tokenizer.vocab_size, job.tokenizer.pad_id))
        return new_model(job.spec, replace(config, causal_attention=is_causal), job.spec.seed)
    asked = {name: getattr(job.spec.model, name) for name in DROPOUT_FIELDS}
    config = replace(
        BertConfig.from_pretrained(local_copy(job.init_folder)),
        **{name: value for name, value in asked.items() if value is not None},
    )
    config = fitted(job.spec, config)
    if job.spec.token_objective == ReplacedTokens.name:
        return GeneratorAndDiscriminator.from_pretrained(
            local_copy(job.init_folder), config, job.spec.seed, generator_size=job.spec.generator_size
        )
    model = BertForPreTraining.from_pretrained(local_copy(job.init_folder), config, seed=job.spec.seed)
    if config.causal_attention != is_causal:
        # Only now, as the folder's weights go by the names of its own family.
        changed = BertForPreTraining.from_config(replace(model.config, causal_attention=is_causal))
        changed.load_state_dict(model.state_dict())
        model = changed
    return model if job.num_hidden_layers is None else student_of(model, job.num_hidden_layers)
