"""A fine-tuned model's answers to lines."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from bert_core.constants import AskedPrecision
from orchestrator.base.errors import InputError
from orchestrator.cluster.torch_devices import choose_device
from orchestrator.finetuning.evaluation import predict_examples
from orchestrator.finetuning.logits import TokenBudget
from orchestrator.finetuning.model_folder import FineTunedModel, load_fine_tuned
from orchestrator.inference import line_blocks
from orchestrator.inference.requests import ANSWER_COLUMNS, TableColumns, make_request
from orchestrator.storage import local_copy
from orchestrator.storage.text_lines import csv_lines, tsv_lines
from orchestrator.tasks.types.base import TaskDefinition
from orchestrator.tasks.types.requests import Request


@dataclass(frozen=True)
class AnswerForm:
    table: TableColumns | None = None
    """Columns, where lines are rows of a table: an answer is the row with `ANSWER_COLUMNS`."""
    delimiter: str | None = None
    """Sign between the fields of a row; None: an answer is a JSON object."""

    def header(self) -> bytes:
        """Bytes before the first answer: the names of a table's columns."""
        if self.table is None or self.delimiter is None:
            return b""
        names = [*self.table.names, *ANSWER_COLUMNS]
        return _delimited(names, [names], self.delimiter)


class Predictor:
    """Predictor of a fine-tuned model: what a line said beside the prediction, as JSON lines or as rows of a table."""

    def __init__(
        self,
        model: FineTunedModel,
        batch_size: int = 64,
        form: AnswerForm | None = None,
        precision: AskedPrecision = "auto",
    ) -> None:
        self.model, self.task, self.batch_size = model, model.task, batch_size
        self.form, self.precision = form or AnswerForm(), precision
        self._token_budget, self._counts = TokenBudget(), Counter[str]()
        request, columns = self.task.type.request, self.task.columns.names
        takes_text, keys = not columns and request.parse_text is not None, (*request.keys, *columns)
        self.abilities = line_blocks.Abilities(
            self.task.head, keys, self.task.labels, takes_text, self.task.request_example
        )

    @classmethod
    def load(
        cls,
        folder: str,
        batch_size: int = 64,
        device: str = "cpu",
        form: AnswerForm | None = None,
        precision: AskedPrecision = "auto",
    ) -> Self:
        """Load a model's folder. Raises: CheckpointError, TokenizerError."""
        model = load_fine_tuned(local_copy(folder))
        model.model.to(choose_device(device, precision=precision))
        return cls(model, batch_size, form, precision)

    def answer(self, inputs: Sequence[line_blocks.ModelInput], numbers: Sequence[int] = ()) -> list[dict[str, Any]]:
        task, table, numbered = self.task, self.form.table, line_blocks.number_inputs(inputs, numbers)
        text_columns = table.text if table else task.request_columns or task.type.default_columns
        requests = [make_request(given, number, task, text_columns) for number, given in numbered]
        examples = [task.type.example_of(task, request) for request in requests]
        predictions = predict_examples(
            self.model, examples, self.batch_size, self.precision, self._token_budget, self._counts
        )
        said = [
            given if isinstance(given, dict) else request.values
            for (_, given), request in zip(numbered, requests, strict=True)
        ]
        if self.form.delimiter is None:  # rows of CSV have the fields of their header alone
            lists = (_split_lists(task, *pair) for pair in zip(requests, examples, strict=True))
            said = [values | some for values, some in zip(said, lists, strict=True)]
        if table is None:
            answers = [task.target.answer(task, prediction) for prediction in predictions]
        else:
            brief = [brief_answer(task, prediction) for prediction in predictions]
            answers = [dict(zip(ANSWER_COLUMNS, values, strict=True)) for values in brief]
        return [
            merge_answer(values, answer, number)
            for (number, _), values, answer in zip(numbered, said, answers, strict=True)
        ]

    def __call__(self, block: line_blocks.LineBlock) -> line_blocks.PredictedBlock:
        self._counts.clear()
        rows, form = self.answer(*block.parse()), self.form
        num_truncated = self._counts["num_truncated"]
        if form.delimiter is None:
            return line_blocks.PredictedBlock(line_blocks.json_lines(rows), len(rows), num_truncated)
        fields = [list(row.values()) for row in rows]
        names = list(rows[0]) if rows else []
        return line_blocks.PredictedBlock(_delimited(names, fields, form.delimiter), len(rows), num_truncated)


def brief_answer(task: TaskDefinition, prediction: Any) -> tuple[object, float | None]:
    """The prediction as a cell of a table, and its probability where it has one."""
    first = next(iter(task.target.answer(task, prediction).values()))
    if isinstance(first, list):
        return ", ".join(map(str, first)), None
    return first, max(getattr(prediction, "probabilities", ()), default=None)


def _split_lists(task: TaskDefinition, request: Request, example: Any) -> dict[str, Any]:
    """The lists that a task's type made of texts: the words that the tags of an answer belong to."""
    said = task.type.inputs(example)
    lists = task.type.request.list_keys & said.keys()
    return {key: said[key] for key in lists if isinstance(request.values.get(key), str)}


def merge_answer(said: Mapping[str, Any], answer: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Put an answer beside what a line says, under `predicted_KEY` where the line has the answer's key already.

    >>> merge_answer({"text": "a", "label": "gold"}, {"label": "b", "probabilities": {}}, 1)
    {'text': 'a', 'label': 'gold', 'predicted_label': 'b', 'probabilities': {}}

    Raises: InputError, naming the line, where it has both keys.
    """
    renamed = {f"predicted_{key}" if key in said else key: value for key, value in answer.items()}
    for key in renamed:
        if key in said:
            raise InputError(f"line {number} has the key {key!r} already, which the answer would replace; rename it")
    return {**said, **renamed}


def _delimited(names: Sequence[str], rows: Iterable[Sequence[Any]], delimiter: str) -> bytes:
    """Rows of a table as bytes, lists in them as JSON. Raises: InputError for a field that TSV cannot hold."""
    json_text = partial(json.dumps, ensure_ascii=False)
    rows = [[json_text(field) if isinstance(field, list | dict) else field for field in row] for row in rows]
    return "".join(tsv_lines(names, rows) if delimiter == "\t" else csv_lines(rows, delimiter)).encode()


def predict(
    folder: str, lines: Iterable[str], batch_size: int = 64, precision: AskedPrecision = "auto"
) -> Iterator[dict[str, Any]]:
    """A fine-tuned model's answer to each line, in order; blank lines are passed over.

    A line is a JSON object with the keys the head reads (`text` and `text_pair`, and the names of a person's own
    columns; `text` and `choices`; `words`; `question` and `context`), or plain text: a sentence, two with a tab between
    them, words with spaces between them.

    Raises: InputError, naming the line.
    """
    predictor = Predictor.load(folder, batch_size, precision=precision)
    for block in line_blocks.line_blocks(lines):
        yield from predictor.answer(*block.parse())
