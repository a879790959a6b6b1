"""Using models: find one by name, score it, let it predict, fill masks, judge whether a sentence follows another."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_core.errors import CheckpointError
from orchestrator.errors import InputError, NotFoundError
from orchestrator.results import EvaluationResult, Split
from orchestrator.settings import Settings
from orchestrator.specs import TaskSpec
from orchestrator.storage import exists, join, local_copy, written_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from orchestrator.retrieval.reranking import Reranking
    from orchestrator.tasks import Task

MODEL_FILE = "config.json"


@dataclass(frozen=True)
class FilledMask:
    """One guess for one [MASK]."""

    mask: int
    """Which [MASK] of the text, from 1."""
    rank: int
    token: str
    probability: float
    text: str
    """The text with this guess in its place; other masks as they were."""


@dataclass(frozen=True)
class NextSentence:
    """How likely B follows A."""

    probability: float
    follows: bool


def resolve_model(name: str, settings: Settings) -> str:
    """The folder of a model: one given as a path, a registered name (`name`, `name@version`), or a run's model.

    Raises: NotFoundError, saying what was looked for and what there is.
    """
    if exists(join(name, MODEL_FILE)):
        return name
    if name.startswith((".", "/", "~")) or "://" in name:
        what = f"{name} is no model folder: it has no {MODEL_FILE}" if exists(name) else f"there is no folder {name}"
        raise NotFoundError(what)
    from orchestrator.registry import Registry

    with Registry(settings.registry) as registry:
        try:
            folder: str = registry.model(name).folder
            return folder
        except NotFoundError as error:
            registered = str(error).partition("; ")[2].rstrip(".")
        try:
            run = registry.run(name)
        except NotFoundError as error:
            if "several runs" in str(error):
                raise
            folder = f"folder with a {MODEL_FILE}" if exists(name) else "folder"
            raise NotFoundError(
                f"{name!r} is no registered model, run or {folder} ({registered}); "
                "run the spec that makes it first, or name another"
            ) from None
        if run.model_folder is not None:
            return str(run.model_folder)
        raise NotFoundError(f"run {run.id} ({run.kind}, {run.state}) has left no model; see `orchestrator models list`")


def evaluate(
    model: str,
    task: TaskSpec,
    split: Split,
    settings: Settings,
    batch_size: int = 64,
    predictions: str | None = None,
    reranking: "Reranking | None" = None,
    on_progress: Callable[[str], None] = lambda line: None,
) -> EvaluationResult:
    """Scores of a model on a split of a task; per-example predictions go to a JSONL file where one is named.

    Args:
        reranking: scores the first hits of a retrieval task again.
    """
    from orchestrator.finetuning.evaluation import evaluate_model
    from orchestrator.tasks import Prediction, load_task, prediction_rows, score, write_prediction_rows

    folder = resolve_model(model, settings)
    loaded = load_task(task)
    if reranking is not None:
        check_reranks(loaded)
    found: Sequence[Prediction]
    counts: dict[str, int] = {}
    if loaded.head == "retrieval":
        from orchestrator.retrieval.searching import INDEXES, rank_queries

        kept = join(settings.storage, INDEXES)
        found, counts = rank_queries(folder, loaded, split, reranking, on_progress, kept)
        metrics = score(loaded, split, found)
    else:
        metrics, found = evaluate_model(folder, loaded, split, batch_size, join(settings.storage, "tasks"))
    if predictions is not None:
        write_prediction_rows(predictions, prediction_rows(loaded, split, found))
    return EvaluationResult(loaded.id, split, metrics, len(found), predictions, counts)


def check_reranks(task: "Task") -> None:
    """See that a task has hits that a reranker can score. Raises: InputError."""
    if task.head != "retrieval":
        raise InputError(f"task {task.id} is no retrieval: it has no hits to score again; leave rerank out")


def export_model(model: str, target: str, settings: Settings) -> str:
    """Copy a model's folder to a new one, whole or not at all. Raises: InputError, CheckpointError, NotFoundError."""
    from bert_core.manifest import MANIFEST_FILE, check_manifest

    source = Path(local_copy(resolve_model(model, settings)))
    if exists(target):
        raise InputError(f"{target} is there already; name a folder that is not")
    if (source / MANIFEST_FILE).exists():
        check_manifest(source, "train it again, or export another version")
    with written_folder(target) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    return target


def predict(folder: str, lines: Iterable[str], batch_size: int = 64) -> Iterator[dict[str, Any]]:
    """A fine-tuned model's answer to each line, in order; blank lines are passed over.

    A line is a JSON object with the keys the head reads (`text` and `text_pair`, and the names of a person's own
    columns; `text` and `choices`; `words`; `question` and `context`), or plain text: a sentence, two with a tab between
    them, words with spaces between them.

    Raises: InputError, naming the line.
    """
    from orchestrator.answering.blocks import line_blocks
    from orchestrator.answering.predicting import Predictor

    predictor = Predictor.load(folder, batch_size)
    for block in line_blocks(lines):
        yield from predictor.predict(block)


