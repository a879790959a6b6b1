"""Rules of docstrings: each module has one, and each is understood alone.

Alone: .venv/bin/pytest tests/contracts/test_docstrings.py
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.contracts.imports import ROOT, source_files

PREPOSITIONS = """about above across after against along among around as at before behind below beside besides between
    beyond by during for from in inside into like near of off on onto over per since through to toward towards under
    until up upon via with within without"""
QUESTIONS = "how that what when where which who whom whose why"
FRAGMENT = re.compile(rf"({'|'.join(f'{PREPOSITIONS} {QUESTIONS} see raises'.split())})\b", re.IGNORECASE)
"""Words that make the first sentence a part of another one; `see` is `check`."""


def texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Statements that are nothing but a text: docstrings, those of fields and constants among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def fragments(source: str) -> list[int]:
    """Lines of the docstrings that begin with one of the words."""
    return [text.lineno for text in texts(ast.parse(source)) if FRAGMENT.match(str(text.value).lstrip(' \n"`*('))]


@pytest.mark.parametrize("text", ["Of the update that `step` makes.", "What a person asks for.", "Raises: InputError."])
def test_fragments_are_found_wherever_a_docstring_stands(text: str) -> None:
    assert fragments(f'"""{text}"""') == [1]
    assert fragments(f'class A:\n    x: int = 0\n    """{text}"""\n    def f(self):\n        """{text}"""') == [3, 5]
    assert not fragments(f'"""Rate."""\nx = 0\n"""Rate {text}"""\nprint("{text.strip()}")')


def test_no_docstring_is_a_fragment() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in source_files().values()
        for line in fragments(path.read_text("utf-8"))
    ]
    assert not wrong, "begin with the noun or the verb that it is about"


def test_every_module_has_a_docstring() -> None:
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in source_files().items()}
    silent = [name for name, tree in trees.items() if not ast.get_docstring(tree)]
    assert not silent, "say in one sentence what the module is for"
