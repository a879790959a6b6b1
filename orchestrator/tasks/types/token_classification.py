"""Token classification: each word of a sentence has a tag of its own, as parts of speech are.

Files, windows and outputs are those of `ner`; the tags mark no entities and are taken as they are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from bert_core.metrics import classification_metrics
from orchestrator.tasks.types.base import Scores, TaskDefinition, TaskType
from orchestrator.tasks.types.conll import TAG_LAYOUTS, NerExample, PlainConllReader, PlainTagTable
from orchestrator.tasks.types.ner import Examples, Ner, TagsPrediction


class TokenClassification(Ner):
    """Any tag for each word."""

    head = "token_classification"
    metrics = ("word_accuracy", "macro_f1")
    labeled_layouts = TAG_LAYOUTS
    conll_type, table_type = PlainConllReader, PlainTagTable

    def label_names(self, example: NerExample) -> tuple[str, ...]:
        return example.tags

    def labels_note(self, examples: Examples) -> str | None:
        return None

    def find_labels(self, examples: Iterable[NerExample]) -> tuple[str, ...]:
        """Every tag that occurs, sorted."""
        return tuple(sorted({tag for example in examples for tag in example.tags}))

    def check_labels(self, labels: tuple[str, ...]) -> None:
        """Check that labels can be told apart. Raises: SpecError."""
        TaskType.check_labels(self, labels)

    def score(self, task: TaskDefinition, examples: Examples, predictions: Sequence[TagsPrediction]) -> Scores:
        """Share of words with the right tag, and the mean of F1 over the tags that occur."""
        scores = classification_metrics(*_tag_numbers(task, examples, predictions))
        return {"word_accuracy": scores["accuracy"], "macro_f1": scores["macro_f1"]}

    def baseline(self, task: TaskDefinition, learned: Examples, examples: Examples) -> list[TagsPrediction]:
        """Predict the tag that is most frequent in training, for every word."""
        counts = Counter(tag for example in learned for tag in example.tags)
        most = max(task.labels, key=lambda label: counts[label])
        return [TagsPrediction((most,) * len(example.words)) for example in examples]


def _tag_numbers(
    task: TaskDefinition, examples: Examples, predictions: Sequence[TagsPrediction]
) -> tuple[list[int], list[int]]:
    """Numbers of the words' predicted and gold tags."""
    number = {label: i for i, label in enumerate(task.labels)}
    predicted = [number[tag] for prediction in predictions for tag in prediction.tags]
    return predicted, [number[tag] for example in examples for tag in example.tags]
