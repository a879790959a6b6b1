"""Streams of examples as a pretraining spec asks for them: those to train on, and those of an evaluation. No torch."""

from collections.abc import Mapping

from bert_core.masking import MaskingConfig
from bert_core.objectives import NO_SENTENCE_OBJECTIVE, SENTENCE_OBJECTIVES, SegmentConfig
from bert_core.objectives.base import SentenceObjective
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import CorpusError
from orchestrator.corpus.stream import MIXTURE_BLOCK, ExampleStream, SplitShards, StreamConfig
from orchestrator.specs import PretrainSpec
from orchestrator.specs.pretrain import Phase

HELD_OUT_TOKENS = 1 << 26
"""Tokens of the window of shards that an evaluation loads, about: 128 MB. One hundredth of six billion tokens."""


def build_stream(spec: PretrainSpec, shards: SplitShards, tokenizer: Tokenizer) -> ExampleStream:
    """The numbered batches of a run. Raises: CorpusError when the documents are too few or too short."""
    config = StreamConfig(
        seed=spec.seed,
        phases=spec.phase_steps(),
        window_shards=spec.shuffle_window_shards,
        masking=build_masking(spec, tokenizer),
        layout=tokenizer.segment_layout,
        segments=SegmentConfig(spec.sentence_objective, spec.cross_documents, spec.short_seq_prob),
        token_objective=spec.token_objective,
        weights=tuple(phase.corpus_weights or spec.corpus.weights for phase in spec.phases if spec.corpus.weights),
    )
    if shards.num_shards == 0:
        raise CorpusError("the corpus has no documents to train on; name more files or lower validation_fraction")
    stream = ExampleStream.open(shards, config)
    for phase, weights in enumerate(config.weights):
        for entry, (weight, count) in enumerate(zip(weights, stream.mixture(phase), strict=True)):
            if weight and not count:
                raise CorpusError(
                    f"corpus.files: {spec.corpus.files[entry]} would never be read in phase {phase}: with weight "
                    f"{weight:g} it has not one in {MIXTURE_BLOCK:,} examples; raise its weight, or set it to 0"
                )
    if spec.sentence_objective != NO_SENTENCE_OBJECTIVE:
        _check_documents(stream, SENTENCE_OBJECTIVES[spec.sentence_objective])
    return stream


def check_sentences(spec: PretrainSpec, counts: Mapping[str, int]) -> None:
    """Check that the answers of a run's sentence objective differ, by the text's counts. Raises: CorpusError."""
    is_pair = spec.sentence_objective != NO_SENTENCE_OBJECTIVE
    fewest = SENTENCE_OBJECTIVES[spec.sentence_objective].min_document_sentences if is_pair else 1
    if fewest > 1 and 0 < counts["num_sentences"] == counts["num_documents"]:
        raise CorpusError(
            f"each document is one sentence, so that all answers of sentence_objective {spec.sentence_objective} would "
            f"be the same; set it to {NO_SENTENCE_OBJECTIVE}, or name texts whose documents have several sentences"
        )


def _check_documents(stream: ExampleStream, objective: SentenceObjective) -> None:
    """Check that documents are as long and as many as an objective needs. Raises: CorpusError."""
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


def build_masking(spec: PretrainSpec, tokenizer: Tokenizer) -> tuple[MaskingConfig, ...]:
    """The masks of each phase. Raises: TokenizerError when words are masked and the vocabulary does not mark them."""
    word_boundaries = None if spec.mask_unit == "token" else tokenizer.word_boundaries
    return tuple(
        MaskingConfig(
            tokenizer.vocab_size,
            tokenizer.mask_id,
            phase.mlm_probability or spec.mlm_probability,
            phase.mask_mix or spec.mask_mix,
            spec.mask_unit,
            word_boundaries,
        )
        for phase in spec.phases
    )


def build_validation(spec: PretrainSpec, shards: SplitShards, tokenizer: Tokenizer) -> ExampleStream | None:
    """One batch of validation examples, the same at every evaluation and for any number of workers; masked as the run's
    own fields say, whatever its phases have, and without weights.

    None with fewer than two documents, or none that is long enough.
    """
    one_phase = (Phase(max_seq_length=max(phase.max_seq_length for phase in spec.phases)),)
    lengths = [shards.document_lengths(shard) for shard in range(shards.num_shards)]
    is_pair = spec.sentence_objective != NO_SENTENCE_OBJECTIVE
    fewest = SENTENCE_OBJECTIVES[spec.sentence_objective].min_document_tokens if is_pair else 1
    if sum(map(len, lengths)) < 2 or max(each.max(initial=0) for each in lengths) < fewest:
        return None
    # All shards are one window, but where they are too large to load: how training is shuffled must not decide whether
    # there are documents to draw from.
    window = min(shards.num_shards, HELD_OUT_TOKENS * shards.num_shards // sum(int(each.sum()) for each in lengths))
    unweighted = spec.corpus.model_copy(update={"weights": ()})
    changes = {"phases": one_phase, "shuffle_window_shards": max(1, window), "corpus": unweighted}
    whole = spec.model_copy(update=changes)
    stream = build_stream(whole, shards, tokenizer)
    size = min(spec.execution.evaluation_examples, stream.examples_per_epoch())
    return build_stream(whole.model_copy(update={"steps": 1, "global_batch_size": size}), shards, tokenizer)
