"""All that a learner is made of, read at one moment, beside the writer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import SQLAlchemyError

from pricemesh.errors import StorageUnavailable
from pricemesh.store.backend import Backend
from pricemesh.store.commands import Lesson, Position
from pricemesh.store.faults import reason
from pricemesh.store.pending import Change, changes_since, newest_position
from pricemesh.store.reads import lessons_since
from pricemesh.store.startup import read_past
from pricemesh.store.tables import feedback, mesh

# Of an older database or under another policy, which may have years of them.
MAX_FIRST_DECISIONS = 100_000


class Replay:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.past = read_past(connection)
        self.position = newest_position(connection)
        self.epoch: int = connection.scalar(mesh.select().with_only_columns(mesh.c.epoch)) or 1

    def changes_of_pending(self, counted: Position) -> Iterator[Change]:
        """As `Database.changes_of_pending`."""
        self.position = first_position(self.position, counted)
        yield from changes_since(self._connection, counted, self.position)

    def lessons(self, version: int, counted: Position) -> Iterator[list[Lesson]]:
        """As `Database.lessons`."""
        waiting = counted.settled, counted.decision
        while group := lessons_since(self._connection, version, waiting=waiting):
            version = group[-1].version
            yield group


Progress = Callable[[int, int], None]  # lessons learned, and how many there are


class CountedReplay(Replay):
    """Tells how far it is."""

    def __init__(self, connection: Connection, progress: Progress) -> None:
        super().__init__(connection)
        self._progress = progress
        self._done = 0
        self.total = connection.scalar(select(func.count(feedback.c.version))) or 0

    def lessons(self, version: int, counted: Position) -> Iterator[list[Lesson]]:
        for group in super().lessons(version, counted):
            yield group
            self._done += len(group)
            self._progress(self._done, self.total)


@contextmanager
def replaying(backend: Backend) -> Iterator[Replay]:
    if (lost := backend.fault()) is not None:
        raise StorageUnavailable(lost)
    try:
        with backend.engine.connect() as connection, backend.snapshot(connection):
            yield Replay(connection)
    except SQLAlchemyError as fault:
        raise StorageUnavailable(f"the database cannot be read: {reason(fault)}") from None


def first_position(position: Position, counted: Position) -> Position:
    """Where the windows of all decisions up to `settled` count as closed. A learner that has counted nothing
    begins with the last MAX_FIRST_DECISIONS."""
    settled = max(position.settled, counted.settled)
    if not counted.decision:
        settled = max(settled, position.decision - MAX_FIRST_DECISIONS)
    return position._replace(settled=settled)
