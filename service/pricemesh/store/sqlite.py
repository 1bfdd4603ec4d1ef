"""SQLite: connections, the lock file, the WAL checkpoint size and the statements of traffic.

The statements go to the driver directly: for many small rows, most of the time would otherwise go into
preparing parameters.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any

from sqlalchemy import URL, Connection, create_engine, event

from pricemesh.errors import DatabaseInUse, StorageUnavailable
from pricemesh.store import schema
from pricemesh.store.commands import Command

# A commit that fills the WAL beyond this many pages also checkpoints it. A long WAL takes long to checkpoint,
# and callers who ask for one price each wait meanwhile; a short WAL slows batches, whose commits are as large
# as the WAL itself.
SHORT_WAL_PAGES, LONG_WAL_PAGES = 400, 4000
LARGE_COMMIT_ROWS = 500
ROWS_PER_STATEMENT = 100  # the driver caches about as many prepared statements


class Sqlite:
    def __init__(self, url: URL) -> None:
        self._path = str(url.database)
        self._lock_file: IO[str] | None = None
        self._wal_pages = SHORT_WAL_PAGES
        self.engine = create_engine(url)
        event.listen(self.engine, "connect", _configure)

    def own(self, city: str) -> Connection:  # noqa: ARG002
        if self._lock_file is None:
            self._lock_file = self._lock()
        connection = self.engine.connect()
        self._wal_pages = SHORT_WAL_PAGES
        return connection

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


def _configure(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "busy_timeout=5000",
        "foreign_keys=ON",
        f"wal_autocheckpoint={SHORT_WAL_PAGES}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


@cache
def _insert_statement(table: str, common: tuple[str, ...], columns: tuple[str, ...], rows: int) -> str:
    """Common values are numbered parameters, so that they are bound once for all rows."""
    marks = ", ".join([*(f"?{i}" for i in range(1, len(common) + 1)), *("?" for _ in columns)])
    return f"INSERT INTO {table} ({', '.join(common + columns)}) VALUES " + ", ".join([f"({marks})"] * rows)


def _rows(connection: Connection, query: str, values: Sequence[str]) -> Sequence[Any]:
    """The rows of a query whose one parameter is a JSON array."""
    result = connection.exec_driver_sql(query, (json.dumps(values),))
    rows: Sequence[Any] = result.cursor.fetchall()
    result.close()
    return rows
