"""Multiple choice: a text goes on in one of several ways, of which one is right.

The model's outputs are a logit for each choice, (W,) or (W, 1): each choice is one window, and the windows of an
example follow one another.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self, TypeAlias

import numpy as np

from bert_core.constants import IGNORE_INDEX
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import SpecError
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.cell_values import read_label
from orchestrator.tasks.features import Array, Features, Windows, build_text_windows
from orchestrator.tasks.table_files import read_rows
from orchestrator.tasks.text_examples import read_texts
from orchestrator.tasks.text_files import BadRecords, LabeledReader
from orchestrator.tasks.types import base
from orchestrator.tasks.types.requests import Request, RequestForm
from orchestrator.tasks.types.text import TextArrays, check_text_columns


@dataclass(frozen=True, slots=True)
class MultipleChoiceExample:
    """A text and two or more ways to go on, of which one is right."""

    id: str
    text: str
    choices: tuple[str, ...]
    choice: int | None = None
    """Place of the right choice, from 0; None where it is not known."""


Examples: TypeAlias = Sequence[MultipleChoiceExample]


@dataclass(frozen=True, slots=True)
class ChoicePrediction:
    """The place of the likeliest choice, from 0, and every choice's probability."""

    choice: int
    probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class MultipleChoiceTable(LabeledReader[MultipleChoiceExample]):
    """Reads texts with several ways to go on. Where there are two columns of text, the second begins every choice."""

    text_columns: tuple[str, ...]
    choice_columns: tuple[str, ...]
    label_column: str

    @classmethod
    def of_spec(cls, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> Self:
        return cls(spec.text_columns, spec.choice_columns, spec.label_column or "label")

    def read(self, path: str, bad: BadRecords) -> Iterator[MultipleChoiceExample]:
        columns = (*self.text_columns, *self.choice_columns, *([self.label_column] if self.labeled else ()))
        for number, (place, values) in enumerate(read_rows(path, columns, bad)):
            record = dict(zip(columns, values, strict=True))
            try:
                text, *beginning = read_texts(record, self.text_columns, bad.remarks)
                endings = read_texts(record, self.choice_columns, bad.remarks)
                right = self._find_right(record[self.label_column]) if self.labeled else None
                choices = tuple(" ".join(filter(None, (*beginning, ending))) for ending in endings)
                yield MultipleChoiceExample(str(number), text, choices, right)
            except ValueError as error:
                bad.found(place, str(error))

    def _find_right(self, value: object) -> int:
        """The place of the column that a label names, or numbers from 0."""
        label = read_label(value) or ""
        if label in self.choice_columns:
            return self.choice_columns.index(label)
        places = [str(place) for place in range(len(self.choice_columns))]
        if label not in places:
            known = f"{', '.join(self.choice_columns)} nor a number from 0 to {places[-1]}"
            raise ValueError(f"{self.label_column} {value!r} is neither one of {known}")
        return int(label)


class ChoiceTarget(base.Target[MultipleChoiceExample, ChoicePrediction]):
    """One right choice of several."""

    field = "choice"
    metrics = ("accuracy",)

    def decode(
        self, task: base.TaskDefinition, examples: Examples, rows: Sequence[Array], options: base.TaskOptions
    ) -> list[ChoicePrediction]:
        """The choice of the largest logit of an example, and the softmax over its choices."""
        return [ChoicePrediction(int(row.argmax()), tuple(base.softmax(row).tolist())) for row in rows]

    def score(
        self, task: base.TaskDefinition, examples: Examples, predictions: Sequence[ChoicePrediction]
    ) -> base.Scores:
        pairs = zip(predictions, examples, strict=True)
        return {"accuracy": fmean(prediction.choice == example.choice for prediction, example in pairs)}

    def baseline(self, task: base.TaskDefinition, learned: Examples, examples: Examples) -> list[ChoicePrediction]:
        """The most frequent place of the right choice."""
        places = Counter(example.choice or 0 for example in learned)
        return [ChoicePrediction(max(sorted(places), key=lambda place: places[place]))] * len(examples)


class MultipleChoice(base.TaskType[MultipleChoiceExample]):
    head = "multiple_choice"
    target = ChoiceTarget()
    reader_type = MultipleChoiceTable
    arrays_type = TextArrays
    spec_fields = frozenset({"text_columns", "choice_columns", "label_column"})
    request = RequestForm(
        ("text", "choices"),
        {"text": "She opened the umbrella because", "choices": ["it rained.", "it was noon."]},
        num_columns=1,
    )

    def check_spec(self, spec: TaskSpec) -> None:
        check_text_columns(spec)
        if len(spec.choice_columns) < 2:
            raise SpecError("task.choice_columns: name the two or more columns that hold the choices")

    def example_of(self, task: base.TaskDefinition, request: Request) -> MultipleChoiceExample:
        return MultipleChoiceExample(request.id, request.text("text"), request.texts("choices", least=2))

    def windows(
        self, task: base.TaskDefinition, examples: Examples, tokenizer: Tokenizer, options: base.TaskOptions
    ) -> Windows[TextArrays]:
        """One window per choice, as the second text of a pair; labels are places of the right choices, from 0."""
        pairs = [(example.text, choice) for example in examples for choice in example.choices]
        sizes = [len(example.choices) for example in examples]
        labels = [IGNORE_INDEX if example.choice is None else example.choice for example in examples]
        made = build_text_windows(pairs, tokenizer, options.max_seq_length, sizes=sizes)
        return made.with_arrays(TextArrays(np.array(labels, dtype=np.int32)))

    def gather(self, features: Features[TextArrays], outputs: base.Outputs, options: base.TaskOptions) -> list[Array]:
        """The logits of each example's choices."""
        base.check_length(outputs, features.num_windows, "choice")
        return np.split(outputs.reshape(-1), features.group_starts[1:-1])
