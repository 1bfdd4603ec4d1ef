"""Sessions of the simulated server, what is sent on them, and how they fail."""

import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from pricemesh.errors import StorageCause
from pricemesh.lab.torture.threads import Thread, Wake
from pricemesh.lab.torture.virtual_loop import Process


class ConnectionEnded(sqlite3.OperationalError):
    """By the server, or on the way there."""

    cause = StorageCause.CONNECTION_LOST


class ServerSilent(sqlite3.OperationalError):
    """Nothing was heard from the server for too long."""

    cause = StorageCause.TIMEOUT


class ConnectionRefused(sqlite3.OperationalError):
    cause = StorageCause.GONE


class StatementResult(NamedTuple):
    description: Any = None
    rows: Iterable[Any] = ()
    row_count: int = -1


class Session:
    """The server's side of a connection."""

    def __init__(self, pid: int, started_at: str, process: Process, database: sqlite3.Connection) -> None:
        self.pid = pid
        self.started_at = started_at
        self.process = process
        self.database = database
        self.milliseconds: dict[str, float] = {}  # time limits, by name
        self.start_idle_seconds: float | None = None  # instead of the limit, until the transaction ends
        self.is_open = True
        self.is_busy = False
        self.in_transaction = False
        self.has_client = True
        self.used_at = 0.0
        self.is_watched = False
        self.thread: Thread | None = None  # of the statement under way; referred to, as it may wait for ever
        self.client: Wake | None = None  # who waits for the answer

    def limit_seconds(self, name: str) -> float | None:
        return self.milliseconds.get(name, 0.0) / 1000 or None

    @property
    def idle_seconds(self) -> float | None:
        """How long it may be idle now."""
        if self.in_transaction:
            return self.start_idle_seconds or self.limit_seconds("idle_in_transaction_session_timeout")
        return self.limit_seconds("idle_session_timeout")


class Insertion(NamedTuple):
    """Rows for one INSERT, as Postgres would get them."""

    table: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    after: int  # the version before those in the rows
    size: int  # how many rows have a version
    lock: int | None  # an advisory lock to wait for
    raises_version: bool  # whether the versions follow those that others wrote meanwhile

    @property
    def sql(self) -> str:
        marks = ", ".join("?" for _ in range(len(self.columns) + 1))
        return f"INSERT INTO {self.table} (number, {', '.join(self.columns)}) VALUES ({marks})"

    def numbered(self, numbers: Iterable[int], before: int) -> list[tuple[Any, ...]]:
        place = self.columns.index("version") if "version" in self.columns else None
        rows = self.rows
        if place is not None and before != self.after:
            shift = before - self.after
            rows = [
                row if row[place] is None else (*row[:place], row[place] + shift, *row[place + 1 :])
                for row in rows
            ]
        return [(number, *row) for number, row in zip(numbers, rows, strict=True)]
