"""Spec of pretraining: text and examples, phases, objectives, model, optimizer."""

from bisect import bisect_right
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from bert_core.constants import AskedPrecision, OptimizerName, Precision
from bert_core.masking import MaskUnit
from bert_core.objectives import NO_SENTENCE_OBJECTIVE, SENTENCE_OBJECTIVES, TOKEN_OBJECTIVES
from bert_core.objectives.replaced_tokens import GENERATOR_SIZE
from orchestrator.specs import network
from orchestrator.specs.corpus import TokenStoreSpec, Weights
from orchestrator.specs.fields import Section, Spec, execution, identity
from orchestrator.specs.network import AdamBetas, ModelSpec, ScheduleName, has_sentence_head
from orchestrator.specs.pretrain_execution import ExecutionSpec
from orchestrator.specs.references import RANDOM

if TYPE_CHECKING:
    TokenObjectiveName = str
    SentenceObjectiveName = str
else:  # mypy knows no literals that are made from a list
    TokenObjectiveName = Literal[tuple(TOKEN_OBJECTIVES)]
    SentenceObjectiveName = Literal[(*SENTENCE_OBJECTIVES, NO_SENTENCE_OBJECTIVE)]


def _adds_up_to_one(mix: tuple[float, float, float]) -> tuple[float, float, float]:
    if abs(sum(mix) - 1.0) > 1e-6 or min(mix) < 0:
        raise ValueError(f"{mix} must be three shares that add up to 1")
    return mix


MaskMix = Annotated[tuple[float, float, float], AfterValidator(_adds_up_to_one)]


class Phase(Section):
    """A part of the run: its sequence length, and what else is another than in the rest of the run."""

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
    learning_rate: float | None = identity(
        None,
        "Peak learning rate in this phase, which the run's schedule scales as it does the run's own; that when left "
        "out.",
        is_new=True,
        gt=0.0,
    )
    global_batch_size: int | None = identity(
        None,
        "Examples of a step in this phase, over all workers; the run's when left out. Phases with growing ones warm "
        "the batch size up.",
        unit="examples",
        is_new=True,
        ge=1,
    )
    corpus_weights: Weights | None = identity(
        None,
        "Numbers in place of `corpus.weights` in this phase, as for better text at the end; these when left out.",
        is_new=True,
    )
    rotary_base: float | None = identity(
        None,
        "Base of rotary positions from this phase on, also in local layers but where the family has another one for "
        "them (modernbert); the model's own when left out. Sequences may then be longer than the model of init_from "
        "has positions (context extension).",
        is_new=True,
        gt=1.0,
    )


