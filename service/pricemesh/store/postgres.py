"""Postgres: connections, the advisory lock and the statements of traffic.

The statements go to the driver directly and take every column as one array: for many small rows, most of the
time would otherwise go into preparing parameters.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from typing import Any

import sqlalchemy as sa
from sqlalchemy import URL, Column, Connection, Engine, String, create_engine, event
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import SQLAlchemyError

from pricemesh.errors import DatabaseInUse, PricemeshError, SchemaOutdated, StorageUnavailable
from pricemesh.store.commands import Command, SaveDecisions, SaveFeedback
from pricemesh.store.faults import driver_fault, driver_rows, reason
from pricemesh.store.tables import metadata

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
_ONE_INSERT = ({SaveDecisions}, {SaveFeedback})  # kinds of commands that together make one INSERT

_LATEST_PRICES = """
SELECT requested.subject, latest.price FROM unnest(%s::TEXT[]) AS requested(subject) CROSS JOIN LATERAL (
  SELECT price FROM decisions WHERE decisions.subject = requested.subject ORDER BY number DESC LIMIT 1
) AS latest"""


class Postgres:
    def __init__(self, url: URL) -> None:
        self.engine = _engine(url)

    def own(self, city: str) -> Connection:
        connection = self.engine.connect()
        digest = hashlib.sha256(f"pricemesh:{city}".encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        if not connection.scalar(sa.text("select pg_try_advisory_lock(:key)"), {"key": key}):
            connection.close()
            raise DatabaseInUse(f"another process already serves {city} from this database: stop it first")
        connection.commit()
        return connection

    def release(self) -> None:
        """The server gives the advisory lock back when the connection that holds it ends."""
        self.engine.dispose()

    def update_schema(self, connection: Connection, current: str | None, target: str | None) -> None:  # noqa: ARG002
        raise SchemaOutdated(
            f"the database is at revision {current or 'none'}, not {target}: run `pricemesh migrate`"
        )

    def fault(self) -> str | None:
        return None  # a server that loses its files ends the connection

    def start_fault(self, fault: SQLAlchemyError) -> PricemeshError:
        return StorageUnavailable(f"the database cannot be opened: {reason(fault)}")

    @contextmanager
    def transaction(self, connection: Connection, commands: Sequence[Command]) -> Iterator[None]:
        """The one INSERT of a group of prices, or of feedback, is a transaction of its own, which saves two
        calls to the server. Nobody else writes, so what was read before it still holds."""
        with _autocommit(connection, {type(command) for command in commands} in _ONE_INSERT):
            yield

    def insert(
        self, connection: Connection, table: str, common: dict[str, Any], columns: Mapping[str, Sequence[Any]]
    ) -> None:
        """One statement. Every column is one array in Postgres' text form, which is faster to write here than
        by the driver. Vectors are one byte string, which the server cuts."""
        parameters = common.copy()
        for name, values in columns.items():
            if name == "vectors":
                lengths = [len(value) for value in values]
                parameters[name] = b"".join(values)
                parameters["length"] = _array(lengths)
                parameters["start"] = _array(accumulate(lengths[:-1], initial=1))
            else:
                parameters[name] = _array(values)
        connection.exec_driver_sql(_insert_statement(table, tuple(common), tuple(columns)), parameters)

    def select_by_id(self, connection: Connection, query: str, ids: Sequence[str]) -> Sequence[Any]:
        return _rows(connection, f"{query} = ANY(%s::TEXT[])", ids)

    @contextmanager
    def reading(self, connection: Connection) -> Iterator[None]:
        with _autocommit(connection, True):
            yield

    def latest_prices(self, connection: Connection, subjects: Sequence[str]) -> Sequence[Any]:
        return _rows(connection, _LATEST_PRICES, subjects)


def _engine(url: URL) -> Engine:
    import psycopg  # a city on SQLite starts without it

    class BinaryCursor(psycopg.Cursor[Any]):
        """Asks for results in binary form: most of their size is vectors."""

        def __init__(self, *positional: Any, **named: Any) -> None:
            super().__init__(*positional, **named)
            self.format = psycopg.pq.Format.BINARY

    engine = create_engine(url, pool_pre_ping=True, connect_args={"cursor_factory": BinaryCursor})
    event.listen(engine, "connect", _use_indexes)
    return engine


def _use_indexes(connection: Any, _record: Any) -> None:
    """Every lookup is by a key. Without this, Postgres may plan a sequential scan while tables are empty, and
    keep that plan."""
    for method in ("seqscan", "hashjoin", "mergejoin"):
        connection.execute(f"SET enable_{method} = off")
    connection.commit()


@contextmanager
def _autocommit(connection: Connection, enabled: bool) -> Iterator[None]:
    """A transaction; when enabled, every statement is committed by itself."""
    driver: Any = connection.connection.driver_connection
    if enabled:
        _set_autocommit(connection, driver, True)
    try:
        with connection.begin():
            yield
    finally:
        if enabled and not driver.closed:
            _set_autocommit(connection, driver, False)


def _set_autocommit(connection: Connection, driver: Any, enabled: bool) -> None:
    try:
        driver.autocommit = enabled
    except connection.dialect.loaded_dbapi.Error as fault:
        raise driver_fault(connection, fault) from None


@cache
def _insert_statement(table: str, common: tuple[str, ...], columns: tuple[str, ...]) -> str:
    types = {name: _type(metadata.tables[table].c[name]) for name in common + columns}
    values = [f"%({name})s::{types[name]}" for name in common]
    values += [
        "substring(%(vectors)b FROM start FOR length)" if name == "vectors" else name for name in columns
    ]
    arrays = {name: types[name] for name in columns if name != "vectors"}
    if "vectors" in columns:
        arrays |= {"start": "INT", "length": "INT"}
    lists = ", ".join(f"%({name})s::{type_}[]" for name, type_ in arrays.items())
    return (
        f"INSERT INTO {table} ({', '.join(common + columns)}) SELECT {', '.join(values)} "
        f"FROM unnest({lists}) WITH ORDINALITY AS batch({', '.join(arrays)}, place) ORDER BY place"
    )


def _type(column: Column[Any]) -> str:
    """TEXT for every string: a cast to VARCHAR(n) would cut a value that must be refused."""
    return "TEXT" if isinstance(column.type, String) else str(column.type.compile(_DIALECT))


def _rows(connection: Connection, query: str, values: Sequence[str]) -> Sequence[Any]:
    """The rows of a query whose one parameter is an array of text."""
    return driver_rows(connection.exec_driver_sql(query, (_array(values),)))


def _array(values: Iterable[Any]) -> str:
    """An array in Postgres' text form."""
    return "{" + ",".join([_element(value) for value in values]) + "}"


def _element(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "NULL" if value is None else repr(value)
