"""What users rely on: the names that can be imported, and the error tree.

Alone: .venv/bin/pytest tests/contracts/test_public_surface.py
"""

import importlib
import inspect
import pickle
from types import ModuleType

import pytest

import bert_core
import bert_core.errors
import bert_core.heads
import orchestrator
import orchestrator.base.errors

BERT_CORE_NAMES = {
    "BertConfig",
    "BertForMultipleChoice",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSentenceEmbedding",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertModel",
}
EXIT_STATUS = {
    "OrchestratorError": 1,
    "RunFailedError": 1,
    "RunStoppedError": 1,
    "InputError": 2,
    "SpecError": 2,
    "CorpusError": 2,
    "TaskDataError": 2,
    "NotFoundError": 3,
    "SeveralRunsError": 3,
    "RegistryError": 4,
    "RegistryUnavailableError": 4,
    "ClusterError": 5,
}


def error_classes(module: ModuleType) -> list[type[Exception]]:
    """The errors that a module defines."""
    classes = [value for _, value in inspect.getmembers(module, inspect.isclass) if issubclass(value, Exception)]
    return [error for error in classes if error.__module__ == module.__name__]


def test_bert_core_exports_the_contract() -> None:
    assert set(bert_core.__all__) == BERT_CORE_NAMES
    for name in bert_core.__all__:
        assert inspect.isclass(getattr(bert_core, name))
    with pytest.raises(AttributeError):
        _ = bert_core.BertForEverything


def test_a_head_is_exported_from_the_file_that_the_list_names() -> None:
    assert set(bert_core.heads.HEAD_MODULES) <= set(bert_core.__all__)
    for name, module in bert_core.heads.HEAD_MODULES.items():
        assert getattr(bert_core.heads, name).__module__ == module
    with pytest.raises(AttributeError):
        _ = bert_core.heads.BertForEverything


def test_orchestrator_exports_the_contract() -> None:
    assert set(orchestrator.__all__) == {"Registry", "run"}
    assert inspect.isclass(orchestrator.Registry)
    assert callable(orchestrator.run)
    with pytest.raises(AttributeError):
        _ = orchestrator.jog


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("bert_core.masking", "mask_tokens"),
        ("bert_core.metrics", "glue_metrics"),
        ("bert_core.metrics", "ner_f1"),
        ("bert_core.metrics", "squad_scores"),
        ("orchestrator.cli", "main"),
    ],
)
def test_a_function_of_the_contract_is_where_it_should_be(module: str, name: str) -> None:
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("error", error_classes(bert_core.errors) + error_classes(orchestrator.base.errors))
def test_an_error_survives_pickling(error: type[Exception]) -> None:
    again = pickle.loads(pickle.dumps(error("field x is 3; make it 4")))
    assert type(again) is error
    assert str(again) == "field x is 3; make it 4"


def test_every_error_has_the_exit_status_of_the_contract() -> None:
    found = {error.__name__: getattr(error, "exit_status", None) for error in error_classes(orchestrator.base.errors)}
    assert found == EXIT_STATUS


def test_bert_core_errors_are_value_errors() -> None:
    assert all(issubclass(error, ValueError) for error in error_classes(bert_core.errors))
