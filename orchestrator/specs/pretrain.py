"""Spec of pretraining: text and examples, objectives, model, optimizer, and how the run is carried out."""

from itertools import accumulate, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from bert_core.masking import MaskUnit
from bert_core.objectives import NO_SENTENCE_OBJECTIVE, SENTENCE_OBJECTIVES, TOKEN_OBJECTIVES
from orchestrator.specs import optimizer
from orchestrator.specs.corpus import TextSource
from orchestrator.specs.fields import Section, Spec, execution, identity
from orchestrator.specs.network import ModelSpec, Precision, has_sentence_head
from orchestrator.specs.optimizer import AdamBetas, ScheduleName
from orchestrator.specs.pretrain_execution import ExecutionSpec

if TYPE_CHECKING:
    TokenObjectiveName = str
    SentenceObjectiveName = str
else:  # mypy knows no literals that are made from a list
    TokenObjectiveName = Literal[tuple(TOKEN_OBJECTIVES)]
    SentenceObjectiveName = Literal[(*SENTENCE_OBJECTIVES, NO_SENTENCE_OBJECTIVE)]


class Phase(Section):
    """A part of the run at one sequence length."""

    max_seq_length: int = identity(128, "Tokens of a sequence, special tokens included.", unit="tokens", ge=8)
    share: float = identity(1.0, "This phase's share of all steps.", unit="share", gt=0.0, le=1.0)


class PretrainSpec(Spec):
    """Pretrain BERT: predict tokens, and answer a question about sentences beside it."""

    title: ClassVar[str] = "pretrain a model"
    kind: Literal["pretrain"] = identity("pretrain", "Selects this kind of spec.")
    corpus: TextSource = identity(doc="The text.")
    tokenizer: str = identity(
        doc="A folder with tokenizer.json, vocab.txt, or vocab.json and merges.txt; such a file, or a model's name."
    )
    validation_fraction: float = identity(
        0.01, "Documents kept out of training, chosen by a hash of their text.", unit="share", ge=0.0, le=0.5
    )
    shard_bytes: int = identity(4 << 20, "Text in a shard of the token store, about.", unit="bytes", ge=1024)
    shuffle_window_shards: int = identity(
        16, "Shards that are shuffled together and lend one another random segments.", unit="shards", ge=1
    )

    model: ModelSpec = identity(ModelSpec(), "The network; with `init_from` only its dropout counts.")
    init_from: str = identity("random", "`random`, or a model to continue from.")

    seed: int = identity(0, "Decides weights, order, pairs, masks and dropout.", ge=0, lt=2**32)
    steps: int = identity(doc="Optimizer steps.", unit="steps", ge=1)
    phases: tuple[Phase, ...] = identity(
        (Phase(),), "Parts of the run at one sequence length; their shares add up to 1."
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
    mask_mix: tuple[float, float, float] = identity(
        (0.8, 0.1, 0.1), "Shares of the predicted tokens turned to [MASK], to a random token, and kept."
    )

    learning_rate: float = identity(1e-4, "Peak learning rate.", gt=0.0)
    warmup_ratio: float = optimizer.warmup_ratio(0.01)
    learning_rate_schedule: ScheduleName = optimizer.learning_rate_schedule()
    weight_decay: float = optimizer.weight_decay()
    adam_betas: AdamBetas = optimizer.adam_betas()
    adam_epsilon: float = optimizer.adam_epsilon()
    max_grad_norm: float = optimizer.max_grad_norm()
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
    precision: Precision = identity("fp32", "Arithmetic of forward and backward.")
    allow_tf32: bool = identity(
        True,
        "With fp32 on a GPU: multiply matrices as TF32, with 10 bits behind the point, several times faster.",
    )
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
    def _consistent(self) -> Self:
        if self.global_batch_size < self.execution.max_workers:
            raise ValueError(
                f"global_batch_size {self.global_batch_size} cannot be shared by {self.execution.max_workers} workers; "
                "raise it, or lower execution.num_workers"
            )
        snapshots = self.execution.snapshot_steps
        if len(set(snapshots)) < len(snapshots) or not all(0 <= step <= self.steps for step in snapshots):
            raise ValueError(
                f"execution.snapshot_steps {list(snapshots)} must be different steps from 0 to the {self.steps} of the "
                "run; change them or raise steps"
            )
        if self.micro_batch_size is not None and self.micro_batch_tokens is not None:
            raise ValueError(
                f"micro_batch_size {self.micro_batch_size} and micro_batch_tokens {self.micro_batch_tokens} both say "
                "how much goes through the model at a time; leave one of them out"
            )
        total = sum(phase.share for phase in self.phases)
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"the shares of phases add up to {total:g}; they must add up to 1")
        if abs(sum(self.mask_mix) - 1.0) > 1e-6 or min(self.mask_mix) < 0:
            raise ValueError(f"mask_mix {self.mask_mix} must be three shares that add up to 1")
        if self.cross_documents and self.sentence_objective != NO_SENTENCE_OBJECTIVE:
            raise ValueError(
                f"cross_documents is for sequences without a question about sentences, and sentence_objective is "
                f"{self.sentence_objective}; set that to none, or cross_documents to false"
            )
        objective, family = self.sentence_objective, self.model.family
        if self.init_from == "random" and objective != NO_SENTENCE_OBJECTIVE and not has_sentence_head(family):
            raise ValueError(
                f"model.family {family} has no head for pairs of segments, and sentence_objective is {objective}; "
                "set that to none"
            )
        if self.residual_precision == "bf16" and self.precision != "bf16":
            raise ValueError(
                f"residual_precision is bf16, and precision is {self.precision}, in which nothing is rounded to bf16; "
                "set precision to bf16, or residual_precision back to fp32"
            )
        self._refuse_fields_of_other_objectives()
        if TOKEN_OBJECTIVES[self.token_objective].is_causal and objective != NO_SENTENCE_OBJECTIVE:
            raise ValueError(
                f"token_objective {self.token_objective} predicts each token from those before it, and would learn to "
                f"go on from segment A with whatever B sentence_objective {objective} puts there; set that to none"
            )
        if self.model.span_boundary_objective and self.mask_unit != "span":
            raise ValueError("model.span_boundary_objective predicts spans; set mask_unit to span")
        longest = max(phase.max_seq_length for phase in self.phases)
        if self.micro_batch_tokens is not None and self.micro_batch_tokens < longest:
            raise ValueError(
                f"micro_batch_tokens {self.micro_batch_tokens} has no room for an example of phases.max_seq_length "
                f"{longest}; raise it to that at least"
            )
        if self.init_from == "random" and longest > self.model.max_position_embeddings:
            raise ValueError(
                f"phases.max_seq_length {longest} is longer than model.max_position_embeddings "
                f"{self.model.max_position_embeddings}; lower one or raise the other"
            )
        return self

    def _refuse_fields_of_other_objectives(self) -> None:
        """Check that no field has a value which the token objective never reads. Raises: ValueError."""
        chosen, defaults = TOKEN_OBJECTIVES[self.token_objective], type(self).model_construct()
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