class PretrainSpec(TokenStoreSpec):
    """Pretrain BERT: predict tokens, and answer a question about sentences beside it."""

    title: ClassVar[str] = "pretrain a model"
    kind: Literal["pretrain"] = identity("pretrain", "Selects this kind of spec.")
    shuffle_window_shards: int = identity(
        16, "Shards that are shuffled together, and of which random next sentences are taken.", unit="shards", ge=1
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
    steps: Annotated[int, Field(ge=1)] | Literal["auto"] = identity(
        doc="Optimizer steps. `auto`: as many as fit into execution.max_hours, by a measurement when the run begins, "
        "after which the number is the run's.",
        unit="steps",
    )
    phases: tuple[Phase, ...] = identity(
        (Phase(),), "Parts of the run, as of one sequence length each; their shares add up to 1.", min_length=1
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
    short_seq_prob: float = identity(
        0.1, "Share of sequences that get a random shorter length, as in BERT.", unit="share", ge=0.0, le=1.0
    )
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

    average_steps: tuple[int, ...] = identity(
        (),
        "Steps of `execution.snapshot_steps` whose weights' mean is the model that the run leaves and is scored by at "
        "the end (LAWA); the weights after the last step when left out.",
        unit="steps",
        is_new=True,
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
        if self.smallest_batch < self.execution.max_workers:
            raise ValueError(
                f"global_batch_size {self.smallest_batch} cannot be shared by {self.execution.max_workers} workers; "
                "raise it, in each of phases too, or lower execution.num_workers"
            )
        if self.steps == "auto":
            self._check_auto_steps()
            return self
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
        averaged = set(self.average_steps)
        if averaged and (len(averaged) < max(2, len(self.average_steps)) or not averaged <= set(snapshots)):
            raise ValueError(
                f"average_steps {list(self.average_steps)} must be several of execution.snapshot_steps, each once, "
                f"which are {list(snapshots)}; change one of them"
            )
        return self

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if self.micro_batch_size is not None and self.micro_batch_tokens is not None:
            raise ValueError(
                f"micro_batch_size {self.micro_batch_size} and micro_batch_tokens {self.micro_batch_tokens} both say "
                "how much goes through the model at a time; leave one of them out"
            )
        for weights in (phase.corpus_weights for phase in self.phases if phase.corpus_weights is not None):
            if len(weights) != len(self.corpus.weights):
                raise ValueError(
                    f"phases.corpus_weights {list(weights)} are {len(weights)} numbers in place of corpus.weights, of "
                    f"which there are {len(self.corpus.weights)}; give both one number for each entry of corpus.files"
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
        done = 0.0 if self.init_step is None else self.init_step / self.num_steps
        network.check_decay(self.learning_rate_schedule, self.warmup_ratio, self.decay_ratio, done)
        reason = TOKEN_OBJECTIVES[self.token_objective].against_pairs
        if reason and objective != NO_SENTENCE_OBJECTIVE:
            raise ValueError(
                f"token_objective {self.token_objective} {reason}, and sentence_objective is {objective}; set that to "
                "none"
            )
        if self.model.span_boundary_objective and self.mask_unit != "span":
            raise ValueError("model.span_boundary_objective predicts spans; set mask_unit to span")
        if self.residual_precision == "bf16" and self.precision != "bf16":
            raise ValueError(
                f"residual_precision is bf16, and precision is {self.precision}, in which nothing need be rounded to "
                "bf16; set precision to bf16, or residual_precision back to fp32"
            )
        return self

    def _check_auto_steps(self) -> None:
        """Check that the number of steps can be chosen when the run begins. Raises: ValueError."""
        if self.execution.max_hours is None:
            raise ValueError(
                "steps auto is as many as fit into execution.max_hours; give that a value, or steps a number"
            )
        known_before = {
            "init_step": self.init_step is not None,
            "execution.snapshot_steps": any(self.execution.snapshot_steps),
            "average_steps": bool(self.average_steps),
            "a range of execution.num_workers": self.execution.is_elastic,
        }
        for what, is_given in known_before.items():
            if is_given:
                raise ValueError(f"steps auto is not known before the run, and {what} needs a number; give steps one")

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

    @property
    def num_steps(self) -> int:
        """Optimizer steps of a spec that has a number."""
        assert self.steps != "auto", "the number of steps is chosen when the run begins"
        return self.steps

    def with_steps(self, num_steps: int) -> Self:
        """The same spec with a number of steps."""
        return self.model_copy(update={"steps": num_steps})

    @property
    def smallest_batch(self) -> int:
        """Examples of a step in the phase that has fewest."""
        return min(phase.global_batch_size or self.global_batch_size for phase in self.phases)

    def phase_steps(self) -> tuple[tuple[int, int, int], ...]:
        """The phases as (max_seq_length, steps, examples of a step); steps add up to all of the run."""
        return tuple(
            (phase.max_seq_length, last - first, phase.global_batch_size or self.global_batch_size)
            for phase, (first, last) in zip(self.phases, pairwise([0, *self._phase_ends()]), strict=True)
        )

    def steps_left(self) -> tuple[range, ...]:
        """The steps of each phase, counted from 0, that are left to do after `init_step`."""
        ends = [max(end, self.init_step or 0) for end in (0, *self._phase_ends())]
        return tuple(range(first, last) for first, last in pairwise(ends))

    def learning_rate_peak(self, step: int) -> float:
        """Peak learning rate of the phase that a step, counted from 0, belongs to."""
        return self._phases_begun(step)[-1].learning_rate or self.learning_rate

    def rotary_base_at(self, step: int) -> float | None:
        """Base of rotary positions that phases give a step, counted from 0; None for the model's own."""
        return next((phase.rotary_base for phase in reversed(self._phases_begun(step)) if phase.rotary_base), None)

    def _phases_begun(self, step: int) -> tuple[Phase, ...]:
        """The phases up to the one that a step belongs to."""
        return self.phases[: bisect_right(self._phase_ends()[:-1], step) + 1]

    def _phase_ends(self) -> list[int]:
        """Steps that are done at the end of each phase."""
        shares = accumulate(phase.share for phase in self.phases[:-1])
        return [*(round(share * self.num_steps) for share in shares), self.num_steps]


def pretraining_of(spec: Spec) -> PretrainSpec | None:
    """Return what a spec pretrains: itself, or its section `pretraining`; None of other specs."""
    found = getattr(spec, "pretraining", spec)
    return found if isinstance(found, PretrainSpec) else None
