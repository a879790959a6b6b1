"""Field `group` of the query language: runs that differ only in their seed, by as much of the group's id as given."""

import re
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, false, func, literal, or_, select
from sqlalchemy.orm import Session

from orchestrator.registry.groups.group_keys import code_digest, group_key
from orchestrator.registry.queries.query_fields import ColumnField, Field
from orchestrator.registry.queries.query_tree import Value
from orchestrator.registry.queries.query_values import WrongValueError, as_text
from orchestrator.registry.tables import RunRow

_GROUP = re.compile(r"([0-9a-f]{4,})(?:\.([0-9a-f]+))?")


@dataclass(frozen=True)
class GroupField(ColumnField):
    """Field that is a run's group: a digest, and after a dot that of the code, or the beginning of it.

    Without the part after the dot it stands for the group's runs of any code.
    """

    session: Session
    """Session in which the codes of a group are looked up: their digests stand in no column."""

    def stored(self) -> ColumnElement[str]:
        """The digest, and after a dot the version of the code, of which `key_of` makes the group's id."""
        return RunRow.group_key + func.coalesce(literal(".") + RunRow.code_version, "")

    @staticmethod
    def key_of(stored: str) -> str:
        """The group's id."""
        digest, dot, code_version = stored.partition(".")
        return group_key(digest, code_version if dot else None)

    def compared(self, operator: str, value: "Value | Field") -> ColumnElement[bool]:
        if operator != "=" or not isinstance(value, Value):
            return super().compared(operator, value)
        found = _GROUP.fullmatch(as_text(value).lower())
        if found is None:
            raise WrongValueError(
                "this is a group's id; give 4 or more of its digits, in quotes, as `orchestrator groups list` shows it"
            )
        digest, code = found[1], found[2]
        begins = RunRow.group_key.startswith(digest, autoescape=True)
        return begins if code is None else and_(begins, self._is_of_code(begins, code))

    def _is_of_code(self, of_group: ColumnElement[bool], code: str) -> ColumnElement[bool]:
        versions = self.session.scalars(select(RunRow.code_version).where(of_group).distinct())
        fitting = [one for one in versions if one and code_digest(one).startswith(code)]
        return func.coalesce(or_(false(), RunRow.code_version.in_(fitting)), false())
