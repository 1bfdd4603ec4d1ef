"""The statements of traffic, in each database's own words and by its own driver: of many small rows, most of
the time would go into preparing parameters, and after each step this thread would stand in line for the
interpreter anew. A statement takes any number of rows.
"""

import json
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from pydantic_core import to_json
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql

from service.store.operations import Decided
from service.store.tables import decisions, feedback

ROWS_IN_A_STATEMENT = 100  # SQLite: the driver keeps about as many statements ready

FeedbackRow = tuple[int, float, float, bool, int | None]  # decision, reward, received_at, by_default, version
_POSTGRES = postgresql.dialect()  # type: ignore[no-untyped-call]
FEEDBACK_COLUMNS = ("decision", "reward", "received_at", "by_default", "version")

_ANSWERED = """
SELECT decisions.id, decisions.number, decisions.made_at, decisions.arm, decisions.vectors,
  feedback.reward, feedback.version, feedback.by_default
FROM decisions LEFT JOIN feedback ON feedback.decision = decisions.number
WHERE decisions.id """
_DECIDED = f"SELECT {', '.join(Decided._fields)} FROM decisions WHERE id "
_AMONG = {
    "sqlite": "IN (SELECT value FROM json_each(?))",
    "postgresql": "IN (SELECT json_array_elements_text(%s::json))",
}


def insert_decisions(connection: Connection, rows: Sequence[Decided]) -> None:
    _insert(connection, "decisions", Decided._fields, rows)


def insert_feedback(connection: Connection, rows: Sequence[FeedbackRow]) -> None:
    _insert(connection, "feedback", FEEDBACK_COLUMNS, rows)


def decided(connection: Connection, ids: Sequence[str]) -> list[Decided]:
    """Those of the decisions that are there."""
    return [Decided(*row) for row in _among(connection, _DECIDED, ids)]


def answered(connection: Connection, ids: Sequence[str]) -> Sequence[Any]:
    """Of the decisions that are there: id, number, made_at, arm, vectors; and, None without feedback, the
    reward, version, by_default."""
    return _among(connection, _ANSWERED, ids)


def _among(connection: Connection, query: str, ids: Sequence[str]) -> Sequence[Any]:
    statement = query + _AMONG[connection.dialect.name]
    return connection.exec_driver_sql(statement, (json.dumps(ids),)).all()


def _insert(connection: Connection, table: str, columns: tuple[str, ...], rows: Sequence[Any]) -> None:
    if connection.dialect.name == "sqlite":
        for start in range(0, len(rows), ROWS_IN_A_STATEMENT):
            several = rows[start : start + ROWS_IN_A_STATEMENT]
            statement = _insert_values(table, columns, len(several))
            connection.exec_driver_sql(statement, tuple(chain.from_iterable(several)))
    elif rows:
        document = to_json([dict(zip(columns, row, strict=True)) for row in rows], bytes_mode="hex")
        connection.exec_driver_sql(_insert_document(table, columns), (document.decode(),))


@cache
def _insert_values(table: str, columns: tuple[str, ...], rows: int) -> str:
    marks = f"({', '.join('?' for _ in columns)})"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES " + ", ".join([marks] * rows)


@cache
def _insert_document(table: str, columns: tuple[str, ...]) -> str:
    """Postgres: all rows are one JSON document, read there. Lists of values, a parameter each, take the
    driver longer."""
    kinds = {"decisions": decisions, "feedback": feedback}[table].c
    types = {name: str(kinds[name].type.compile(_POSTGRES)) for name in columns}
    read = [f"decode({name}, 'hex')" if types[name] == "BYTEA" else name for name in columns]
    given = [f"{name} {'TEXT' if types[name] == 'BYTEA' else types[name]}" for name in columns]
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(read)} "
        f"FROM json_to_recordset(%s::json) AS given({', '.join(given)})"
    )
