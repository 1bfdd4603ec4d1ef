"""Postgres: connections and their time limits, the advisory lock and the statements of traffic.

The statements go to the driver directly and take every column as one array: for many small rows, most of the
time would otherwise go into preparing parameters.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import URL, Column, Connection, Engine, String, create_engine, event
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pricemesh.errors import DatabaseInUse, PricemeshError, SchemaOutdated, StorageCause, StorageUnavailable
from pricemesh.store.backend import NO_VERSIONS, InsertResult, TimeLimits, Versions
from pricemesh.store.causes import cause_of
from pricemesh.store.commands import LARGE_COMMANDS, Command, SaveDecisions, SaveFeedback
from pricemesh.store.faults import driver_fault, driver_rows, reason
from pricemesh.store.tables import metadata

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
_ONE_INSERT = ({SaveDecisions}, {SaveFeedback})  # kinds of commands that together make one INSERT

_LATEST_PRICES = """
SELECT requested.subject, latest.price FROM unnest(%s::TEXT[]) AS requested(subject) CROSS JOIN LATERAL (
  SELECT price FROM decisions WHERE decisions.subject = requested.subject ORDER BY number DESC LIMIT 1
) AS latest"""


# The server ends a statement itself before the client gives up, because its error leaves no doubt.
STATEMENT_SHARE, LOCK_SHARE = 0.9, 0.8  # of the client's limit
IDLE_IN_TRANSACTION_SECONDS = 10  # a city that was stopped in a transaction blocks others no longer than this
KEEPALIVE_IDLE_SECONDS, KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_COUNT = 5, 2, 3
LARGE_COMMIT_ROWS, LARGE_COMMIT_FACTOR = 500, 5  # a commit of so many rows may take so many times the limit
TAKEOVER_SECONDS = 0.5  # for the server to end the connection that this city had before

_TRY_LOCK = sa.text("SELECT pg_try_advisory_lock(:key)")
_LOCK = sa.text("SELECT pg_advisory_lock(:key)")
_UNLOCK = sa.text("SELECT pg_advisory_unlock_all()")
_SESSION = sa.text("SELECT pid, backend_start::TEXT FROM pg_stat_activity WHERE pid = pg_backend_pid()")
_END_SESSION = sa.text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = :pid AND backend_start::TEXT = :start"
)


class Postgres:
    idle_in_transaction_seconds = IDLE_IN_TRANSACTION_SECONDS

    def __init__(self, url: URL, limits: TimeLimits) -> None:
        self.engine = self._connect(url, limits)
        self.committing = False
        self.shared = False
        self._commits_each = False  # whether a statement is a transaction of its own
        self._limit_seconds: float | None = None  # on the writer's connection, for a small commit
        self._limit_factor = 1
        self._session: tuple[int, str] | None = None  # of this city's newest connection that had the lock

    def _connect(self, url: URL, limits: TimeLimits) -> Engine:
        return _engine(url, limits, self.idle_in_transaction_seconds)

    def own(self, city: str) -> Connection:
        connection = self.engine.connect()
        try:
            self._lock(connection, city)
            pid, start = connection.execute(_SESSION).one()
            connection.commit()
        except BaseException:
            connection.invalidate()  # no reader may get it: it may have the lock
            connection.close()
            raise
        self._session = pid, start
        return connection

    def _lock(self, connection: Connection, city: str) -> None:
        key = {"key": lock_key(f"pricemesh:{city}")}
        if connection.scalar(_TRY_LOCK, key):
            return
        if self._ended_session(connection):
            _configure(connection, {"lock_timeout": _milliseconds(TAKEOVER_SECONDS)})
            try:
                connection.execute(_LOCK, key)
                return
            except DBAPIError as fault:
                if cause_of(fault) != StorageCause.TIMEOUT:
                    raise
        raise DatabaseInUse(f"another process already serves {city} from this database: stop it first")

    def _ended_session(self, connection: Connection) -> bool:
        """End the session that had the lock before this one, if it is there. The server notices late that its
        client is gone; and when it has ended, what it was committing is settled."""
        if self._session is None:
            return False
        pid, start = self._session
        return connection.scalar(_END_SESSION, {"pid": pid, "start": start}) is not None

    def limit(self, connection: Connection, seconds: float | None) -> None:
        self._limit_seconds, self._limit_factor = seconds, 1
        self._set_limit(connection, seconds)

    def _limit_by_size(self, connection: Connection, commands: Sequence[Command]) -> None:
        """Two more calls to the server where a large commit follows a small one, or a small one a large."""
        is_large = sum([command.size for command in commands]) >= LARGE_COMMIT_ROWS
        is_large |= any(isinstance(command, LARGE_COMMANDS) for command in commands)
        factor = LARGE_COMMIT_FACTOR if is_large else 1
        if factor != self._limit_factor and self._limit_seconds is not None:
            self._set_limit(connection, factor * self._limit_seconds)
            self._limit_factor = factor

    def _set_limit(self, connection: Connection, seconds: float | None) -> None:
        driver: Any = connection.connection.driver_connection
        driver.silence_seconds = seconds
        try:
            _configure(connection, _timeouts(seconds))
            connection.commit()
        except BaseException:
            connection.rollback()  # otherwise no later transaction could begin on this connection
            raise

    def release(self, connection: Connection | None) -> None:
        """The server gives the lock back when the session ends, but that may be after the next start."""
        if connection is not None:
            if not connection.invalidated:
                with suppress(SQLAlchemyError):
                    connection.execute(_UNLOCK)
            connection.close()
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
        self._limit_by_size(connection, commands)
        self._commits_each = {type(command) for command in commands} in _ONE_INSERT and not any(
            type(command) is SaveDecisions and command.steps_from for command in commands
        )
        with _autocommit(connection, self._commits_each):
            yield
            self.committing = not self._commits_each

    def take_turn(self, connection: Connection) -> None:
        """There is one writer."""

    def insert(
        self,
        connection: Connection,
        table: str,
        common: dict[str, Any],
        columns: Mapping[str, Sequence[Any]],
        versions: Versions = NO_VERSIONS,
    ) -> InsertResult:
        """One statement. Every column is one array in Postgres' text form, which is faster to write here than
        by the driver. Vectors are one byte string, which the server cuts."""
        order = self._order(table)
        parameters = {**common, **order.parameters, **versions._asdict()}
        for name, values in columns.items():
            if name == "vectors":
                lengths = [len(value) for value in values]
                parameters[name] = b"".join(values)
                parameters["length"] = _array(lengths)
                parameters["start"] = _array(accumulate(lengths[:-1], initial=1))
            else:
                parameters[name] = _array(values)
        self.committing = self._commits_each
        statement = _insert_statement(table, tuple(common), tuple(columns), order.query)
        return InsertResult(*connection.exec_driver_sql(statement, parameters).one())

    def _order(self, table: str) -> "Order":  # noqa: ARG002
        return SINGLE_WRITER

    def select_by_id(self, connection: Connection, query: str, ids: Sequence[str]) -> Sequence[Any]:
        return _rows(connection, f"{query} = ANY(%s::TEXT[])", ids)

    @contextmanager
    def snapshot(self, connection: Connection) -> Iterator[None]:
        with connection.begin():
            freeze(connection)
            yield

    @contextmanager
    def reading(self, connection: Connection) -> Iterator[None]:
        with _autocommit(connection, True):
            yield

    def latest_prices(self, connection: Connection, subjects: Sequence[str]) -> Sequence[Any]:
        return _rows(connection, _LATEST_PRICES, subjects)


def freeze(connection: Connection) -> None:
    """The first statement of a transaction that sees the tables at one moment."""
    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def lock_key(name: str) -> int:
    """Of an advisory lock."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def _engine(url: URL, limits: TimeLimits, idle_in_transaction_seconds: int) -> Engine:
    from pricemesh.store.postgres_driver import BinaryCursor, bounded  # a city on SQLite starts without them

    connection_type = bounded(limits.commit_seconds)
    arguments = {
        "connect_timeout": math.ceil(limits.commit_seconds),
        "keepalives_idle": KEEPALIVE_IDLE_SECONDS,
        "keepalives_interval": KEEPALIVE_INTERVAL_SECONDS,
        "keepalives_count": KEEPALIVE_COUNT,
        "tcp_user_timeout": _milliseconds(limits.read_seconds),
        "application_name": "pricemesh",
    }
    own = {name: value for name, value in arguments.items() if name not in url.query}
    engine = create_engine(url, pool_pre_ping=True, connect_args={"cursor_factory": BinaryCursor, **own})

    def connect(_dialect: Any, _record: Any, positional: Any, named: Any) -> Any:
        return connection_type.connect(*positional, **named)

    def configure(driver: Any, _record: Any) -> None:
        driver.silence_seconds = limits.read_seconds
        values = _PLANS | _SESSION_LIMITS | _timeouts(limits.read_seconds)
        values["idle_in_transaction_session_timeout"] = f"{idle_in_transaction_seconds}s"
        driver.execute(_set_config(values)).close()
        driver.commit()

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", configure)
    return engine


