"""A promise of SECURITY.md: the source has nothing that runs what it reads.

Alone: .venv/bin/pytest tests/contracts/test_security.py
"""

import ast
from collections.abc import Iterator

import pytest

from tests.contracts.imports import source_files

FORBIDDEN_MODULES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve", "tarfile", "zipfile"}
"""Modules that run code of what they read, or write files where an archive says."""
FORBIDDEN_CALLS = {
    "eval", "exec", "os.system", "os.popen", "torch.load", "torch.save", "yaml.load", "yaml.unsafe_load",
    "yaml.full_load", "pandas.read_pickle", "shutil.unpack_archive",
}  # fmt: skip


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def problems(source: str) -> list[str]:
    """What a source has of the forbidden."""
    tree = ast.parse(source)
    found = [module for module in modules(tree) if module.partition(".")[0] in FORBIDDEN_MODULES]
    for name, call in calls(tree):
        words = {word.arg: word.value for word in call.keywords}
        unsafe = {
            word
            for word, value in words.items()
            if word in ("allow_pickle", "shell") and not (isinstance(value, ast.Constant) and value.value is False)
        }
        is_sql_text = name.rpartition(".")[2] in ("text", "exec_driver_sql", "literal_column")
        unsafe |= {"SQL from pieces"} if is_sql_text and _holds_variables(call) else set()
        if name == "torch.load" and ast.unparse(words.get("weights_only", ast.Constant(None))) == "True":
            unsafe |= {"weights only"}
        if name in FORBIDDEN_CALLS or unsafe:
            found.append(f"{name} {sorted(unsafe)}")
    return found


def _holds_variables(call: ast.Call) -> bool:
    return any(isinstance(part, ast.FormattedValue) for argument in call.args for part in ast.walk(argument))


MAY = {
    # a model folder's pytorch_model.bin, with torch's own reader that makes tensors alone
    "bert_core.checkpoints.tensor_files": ["torch.load ['weights only']"],
    # names of states, which the code lists
}


def test_no_module_runs_what_it_reads() -> None:
    found = {module: problems(path.read_text(encoding="utf-8")) for module, path in source_files().items()}
    assert {module: what for module, what in found.items() if what} == MAY


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from tarfile import open",
        "eval('1')",
        "torch.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "subprocess.run(line, shell=given)",
        "session.execute(text(f'SELECT {name}'))",
    ],
)
def test_the_check_sees_what_is_forbidden(source: str) -> None:
    assert problems(source)


@pytest.mark.parametrize("words", ["", ", weights_only=False", ", weights_only=given"])
def test_a_pickle_read_whole_is_not_taken_for_one_of_weights_only(words: str) -> None:
    assert problems(f"torch.load(path{words})") == ["torch.load []"]
