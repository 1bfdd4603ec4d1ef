"""What differs between SQLite and Postgres, as one interface. The rest of `store` knows only this."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from pricemesh.errors import PricemeshError
from pricemesh.store.commands import Command


class TimeLimits(NamedTuple):
    """How long a database may leave a call without an answer."""

    commit_seconds: float = 1.0
    read_seconds: float = 5.0


class Versions(NamedTuple):
    """Of the feedback that one statement inserts: `size` of them, after the version `after`."""

    after: int = 0
    size: int = 0


class InsertResult(NamedTuple):
    number: int  # of the last row
    after: int  # the version before the first one, as it is in the table


NO_VERSIONS = Versions()


class Backend(Protocol):
    committing: bool  # whether the transaction under way has reached the statement that commits it
    shared: bool  # whether other replicas of the city write too

    @property
    def engine(self) -> Engine: ...

    def own(self, city: str, terms: int | None = None) -> Connection:
        """Connect and lock the database for this process. DatabaseInUse when another process holds the
        lock; SchemaChanged when the city has other terms by now. They change only under the lock of a process
        that is alone, so that they stay as long as this connection does."""
        ...

    def limit(self, connection: Connection, seconds: float | None) -> None:
        """End what this connection does when it waits longer than this; None: never."""
        ...

    def release(self, connection: Connection | None) -> None:
        """Close all connections, the writer's first, and give the lock back."""
        ...

    def update_schema(self, connection: Connection, current: str | None, target: str | None) -> None:
        """Called at start when the schema is at `current` and this version needs `target`."""
        ...

    def fault(self) -> str | None:
        """Why nothing may be acknowledged although commits succeed; None when all is well."""
        ...

    def start_fault(self, fault: SQLAlchemyError) -> PricemeshError:
        """What a fault at start means to the operator."""
        ...

    def transaction(
        self, connection: Connection, commands: Sequence[Command]
    ) -> AbstractContextManager[None]: ...

    def snapshot(self, connection: Connection) -> AbstractContextManager[None]:
        """A transaction that only reads, and sees the tables at one moment."""
        ...

    def take_turn(self, connection: Connection) -> None:
        """In a transaction: from now until it ends, nobody else inserts decisions, and all that were inserted
        before can be read."""
        ...

    def insert(
        self,
        connection: Connection,
        table: str,
        common: dict[str, Any],
        columns: Mapping[str, Sequence[Any]],
        versions: Versions = NO_VERSIONS,
    ) -> InsertResult:
        """Insert rows that have the values `common` in common; `columns` holds the values that differ, as
        one sequence per column. Feedback has versions: where replicas wrote meanwhile, all of them are
        higher."""
        ...

    def select_by_id(self, connection: Connection, query: str, ids: Sequence[str]) -> Sequence[Any]:
        """Run a query that ends before the condition on a decision's id. Rows are the driver's tuples."""
        ...

    def reading(self, connection: Connection) -> AbstractContextManager[None]:
        """Around statements that only read."""
        ...

    def latest_prices(self, connection: Connection, subjects: Sequence[str]) -> Sequence[Any]:
        """(subject, price) of each subject's decision with the highest number."""
        ...
