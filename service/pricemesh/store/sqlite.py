"""SQLite: connections, the lock file, lost files, the WAL checkpoint size and the statements of traffic.

The statements go to the driver directly: for many small rows, most of the time would otherwise go into
preparing parameters.
"""

import fcntl
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any

from sqlalchemy import URL, Connection, create_engine, event, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pricemesh.errors import DatabaseInUse, NotStarted, PricemeshError, StorageUnavailable
from pricemesh.store import schema
from pricemesh.store.commands import Command
from pricemesh.store.faults import driver_rows, reason
from pricemesh.store.sqlite_file import OpenFile

# A commit that fills the WAL beyond this many pages also checkpoints it. A long WAL takes long to checkpoint,
# and callers who ask for one price each wait meanwhile; a short WAL slows batches, whose commits are as large
# as the WAL itself.
SHORT_WAL_PAGES, LONG_WAL_PAGES = 400, 4000
LARGE_COMMIT_ROWS = 500
ROWS_PER_STATEMENT = 100  # the driver caches about as many prepared statements

_PRAGMAS = (
    "synchronous=FULL",
    "busy_timeout=5000",
    "foreign_keys=ON",
    f"wal_autocheckpoint={SHORT_WAL_PAGES}",
)
_LATEST_PRICES = """
SELECT decisions.subject, decisions.price FROM json_each(?) AS requested CROSS JOIN decisions
ON decisions.number = (
  SELECT number FROM decisions WHERE subject = requested.value ORDER BY number DESC LIMIT 1
)"""


class Sqlite:
    def __init__(self, url: URL) -> None:
        self._path = str(url.database)
        self._lock_file: IO[str] | None = None
        self._wal_pages = SHORT_WAL_PAGES
        self._file = OpenFile(self._path)
        self.engine = create_engine(url)
        event.listen(self.engine, "connect", self._configure)

    def own(self, city: str) -> Connection:  # noqa: ARG002
        if self._lock_file is None:
            self._lock_file = self._lock()
        connection = self.engine.connect()
        try:
            self._begin_wal(connection)
        except BaseException:
            connection.close()
            raise
        self._wal_pages = SHORT_WAL_PAGES
        return connection

    def _configure(self, connection: Any, _record: Any) -> None:
        """Set up a new connection. It must not be to a file that has taken the place of ours."""
        try:
            if (fault := self.fault()) is not None:
                raise StorageUnavailable(fault)
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}").close()
        except BaseException:
            connection.close()
            raise

    def _begin_wal(self, connection: Connection) -> None:
        """Switch to WAL mode, which changes the file; so first check whose file it is."""
        names = connection.scalars(text("SELECT name FROM sqlite_master WHERE type = 'table'"))
        tables = {name for name in names if not name.startswith("sqlite_")} - {"alembic_version"}
        current, _ = schema.revisions(connection)
        connection.rollback()
        if tables and (current is None or "decisions" not in tables):
            raise NotStarted(
                f"{self._path} is a SQLite file of another program (it has the table {min(tables)}): "
                "name another file in database.url"
            )
        if current is not None and not schema.exists(current):
            raise NotStarted(
                f"{self._path} has the schema revision {current}, which this version of pricemesh does not "
                "know: use the version that wrote it, or name another file in database.url"
            )
        connection.exec_driver_sql("PRAGMA journal_mode=WAL").all()
        connection.rollback()
        connection.exec_driver_sql("SELECT 1 FROM sqlite_master").all()  # creates the -wal file
        connection.rollback()
        self._file.remember()

    def fault(self) -> str | None:
        return self._file.fault()

    def start_fault(self, fault: SQLAlchemyError) -> PricemeshError:
        code = getattr(fault.orig, "sqlite_errorcode", 0) & 0xFF if isinstance(fault, DBAPIError) else 0
        if code == sqlite3.SQLITE_NOTADB:
            return NotStarted(f"{self._path} is not a SQLite file: name another file in database.url")
        if code == sqlite3.SQLITE_CORRUPT:
            return NotStarted(
                f"{self._path} is damaged ({reason(fault)}): put a backup in its place (without the -wal and "
                "-shm files beside it), or name a new file in database.url"
            )
        return StorageUnavailable(f"the database {self._path} cannot be opened: {reason(fault)}")

    def _lock(self) -> IO[str]:
        database = Path(self._path).resolve()  # one lock for all names (links) of a file
        path = database.with_name(database.name + ".lock")
        try:
            lock_file = path.open("w")
        except OSError as fault:
            raise StorageUnavailable(f"cannot write beside the database, {path}: {fault.strerror}") from None
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock_file.close()
            raise DatabaseInUse(
                f"another process owns {self._path}: stop it, or give this city a database of its own"
            ) from None
        return lock_file

    def release(self) -> None:
        self._file.forget()  # closing the last connection deletes the WAL
        self.engine.dispose()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def update_schema(self, connection: Connection, current: str | None, target: str | None) -> None:  # noqa: ARG002
        schema.move(connection, "head")
        connection.commit()

    @contextmanager
    def transaction(self, connection: Connection, commands: Sequence[Command]) -> Iterator[None]:
        rows = sum([command.size for command in commands])
        pages = LONG_WAL_PAGES if rows >= LARGE_COMMIT_ROWS else SHORT_WAL_PAGES
        if pages != self._wal_pages:
            with connection.begin():
                connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint={pages}").all()
            self._wal_pages = pages
        with connection.begin():
            yield

    def insert(
        self, connection: Connection, table: str, common: dict[str, Any], columns: Mapping[str, Sequence[Any]]
    ) -> None:
        # The driver binds a bytearray about twice as fast as bytes, for which it first looks for an adapter.
        values = [map(bytearray, each) if name == "vectors" else each for name, each in columns.items()]
        rows = list(zip(*values, strict=True))
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            several = rows[start : start + ROWS_PER_STATEMENT]
            statement = _insert_statement(table, tuple(common), tuple(columns), len(several))
            connection.exec_driver_sql(statement, (*common.values(), *chain.from_iterable(several)))

    def select_by_id(self, connection: Connection, query: str, ids: Sequence[str]) -> Sequence[Any]:
        return _rows(connection, f"{query} IN (SELECT value FROM json_each(?))", ids)

    @contextmanager
    def reading(self, connection: Connection) -> Iterator[None]:
        with connection.begin():
            yield

    def latest_prices(self, connection: Connection, subjects: Sequence[str]) -> Sequence[Any]:
        return _rows(connection, _LATEST_PRICES, subjects)


@cache
def _insert_statement(table: str, common: tuple[str, ...], columns: tuple[str, ...], rows: int) -> str:
    """Common values are numbered parameters, so that they are bound once for all rows."""
    marks = ", ".join([*(f"?{i}" for i in range(1, len(common) + 1)), *("?" for _ in columns)])
    return f"INSERT INTO {table} ({', '.join(common + columns)}) VALUES " + ", ".join([f"({marks})"] * rows)


def _rows(connection: Connection, query: str, values: Sequence[str]) -> Sequence[Any]:
    """The rows of a query whose one parameter is a JSON array."""
    return driver_rows(connection.exec_driver_sql(query, (json.dumps(values),)))
