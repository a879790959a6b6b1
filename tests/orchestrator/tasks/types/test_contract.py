"""Contract of task types, which every one keeps. Alone: pytest tests/orchestrator/tasks/types/test_contract.py"""

import json
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import InputError, SpecError, TaskDataError
from orchestrator.finetuning.heads import HEADS
from orchestrator.finetuning.search_space import check_recipe
from orchestrator.specs import RecipeSpec, TaskSpec
from orchestrator.specs.task import Head
from orchestrator.storage import read_bytes
from orchestrator.tasks.feature_cache import build_features
from orchestrator.tasks.features import Features, join_features
from orchestrator.tasks.loading import DATA_FIELDS, load_task
from orchestrator.tasks.scoring import decode_fitted, majority_baseline, prediction_rows, score
from orchestrator.tasks.task import Task
from orchestrator.tasks.types import TASK_TYPES, TYPES, find_type
from orchestrator.tasks.types.base import TaskOptions
from orchestrator.tasks.types.requests import Request
from orchestrator.tasks.types.retrieval import QueryExample, RankingPrediction
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.tasks.definitions import decode, define, options_of

LENGTHS: Mapping[str, int] = {"max_seq_length": 16, "doc_stride": 3, "max_query_length": 4}
"""Short windows, so that passages and sentences need several; each type takes those of its options."""
RECIPE_VALUES: Mapping[str, Any] = {
    **{"token_decoder": "crf", "num_lstm_layers": 1, "context": "document", "pooling": "cls", "temperature": 1.0},
    **dict.fromkeys(("doc_stride", "max_query_length", "max_answer_length"), 9),
    **{"matryoshka_dims": (8, 4), "query_prompt": "a", "document_prompt": "b", "class_weights": "balanced"},
    **{"label_smoothing": 0.1, "loss": "focal", "long_documents": "max", "calibrate": True, "tune_thresholds": True},
    **{"freeze_encoder": True, "layer_pooling": "scalar_mix", "head_learning_rate": 0.1},
}
"""A value beside the default for each recipe field that is made for some types."""


@dataclass(frozen=True)
class Case:
    """A task of a type, outputs that fit its features, and a request."""

    make: Callable[[Path], TaskSpec]
    outputs: Callable[[Task, Features[Any]], np.ndarray]
    request: Mapping[str, Any]
    answer: str
    """Keys of the answer to the request."""


def short_options(head: Head) -> TaskOptions:
    names = TASK_TYPES[head].options_type.window_fields()
    return options_of(head, **{name: length for name, length in LENGTHS.items() if name in names})


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def by_class(task: Task, features: Features[Any]) -> np.ndarray:
    return noise(features.num_examples, len(task.labels))


def by_example(task: Task, features: Features[Any]) -> np.ndarray:
    return noise(features.num_examples)


def by_token(num_columns: int | None = None) -> Callable[[Task, Features[Any]], np.ndarray]:
    return lambda task, features: noise(len(features.input_ids), num_columns or len(task.labels))


def pairs(objective: Any) -> Callable[[Path], TaskSpec]:
    return lambda folder: tiny_tasks.pairs(folder, objective)


TEXT, PAIR = {"text": "the road"}, {"text": "the road", "text_pair": "a tree"}
CHOICES, WORDS = {"text": "the road", "choices": ["a", "tree"]}, {"words": ["the", "road"]}
QUESTION = {"question": "what is it", "context": "the old road"}
DOCUMENT = {"sentences": ["the road", "a tree"], "query": "what is it"}
CASES: dict[str, Case] = {
    "classification": Case(tiny_tasks.classification, by_class, TEXT, "label probabilities"),
    "multi_label": Case(tiny_tasks.multi_label, by_class, TEXT, "labels probabilities"),
    "multiple_choice": Case(
        tiny_tasks.multiple_choice, lambda task, its: noise(its.num_windows, 1), CHOICES, "choice probabilities"
    ),
    "regression": Case(tiny_tasks.regression, by_example, TEXT, "value"),
    "ner": Case(tiny_tasks.ner, by_token(), WORDS, "tags"),
    "token_classification": Case(tiny_tasks.token_classification, by_token(), WORDS, "tags"),
    "qa": Case(lambda path: tiny_tasks.qa(path, unanswerable=True), by_token(2), QUESTION, "answer candidates"),
    "sentence_selection": Case(tiny_tasks.sentence_selection, by_token(1), DOCUMENT, "selected scores"),
    "cosine": Case(pairs("cosine"), by_example, PAIR, "value"),
    "classes_of_pairs": Case(pairs("classification"), by_class, PAIR, "label probabilities"),
}
"""The types that answer requests, embeddings by objective."""
ALL: dict[str, Case] = {
    **CASES,
    "in_batch_negatives": Case(
        pairs("in_batch_negatives"), lambda task, its: np.tile(np.arange(3), (its.num_examples, 1)), {}, ""
    ),
}


