"""Whether the paths of an open SQLite database still lead to the files that were opened.

SQLite goes on writing into a file that was deleted, moved or replaced, and the next start would not find what
was acknowledged. Without its WAL, a process that is killed loses what it committed since the last checkpoint.
"""

import logging
import os
from pathlib import Path
from threading import Lock

log = logging.getLogger("pricemesh")

Identity = tuple[int, int]  # device and inode; no other file gets them while SQLite has this one open


class OpenFile:
    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._wal_path = f"{Path(path).resolve()}-wal"  # SQLite follows links before it names the WAL
        self._identity: Identity | None = None
        self._wal_identity: Identity | None = None
        self._fault: str | None = None
        self._lock = Lock()  # for `_fault`, which several threads may find

    def remember(self) -> None:
        """To be called once the database is open and its WAL exists."""
        if self._identity is None:
            self._identity, self._wal_identity = _identity(self._path), _identity(self._wal_path)

    def forget(self) -> None:
        """To be called before the database is closed."""
        self._identity = None

    def fault(self) -> str | None:
        """What happened to the files and what to do; None while all is well. The first call that finds a
        fault logs it. When the very same files are back, nothing was lost, and the fault is over."""
        identity = self._identity
        if identity is None:
            return None
        current, current_wal = _identity(self._path), _identity(self._wal_path)
        fault = None
        if current != identity:
            fault = (
                f"{_event('the database file', self._path, current)} while this city was running: nothing is "
                "acknowledged any more. Move the same file back, or restart the city on a file of your choice"
            )
        elif current_wal != self._wal_identity:
            fault = (
                f"{_event('the write-ahead log', self._wal_path, current_wal)} while this city was running: "
                "nothing is acknowledged any more. Stop the city with SIGTERM, never with SIGKILL: it then "
                "saves into the database file what the log held. Start it again afterwards"
            )
        if fault != self._fault:
            self._note(fault)
        return fault

    def _note(self, fault: str | None) -> None:
        with self._lock:
            before, self._fault = self._fault, fault
        if fault is not None and before is None:
            log.error(fault)
        elif fault is None and before is not None:
            log.warning("the database file is back: acknowledging again", extra={"file": self._path})


def _identity(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _event(what: str, path: str, current: Identity | None) -> str:
    event = "was deleted or moved away" if current is None else "was replaced by another"
    return f"{what} {path} {event}"
