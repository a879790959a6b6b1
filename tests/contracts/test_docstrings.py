"""Rules of docstrings: each is understood alone, and everything public has one.

Alone: .venv/bin/pytest tests/contracts/test_docstrings.py
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.contracts.imports import ROOT, source_files

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

PREPOSITIONS = """about above across after against along among around as at before behind below beside besides between
    beyond by during for from in inside into like near of off on onto over per since through to toward towards under
    until up upon via with within without"""
QUESTIONS = "how that what when where which who whom whose why"
FRAGMENT = re.compile(rf"({'|'.join(f'{PREPOSITIONS} {QUESTIONS} see raises'.split())})\b", re.IGNORECASE)
"""Words that make the first sentence a part of another one; `see` is `check`."""


def definitions(node: Definition) -> Iterator[tuple[Definition, bool]]:
    """A module, class or function with all that is defined inside it, each with whether all of it is public."""
    yield node, True
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            is_open = not child.name.startswith("_") and isinstance(node, ast.Module | ast.ClassDef)
            yield from ((inner, is_public and is_open) for inner, is_public in definitions(child))


def docstring(node: ast.stmt) -> ast.Constant | None:
    """The text of a statement that is nothing but a text."""
    value = node.value if isinstance(node, ast.Expr) else None
    return value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Docstrings of a module and of all that it defines, its fields and constants among them."""
    for node, _ in definitions(tree):
        first, *rest = node.body or [ast.Pass()]
        after_names = [
            after for name, after in zip(node.body, rest, strict=False) if isinstance(name, ast.Assign | ast.AnnAssign)
        ]
        yield from filter(None, map(docstring, [first, *after_names]))


def fragments(source: str) -> list[int]:
    """Lines of the docstrings that begin with one of the words."""
    return [text.lineno for text in docstrings(ast.parse(source)) if FRAGMENT.match(str(text.value).lstrip(' \n"`*('))]


def inherited(node: Definition) -> set[ast.AST]:
    """Methods of a class that has a base with a contract of its own, where they may be documented once for all."""
    bases = {re.match(r"[\w.]+", ast.unparse(base))[0] for base in getattr(node, "bases", [])}
    return set(node.body) if bases - {"ABC", "Enum", "Generic", "NamedTuple", "Protocol"} else set()


def undocumented(source: str) -> list[int]:
    """Lines of what is public, is no method of a subclass, and has no docstring."""
    found = list(definitions(ast.parse(source)))
    exempt = set().union(*(inherited(node) for node, _ in found))
    return [
        getattr(node, "lineno", 1)
        for node, is_public in found
        if is_public and node not in exempt and ast.get_docstring(node) is None
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Of the update that `step` makes.",
        "What a person asks for.",
        "See that it fits.",
        "Raises: InputError.",
        "`In` it.",
    ],
)
def test_fragments_are_found_wherever_a_docstring_stands(text: str) -> None:
    assert fragments(f'"""{text}"""') == [1]
    assert fragments(f'class A:\n    x: int = 0\n    """{text}"""\n    def f(self):\n        """{text}"""') == [3, 5]
    assert not fragments(f'"""Rate."""\nx = 0\n"""Rate {text}"""\nprint("{text.strip()}")')


def test_what_is_public_and_undocumented_is_found() -> None:
    assert undocumented('class A:\n    """A."""\n    def f(self): ...\n    def _g(self): ...') == [1, 3]
    assert not undocumented('"""M."""\nclass _A:\n    def f(self): ...\ndef f():\n    """F."""\n    def g(): ...')
    assert not undocumented('"""M."""\nclass A(Base[int]):\n    """A."""\n    def f(self): ...')


def test_no_docstring_is_a_fragment() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in source_files().values()
        for line in fragments(path.read_text("utf-8"))
    ]
    assert not wrong, "begin with the noun or the verb that it is about"


def test_everything_public_has_a_docstring() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in source_files().values()
        for line in undocumented(path.read_text("utf-8"))
    ]
    assert not silent, "say what it is, in one sentence that is understood alone"
