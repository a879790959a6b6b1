"""Field `commit` of the query language: the commit that a run's code was, by as much of its id as a person gives."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Text, case, func, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement

from orchestrator.registry.queries.query_fields import Column, Field, compare_fields
from orchestrator.registry.queries.query_tree import Value
from orchestrator.registry.queries.query_values import WrongValueError, as_text, compare
from orchestrator.registry.tables import RunRow

_MARK = "+g"
"""Stands before the commit in a code version, `0.1.0+g1f2e3d4c5b6a.d0a1b2c3d` (`provenance.source_code`)."""
_DIGITS = 12
_COMMIT = re.compile(r"[0-9a-f]{4,40}")


class place_in(FunctionElement[int]):  # noqa: N801  (an SQL function)
    """SQL function: place of a text within another, from 1; 0 where it is not in it."""

    inherit_cache = True


@compiles(place_in, "sqlite")
def _sqlite_place(element: place_in, compiler: SQLCompiler, **options: Any) -> str:
    return f"instr({compiler.process(element.clauses, **options)})"


@compiles(place_in, "postgresql")
def _postgresql_place(element: place_in, compiler: SQLCompiler, **options: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **options)})"


@dataclass(frozen=True)
class CommitField(Field):
    """Field that is the first digits of a commit, of changed code too; a run without a git checkout has none."""

    def _commit(self) -> Column:
        begin = place_in(RunRow.code_version, literal(_MARK, Text))
        digits = func.substr(RunRow.code_version, begin + len(_MARK), _DIGITS)
        return case((begin > 0, digits), else_=None)

    def present(self) -> ColumnElement[bool]:
        return func.coalesce(RunRow.code_version.contains(_MARK, autoescape=True), False)

    def compared(self, operator: str, value: Value | Field) -> ColumnElement[bool]:
        if not isinstance(value, Value):
            return compare_fields(self, operator, value)
        text = as_text(value).lower()
        if operator == "like":
            return func.coalesce(compare(self._commit(), operator, text), False)
        if operator != "=":
            raise WrongValueError("commits have no order; compare them with = != in and like")
        if not _COMMIT.fullmatch(text):
            raise WrongValueError("this is a commit's id; give 4 to 40 of its hexadecimal digits, in quotes")
        return func.coalesce(RunRow.code_version.contains(_MARK + text[:_DIGITS], autoescape=True), False)

    def scalars(self) -> Mapping[str, Column]:
        return {"text": self._commit()}

    def sort_keys(self) -> tuple[Column, ...]:
        return (self._commit(),)
