"""Small labeled tasks with a rule that a tiny model finds within seconds, and a tokenizer for their words."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bert_core.config import BertConfig
from bert_core.heads import BertForPreTraining
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.model_folder import save_model_folder
from orchestrator.finetuning.model_record import FineTuningRecord
from orchestrator.specs import RecipeSpec, TaskSpec
from orchestrator.tasks.task import Task
from tests.orchestrator.tasks.definitions import define

FILLERS = [
    "the", "a", "one", "some", "old", "new", "red", "blue",
    "big", "small", "house", "river", "road", "tree", "stone", "bird",
]  # fmt: skip
NAMES = ["anna", "bruno", "clara", "dario", "elsa", "franz"]

RECIPE = RecipeSpec(learning_rate=2e-3, batch_size=16, epochs=4.0, max_seq_length=32, dropout=0.0, precision="fp32")
"""Lets a tiny model learn these tasks from random weights."""


_PAIR_FIELDS: dict[str, dict[str, Any]] = {
    "cosine": {"label_column": "score", "score_range": (1.0, 5.0)},
    "classification": {"label_column": "class"},
    "in_batch_negatives": {},
}


def save_tokenizer(folder: Path) -> str:
    words = [*FILLERS, *NAMES, "good", "bad", "mr", "plus", "what", "is", "it"]
    tokenizer = train_wordpiece([" ".join(words)] * 3, vocab_size=300, min_frequency=1)
    tokenizer.save(folder / "tokenizer")
    return str(folder / "tokenizer")


def load_tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(Path(save_tokenizer(folder)))


def save_pretrained(folder: Path, model_type: Any = BertForPreTraining, **config: Any) -> Any:
    """A tiny model of random weights in a folder, with the tokenizer of these words."""
    tokenizer = load_tokenizer(folder.parent)
    shape = BertConfig.from_size("tiny", **{"vocab_size": tokenizer.vocab_size, **config})
    model = model_type.from_config(shape, seed=7)
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return model


def save_fine_tuned(folder: Path, task: Task, labels: Sequence[str] | None = None) -> str:
    """A model of random weights for a task; of given labels the first gets a bonus, so that it is each answer."""
    tokenizer = load_tokenizer(folder)
    model = build_model(define("classification", labels) if labels else task, RECIPE, None, tokenizer)
    if labels:
        with torch.no_grad():
            model.classifier.bias[0] = 100.0  # type: ignore[index, union-attr]
    record = FineTuningRecord(task, task.type.options_type.of_recipe(RECIPE))
    save_model_folder(model, tokenizer, record, str(folder / "model"))
    return str(folder / "model")


def classification(folder: Path, num_train: int = 320) -> TaskSpec:
    """`yes` where the text says good, `no` where it says bad."""
    rng = random.Random(0)

    def record() -> dict[str, object]:
        word = rng.choice(["good", "bad"])
        return {"text": _with(rng, [word]), "label": "yes" if word == "good" else "no"}

    return _table(folder, "classification", record, num_train)


def multi_label(folder: Path) -> TaskSpec:
    """Each of three words that the text says is a label of it."""
    rng = random.Random(4)

    def record() -> dict[str, object]:
        words = [word for word in ("good", "bad", "plus") if rng.random() < 0.4]
        return {"text": _with(rng, words), "label": rng.choice([words, "|".join(words)])}

    return _table(folder, "multi_label", record, 640)


def multiple_choice(folder: Path) -> TaskSpec:
    """The right one of three continuations says good."""
    rng = random.Random(5)

    def record() -> dict[str, object]:
        right = rng.randrange(3)
        choices = {f"ending{place}": _with(rng, ["good" if place == right else "bad"]) for place in range(3)}
        return {"text": _with(rng, []), "start": "it is", **choices, "label": right}

    columns = {"text_columns": ("text", "start"), "choice_columns": ("ending0", "ending1", "ending2")}
    return _table(folder, "multiple_choice", record, 320, **columns)


def columns(folder: Path, head: str = "classification") -> TaskSpec:
    """`yes`, or a higher value, where the text says good and the number is above 5, or the color is red."""
    rng = random.Random(6)

    def record() -> dict[str, object]:
        word, size = rng.choice(["good", "bad"]), rng.choice([None, rng.uniform(0.0, 10.0)])
        color = rng.choice(["red", "blue", "green", None])
        is_so = color == "red" or (word == "good" and size is not None and size > 5.0)
        label: object = float(is_so) if head == "regression" else "yes" if is_so else "no"
        return {"text": _with(rng, [word]), "size": size, "color": color, "label": label}

    return _table(folder, head, record, 640, numerical_columns=("size",), categorical_columns=("color",))


def regression(folder: Path) -> TaskSpec:
    """How often the text says plus."""
    rng = random.Random(1)

    def record() -> dict[str, object]:
        count = rng.randrange(4)
        return {"text": _with(rng, ["plus"] * count), "label": float(count)}

    return _table(folder, "regression", record, 320)


def ner(folder: Path) -> TaskSpec:
    """A person is who follows mr, of one name or two."""
    rng = random.Random(2)
    files = {}
    for split, count in (("train", 240), ("validation", 60)):
        sentences = []
        for _ in range(count):
            names = rng.sample(NAMES, rng.choice([1, 2]))
            words = [*rng.sample(FILLERS, rng.randrange(1, 5)), "mr", *names, *rng.sample(FILLERS, rng.randrange(1, 5))]
            tags = ["B-PER" if word == names[0] else "I-PER" if word in names else "O" for word in words]
            sentences.append("".join(f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True)))
        files[split] = _write(folder / f"{split}.conll", "\n".join(sentences))
    return TaskSpec(id="persons", head="ner", files=files)


def token_classification(folder: Path) -> TaskSpec:
    """A name behind mr is a surname, every other one a first name."""
    rng = random.Random(2)
    files = {}
    for split, count in (("train", 240), ("validation", 60)):
        sentences = []
        for _ in range(count):
            words = [rng.choice(rng.choice([FILLERS, NAMES, ["mr"]])) for _ in range(rng.randrange(3, 9))]
            names = ("last" if before == "mr" else "first" for before in ["", *words])
            tags = [name if word in NAMES else "other" for word, name in zip(words, names, strict=False)]
            sentences.append("".join(f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True)))
        files[split] = _write(folder / f"{split}.conll", "\n".join(sentences))
    return TaskSpec(id="kinds of names", head="token_classification", files=files)


def qa(folder: Path, unanswerable: bool = False) -> TaskSpec:
    """The answer is the passage's only name; a passage without one may have no answer."""
    rng = random.Random(3)
    files = {}
    for split, count in (("train", 320), ("validation", 80)):
        paragraphs = []
        for number in range(count):
            words = rng.choices(FILLERS, k=rng.randrange(6, 12))
            answers = []
            if not unanswerable or number % 2:
                place, name = rng.randrange(1, len(words)), rng.choice(NAMES)
                words[place] = name
                answers = [{"text": name, "answer_start": len(" ".join(words[:place])) + 1}]
            question = {"id": f"{split}-{number}", "question": "what is it", "answers": answers}
            question["is_impossible"] = not answers
            paragraphs.append({"context": " ".join(words), "qas": [question]})
        files[split] = _write(
            folder / f"{split}.json", json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]})
        )
    return TaskSpec(id="names", head="qa", files=files)


