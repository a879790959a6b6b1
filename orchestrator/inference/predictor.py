"""A fine-tuned model's answers to lines."""

from collections.abc import Iterable, Iterator
from typing import Any, Self

from orchestrator.finetuning.evaluation import predict_examples
from orchestrator.finetuning.model_folder import FineTunedModel, load_fine_tuned
from orchestrator.inference.blocks import LineBlock, PredictedBlock, json_lines, line_blocks
from orchestrator.inference.request_lines import parse_request
from orchestrator.storage import local_copy


class Predictor:
    """Answers as JSON lines: what the line said, and the prediction."""

    def __init__(self, model: FineTunedModel, batch_size: int = 64) -> None:
        """`batch_size` examples are computed at a time."""
        self.model = model
        self.task = model.task()
        self.batch_size = batch_size

    @classmethod
    def load(cls, folder: str, batch_size: int = 64, device: str = "cpu") -> Self:
        """A predictor of a model folder. Raises: CheckpointError, TokenizerError."""
        model = load_fine_tuned(local_copy(folder))
        model.model.to(device)
        return cls(model, batch_size)

    def predict(self, block: LineBlock) -> list[dict[str, Any]]:
        """One answer for each line. Raises: InputError, naming the line."""
        requests = [parse_request(line, number, self.task) for number, line in block.lines]
        examples = [self.task.type.example_of(self.task, request) for request in requests]
        predictions = predict_examples(self.model, examples, self.batch_size)
        return [
            {**request.values, **self.task.type.answer(self.task, prediction)}
            for request, prediction in zip(requests, predictions, strict=True)
        ]

    def __call__(self, block: LineBlock) -> PredictedBlock:
        """The answers, in the lines' order."""
        return PredictedBlock(json_lines(self.predict(block)), len(block.lines))


def predict(folder: str, lines: Iterable[str], batch_size: int = 64) -> Iterator[dict[str, Any]]:
    """A fine-tuned model's answer to each line, in order; blank lines are passed over.

    A line is a JSON object with the keys the head reads (`text` and `text_pair`, and the names of a person's own
    columns; `text` and `choices`; `words`; `question` and `context`), or plain text: a sentence, two with a tab between
    them, words with spaces between them.

    Raises: InputError, naming the line.
    """
    predictor = Predictor.load(folder, batch_size)
    for block in line_blocks(lines):
        yield from predictor.predict(block)
