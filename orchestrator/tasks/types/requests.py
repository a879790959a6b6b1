"""Requests to a fine-tuned model, as task types read them: the keys of a line, and its values."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.base.errors import InputError
from orchestrator.specs.task import Head
from orchestrator.storage.text_lines import check_has
from orchestrator.tasks.text_examples import read_texts


@dataclass(frozen=True)
class RequestForm:
    """Form of the requests of a task type."""

    keys: tuple[str, ...] = ()
    """Keys that a request may have, beside the names of a person's own columns."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """A request, to try a model with: it has the keys that every request must have."""
    parse_text: Callable[[str], dict[str, Any]] | None = None
    """Function from a line of plain text to the values of a request; None where only JSON says enough."""
    num_columns: int = 2
    """Columns of text that a task may have for them to hold the first keys; of more, one is but a part of a key."""

    @property
    def optional_keys(self) -> frozenset[str]:
        """Keys that a request may leave out."""
        return frozenset(self.keys) - self.example.keys()

    @property
    def list_keys(self) -> frozenset[str]:
        """Keys whose values are lists of texts, which CSV and TSV cannot hold."""
        return frozenset(key for key, value in self.example.items() if isinstance(value, list))


@dataclass(frozen=True)
class Request:
    """A request to a fine-tuned model: the values of one line, by key."""

    values: dict[str, Any]
    line: int
    """Number of the line in its file, from 1."""
    head: Head
    """Name of the task type that is asked."""
    keys: tuple[str, ...]
    """Keys that the task type reads."""

    @property
    def id(self) -> str:
        """The `id` that the line gives, else its number."""
        return str(self.values.get("id", self.line))

    def text(self, key: str) -> str:
        """A value that is text, or a number, which counts as text. Raises: InputError, naming line and key."""
        check_has(key, self.values, self.line)
        try:
            (text,) = read_texts(self.values, (key,), Counter())
        except ValueError:
            raise InputError(
                f"line {self.line}: {key} must be text; the keys of {self.head} are {', '.join(self.keys)}"
            ) from None
        return text

    def optional_text(self, key: str) -> str | None:
        """A value that is text, or None where it is missing or null. Raises: InputError, naming line and key."""
        return None if self.values.get(key) is None else self.text(key)

    def texts(self, key: str, least: int = 1) -> tuple[str, ...]:
        """A value that is a list of texts, of a least length. Raises: InputError, naming line and key."""
        check_has(key, self.values, self.line)
        texts = self.values[key]
        if not isinstance(texts, list) or len(texts) < least or not all(isinstance(text, str) for text in texts):
            at_least = f", at least {least}" if least > 1 else ""
            raise InputError(f"line {self.line}: {key} must be a list of texts{at_least}")
        return tuple(texts)

    def columns(self, names: tuple[str, ...]) -> Mapping[str, object]:
        """The values of a person's own columns, all of which must be there. Raises: InputError, naming the key."""
        for name in names:
            check_has(name, self.values, self.line)
        return self.values
