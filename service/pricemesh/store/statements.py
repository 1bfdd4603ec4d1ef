"""The statements of traffic, in each database's own words and by its own driver: of many small rows, most of
the time would go into preparing parameters, and after each step this thread would stand in line for the
interpreter anew. A statement takes any number of rows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, chain
from typing import Any

from sqlalchemy import Column, Connection, String
from sqlalchemy.dialects import postgresql

from pricemesh.core.decision import COLUMNS, OWN_COLUMNS, Decision, Occasion
from pricemesh.store.tables import decisions, feedback

ROWS_IN_A_STATEMENT = 100  # SQLite: the driver keeps about as many statements ready

FeedbackRow = tuple[int, float, float, int | None]  # as FEEDBACK_COLUMNS
FEEDBACK_COLUMNS = ("decision", "reward", "received_at", "version")
MOSTLY_ALIKE = ("subject", "limited_by", *Occasion._fields)  # in the decisions of a commit
_POSTGRES = postgresql.dialect()  # type: ignore[no-untyped-call]

_ANSWERED = """
SELECT decisions.id, decisions.number, decisions.made_at, decisions.arm, decisions.vectors,
  feedback.reward, feedback.version, feedback.by_default
FROM decisions LEFT JOIN feedback ON feedback.decision = decisions.number
WHERE decisions.id """
_DECIDED = f"SELECT {', '.join(COLUMNS)} FROM decisions WHERE id "


def insert_decisions(connection: Connection, rows: Sequence[Decision]) -> None:
    if not rows:
        return
    *columns, occasions = zip(*rows, strict=True)
    own: dict[str, Sequence[Any]] = dict(zip(OWN_COLUMNS, columns, strict=True))
    own |= zip(Occasion._fields, zip(*occasions, strict=True), strict=True)
    common = {name: own.pop(name)[0] for name in MOSTLY_ALIKE if len(set(own[name])) == 1}
    _insert(connection, "decisions", common, own)


def insert_feedback(connection: Connection, rows: Sequence[FeedbackRow], *, by_default: bool) -> None:
    if rows:
        own = dict(zip(FEEDBACK_COLUMNS, zip(*rows, strict=True), strict=True))
        _insert(connection, "feedback", {"by_default": by_default}, own)


def decided(connection: Connection, ids: Sequence[str]) -> list[Decision]:
    """Those of the decisions that are there."""
    return [Decision.from_columns(row) for row in _among(connection, _DECIDED, ids)]


def answered(connection: Connection, ids: Sequence[str]) -> Sequence[Any]:
    """Of the decisions that are there: id, number, made_at, arm, vectors; and, None without feedback, the
    reward, version, by_default."""
    return _among(connection, _ANSWERED, ids)


def _among(connection: Connection, query: str, ids: Sequence[str]) -> Sequence[Any]:
    """Plain tuples, as the driver makes them."""
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql(f"{query} IN (SELECT value FROM json_each(?))", (json.dumps(ids),))
    else:
        found = connection.exec_driver_sql(f"{query} = ANY(%s::TEXT[])", (_array(ids),))
    rows: Sequence[Any] = found.cursor.fetchall()
    found.close()
    return rows


def _insert(
    connection: Connection, table: str, common: dict[str, Any], own: Mapping[str, Sequence[Any]]
) -> None:
    """Rows with the same values in the columns `common`, and each with its own in the others."""
    if connection.dialect.name == "sqlite":
        _insert_values(connection, table, common, own)
    else:
        _insert_arrays(connection, table, common, own)


def _insert_values(
    connection: Connection, table: str, common: dict[str, Any], own: Mapping[str, Sequence[Any]]
) -> None:
    # Before it binds bytes (or None), the driver looks for a way to adapt them, for as long as the rest
    # of a row takes.
    columns = [map(bytearray, values) if name == "vectors" else values for name, values in own.items()]
    rows = list(zip(*columns, strict=True))
    for start in range(0, len(rows), ROWS_IN_A_STATEMENT):
        several = rows[start : start + ROWS_IN_A_STATEMENT]
        statement = _values_statement(table, tuple(common), tuple(own), len(several))
        connection.exec_driver_sql(statement, (*common.values(), *chain.from_iterable(several)))


@cache
def _values_statement(table: str, common: tuple[str, ...], own: tuple[str, ...], rows: int) -> str:
    marks = ", ".join([*(f"?{i}" for i in range(1, len(common) + 1)), *("?" for _ in own)])
    return f"INSERT INTO {table} ({', '.join(common + own)}) VALUES " + ", ".join([f"({marks})"] * rows)


def _insert_arrays(
    connection: Connection, table: str, common: dict[str, Any], own: Mapping[str, Sequence[Any]]
) -> None:
    """One statement. Every column is one array in Postgres' own notation, which is faster to write here than
    by the driver; bytes are one string, cut there."""
    given = common.copy()
    for name, values in own.items():
        if name == "vectors":
            lengths = [len(value) for value in values]
            given[name] = b"".join(values)
            given["length"], given["start"] = _array(lengths), _array(accumulate(lengths[:-1], initial=1))
        else:
            given[name] = _array(values)
    connection.exec_driver_sql(_arrays_statement(table, tuple(common), tuple(own)), given)


@cache
def _arrays_statement(table: str, common: tuple[str, ...], own: tuple[str, ...]) -> str:
    kinds = {"decisions": decisions, "feedback": feedback}[table].c
    types = {name: _kind(kinds[name]) for name in common + own}
    read = [f"%({name})s::{types[name]}" for name in common]
    read += ["substring(%(vectors)b FROM start FOR length)" if name == "vectors" else name for name in own]
    arrays = {name: types[name] for name in own if name != "vectors"}
    if "vectors" in own:
        arrays |= {"start": "INT", "length": "INT"}
    lists = ", ".join(f"%({name})s::{type_}[]" for name, type_ in arrays.items())
    return (
        f"INSERT INTO {table} ({', '.join(common + own)}) SELECT {', '.join(read)} "
        f"FROM unnest({lists}) WITH ORDINALITY AS given({', '.join(arrays)}, place) ORDER BY place"
    )


def _kind(column: Column[Any]) -> str:
    """Text as long as it is: cast to a column's length it would be cut, where it ought to be refused."""
    return "TEXT" if isinstance(column.type, String) else str(column.type.compile(_POSTGRES))


def _array(values: Iterable[Any]) -> str:
    """As Postgres reads an array."""
    return "{" + ",".join([_element(value) for value in values]) + "}"


def _element(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "NULL" if value is None else repr(value)
