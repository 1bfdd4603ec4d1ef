"""The statements of traffic, in each database's own words and by its own driver: of many small rows, most of
the time would go into preparing parameters, and after each step this thread would stand in line for the
interpreter anew. A statement takes any number of rows.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

from pydantic_core import to_json
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql

from service.store.operations import COLUMNS, OWN_COLUMNS, Decided, Occasion
from service.store.tables import decisions, feedback

ROWS_IN_A_STATEMENT = 100  # SQLite: the driver keeps about as many statements ready

FeedbackRow = tuple[int, float, float, int | None]  # as FEEDBACK_COLUMNS
FEEDBACK_COLUMNS = ("decision", "reward", "received_at", "version")
_POSTGRES = postgresql.dialect()  # type: ignore[no-untyped-call]

_ANSWERED = """
SELECT decisions.id, decisions.number, decisions.made_at, decisions.arm, decisions.vectors,
  feedback.reward, feedback.version, feedback.by_default
FROM decisions LEFT JOIN feedback ON feedback.decision = decisions.number
WHERE decisions.id """
_DECIDED = f"SELECT {', '.join(COLUMNS)} FROM decisions WHERE id "
_AMONG = {
    "sqlite": "IN (SELECT value FROM json_each(?))",
    "postgresql": "IN (SELECT json_array_elements_text(%s::json))",
}


def insert_decisions(connection: Connection, rows: Sequence[Decided]) -> None:
    for occasion, group in groupby(rows, attrgetter("occasion")):
        own: dict[str, Iterable[Any]] = dict(zip(OWN_COLUMNS, zip(*group, strict=True), strict=False))
        # Before it binds None or bytes, SQLite's driver looks for a way to adapt them, for as long as the
        # rest of a row takes.
        if not any(own["subject"]):
            del own["subject"]
        if connection.dialect.name == "sqlite":
            own["vectors"] = map(bytearray, own["vectors"])
        values = list(zip(*own.values(), strict=True))
        _insert(connection, "decisions", Occasion._fields, occasion, tuple(own), values)


def insert_feedback(connection: Connection, rows: Sequence[FeedbackRow], *, by_default: bool) -> None:
    _insert(connection, "feedback", ("by_default",), (by_default,), FEEDBACK_COLUMNS, rows)


def decided(connection: Connection, ids: Sequence[str]) -> list[Decided]:
    """Those of the decisions that are there."""
    return [Decided.read(row) for row in _among(connection, _DECIDED, ids)]


def answered(connection: Connection, ids: Sequence[str]) -> Sequence[Any]:
    """Of the decisions that are there: id, number, made_at, arm, vectors; and, None without feedback, the
    reward, version, by_default."""
    return _among(connection, _ANSWERED, ids)


def _among(connection: Connection, query: str, ids: Sequence[str]) -> Sequence[Any]:
    statement = query + _AMONG[connection.dialect.name]
    return connection.exec_driver_sql(statement, (json.dumps(ids),)).all()


def _insert(
    connection: Connection,
    table: str,
    common: tuple[str, ...],
    values: tuple[Any, ...],
    columns: tuple[str, ...],
    rows: Sequence[Any],
) -> None:
    """Rows of `columns`, each with the same `values` in the columns `common`."""
    if connection.dialect.name == "sqlite":
        for start in range(0, len(rows), ROWS_IN_A_STATEMENT):
            several = rows[start : start + ROWS_IN_A_STATEMENT]
            statement = _insert_values(table, common, columns, len(several))
            connection.exec_driver_sql(statement, (*values, *chain.from_iterable(several)))
    elif rows:
        document = to_json([dict(zip(columns, row, strict=True)) for row in rows], bytes_mode="hex")
        connection.exec_driver_sql(_insert_document(table, common, columns), (*values, document.decode()))


@cache
def _insert_values(table: str, common: tuple[str, ...], columns: tuple[str, ...], rows: int) -> str:
    marks = ", ".join([*(f"?{i}" for i in range(1, len(common) + 1)), *("?" for _ in columns)])
    return f"INSERT INTO {table} ({', '.join(common + columns)}) VALUES " + ", ".join([f"({marks})"] * rows)


@cache
def _insert_document(table: str, common: tuple[str, ...], columns: tuple[str, ...]) -> str:
    """Postgres: all rows are one JSON document, read there. Lists of values, a parameter each, take the
    driver longer."""
    kinds = {"decisions": decisions, "feedback": feedback}[table].c
    types = {name: str(kinds[name].type.compile(_POSTGRES)) for name in common + columns}
    read = [f"%s::{types[name]}" for name in common]
    read += [f"decode({name}, 'hex')" if types[name] == "BYTEA" else name for name in columns]
    given = [f"{name} {'TEXT' if types[name] == 'BYTEA' else types[name]}" for name in columns]
    return (
        f"INSERT INTO {table} ({', '.join(common + columns)}) SELECT {', '.join(read)} "
        f"FROM json_to_recordset(%s::json) AS given({', '.join(given)})"
    )
