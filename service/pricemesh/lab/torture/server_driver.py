"""How a simulated replica reaches the simulated server: a driver, an engine, and the service's own backend.

Everything runs as it is for Postgres (`store.shared_postgres`, `shared_database`, `lease`), except that rows
are inserted and looked up in SQLite's dialect.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.pool import QueuePool
from sqlalchemy.util import LRUCache

from pricemesh.lab.torture.network import OUTSIDE
from pricemesh.lab.torture.server import FOR_UPDATE, SimulatedServer
from pricemesh.lab.torture.server_session import (
    ConnectionEnded,
    Insertion,
    ServerSilent,
    Session,
    StatementResult,
)
from pricemesh.lab.torture.threads import current_thread, obey_signal
from pricemesh.lab.torture.virtual_loop import PROCESS, Process
from pricemesh.runtime import Runtime
from pricemesh.store import sqlite_statements
from pricemesh.store.backend import NO_VERSIONS, Backend, InsertResult, TimeLimits, Versions
from pricemesh.store.faults import driver_fault
from pricemesh.store.postgres import Postgres
from pricemesh.store.shared_database import SharedDatabase
from pricemesh.store.shared_postgres import SharedPostgres
from pricemesh.store.stopped_database import StoppedDatabase

LOST = (ConnectionEnded, ServerSilent)


class Driver:
    """A connection as SQLAlchemy and the backend know psycopg's."""

    def __init__(self, server: SimulatedServer, session: Session, silence_seconds: float) -> None:
        self._server = server
        self._session = session
        self.silence_seconds: float | None = silence_seconds
        self.autocommit = False
        self.closed = False
        self._in_transaction = False

    def cursor(self) -> "DriverCursor":
        return DriverCursor(self)

    def execute(self, sql: str, parameters: Any, *, many: bool) -> StatementResult:
        self._in_transaction = not self.autocommit
        work = partial(self._server.execute, many=many, autocommit=self.autocommit)
        result: StatementResult = self._call(partial(work, self._session, sql, parameters))
        return result

    def insert(self, insertion: Insertion) -> tuple[int, int]:
        self._in_transaction = not self.autocommit
        work = partial(self._server.insert, self._session, insertion, autocommit=self.autocommit)
        numbers: tuple[int, int] = self._call(work)
        return numbers

    def commit(self) -> None:
        self._end_transaction(self._server.commit)

    def rollback(self) -> None:
        if not self.closed and self._is_called_by_its_process:
            self._end_transaction(self._server.roll_back)

    @property
    def _is_called_by_its_process(self) -> bool:
        """Not so when what a dead process had is collected or unwound."""
        return current_thread() is not None and PROCESS.get() is self._session.process

    def _end_transaction(self, end: Any) -> None:
        if self._in_transaction:
            self._in_transaction = False
            self._call(partial(end, self._session))

    def _call(self, work: Any) -> Any:
        if self.closed or not self._is_called_by_its_process:
            raise ConnectionEnded("the connection is closed")
        obey_signal(self._session.process, self._server.loop)
        try:
            return self._server.call(self._session, work, self.silence_seconds)
        except LOST:
            self.closed = True
            raise

    def close(self) -> None:
        self.closed = True
        server = self._server
        if self._session.process.name not in server.cuts:
            server.loop.call_soon(server.leave, self._session, context=OUTSIDE)

    def create_function(self, *_arguments: Any, **_options: Any) -> None:
        """The server has its own."""


class DriverCursor:
    arraysize = 1
    lastrowid = None

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1

    def execute(self, sql: str, parameters: Any = ()) -> "DriverCursor":
        return self._run(sql, parameters, many=False)

    def executemany(self, sql: str, parameters: Any) -> "DriverCursor":
        return self._run(sql, parameters, many=True)

    def _run(self, sql: str, parameters: Any, *, many: bool) -> "DriverCursor":
        self.description, rows, self.rowcount = self._driver.execute(sql, parameters, many=many)
        self._rows = list(reversed(list(rows)))
        return self

    def fetchone(self) -> Any:
        return self._rows.pop() if self._rows else None

    def fetchmany(self, size: int = 1) -> list[Any]:
        return [self._rows.pop() for _ in range(min(size, len(self._rows)))]

    def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows[::-1], []
        return rows

    def close(self) -> None: ...