# Every lookup is by a key. Without this, Postgres may plan a sequential scan while tables are empty, and keep
# that plan. The scan of a table of one row then looks so expensive that Postgres would compile the statement
# (JIT), which takes longer than the statement itself, every time.
_PLANS = dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"), "off")
_SESSION_LIMITS = {  # by these the server notices that its client is gone, and gives the lock back
    "tcp_keepalives_idle": KEEPALIVE_IDLE_SECONDS,
    "tcp_keepalives_interval": KEEPALIVE_INTERVAL_SECONDS,
    "tcp_keepalives_count": KEEPALIVE_COUNT,
}


def _timeouts(seconds: float | None) -> dict[str, int]:
    limit = seconds or 0.0  # to Postgres, 0 is no limit
    return {
        "statement_timeout": _milliseconds(STATEMENT_SHARE * limit),
        "lock_timeout": _milliseconds(LOCK_SHARE * limit),
    }


def _milliseconds(seconds: float) -> int:
    return math.ceil(1000 * seconds)


def _set_config(values: Mapping[str, Any]) -> str:
    """One statement for all: each call to the server counts."""
    return "SELECT " + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in values.items())


def _configure(connection: Connection, values: Mapping[str, Any]) -> None:
    connection.exec_driver_sql(_set_config(values)).close()


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


