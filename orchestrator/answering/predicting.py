"""A fine-tuned model's answers to lines."""

from typing import Any, Self

from orchestrator.answering.blocks import Answers, LineBlock, json_lines
from orchestrator.finetuning.evaluation import predict_examples
from orchestrator.finetuning.model_folder import FineTunedModel, load_fine_tuned
from orchestrator.storage import local_copy
from orchestrator.task_lines import read_line, to_answer, to_example


class Predictor:
    """Answers as JSON lines: what the line said, and the prediction."""

    def __init__(self, model: FineTunedModel, batch_size: int = 64) -> None:
        """`batch_size` examples are computed at a time."""
        self.model = model
        self.task = model.task()
        self.batch_size = batch_size

    @classmethod
    def load(cls, folder: str, batch_size: int = 64, device: str = "cpu") -> Self:
        """From a model folder. Raises: CheckpointError, TokenizerError."""
        model = load_fine_tuned(local_copy(folder))
        model.model.to(device)
        return cls(model, batch_size)

    def predict(self, block: LineBlock) -> list[dict[str, Any]]:
        """One answer for each line. Raises: InputError, naming the line."""
        inputs = [read_line(line, number, self.task) for number, line in block.lines]
        examples = [
            to_example(values, number, self.task) for values, (number, _) in zip(inputs, block.lines, strict=True)
        ]
        predictions = predict_examples(self.model, examples, self.batch_size)
        return [
            {**values, **to_answer(prediction, self.task)}
            for values, prediction in zip(inputs, predictions, strict=True)
        ]

    def __call__(self, block: LineBlock) -> Answers:
        """The answers, in the lines' order."""
        return Answers(json_lines(self.predict(block)), len(block.lines))