def embed(folder: str, lines: Iterable[str]) -> Iterator[tuple[dict[str, Any], "NDArray[np.float32]"]]:
    """What each line says and its vector (H,), in order; blank lines are passed over.

    A line is a text, or a JSON object with `text`, whose other keys are kept. Raises: InputError, naming the line.
    """
    from orchestrator.answering.blocks import line_blocks
    from orchestrator.retrieval.embedding import LineEmbedder

    embedder = LineEmbedder.load(folder)
    for block in line_blocks(lines):
        yield from zip(*embedder.embed(block), strict=True)


def fill_mask(folder: str, text: str, top_k: int = 5) -> list[FilledMask]:
    """The likeliest tokens for each [MASK] of a text. Raises: InputError, CheckpointError."""
    import torch

    from bert_core.packed_sequences import PackedSequences

    model, tokenizer = _load_pretraining(folder, "prediction.bias", "masked tokens")
    mask = tokenizer.token(tokenizer.mask_id)
    ids = [tokenizer.cls_id, *tokenizer.encode_batch([text])[0].ids, tokenizer.sep_id]
    places = [place for place, token in enumerate(ids) if token == tokenizer.mask_id]
    if not places:
        raise InputError(f"the text has no {mask} to fill; write it where a word is missing")
    _check_length(len(ids), model.config.max_seq_length)
    seqs = PackedSequences.from_lengths(
        torch.tensor(ids), torch.zeros(len(ids), dtype=torch.long), torch.tensor([0, len(ids)])
    )
    with torch.inference_mode():
        hidden = model.bert.encode(seqs)  # (T, H)
        probabilities = model.predict(hidden[places]).float().softmax(dim=-1)  # (P, V)
    best = probabilities[:, : tokenizer.vocab_size].topk(min(top_k, tokenizer.vocab_size))
    pieces = text.split(mask)
    filled = []
    for number, (values, tokens) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True), start=1):
        for rank, (probability, token_id) in enumerate(zip(values, tokens, strict=True), start=1):
            token = tokenizer.token(token_id)
            before, after = mask.join(pieces[:number]), mask.join(pieces[number:])
            word, goes_on = tokenizer.surface(token_id)
            whole = (before.rstrip() if goes_on else before) + word + after
            filled.append(FilledMask(number, rank, token, probability, whole))
    return filled


def next_sentence(folder: str, first: str, second: str) -> NextSentence:
    """How likely the second text follows the first. Raises: InputError, CheckpointError."""
    import torch

    from bert_core.packed_sequences import PackedSequences

    model, tokenizer = _load_pretraining(folder, "next_sentence.weight", "next sentences")
    a, b = tokenizer.encode_ids([first, second])
    if not a or not b:
        raise InputError("next-sentence needs two texts with at least one word each")
    layout = tokenizer.segment_layout
    ids = [layout.prefix, *a, *layout.between, *b, layout.suffix]
    _check_length(len(ids), model.config.max_seq_length)
    types = [0] * (len(ids) - len(b) - 1) + [layout.type_of_second] * (len(b) + 1)
    seqs = PackedSequences.from_lengths(torch.tensor(ids), torch.tensor(types), torch.tensor([0, len(ids)]))
    with torch.inference_mode():
        logits = model.next_sentence(model.bert.pool(model.bert.encode(seqs), seqs))  # (1, 2)
        probability = float(logits.float().softmax(dim=-1)[0, 0])
    return NextSentence(probability, probability >= 0.5)


def _load_pretraining(folder: str, weight: str, what: str) -> Any:
    """A model with its pretraining heads, and its tokenizer. Raises: CheckpointError when it lacks that weight."""
    from bert_core.heads import BertForPreTraining
    from bert_core.text.tokenization import Tokenizer

    local = Path(local_copy(folder))
    model = BertForPreTraining.from_pretrained(local)
    tokenizer = Tokenizer.load(local)
    tokenizer.check_fits(model.config.vocab_size)
    assert model.load_report is not None
    found = weight in dict(model.named_parameters())
    if weight.startswith("next_sentence.") and not model.config.sentence_head:
        raise CheckpointError(
            f"{folder} has no head for {what}: a model of its family ({model.config.model_type}) is pretrained without "
            "one; use one pretrained with sentence pairs, as BERT is"
        )
    if not found or model.weight_names.of(weight)[0] in model.load_report.initialised:
        raise CheckpointError(f"{folder} has no head for {what}; use the pretrained model that it was fine-tuned from")
    return model, tokenizer


def _check_length(length: int, longest: int) -> None:
    if length > longest:
        raise InputError(f"the text has {length} tokens, the model reads {longest} at most; shorten it")
