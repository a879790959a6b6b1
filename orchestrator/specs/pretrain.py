"""Spec of pretraining: text and examples, objectives, model, optimizer, and how the run is carried out."""

import re
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from bert_core.constants import AskedPrecision, OptimizerName, Precision
from bert_core.masking import MaskUnit
from bert_core.objectives import NO_SENTENCE_OBJECTIVE, SENTENCE_OBJECTIVES, TOKEN_OBJECTIVES
from bert_core.objectives.replaced_tokens import GENERATOR_SIZE
from orchestrator.specs import network
from orchestrator.specs.corpus import TokenStoreSpec
from orchestrator.specs.fields import ExecutionSection, Section, execution, identity
from orchestrator.specs.network import AdamBetas, ModelSpec, ScheduleName, has_sentence_head
from orchestrator.specs.references import RANDOM

if TYPE_CHECKING:
    TokenObjectiveName = str
    SentenceObjectiveName = str
else:  # mypy knows no literals that are made from a list
    TokenObjectiveName = Literal[tuple(TOKEN_OBJECTIVES)]
    SentenceObjectiveName = Literal[(*SENTENCE_OBJECTIVES, NO_SENTENCE_OBJECTIVE)]

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_SELECTED = re.compile(rf"!?(?:{_LABEL}|in\({_LABEL}(?:, ?{_LABEL})*\))")
"""Values of Ray's label selectors."""


class WorkerRange(Section):
    """A smallest and a largest number of workers."""

    min: int = execution(doc="Fewest workers that a run begins and goes on with.", ge=1)
    max: int = execution(doc="Most workers that a run takes.", ge=1)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}; exchange them")
        return self


def _tag_of(value: Any) -> str:
    return "range" if isinstance(value, dict | WorkerRange) else "number"


NumWorkers = Annotated[
    Annotated[int, Field(ge=1), Tag("number")] | Annotated[WorkerRange, Tag("range")], Discriminator(_tag_of)
]
"""A number or a range. Which of them is decided before either is checked, so that messages speak of one alone."""


class ExecutionSpec(ExecutionSection):
    """Execution of a pretraining; none of its fields changes the sequence of batches."""

    num_workers: NumWorkers = execution(
        1,
        "Training processes; one GPU each when on GPUs. With `{min: 2, max: 8}` as many as Ray finds room for, while "
        "nodes come and go: a change trains the steps since the last checkpoint again, and weights differ in their "
        "last bits from those of another number.",
    )
    device: Literal["auto", "cpu", "gpu"] = execution("auto", "`auto` takes GPUs where the cluster has them.")
    cpus_per_worker: float = execution(1.0, "Ray CPUs reserved for each worker.", unit="CPUs", gt=0.0)
    placement: Literal["pack", "spread"] = execution(
        "pack", "Workers on as few nodes as hold them, or spread over as many as there are."
    )
    node_labels: dict[str, str] = execution(
        {},
        "Labels of the nodes that workers may be on, by Ray's names, as `{ray.io/accelerator-type: L40S}`; a value may "
        "be `!a`, `in(a, b)` or `!in(a, b)`.",
    )
    on_head: bool = execution(False, "Whether workers may be on a cluster's head although other nodes have room.")
    activation_checkpointing: Literal["none", "layers"] = execution(
        "none",
        "`layers` keeps only what goes into a layer and computes its inside again in backward: less memory, about a "
        "third more time, the same bits.",
    )
    compile_layers: Literal["auto", "never", "always"] = execution(
        "auto",
        "Layers as compiled kernels. `auto` compiles in runs of 10,000 steps and more whose steps are CUDA graphs: "
        "elsewhere launching them takes longer than they win. Other last bits and dropout than without; a resumed run "
        "goes on as it began.",
    )
    cuda_graphs: Literal["never", "auto"] = execution(
        "never",
        "`auto`: on GPUs a step's forward and backward are launched once for each of a few sizes of batches, which are "
        "filled up to it, and repeated from there, wherever the batch is not cut into parts. Small models are held up "
        "by launches. Takes up to twice the memory. Other last bits and dropout than without; a resumed run goes on as "
        "it began.",
    )
    deterministic: bool = execution(
        False,
        "On GPUs only kernels that add up in one order: a run that is resumed ends at the same bits, as on CPUs in any "
        "case. Attention's backward pass takes longer.",
    )
    data_cpus: float = execution(1.0, "Ray CPUs for each worker's data pipeline.", unit="CPUs", gt=0.0)
    checkpoint_every_steps: int | None = execution(None, "A checkpoint every so many steps.", unit="steps", ge=1)
    checkpoint_every_minutes: float | None = execution(
        10.0, "A checkpoint every so many minutes.", unit="minutes", gt=0.0
    )
    keep_checkpoints: int = execution(2, "Newest checkpoints kept on the storage.", ge=1)
    snapshot_steps: tuple[int, ...] = execution(
        (),
        "Steps after which the model is kept as a folder of its own, 0 for before the first. A probe makes a learning "
        "curve of them.",
        unit="steps",
    )
    snapshot_optimizer: bool = execution(
        False, "Whether a snapshot keeps the optimizer too, four times the bytes: another run can go on from there."
    )
    log_every_steps: int = execution(10, "Metrics are recorded every so many steps.", unit="steps", ge=1)
    evaluate_every_steps: int | None = execution(
        None, "Held-out evaluation every so many steps; ten times in the run when left out.", unit="steps", ge=1
    )
    evaluation_examples: int = execution(512, "Held-out examples of an evaluation at most.", unit="examples", ge=1)
    max_failures: int = execution(3, "Worker failures survived before the run fails.", ge=0)
    max_rollbacks: int = execution(
        3, "Batches that `on_divergence: rollback` passes over before the run fails.", unit="batches", ge=0
    )
    max_wait_minutes: float = execution(
        30.0,
        "Time that workers may wait for a place, or go without ending a step, before the run fails.",
        unit="minutes",
        gt=0.0,
    )

    @property
    def min_workers(self) -> int:
        """Fewest workers that a run begins and goes on with."""
        return self.num_workers.min if isinstance(self.num_workers, WorkerRange) else self.num_workers

    @property
    def max_workers(self) -> int:
        """Most workers that a run takes."""
        return self.num_workers.max if isinstance(self.num_workers, WorkerRange) else self.num_workers

    @property
    def is_elastic(self) -> bool:
        """Whether the number of workers follows the cluster."""
        return self.min_workers < self.max_workers

    @field_validator("node_labels")
    @classmethod
    def _check_labels(cls, labels: dict[str, str]) -> dict[str, str]:
        for name, value in labels.items():
            if not _SELECTED.fullmatch(value):
                raise ValueError(f"{name}: {value!r} selects no label; give a value, `!a`, `in(a, b)` or `!in(a, b)`")
        return labels


