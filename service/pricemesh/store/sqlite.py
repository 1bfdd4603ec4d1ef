"""SQLite: connections, the end of the WAL and the WAL checkpoint size."""

import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from pricemesh.errors import NotStarted, PricemeshError, StorageUnavailable
from pricemesh.store import schema, sqlite_statements
from pricemesh.store.backend import NO_VERSIONS, InsertResult, TimeLimits, Versions
from pricemesh.store.commands import Command
from pricemesh.store.faults import reason
from pricemesh.store.sqlite_file import OpenFile
from pricemesh.store.sqlite_lock import LockFile

log = logging.getLogger("pricemesh")

# A commit that fills the WAL beyond this many pages also checkpoints it. A long WAL takes long to checkpoint,
# and callers who ask for one price each wait meanwhile; a short WAL slows batches, whose commits are as large
# as the WAL itself.
SHORT_WAL_PAGES, LONG_WAL_PAGES = 400, 4000
LARGE_COMMIT_ROWS = 500
LAST_BUSY_TIMEOUT_MS = 500  # for other programs that have a moved file open when the city stops

_PRAGMAS = (
    "synchronous=FULL",
    "foreign_keys=ON",
    f"wal_autocheckpoint={SHORT_WAL_PAGES}",
)


class Sqlite:
    def __init__(self, url: URL, limits: TimeLimits) -> None:
        self.committing = False
        self.shared = False
        self._pragmas = (*_PRAGMAS, _busy_timeout(limits.read_seconds))
        self._path = str(url.database)
        self._wal_pages = SHORT_WAL_PAGES
        self._file = OpenFile(self._path)
        self._lock = LockFile(self._file)
        self.engine = create_engine(url)
        event.listen(self.engine, "connect", self._configure)

    def own(self, city: str, terms: int | None = None) -> Connection:  # noqa: ARG002  # of a file, once
        if not self._lock.acquired:
            self._lock.acquire()
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
            for pragma in self._pragmas:
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
        if not self._file.remembered:
            self._file.remember(self._lock.record())

    def limit(self, connection: Connection, seconds: float | None) -> None:
        """For other processes that lock the file. A disk that hangs cannot be interrupted."""
        if seconds is not None:
            with connection.begin():
                connection.exec_driver_sql(f"PRAGMA {_busy_timeout(seconds)}").all()

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

    def release(self, connection: Connection | None) -> None:
        if connection is not None:
            connection.close()
        if self._file.has_stray_wal():
            self._save_wal()
            if self._file.has_stray_wal():
                self._file.move_wal_away()
            else:
                log.warning("the WAL was saved into the file that it belongs to", extra={"file": self._path})
        self._file.forget()  # closing the last connection deletes the WAL
        self.engine.dispose()
        self._lock.release()

    def _save_wal(self) -> None:
        """Write the WAL into the database file that is open, wherever that file is now. When SQLite closes a
        database whose file was moved, it leaves the WAL as it is, and the next start would replay it into
        the file that took the place."""
        pool = self.engine.pool
        if not isinstance(pool, QueuePool) or not pool.checkedin():
            return  # a new connection would open the file that took the place
        pooled = self.engine.raw_connection()
        pooled.detach()
        self.engine.dispose()  # SQLite leaves WAL mode only on the last connection
        cursor = pooled.cursor()
        try:
            cursor.execute(f"PRAGMA busy_timeout={LAST_BUSY_TIMEOUT_MS}")
            cursor.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.Error as fault:
            # SQLite saves and deletes the WAL first; then it refuses to write the new mode into a moved file.
            if fault.sqlite_errorcode != sqlite3.SQLITE_READONLY_DBMOVED:
                log.warning("the WAL was not saved", extra={"fault": str(fault), "file": self._path})
        finally:
            cursor.close()
            pooled.close()

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
            self.committing = True

    @contextmanager
    def snapshot(self, connection: Connection) -> Iterator[None]:
        with connection.begin():
            connection.exec_driver_sql("BEGIN")  # the driver begins by itself only before it writes
            yield

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
        number = sqlite_statements.insert_rows(connection, table, common, columns)
        return InsertResult(number, versions.after)

    def select_by_id(self, connection: Connection, query: str, ids: Sequence[str]) -> Sequence[Any]:
        return sqlite_statements.select_by_id(connection, query, ids)

    @contextmanager
    def reading(self, connection: Connection) -> Iterator[None]:
        with connection.begin():
            yield

    def latest_prices(self, connection: Connection, subjects: Sequence[str]) -> Sequence[Any]:
        return sqlite_statements.latest_prices(connection, subjects)


def _busy_timeout(seconds: float) -> str:
    return f"busy_timeout={round(1000 * seconds)}"
