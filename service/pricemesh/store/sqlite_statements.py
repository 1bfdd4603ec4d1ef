"""The statements of traffic in SQLite's dialect.

They go to the driver directly: for many small rows, most of the time would otherwise go into preparing
parameters.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection

from pricemesh.store.faults import driver_rows

ROWS_PER_STATEMENT = 100  # the driver caches about as many prepared statements
_LATEST_PRICES = """
SELECT decisions.subject, decisions.price FROM json_each(?) AS requested CROSS JOIN decisions
ON decisions.number = (
  SELECT number FROM decisions WHERE subject = requested.value ORDER BY number DESC LIMIT 1
)"""


def insert_rows(
    connection: Connection, table: str, common: dict[str, Any], columns: Mapping[str, Sequence[Any]]
) -> int:
    """Returns the number of the last row."""
    # The driver binds a bytearray about twice as fast as bytes, for which it first looks for an adapter.
    values = [map(bytearray, each) if name == "vectors" else each for name, each in columns.items()]
    rows = list(zip(*values, strict=True))
    number = 0
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        several = rows[start : start + ROWS_PER_STATEMENT]
        statement = _insert_statement(table, tuple(common), tuple(columns), len(several))
        result = connection.exec_driver_sql(statement, (*common.values(), *chain.from_iterable(several)))
        number = result.lastrowid
    return number


def select_by_id(connection: Connection, query: str, ids: Sequence[str]) -> Sequence[Any]:
    return _rows(connection, f"{query} IN (SELECT value FROM json_each(?))", ids)


def latest_prices(connection: Connection, subjects: Sequence[str]) -> Sequence[Any]:
    return _rows(connection, _LATEST_PRICES, subjects)


@cache
def _insert_statement(table: str, common: tuple[str, ...], columns: tuple[str, ...], rows: int) -> str:
    """Common values are numbered parameters, so that they are bound once for all rows."""
    marks = ", ".join([*(f"?{i}" for i in range(1, len(common) + 1)), *("?" for _ in columns)])
    return f"INSERT INTO {table} ({', '.join(common + columns)}) VALUES " + ", ".join([f"({marks})"] * rows)


def _rows(connection: Connection, query: str, values: Sequence[str]) -> Sequence[Any]:
    """The rows of a query whose one parameter is a JSON array."""
    return driver_rows(connection.exec_driver_sql(query, (json.dumps(values),)))