def sentence_selection(folder: Path) -> TaskSpec:
    """The sentences that say good matter; before some documents stands a query, which does not."""
    rng = random.Random(7)

    def record() -> dict[str, object]:
        matters = [rng.random() < 0.4 for _ in range(rng.randrange(1, 4))]
        sentences = [_with(rng, ["good" if good else "bad"], most=3) for good in matters]
        label: object = rng.choice([matters, [place for place, good in enumerate(matters) if good]])
        return {"text": sentences, "query": rng.choice([None, "what is it"]), "label": label}

    columns = {"text_columns": ("text", "query"), "label_column": "label"}
    return _table(folder, "sentence_selection", record, 640, **columns)


def pairs(folder: Path, objective: str, **fields: Any) -> TaskSpec:
    """Two texts that name the same person or not; where they belong together, the same two persons in order."""
    rng = random.Random(0)

    def text(*names: str) -> str:
        return " ".join([*rng.choices(FILLERS, k=rng.randrange(2, 5)), *names])

    def record() -> dict[str, object]:
        if objective == "in_batch_negatives":
            names = rng.sample(NAMES, 2)
            return {"a": text(*names), "b": text(*names)}
        first = rng.choice(NAMES[:2])
        second = rng.choice(NAMES[:2])
        same = first == second
        return {"a": text(first), "b": text(second), "score": 5 if same else 1, "class": "same" if same else "other"}

    def negatives(number: int) -> list[str]:
        return [" ".join(random.Random(f"{number}.{n}").sample(NAMES, 2)) for n in range(number % 3)]

    files = {}
    for split, count in (("train", 480), ("validation", 60)):
        records = [record() | {"negatives": negatives(number)} for number in range(count)]
        files[split] = _write(folder / f"{split}.jsonl", "\n".join(map(json.dumps, records)))
    values = {"text_columns": ("a", "b"), "objective": objective, **_PAIR_FIELDS[objective], **fields}
    return TaskSpec.model_validate({"id": "persons", "head": "embedding", "files": files, **values})


def _table(folder: Path, head: str, record: object, num_train: int, **fields: Any) -> TaskSpec:
    files = {}
    for split, count in (("train", num_train), ("validation", 100), ("test", 50)):
        lines = [json.dumps(record()) for _ in range(count)]  # type: ignore[operator]
        files[split] = _write(folder / f"{split}.jsonl", "\n".join(lines))
    fields = {"text_columns": ("text",), **fields}
    return TaskSpec(id="words", head=head, files=files, **fields)  # type: ignore[arg-type]


def _with(rng: random.Random, words: list[str], most: int = 8) -> str:
    text = [*rng.choices(FILLERS, k=rng.randrange(2, most + 1)), *words]
    rng.shuffle(text)
    return " ".join(text)


def _write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    return str(path)
