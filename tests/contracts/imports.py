"""The project's own import graph, read from the source without running it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("bert_core", "orchestrator")


@dataclass(frozen=True)
class Import:
    """One module named by another."""

    module: str
    at_import: bool
    """At the top level, not inside a function."""


@cache
def source_files() -> dict[str, Path]:
    """Every module of the packages by its dotted name."""
    files = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """Imports of a module, by absolute dotted names.

    `from package import name` counts as the submodule that the name may be, or the one that the package loads it from.
    """
    path = source_files()[module]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(_walk(tree, package, at_import=True))


def _walk(node: ast.AST, package: str, *, at_import: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from _walk(other, package, at_import=at_import)
        elif isinstance(child, ast.Import):
            yield from (Import(alias.name, at_import) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                anchor = package.split(".")[: len(package.split(".")) - child.level + 1]
                base = ".".join([*anchor, base] if base else anchor)
            for alias in child.names:
                submodule = f"{base}.{alias.name}"
                yield Import(submodule if submodule in source_files() else base, at_import)
                if alias.name in lazy_exports(base):
                    yield Import(lazy_exports(base)[alias.name], at_import)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _walk(child, package, at_import=at_import and not inside)


@cache
def lazy_exports(package: str) -> dict[str, str]:
    """Names that a package loads on first use, each with its module: those that a table at the top level says."""
    if package not in source_files():
        return {}
    tree = ast.parse(source_files()[package].read_text(encoding="utf-8"))
    tables = [statement.value for statement in tree.body if isinstance(statement, ast.Assign)]
    return {
        key.value: value.value
        for table in tables
        if isinstance(table, ast.Dict)
        for key, value in zip(table.keys, table.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and value.value in source_files()
    }


def reach(module: str, *, at_import_only: bool = False) -> dict[str, tuple[str, ...]]:
    """Every module, own or foreign, that one leads to, with a way there; parents of a package are on the way."""
    found: dict[str, tuple[str, ...]] = {module: (module,)}
    waiting = [module]
    while waiting:
        current = waiting.pop()
        for name in _with_parents(current, at_import_only):
            if name not in found:
                found[name] = (*found[current], name)
                if name in source_files():
                    waiting.append(name)
    return found


def _with_parents(module: str, at_import_only: bool) -> Iterator[str]:
    """What importing `module` imports: what it names, and the packages around it."""
    parts = module.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts)))
    for imported in imports_of(module):
        if imported.at_import or not at_import_only:
            yield imported.module


def is_part_of(module: str, part: str) -> bool:
    """Whether a module is a part or lies in it."""
    return module == part or module.startswith(part + ".")
