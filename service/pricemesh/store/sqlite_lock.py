"""The lock file beside a SQLite database: one process owns the database.

The lock file also records the inodes of the files that its owner had open. After a kill, the next start thus
sees whether the WAL that was left belongs to the database file that it finds.
"""

import fcntl
import json
import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import IO, NamedTuple

from pricemesh.errors import DatabaseInUse, NotStarted, StorageUnavailable
from pricemesh.store.sqlite_file import Identities, Identity, OpenFile, identity

log = logging.getLogger("pricemesh")


class Record(NamedTuple):
    """Inodes without devices, whose numbers may change when the machine starts again. The lock file's own
    shows whether the record was copied here together with the other files."""

    lock: int
    database: int
    wal: int


class LockFile:
    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._handle: IO[str] | None = None

    @property
    def acquired(self) -> bool:
        return self._handle is not None

    def acquire(self) -> None:
        """To be called before SQLite opens the database, because that replays the WAL."""
        path = Path(self._file.lock_path)
        try:
            handle = path.open("a+")
        except OSError as fault:
            raise StorageUnavailable(f"cannot write beside the database, {path}: {fault.strerror}") from None
        try:
            if not self._lock(handle):
                raise self._in_use()
            self._check_wal(handle)
        except BaseException:
            handle.close()
            raise
        self._handle = handle

    def record(self) -> Identities:
        """Write down, and return, which files are open. To be called once the WAL exists."""
        assert self._handle is not None
        opened = self._file.identities()._replace(lock=_identity(self._handle))
        if opened.lock and opened.database and opened.wal:
            record = Record(opened.lock[1], opened.database[1], opened.wal[1])
            try:
                os.ftruncate(self._handle.fileno(), 0)
                os.write(self._handle.fileno(), json.dumps(record._asdict()).encode())
            except OSError as fault:  # a city starts on a full disk, too
                log.warning("lock file not written", extra={"file": self._handle.name, "fault": str(fault)})
        return opened

    def release(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _lock(self, handle: IO[str]) -> bool:
        """False when another process has the lock, or deleted the file before it was locked here."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return identity(self._file.lock_path) == _identity(handle)

    def _in_use(self) -> DatabaseInUse:
        return DatabaseInUse(
            f"another process owns {self._file.path}: stop it, or give this city a database of its own"
        )

    def _check_wal(self, handle: IO[str]) -> None:
        """Refuse a start that would replay a WAL into a file that it was not written for, or beside a process
        whose lock file was deleted."""
        file = self._file
        database, wal, lock = file.identities()
        if database is not None and _has_content(file.stray_wal_path(database)):
            raise NotStarted(
                f"{file.stray_wal_path(database)} is the write-ahead log of {file.path}: rename it to "
                f"{file.wal_path} to keep what was acknowledged last, or delete it to give that up"
            )
        record = _read(handle)
        if record is None or lock is None or record.lock != lock[1]:
            if database is not None and _opened_by_others(file.path):
                raise self._in_use()
            return
        if not _has_content(file.wal_path):
            return
        wal_inode, inode = wal and wal[1], database and database[1]
        if wal_inode == record.wal and inode != record.database:
            event = "is missing" if inode is None else "was replaced"
            raise NotStarted(
                f"{file.path} {event} while a city was running that was then killed, and {file.wal_path} "
                f"belongs to the earlier file (inode {record.database}): put that file back, or move "
                f"{file.wal_path} and {file.shm_path} away and start again without what they hold"
            )


def _identity(handle: IO[str]) -> Identity:
    status = os.fstat(handle.fileno())
    return status.st_dev, status.st_ino


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def _read(handle: IO[str]) -> Record | None:
    """None for a lock file that was just made, or that has other content."""
    handle.seek(0)
    try:
        record = Record(**json.loads(handle.read()))
    except (ValueError, TypeError):
        return None
    return record


def _opened_by_others(path: str) -> bool:
    """Whether another process has the database open. This is asked only when the lock file cannot tell,
    because a program that only reads the database is no hindrance otherwise."""
    uri = f"{Path(path).resolve().as_uri()}?mode=rw"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
            connection.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.Error as fault:  # the start itself reports any other
        return getattr(fault, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    return False
