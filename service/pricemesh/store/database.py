"""One city's database, SQLite or Postgres through the same code. Synchronous: threads call it.

Only `commit` writes, all or nothing, on the one connection that owns the database. Reads use others.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import sqlalchemy as sa
from alembic.util import CommandError
from sqlalchemy import Connection, insert, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from pricemesh.core.decision import Decision
from pricemesh.errors import (
    DatabaseInUse,
    InvalidParameter,
    SchemaChanged,
    SchemaOutdated,
    StorageUnavailable,
)
from pricemesh.runtime import Runtime
from pricemesh.store import schema
from pricemesh.store.commands import Command, Lesson, SaveDecisions, SaveFeedback
from pricemesh.store.engines import LONG_LOG, SHORT_LOG, postgres_engine, sqlite_engine
from pricemesh.store.faults import reason
from pricemesh.store.reads import Reader, lessons_since
from pricemesh.store.tables import city, controls, dropped, learner, letters, mesh, peers, trusted
from pricemesh.store.writes import carry_out

LARGE_COMMIT = 500  # rows, by which SQLite's log is kept short or long
MOST_IN_DOUBT = 10_000  # more lessons than one commit can hold


class StoredState(NamedTuple):
    """What a start finds."""

    version: int  # of the snapshot; 0 without one
    payload: bytes | None
    tallies: dict[str, Any]
    controls: dict[str, tuple[str, float]]
    mesh_record: "MeshRecord"


class MeshRecord(NamedTuple):
    """What is kept of the mesh and of this city's place in it."""

    epoch: int
    seed: bytes
    memory: dict[str, Any]
    letters: list[tuple[bytes, float]]  # with when they were received
    peers: list[str]
    trusted: dict[str, bytes]
    dropped: list[str]


class CommitResult(NamedTuple):
    results: list[Any]  # one for each command; an exception where that one alone was refused
    lessons: list[Lesson]  # to be learned, in the order of their versions
    decisions: list[Decision]  # those that are new


class Recall(NamedTuple):
    """What decisions with a subject depend on."""

    decisions: dict[str, Decision]  # by id, those that exist
    latest_prices: dict[str, float]  # by subject