def test_every_type_has_a_case_and_every_learned_type_a_head_in_training() -> None:
    heads = {"embedding" if name not in TASK_TYPES else name for name in ALL}
    learned = {head for head, task_type in TASK_TYPES.items() if not task_type.is_searched}
    assert heads == learned == set(HEADS)
    assert all(task_type.head == head for head, task_type in TASK_TYPES.items())
    assert len(ALL) == len([task_type for task_type in TYPES if not task_type.is_searched])


@pytest.mark.parametrize("name", ALL)
class TestTaskType:
    """What holds for every type that is learned."""

    @pytest.fixture
    def task(self, name: str, tmp_path: Path) -> Task:
        return load_task(ALL[name].make(tmp_path))

    @pytest.fixture
    def tokenizer(self, tmp_path: Path) -> Tokenizer:
        return tiny_tasks.load_tokenizer(tmp_path)

    @pytest.fixture
    def features(self, task: Task, tokenizer: Tokenizer) -> Features[Any]:
        return build_features(task, task.examples("validation"), tokenizer, short_options(task.head))

    def test_a_training_split_is_read_once(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        reads: list[str] = []

        def counted(path: str) -> bytes:
            reads.append(path)
            return read_bytes(path)

        monkeypatch.setattr("orchestrator.tasks.text_files.read_bytes", counted)
        task = load_task(ALL[name].make(tmp_path))
        examples = task.examples("train")
        assert replace(task, metric="other").examples("train") is examples
        assert task.at_absolute_paths().examples("train") is examples
        majority_baseline(task, "validation")
        assert reads.count(task.file("train")) == 1

    def test_a_task_pickles_small_and_equal(self, task: Task) -> None:
        task.examples("train")
        again = pickle.loads(pickle.dumps(task))
        assert again == task
        assert again.reads == {}
        assert len(pickle.dumps(task)) < 4000

    def test_features_are_the_same_from_their_arrays(self, features: Features[Any], task: Task) -> None:
        again = Features.from_arrays(features.arrays(), features.counts, task.head, task.type.arrays_type)
        assert again.arrays().keys() == features.arrays().keys()
        for key, array in features.arrays().items():
            np.testing.assert_array_equal(again.arrays()[key], array)
        assert type(again.head_arrays) is type(features.head_arrays) is task.type.arrays_type

    def test_half_and_half_joined_predict_as_the_whole(
        self, name: str, task: Task, tokenizer: Tokenizer, features: Features[Any]
    ) -> None:
        examples = task.examples("validation")
        half = len(examples) // 2
        parts = [
            build_features(task, some, tokenizer, short_options(task.head))
            for some in (examples[:half], examples[half:])
        ]
        joined, outputs = join_features(parts), ALL[name].outputs(task, features)
        assert joined.arrays().keys() == features.arrays().keys()
        for key, array in features.arrays().items():
            if (name, key) != ("in_batch_negatives", "text_numbers"):  # which are numbers within a part
                np.testing.assert_array_equal(joined.arrays()[key], array, strict=True)
        assert decode(task, joined, examples, outputs) == decode(task, features, examples, outputs)

    def test_outputs_become_scores_under_the_names_that_can_rank(
        self, name: str, task: Task, features: Features[Any]
    ) -> None:
        examples = task.examples("validation")
        predictions = decode(task, features, examples, ALL[name].outputs(task, features))
        scores = score(task, "validation", predictions)
        assert set(task.target.metric_names(task)) <= scores.keys()
        assert task.metric == task.target.metrics[0]
        assert all(math.isfinite(value) for value in scores.values())
        rows = prediction_rows(task, "validation", predictions)
        assert json.loads(json.dumps(rows)) == rows
        assert all(row.keys() >= {"id", "prediction", "gold"} for row in rows)

    def test_a_baseline_predicts_every_example_and_is_finite(self, task: Task) -> None:
        examples = task.examples("validation")
        predictions = task.target.baseline(task, task.examples("train"), examples)
        assert len(predictions) == len(examples)
        assert all(math.isfinite(value) for value in majority_baseline(task, "validation").values())

    def test_fitted_options_decode_again_as_they_did(self, name: str, task: Task, features: Features[Any]) -> None:
        examples, outputs = task.examples("validation"), ALL[name].outputs(task, features)
        names = {part.name for part in fields(task.type.options_type)} & {"calibrate", "tune_thresholds"}
        options = options_of(task.head, **dict.fromkeys(names, True))
        options, predictions = decode_fitted(task, features, examples, outputs, options)
        assert type(options) is task.type.options_type
        assert decode(task, features, examples, outputs, options) == predictions

    def test_options_are_taken_from_the_recipe_fields_of_the_type(self, task: Task) -> None:
        options_type = task.type.options_type
        names = {part.name for part in fields(options_type)} & RecipeSpec.model_fields.keys()
        assert names <= {"max_seq_length"} | task.type.recipe_fields
        assert options_type.decoding_fields <= {part.name for part in fields(options_type)}
        values = {name: RECIPE_VALUES[name] for name in names & RECIPE_VALUES.keys()}
        recipe = RecipeSpec.model_validate({"max_seq_length": 99, **values})
        options = options_type.of_recipe(recipe)
        assert {name: getattr(options, name) for name in values} == values
        assert options.max_seq_length == 99
        assert options_of(task.head).with_recipe(recipe) == options

    def test_data_fields_of_other_types_are_refused(self, name: str, tmp_path: Path) -> None:
        columns = ("text_columns", "negative_columns", "numerical_columns", "categorical_columns")
        values: dict[str, Any] = {
            **dict.fromkeys(columns, ("a",)),
            **dict.fromkeys(("choice_columns", "label_columns", "labels"), ("a", "b")),
            **{"label_column": "a", "label_separator": ";", "objective": "cosine", "score_range": (0.0, 1.0)},
        }
        assert values.keys() == DATA_FIELDS
        spec = ALL[name].make(tmp_path)
        assert spec.head is not None
        for field in DATA_FIELDS - find_type(spec.head, spec.objective).spec_fields:
            with pytest.raises(SpecError, match=rf"task\.{field}: "):
                load_task(spec.model_copy(update={field: values[field]}))

    def test_recipe_fields_of_other_types_are_refused(self, task: Task) -> None:
        made_for = {field for other in TYPES for field in other.recipe_fields}
        assert made_for == RECIPE_VALUES.keys() | {
            *("lstm_hidden_size", "focal_gamma", "window_stride", "unfreeze_every_epochs"),
            *("crf_learning_rate", "scalar_mix_learning_rate"),
        }
        check_recipe(RecipeSpec(), task)
        for field, value in RECIPE_VALUES.items():
            recipe = RecipeSpec.model_validate({field: value})
            if field in task.type.recipe_fields:
                check_recipe(recipe, task, axes=(field,))
                continue
            with pytest.raises(SpecError, match=rf"recipe\.{field}: "):
                check_recipe(recipe, task)
            with pytest.raises(SpecError, match=rf"space\.{field}: "):
                check_recipe(RecipeSpec(), task, axes=(field,))


@pytest.mark.parametrize("name", CASES)
def test_a_request_becomes_an_example_and_its_prediction_an_answer_and_a_lacking_key_is_named(
    name: str, tmp_path: Path
) -> None:
    case, tokenizer = CASES[name], tiny_tasks.load_tokenizer(tmp_path)
    task = load_task(case.make(tmp_path))
    keys = task.type.request.keys
    assert case.request.keys() <= set(keys)
    example = task.type.example_of(task, Request(dict(case.request), 7, task.head, keys))
    assert example.id == "7"
    features = build_features(task, [example], tokenizer, short_options(task.head))
    (prediction,) = decode(task, features, [example], case.outputs(task, features))
    answer = task.target.answer(task, prediction)
    assert answer.keys() == set(case.answer.split())
    assert json.loads(json.dumps(answer)) == answer
    with pytest.raises(InputError, match="line 7: no key"):
        task.type.example_of(task, Request({}, 7, task.head, keys))


def test_retrieval_is_searched_and_not_learned(tokenizer: Tokenizer) -> None:
    retrieval = TASK_TYPES["retrieval"]
    task = define("retrieval")
    with pytest.raises(SpecError, match="a retrieval task is evaluated, not learned"):
        check_recipe(RecipeSpec(), task)
    with pytest.raises(InputError, match="is searched, not classified"):
        retrieval.windows(task, [QueryExample("q", "cats", {})], tokenizer, short_options(task.head))
    with pytest.raises(InputError, match="ask it with `embed` or `search`"):
        retrieval.example_of(task, Request({"text": "x"}, 1, "retrieval", ()))
    assert [head for head, task_type in TASK_TYPES.items() if task_type.is_searched] == ["retrieval"]
    assert retrieval.target.agreement([RankingPrediction(("a", "b"))], [RankingPrediction(("b", "a"))]) == 0.0


NO_LABEL: dict[str, dict[str, Any]] = {
    "classification": {"label": None},
    "multi_label": {"label": None},
    "multiple_choice": {"choice": None},
    "columns": {"label": None},
    "regression": {"label": None},
    "ner": {"tags": ()},
    "token_classification": {"tags": ()},
    "qa": {"answers": ()},
    "sentence_selection": {"selected": None},
}


def unlabeled_copy(path: Path) -> Path:
    """A file of the tiny tasks without its labels."""
    target = path.with_name(f"unlabeled{path.suffix}")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".conll":
        text = "\n".join(line.split()[0] if line else "" for line in text.split("\n"))
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()]
        text = "".join(json.dumps({k: v for k, v in row.items() if k != "label"}) + "\n" for row in rows)
    else:
        content = json.loads(text)
        for paragraph in content["data"][0]["paragraphs"]:
            del paragraph["qas"][0]["answers"]
        text = json.dumps(content)
    target.write_text(text, encoding="utf-8")
    return target


@pytest.mark.parametrize("head", NO_LABEL)
def test_examples_are_the_same_but_for_their_labels(head: str, tmp_path: Path) -> None:
    task = load_task(getattr(tiny_tasks, head)(tmp_path))
    path = Path(task.files["train"])
    expected = [replace(example, **NO_LABEL[head]) for example in task.examples("train")]
    for file in (path, unlabeled_copy(path)):
        for whole in (task, replace(task, held_out=0.5)):
            assert list(whole.without_labels(str(file)).examples("train")) == expected


def test_plain_text_is_a_line_each_with_a_tab_in_a_pair(tmp_path: Path) -> None:
    spec = tiny_tasks.classification(tmp_path)
    path = tmp_path / "texts.txt"
    path.write_text("one text\n\nand another\n", encoding="utf-8")
    assert [e.text for e in load_task(spec).without_labels(str(path)).examples("train")] == ["one text", "and another"]
    pairs = replace(load_task(spec), reader=replace(load_task(spec).reader, text_columns=("text", "next")))
    path.write_text("one\ttwo\nthree\n", encoding="utf-8")
    with pytest.raises(TaskDataError, match="line 2: 1 texts with tabs between them; wanted: text, next"):
        pairs.without_labels(str(path)).examples("train")
