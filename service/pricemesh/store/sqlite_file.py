"""Whether the paths of an open SQLite database still lead to the files that were opened.

SQLite goes on writing into a file that was deleted, moved or replaced, and the next start would not find what
was acknowledged. Without its WAL, a process that is killed loses what it committed since the last checkpoint.
Without its lock file, a second city can start on the same database.
"""

import logging
import os
from pathlib import Path
from threading import Lock
from typing import NamedTuple

log = logging.getLogger("pricemesh")

Identity = tuple[int, int]  # device and inode; no other file gets them while this one is open


class Identities(NamedTuple):
    """Of the three files that a city has open; None for one that is missing."""

    database: Identity | None
    wal: Identity | None
    lock: Identity | None


class OpenFile:
    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        resolved = str(Path(path).resolve())  # SQLite follows links before it names the WAL
        self.wal_path = f"{resolved}-wal"
        self.shm_path = f"{resolved}-shm"
        self.lock_path = f"{resolved}.lock"  # one lock for all names (links) of a file
        self._opened: Identities | None = None
        self._fault: str | None = None
        self._lock = Lock()  # for `_fault`, which several threads may find

    def identities(self) -> Identities:
        return Identities(identity(self.path), identity(self.wal_path), identity(self.lock_path))

    def remember(self, opened: Identities) -> None:
        """To be called once the database is open and its WAL exists."""
        self._opened = opened

    @property
    def remembered(self) -> bool:
        return self._opened is not None

    def forget(self) -> None:
        """To be called before the database is closed."""
        self._opened = None

    def fault(self) -> str | None:
        """What happened to the files and what to do; None while all is well. The first call that finds a
        fault logs it. When the very same files are back, nothing was lost, and the fault is over."""
        opened = self._opened
        if opened is None:
            return None
        current = self.identities()
        fault = None if current == opened else self._describe(opened, current)
        if fault != self._fault:
            self._note(fault)
        return fault

    def _describe(self, opened: Identities, current: Identities) -> str:
        if current.database != opened.database:
            return (
                f"{_event('the database file', self.path, current.database)} while this city was running: "
                "nothing is acknowledged any more. Move the same file back, or restart the city on a file of "
                "your choice"
            )
        if current.wal != opened.wal:
            return (
                f"{_event('the write-ahead log', self.wal_path, current.wal)} while this city was running: "
                "nothing is acknowledged any more. Stop the city with SIGTERM, never with SIGKILL: it then "
                "saves into the database file what the log held. Start it again afterwards"
            )
        return (
            f"{_event('the lock file', self.lock_path, current.lock)} while this city was running: another "
            "city may have started on the same database, so nothing is acknowledged any more. Make sure that "
            "no other city uses this database, then restart this one"
        )

    def _note(self, fault: str | None) -> None:
        with self._lock:
            before, self._fault = self._fault, fault
        if fault is not None and before is None:
            log.error(fault)
        elif fault is None and before is not None:
            log.warning("the files of the database are back: acknowledging again", extra={"file": self.path})

    def has_stray_wal(self) -> bool:
        """Whether the database file is gone and its WAL is still here, where the next start would replay it
        into another file. False when another process may have the lock: then the WAL may be that one's."""
        opened = self._opened
        if opened is None or opened.database is None:
            return False
        current = self.identities()
        return (
            current.database != opened.database
            and current.wal == opened.wal
            and current.lock in (None, opened.lock)
        )

    def move_wal_away(self) -> None:
        opened = self._opened
        assert opened is not None
        assert opened.database is not None
        aside = self.stray_wal_path(opened.database)
        try:
            os.rename(self.wal_path, aside)
        except OSError as fault:
            log.error(f"{self.wal_path} belongs to another file than {self.path}: move it away ({fault})")
            return
        log.error(
            f"the write-ahead log of the file that was {self.path} could not be saved into that file, and is "
            f"now {aside}. If you put that file back, first rename the log to {self.wal_path}"
        )

    def stray_wal_path(self, database: Identity) -> str:
        """Where the WAL of that file is put when it must not stay beside another."""
        return f"{self.wal_path}.orphan-{database[1]}"


def identity(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _event(what: str, path: str, current: Identity | None) -> str:
    event = "was deleted or moved away" if current is None else "was replaced by another"
    return f"{what} {path} {event}"