class Database:
    def __init__(self, url: str, name: str, runtime: Runtime, lock_wait_seconds: float = 0.0) -> None:
        self._url = make_url(url)
        self._lock_wait_seconds = lock_wait_seconds
        self._runtime = runtime
        self._name = name
        self._lock_file: IO[str] | None = None
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self.engine = sqlite_engine(self._url) if self.is_sqlite else postgres_engine(self._url)
        self.reader = Reader(self.engine)
        self._connection: Connection | None = None
        self._log_pages = SHORT_LOG
        self._version = 0
        self._in_doubt = False  # a commit failed, and may yet have happened
        self._unlearned: list[Lesson] = []  # what then turned out to have happened

    # Start and end

    def open(self, description: dict[str, Any]) -> StoredState:
        """Own the database, check that it is the one this city was configured for, and read what it keeps."""
        if self.is_sqlite:
            self._lock_sqlite()
        try:
            connection = self._own()
            self._check_schema(connection)
            with connection.begin():
                self._check_description(connection, description)
                kept = self._read(connection)
        except SQLAlchemyError as fault:
            self.close()
            raise StorageUnavailable(f"the database cannot be opened: {reason(fault)}") from None
        except BaseException:
            self.close()
            raise
        return kept

    def lessons(self, version: int) -> Iterator[list[Lesson]]:
        """What was learned after `version`, in order, some at a time. To be read to the end before the first
        commit, which goes on from there."""
        connection = self._own()
        while True:
            with connection.begin():
                some = lessons_since(connection, version)
            if not some:
                self._version = version
                return
            version = some[-1].version
            yield some

    def _lock_sqlite(self) -> None:
        database = Path(str(self._url.database)).resolve()  # one lock, by whatever name it is reached
        path = database.with_name(database.name + ".lock")
        try:
            self._lock_file = path.open("w")
        except OSError as fault:
            raise StorageUnavailable(f"cannot write beside the database, {path}: {fault.strerror}") from None
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock_file.close()
            self._lock_file = None
            raise DatabaseInUse(
                f"another process owns {self._url.database}: stop it, or give this city a database of its own"
            ) from None

    def _own(self) -> Connection:
        """The writer's connection; on Postgres with the lock that makes it the only one."""
        if self._connection is not None and not self._connection.closed and not self._connection.invalidated:
            return self._connection
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        connection = self.engine.connect()
        self._log_pages = SHORT_LOG
        if not self.is_sqlite:
            digest = hashlib.sha256(f"pricemesh:{self._name}".encode()).digest()
            key = int.from_bytes(digest[:8], "big", signed=True)
            if not connection.scalar(sa.text("select pg_try_advisory_lock(:key)"), {"key": key}):
                connection.close()
                raise DatabaseInUse(
                    f"another process already serves {self._name} from this database: stop it first"
                )
            connection.commit()
        self._connection = connection
        return connection

    def _check_schema(self, connection: Connection) -> None:
        has, wants = schema.revisions(connection)
        connection.rollback()
        if has == wants:
            return
        if self.is_sqlite:
            schema.move(connection, "head")
            connection.commit()
            return
        raise SchemaOutdated(
            f"the database is at revision {has or 'none'}, not {wants}: run `pricemesh migrate`"
        )

    def _check_description(self, connection: Connection, description: dict[str, Any]) -> None:
        kept = connection.execute(select(city.c.name, city.c.description)).first()
        if kept is None:
            connection.execute(
                insert(city).values(
                    id=1, name=self._name, description=json.dumps(description), settled_through=0
                )
            )
            return
        before = {"city": kept.name, **json.loads(kept.description)}
        now = {"city": self._name, **description}
        changed = [f"{key} was {before[key]}, is now {now[key]}" for key in now if before[key] != now[key]]
        if changed:
            raise SchemaChanged(
                f"this database was made for another configuration ({'; '.join(changed)}). What was learned "
                "cannot be read in new terms: put the old values back, or name a new database.url"
            )

    def _read(self, connection: Connection) -> StoredState:
        snapshot = connection.execute(select(learner)).first()
        version = snapshot.version if snapshot else 0
        return StoredState(
            version=version,
            payload=snapshot.payload if snapshot else None,
            tallies=json.loads(snapshot.tallies) if snapshot else {},
            controls={row.name: (row.value, row.since) for row in connection.execute(select(controls))},
            mesh_record=self._mesh_record(connection),
        )

    def _mesh_record(self, connection: Connection) -> MeshRecord:
        row = connection.execute(select(mesh)).first()
        if row is None:
            connection.execute(
                insert(mesh).values(id=1, epoch=1, seed=self._runtime.random_bytes(32), memory="{}")
            )
            row = connection.execute(select(mesh)).one()
        return MeshRecord(
            epoch=row.epoch,
            seed=row.seed,
            memory=json.loads(row.memory),
            letters=[(kept.letter, kept.received_at) for kept in connection.execute(select(letters))],
            peers=list(connection.scalars(select(peers.c.address))),
            trusted={row.origin: bytes(row.key) for row in connection.execute(select(trusted))},
            dropped=list(connection.scalars(select(dropped.c.origin))),
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.engine.dispose()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def fault(self) -> str | None:
        return None

    def recall(self, ids: Sequence[str], subjects: Sequence[str]) -> Recall:
        found = {id_: kept.decision for id_ in ids if (kept := self.reader.decision(id_)) is not None}
        prices = {s: p for s in subjects if (p := self.reader.latest_price(s)) is not None}
        return Recall(found, prices)

    # Writing

    def commit(self, operations: Sequence[Command]) -> CommitResult:
        """Carry out all operations in one transaction. When it fails, nobody may be told that it happened;
        should it have happened all the same, the next commit recovers what there is to learn."""
        try:
            connection = self._own()
            if self._in_doubt:
                self._recover(connection)
            self._in_doubt = True
            self._suit_the_log(connection, operations)
            with self._transaction(connection, operations):
                results, lessons, fresh, version = carry_out(connection, operations, self._version)
        except OperationalError as fault:
            raise StorageUnavailable(f"the database does not take writes: {reason(fault)}") from None
        except DBAPIError as fault:
            if len(operations) > 1 and not fault.connection_invalidated:
                return self._one_by_one(operations)
            raise StorageUnavailable(f"the database refused: {reason(fault)}") from None
        except SQLAlchemyError as fault:
            raise StorageUnavailable(f"the database failed: {reason(fault)}") from None
        self._version = version
        self._in_doubt = False
        recovered, self._unlearned = self._unlearned, []
        return CommitResult(results, [*recovered, *lessons], fresh)

    def _suit_the_log(self, connection: Connection, operations: Sequence[Command]) -> None:
        if not self.is_sqlite:
            return
        pages = LONG_LOG if sum([operation.size for operation in operations]) >= LARGE_COMMIT else SHORT_LOG
        if pages != self._log_pages:
            with connection.begin():
                connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint={pages}").all()
            self._log_pages = pages

    @contextmanager
    def _transaction(self, connection: Connection, operations: Sequence[Command]) -> Iterator[None]:
        """On Postgres the one INSERT of a group of prices, or of feedback, is a transaction of its own, which
        saves two calls to the server: nobody else writes, so what was read before it still holds."""
        alone = not self.is_sqlite and {type(op) for op in operations} in ({SaveDecisions}, {SaveFeedback})
        driver: Any = connection.connection.driver_connection
        if alone:
            driver.autocommit = True
        try:
            with connection.begin():
                yield
        finally:
            if alone and not driver.closed:
                driver.autocommit = False

    def _one_by_one(self, operations: Sequence[Command]) -> CommitResult:
        """One operation that the database refuses must not take the others of its group with it."""
        results: list[Any] = []
        lessons: list[Lesson] = []
        fresh: list[Decision] = []
        for operation in operations:
            try:
                done = self.commit([operation])
            except StorageUnavailable as fault:
                results.append(fault)
            else:
                results += done.results
                lessons += done.lessons
                fresh += done.decisions
        return CommitResult(results, lessons, fresh)

    def _recover(self, connection: Connection) -> None:
        """Find the lessons of a commit that was reported as failed and had happened. They wait until a
        commit succeeds to take them along."""
        with connection.begin():
            lessons = lessons_since(connection, self._version, most=MOST_IN_DOUBT)
        if lessons:
            self._version = lessons[-1].version
            self._unlearned += lessons


def migrate(
    url: str, revision: str, name: str, runtime: Runtime | None = None
) -> tuple[str | None, str | None]:
    """Bring the database of the city `name` to a revision, up or down, unless it is being served; what it
    had and what it has."""
    database = Database(url, name, runtime or Runtime())
    try:
        if database.is_sqlite:
            database._lock_sqlite()
        connection = database._own()
        before, _ = schema.revisions(connection)
        connection.rollback()
        schema.move(connection, revision)
        connection.commit()
        after, _ = schema.revisions(connection)
    except SQLAlchemyError as fault:
        raise StorageUnavailable(f"not migrated: {reason(fault)}") from None
    except CommandError as fault:
        raise InvalidParameter(f"not migrated: {fault}") from None
    finally:
        database.close()
    return before, after