class OrderQuery(NamedTuple):
    """How an INSERT waits for its turn, where several processes write."""

    turn: str = ""  # a query named `turn`, which returns one row once it is
    version: str = "batch_version"
    after: str = "%(after)s::BIGINT"  # the version before those of the rows


class Order(NamedTuple):
    query: OrderQuery = OrderQuery()
    parameters: Mapping[str, Any] = {}


SINGLE_WRITER = Order()


@cache
def _insert_statement(
    table: str, common: tuple[str, ...], columns: tuple[str, ...], order: OrderQuery
) -> str:
    types = {name: _type(metadata.tables[table].c[name]) for name in common + columns}
    values = [f"%({name})s::{types[name]}" for name in common]
    expressions = {"vectors": "substring(%(vectors)b FROM start FOR length)", "version": order.version}
    values += [expressions.get(name, name) for name in columns]
    arrays = {name: types[name] for name in columns if name != "vectors"}
    if "vectors" in columns:
        arrays |= {"start": "INT", "length": "INT"}
    lists = ", ".join(f"%({name})s::{type_}[]" for name, type_ in arrays.items())
    turn, join = (f"{order.turn}, ", "CROSS JOIN turn ") if order.turn else ("", "")
    batch = ", ".join("batch_version" if name == "version" else name for name in arrays)
    return (
        f"WITH {turn}inserted AS (INSERT INTO {table} ({', '.join(common + columns)}) "
        f"SELECT {', '.join(values)} FROM unnest({lists}) WITH ORDINALITY AS batch({batch}, place) "
        f"{join}ORDER BY place RETURNING number) SELECT max(number), {order.after} FROM inserted"
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
