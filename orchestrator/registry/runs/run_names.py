"""Names of parameters and measurements, which rows have as integers: found or made as they are written."""

from collections.abc import Iterable
from functools import lru_cache

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import list_value, select_list, upsert_rows
from orchestrator.registry.engines.write_transactions import Prepared, WriteTransaction
from orchestrator.registry.tables import NameRow


def name_keys(transaction: WriteTransaction, texts: Iterable[str]) -> dict[str, int]:
    """Keys of names, which are made where they are not there yet."""
    keys, new = transaction.keys, transaction.new_keys
    wanted = dict.fromkeys(texts)
    missing = sorted(text for text in wanted if text not in keys and text not in new)  # in one order, against deadlocks
    if missing:
        _find(transaction, missing)
        if unknown := [text for text in missing if text not in new]:
            transaction.upsert(NameRow.__table__, {"text": unknown}, ["text"], [])  # type: ignore[arg-type]
            _find(transaction, unknown)
    return {text: keys.get(text) or new[text] for text in wanted}


def _find(transaction: WriteTransaction, texts: list[str]) -> None:
    found = transaction.read(_find_statement(transaction.dialect), {"texts": list_value(transaction.dialect, texts)})
    transaction.new_keys.update(found)


@lru_cache
def _find_statement(dialect: str) -> Prepared:
    named = select(NameRow.text, NameRow.key).where(NameRow.text.in_(select_list(dialect, "texts")))
    return Prepared(named, dialect, ["texts"])


def record_names(session: Session, texts: Iterable[str]) -> None:
    """Record names in a session, for rows that come after."""
    upsert_rows(session, NameRow, ("text",), (), [{"text": text} for text in sorted(set(texts))])
