"""Runs whose specs name something: a model, a tokenizer or a folder of another run."""

from collections.abc import Collection

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import select_items, select_runs
from orchestrator.registry.parameter_values import decode_parameter
from orchestrator.registry.tables import NameRow, ParameterRow, RunRow


def load_naming_runs(
    session: Session, fields: Collection[str], names: Collection[str], except_of: Collection[str] = ()
) -> set[str]:
    """Load the ids of the runs in whose specs one of these fields has one of these values, of any run but some.

    A list has each of its values. Of a trial it is the id of its sweep.
    """
    is_so_called = or_(
        *(or_(NameRow.text == one, NameRow.text.endswith(f".{one}", autoescape=True)) for one in sorted(fields))
    )
    is_field = ParameterRow.path.in_(select(NameRow.key).where(is_so_called))
    whole = func.coalesce(RunRow.parent_id, RunRow.key)
    values = select(whole, ParameterRow.kind, ParameterRow.text).join(RunRow, RunRow.key == ParameterRow.run_id)
    is_other = ParameterRow.run_id.not_in(select_runs(session, except_of))
    may_name = or_(ParameterRow.kind == "json", ParameterRow.text.in_(select_items(session, names)))
    found = set()
    for run_id, kind, text in session.execute(values.where(is_field, is_other, may_name)):
        value = decode_parameter(kind, text)
        if not set(names).isdisjoint(map(str, value if isinstance(value, list) else [value])):
            found.add(run_id)
    return found