def _adds_up_to_one(mix: tuple[float, float, float]) -> tuple[float, float, float]:
    if abs(sum(mix) - 1.0) > 1e-6 or min(mix) < 0:
        raise ValueError(f"{mix} must be three shares that add up to 1")
    return mix


MaskMix = Annotated[tuple[float, float, float], AfterValidator(_adds_up_to_one)]


class Phase(Section):
    """A part of the run at one sequence length and masking rate."""

    max_seq_length: int = identity(128, "Tokens of a sequence, special tokens included.", unit="tokens", ge=8)
    share: float = identity(1.0, "This phase's share of all steps.", unit="share", gt=0.0, le=1.0)
    mlm_probability: float | None = identity(
        None,
        "Share of tokens to predict in this phase; the run's when left out.",
        unit="share",
        is_new=True,
        gt=0,
        lt=1,
    )
    mask_mix: MaskMix | None = identity(
        None, "Shares of [MASK], random tokens and kept ones in this phase; the run's when left out.", is_new=True
    )


class PretrainSpec(TokenStoreSpec):
    """Pretrain BERT: predict tokens, and answer a question about sentences beside it."""

    title: ClassVar[str] = "pretrain a model"
    kind: Literal["pretrain"] = identity("pretrain", "Selects this kind of spec.")
    shuffle_window_shards: int = identity(
        16, "Shards that are shuffled together and lend one another random segments.", unit="shards", ge=1
    )

    model: ModelSpec = identity(ModelSpec(), "The network; with `init_from` only its dropout counts.")
    init_from: str = identity(RANDOM, "`random`, or a model to continue from.")
    init_step: int | None = identity(
        None,
        "Go on from the pretraining run that `init_from` names as it was after this step, optimizer included: `steps` "
        "counts from that run's first one, and the learning rate falls in those that are left.",
        unit="steps",
        is_new=True,
        ge=1,
    )

    seed: int = identity(0, "Decides weights, order, pairs, masks and dropout.", ge=0, lt=2**32)
    steps: int = identity(doc="Optimizer steps.", unit="steps", ge=1)
    phases: tuple[Phase, ...] = identity(
        (Phase(),), "Parts of the run at one sequence length and masking rate; their shares add up to 1."
    )
    global_batch_size: int = identity(256, "Examples of a step, over all workers.", unit="examples", ge=1)
    micro_batch_size: int | None = identity(
        None, "Examples of one forward pass of a worker; its whole part of the batch when left out.", ge=1
    )
    micro_batch_tokens: int | None = identity(
        None,
        "Tokens of one forward pass of a worker at most, in place of `micro_batch_size`: as many examples as fit.",
        unit="tokens",
        ge=1,
    )
    token_objective: TokenObjectiveName = identity(
        "masked_lm",
        f"Tokens that are predicted: {', or '.join(o.summary for o in TOKEN_OBJECTIVES.values())}.",
    )
    sentence_objective: SentenceObjectiveName = identity(
        "next_sentence",
        "Question about two segments, A and B, beside the tokens: "
        f"{', '.join(o.summary for o in SENTENCE_OBJECTIVES.values())}, or nothing (RoBERTa).",
    )
    cross_documents: bool = identity(
        False, "Without a sentence objective: fill sequences up from the next document, with a separator between."
    )
    short_seq_prob: float = identity(0.1, "Share of shorter sequences.", unit="share", ge=0.0, le=1.0)
    mlm_probability: float = identity(0.15, "Share of tokens to predict.", unit="share", gt=0.0, lt=1.0)
    mask_unit: MaskUnit = identity(
        "token", "Unit that is masked as one piece: tokens, whole words, or spans of 1 to 10 words (SpanBERT)."
    )
    mask_mix: MaskMix = identity(
        (0.8, 0.1, 0.1), "Shares of the predicted tokens turned to [MASK], to a random token, and kept."
    )
    generator_size: float = identity(
        GENERATOR_SIZE,
        "With replaced_tokens: width of the generator, whose depth is the model's (1/4 to 1/2 work best in ELECTRA); a "
        "model of `init_from` that has its own brings it.",
        unit="share",
        is_new=True,
        gt=0.0,
        le=1.0,
    )

    learning_rate: float = identity(1e-4, "Peak learning rate.", gt=0.0)
    warmup_ratio: float = network.warmup_ratio(0.01)
    learning_rate_schedule: ScheduleName = network.learning_rate_schedule()
    decay_ratio: float | None = network.decay_ratio()
    optimizer: OptimizerName = network.optimizer()
    weight_decay: float = network.weight_decay()
    adam_betas: AdamBetas = network.adam_betas()
    adam_epsilon: float = network.adam_epsilon()
    adam_bias_correction: bool = network.adam_bias_correction()
    max_grad_norm: float = network.max_grad_norm()
    max_loss: float | None = identity(
        None,
        "Loss of a step above which it has diverged, as it has with NaN; ten times that of guessing, ln(vocabulary), "
        "when left out.",
        gt=0.0,
    )
    on_divergence: Literal["stop", "rollback"] = identity(
        "stop",
        "What follows a step that diverged: the run fails, or goes back to its last checkpoint and passes the step's "
        "batch over.",
    )
    precision: AskedPrecision = network.precision()
    allow_tf32: bool = network.allow_tf32()
    residual_precision: Precision = identity(
        "fp32",
        "Arithmetic of the residual stream, what a layer adds to and normalizes; bf16, with precision bf16 alone, "
        "halves what a GPU moves between its matrix products.",
    )
    gradient_precision: Precision = identity(
        "fp32",
        "Numbers by which workers tell one another their gradients; bf16 halves the bytes on the network and rounds, "
        "each addition of two workers' gradients too, so that its error grows with the number of workers.",
    )
    threads_per_worker: int = identity(1, "Threads of a CPU worker; changes rounding, hence part of identity.", ge=1)

    execution: ExecutionSpec = execution(ExecutionSpec(), "Execution of the run.")

    @model_validator(mode="after")
    def _check_steps_and_batches(self) -> Self:
        if self.global_batch_size < self.execution.max_workers:
            raise ValueError(
                f"global_batch_size {self.global_batch_size} cannot be shared by {self.execution.max_workers} workers; "
                "raise it, or lower execution.num_workers"
            )
        if self.init_step is not None and (self.init_from == RANDOM or self.init_step >= self.steps):
            raise ValueError(
                f"init_step {self.init_step} needs a pretraining run in init_from, which is {self.init_from}, and more "
                f"steps than it, which are {self.steps}; leave it out, or change these"
            )
        snapshots, first = self.execution.snapshot_steps, 0 if self.init_step is None else self.init_step + 1
        if len(set(snapshots)) < len(snapshots) or not all(first <= step <= self.steps for step in snapshots):
            raise ValueError(
                f"execution.snapshot_steps {list(snapshots)} must be different steps from {first} to the {self.steps} "
                "of the run; change them or raise steps"
            )
        if self.micro_batch_size is not None and self.micro_batch_tokens is not None:
            raise ValueError(
                f"micro_batch_size {self.micro_batch_size} and micro_batch_tokens {self.micro_batch_tokens} both say "
                "how much goes through the model at a time; leave one of them out"
            )
        total = sum(phase.share for phase in self.phases)
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"the shares of phases add up to {total:g}; they must add up to 1")
        longest = max(phase.max_seq_length for phase in self.phases)
        if self.micro_batch_tokens is not None and self.micro_batch_tokens < longest:
            raise ValueError(
                f"micro_batch_tokens {self.micro_batch_tokens} has no room for an example of phases.max_seq_length "
                f"{longest}; raise it to that at least"
            )
        if self.init_from == RANDOM and longest > self.model.max_position_embeddings:
            raise ValueError(
                f"phases.max_seq_length {longest} is longer than model.max_position_embeddings "
                f"{self.model.max_position_embeddings}; lower one or raise the other"
            )
        return self

    @model_validator(mode="after")
    def _check_objectives(self) -> Self:
        objective, family = self.sentence_objective, self.model.family
        if self.cross_documents and objective != NO_SENTENCE_OBJECTIVE:
            raise ValueError(
                f"cross_documents is for sequences without a question about sentences, and sentence_objective is "
                f"{objective}; set that to none, or cross_documents to false"
            )
        if self.init_from == RANDOM and objective != NO_SENTENCE_OBJECTIVE and not has_sentence_head(family):
            raise ValueError(
                f"model.family {family} has no head for pairs of segments, and sentence_objective is {objective}; "
                "set that to none"
            )
        self._refuse_fields_of_other_objectives()
        done = (self.init_step or 0) / self.steps
        network.check_decay(self.learning_rate_schedule, self.warmup_ratio, self.decay_ratio, done)
        reason = TOKEN_OBJECTIVES[self.token_objective].against_pairs
        if reason and objective != NO_SENTENCE_OBJECTIVE:
            raise ValueError(
                f"token_objective {self.token_objective} {reason}, and sentence_objective is {objective}; set that to "
                "none"
            )
        if self.model.span_boundary_objective and self.mask_unit != "span":
            raise ValueError("model.span_boundary_objective predicts spans; set mask_unit to span")
        return self

    @model_validator(mode="after")
    def _check_precisions(self) -> Self:
        if self.residual_precision == "bf16" and self.precision != "bf16":
            raise ValueError(
                f"residual_precision is bf16, and precision is {self.precision}, in which nothing need be rounded to "
                "bf16; set precision to bf16, or residual_precision back to fp32"
            )
        return self

    def _refuse_fields_of_other_objectives(self) -> None:
        """Check that no field has a value which the token objective never reads. Raises: ValueError."""
        chosen, defaults = TOKEN_OBJECTIVES[self.token_objective], type(self).model_construct()
        masked = [name for phase in self.phases for name in ("mlm_probability", "mask_mix") if getattr(phase, name)]
        if masked and masked[0] not in chosen.spec_fields:
            raise ValueError(
                f"phases.{masked[0]} is for token_objective masked_lm, and token_objective is {chosen.name}; leave "
                "it out"
            )
        for other in TOKEN_OBJECTIVES.values():
            for name in sorted(other.spec_fields - chosen.spec_fields):
                value, default = attrgetter(name)(self), attrgetter(name)(defaults)
                if value != default:
                    raise ValueError(
                        f"{name} is for token_objective {other.name}, and token_objective is {chosen.name}; "
                        f"leave {value} out, or set it back to {default}"
                    )

    @property
    def chosen_objectives(self) -> tuple[str, ...]:
        """Names of the objectives that the spec chooses; the model's configuration may add others."""
        sentence = () if self.sentence_objective == NO_SENTENCE_OBJECTIVE else (self.sentence_objective,)
        return (self.token_objective, *sentence)

    def phase_steps(self) -> tuple[tuple[int, int], ...]:
        """The phases as (max_seq_length, steps), which add up to all steps."""
        shares = list(accumulate(phase.share for phase in self.phases))
        borders = [0, *(round(share * self.steps) for share in shares[:-1]), self.steps]
        return tuple(
            (phase.max_seq_length, last - first)
            for phase, (first, last) in zip(self.phases, pairwise(borders), strict=True)
        )
