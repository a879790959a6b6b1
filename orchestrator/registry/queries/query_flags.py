"""Fields of the query language that are flags of runs: `archived = true`, `pinned = false`."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, true

from orchestrator.registry.queries.query_fields import Column, Field, compare_fields
from orchestrator.registry.queries.query_tree import Value
from orchestrator.registry.queries.query_values import WrongValueError
from orchestrator.registry.run_flags import Flag, is_flagged


@dataclass(frozen=True)
class FlagField(Field):
    """Field that is true of the runs that a flag reaches, and false of all others: each run has a value."""

    flag: Flag

    def present(self) -> ColumnElement[bool]:
        return true()

    def compared(self, operator: str, value: Value | Field) -> ColumnElement[bool]:
        if not isinstance(value, Value):
            return compare_fields(self, operator, value)
        if not isinstance(value, bool):
            raise WrongValueError("this is true or false; write it without quotes")
        if operator != "=":
            raise WrongValueError("true and false can be compared with = and != only")
        return is_flagged(self.flag) if value else ~is_flagged(self.flag)

    def scalars(self) -> Mapping[str, Column]:
        return {"boolean": case((is_flagged(self.flag), 1.0), else_=0.0)}

    def sort_keys(self) -> tuple[Column, ...]:
        return (self.scalars()["boolean"],)