class Compiler(SQLiteCompiler):
    def for_update_clause(self, select: Any, **kw: Any) -> str:  # noqa: ARG002
        return f" {FOR_UPDATE}"


class Dialect(SQLiteDialect_pysqlite):
    supports_statement_cache = True
    statement_compiler = Compiler

    def initialize(self, connection: Any) -> None:  # noqa: ARG002
        """Asks the server nothing: SQLAlchemy has a lock meanwhile, for which no greenlet can wait."""
        self.server_version_info = sqlite3.sqlite_version_info

    def __eq__(self, other: object) -> bool:
        """All are alike, so the engines of all processes can share what SQLAlchemy compiles."""
        return isinstance(other, Dialect)

    def __hash__(self) -> int:
        return hash(Dialect)

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:  # noqa: ARG002
        return isinstance(e, LOST)


_COMPILED: LRUCache[Any, Any] = LRUCache(1000)
registry.register("simulated", __name__, "Dialect")


class SimulatedConnections(Postgres):
    """Of a process that owns the database alone."""

    def __init__(self, server: SimulatedServer, process: Process, limits: TimeLimits) -> None:
        self._server = server
        self._process = process
        super().__init__(URL.create("simulated"), limits)

    def _connect(self, url: URL, limits: TimeLimits) -> Engine:
        def connect() -> Driver:
            session = self._server.connect(
                self._process, limits.commit_seconds, self.idle_in_transaction_seconds
            )
            return Driver(self._server, session, limits.read_seconds)

        shared = {"compiled_cache": _COMPILED}
        return create_engine(
            url, creator=connect, poolclass=QueuePool, pool_pre_ping=True, execution_options=shared
        )


class SimulatedPostgres(SimulatedConnections, SharedPostgres):
    def insert(
        self,
        connection: Connection,
        table: str,
        common: dict[str, Any],
        columns: Mapping[str, Sequence[Any]],
        versions: Versions = NO_VERSIONS,
    ) -> InsertResult:
        order = self._order(table)
        values = tuple(common.values())
        insertion = Insertion(
            table,
            (*common, *columns),
            [(*values, *row) for row in zip(*columns.values(), strict=True)],
            versions.after,
            versions.size,
            order.parameters.get("lock"),
            "shared_log" in order.query.turn,
        )
        self.committing = self._commits_each
        driver: Any = connection.connection.driver_connection
        try:
            return InsertResult(*driver.insert(insertion))
        except connection.dialect.loaded_dbapi.Error as fault:
            raise driver_fault(connection, fault) from None

    def select_by_id(self, connection: Connection, query: str, ids: Sequence[str]) -> Sequence[Any]:
        return sqlite_statements.select_by_id(connection, query, ids)

    def latest_prices(self, connection: Connection, subjects: Sequence[str]) -> Sequence[Any]:
        return sqlite_statements.latest_prices(connection, subjects)


class StoppedReplicaDatabase(StoppedDatabase):
    """Of a city whose replicas are all stopped, for a command."""

    def __init__(
        self,
        server: SimulatedServer,
        process: Process,
        city: str,
        runtime: Runtime,
        lock_wait_seconds: float,
    ) -> None:
        self._server = server
        self._process = process
        super().__init__("postgresql://", city, runtime, lock_wait_seconds)

    def _backend_of(self, url: str) -> Backend:  # noqa: ARG002
        return SimulatedConnections(self._server, self._process, self._limits)


class ReplicaDatabase(SharedDatabase):
    def __init__(
        self, server: SimulatedServer, process: Process, city: str, runtime: Runtime, limits: TimeLimits
    ) -> None:
        self._server = server
        self._process = process
        super().__init__("", city, runtime, limits=limits)

    def _backend_of(self, url: str) -> Backend:  # noqa: ARG002
        return SimulatedPostgres(self._server, self._process, self._limits)
