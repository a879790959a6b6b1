"""Small files of data in every layout, and the request that drafts a spec of them."""

import json
from pathlib import Path
from typing import Any

from orchestrator.base.settings import Settings
from orchestrator.drafting.request import DraftRequest

WORDS = {"pos": ("good", "great", "lovely"), "neg": ("bad", "awful", "poor")}


def request_for(folder: Path, *files: Path | str, **fields: Any) -> DraftRequest:
    """A request for a draft of files, with a home of its own."""
    settings = Settings.from_options(home=str(folder / "home"), environ={})
    fields = {"output": str(folder / "drafted.yaml"), "num_cores": 2, **fields}
    return DraftRequest(files=tuple(map(str, files)), settings=settings, **fields)


def review(number: int) -> tuple[str, str]:
    """Text and label of the review of that number; two of three are good."""
    label = "neg" if number % 3 == 0 else "pos"
    return f"film {number} was {WORDS[label][number % 2]}, {WORDS[label][2]} and long", label


def write_reviews(path: Path, num_rows: int = 60, delimiter: str = ",", first: int = 0) -> Path:
    """A CSV file of reviews with columns text and label."""
    rows = [review(number) for number in range(first, first + num_rows)]
    lines = [f"text{delimiter}label", *(f'"{text}"{delimiter}{label}' for text, label in rows)]
    return write(path, "\n".join(lines) + "\n")


def write_records(path: Path, num_rows: int = 60) -> Path:
    """The reviews as one array of JSON."""
    return write(path, json.dumps([dict(zip(("text", "label"), review(n), strict=True)) for n in range(num_rows)]))


def write_sentences(path: Path, num_sentences: int = 30) -> Path:
    """CoNLL columns: a sentence about a person each."""
    sentences = [f"-X- O\nAda{number} B-PER\nwrote O\n" for number in range(num_sentences)]
    return write(path, "\n".join(sentences))


def write_questions(path: Path, num_passages: int = 20) -> Path:
    """SQuAD's JSON: two questions about each passage."""
    paragraphs = []
    for number in range(num_passages):
        context = f"Ada{number} wrote the program of machine {number}."
        answers = [{"text": f"Ada{number}", "answer_start": 0}]
        qas = [{"id": f"{number}{mark}", "question": f"Who wrote {mark}?", "answers": answers} for mark in "ab"]
        paragraphs.append({"context": context, "qas": qas})
    return write(path, json.dumps({"version": "1.1", "data": [{"title": "Ada", "paragraphs": paragraphs}]}))


def write_text(path: Path, num_documents: int = 60) -> Path:
    """Plain text: documents of three sentences, an empty line between them."""
    documents = [
        f"The film {n} was long.\nNobody left before its end.\nIt was shown {n} times." for n in range(num_documents)
    ]
    return write(path, "\n\n".join(documents) + "\n")


def write(path: Path, text: str) -> Path:
    """A file with a text in it."""
    path.write_text(text, encoding="utf-8")
    return path
