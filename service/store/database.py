"""One city's database, SQLite or Postgres through the same code. Synchronous: threads call it.

Only `commit` writes, all or nothing, on the one connection that owns the database. Reads use others.
"""

import fcntl
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import sqlalchemy as sa
from alembic.util import CommandError
from sqlalchemy import Connection, bindparam, create_engine, event, insert, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from service.errors import (
    DatabaseInUse,
    InvalidParameter,
    SchemaChanged,
    SchemaOutdated,
    StorageUnavailable,
)
from service.store import schema
from service.store.operations import (
    CloseWindow,
    FeedbackResult,
    FeedbackStatus,
    KeepDecision,
    KeepFeedback,
    KeepSnapshot,
    Lesson,
    Operation,
    Row,
    SetControl,
)
from service.store.tables import city, controls, decisions, feedback, learner

# The order in which a decision's row holds its values.
DECISION_COLUMNS = tuple(column.name for column in decisions.columns if column.name != "number")

_SELECT_BY_ID = select(decisions).where(decisions.c.id.in_(bindparam("ids", expanding=True)))
_SELECT_TO_ANSWER = (
    select(
        decisions.c.id,
        decisions.c.number,
        decisions.c.made_at,
        decisions.c.arm,
        decisions.c.vectors,
        feedback.c.reward,
        feedback.c.version,
    )
    .select_from(decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number))
    .where(decisions.c.id.in_(bindparam("ids", expanding=True)))
)
_LATEST_PRICE = (
    select(decisions.c.price)
    .where(decisions.c.subject == bindparam("subject"))
    .order_by(decisions.c.number.desc())
    .limit(1)
)


class Kept(NamedTuple):
    """What a start finds."""

    version: int  # of the snapshot
    payload: bytes | None
    tallies: dict[str, Any]
    lessons: list[Lesson]  # learned since the snapshot
    controls: dict[str, tuple[str, float]]


class Committed(NamedTuple):
    results: list[Any]  # one for each operation; a fault where that one alone was refused
    recovered: list[Lesson]  # to be learned before anything in `results`


class Database:
    def __init__(self, url: str, name: str) -> None:
        self._url = make_url(url)
        self._name = name
        self._lock_file: IO[str] | None = None
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self.engine = create_engine(self._url, pool_pre_ping=not self.is_sqlite)
        if self.is_sqlite:
            event.listen(self.engine, "connect", _durable_sqlite)
        marks = ", ".join("?" if self.is_sqlite else "%s" for _ in DECISION_COLUMNS)
        self._insert_decision = f"INSERT INTO decisions ({', '.join(DECISION_COLUMNS)}) VALUES ({marks})"
        self._connection: Connection | None = None
        self._version = 0
        self._in_doubt = False  # a commit failed, and may yet have happened

    # Start and end

    def open(self, description: dict[str, Any]) -> Kept:
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
            raise StorageUnavailable(f"the database cannot be opened: {_reason(fault)}") from None
        except BaseException:
            self.close()
            raise
        self._version = kept.lessons[-1].version if kept.lessons else kept.version
        return kept

    def _lock_sqlite(self) -> None:
        path = Path(str(self._url.database) + ".lock")
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

    def _read(self, connection: Connection) -> Kept:
        snapshot = connection.execute(select(learner)).first()
        version = snapshot.version if snapshot else 0
        return Kept(
            version=version,
            payload=snapshot.payload if snapshot else None,
            tallies=json.loads(snapshot.tallies) if snapshot else {},
            lessons=_lessons_since(connection, version),
            controls={row.name: (row.value, row.since) for row in connection.execute(select(controls))},
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.engine.dispose()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    # Writing

    def commit(self, operations: Sequence[Operation]) -> Committed:
        """Carry out all operations in one transaction. When it fails, nobody may be told that it happened;
        should it have happened all the same, the next commit recovers what there is to learn."""
        try:
            connection = self._own()
            recovered = self._recover(connection) if self._in_doubt else []
            self._in_doubt = True
            with connection.begin():
                results, version = self._carry_out(connection, operations)
        except OperationalError as fault:
            raise StorageUnavailable(f"the database does not take writes: {_reason(fault)}") from None
        except DBAPIError as fault:
            if len(operations) > 1 and not fault.connection_invalidated:
                return self._one_by_one(operations)
            raise StorageUnavailable(f"the database refused: {_reason(fault)}") from None
        except SQLAlchemyError as fault:
            raise StorageUnavailable(f"the database failed: {_reason(fault)}") from None
        self._version = version
        self._in_doubt = False
        return Committed(results, recovered)

    def _one_by_one(self, operations: Sequence[Operation]) -> Committed:
        """One operation that the database refuses must not take the others of its group with it."""
        results: list[Any] = []
        recovered: list[Lesson] = []
        for operation in operations:
            try:
                done = self.commit([operation])
            except StorageUnavailable as fault:
                results.append(fault)
            else:
                results += done.results
                recovered += done.recovered
        return Committed(results, recovered)

    def _recover(self, connection: Connection) -> list[Lesson]:
        """Lessons of a commit that was reported as failed and had happened."""
        with connection.begin():
            lessons = _lessons_since(connection, self._version)
        if lessons:
            self._version = lessons[-1].version
        return lessons

    def _carry_out(self, connection: Connection, operations: Sequence[Operation]) -> tuple[list[Any], int]:
        results: list[Any] = [None] * len(operations)
        version = self._version
        quotes = [(i, op) for i, op in enumerate(operations) if isinstance(op, KeepDecision)]
        if quotes:
            self._keep_decisions(connection, quotes, results)
        answers = [(i, op) for i, op in enumerate(operations) if isinstance(op, KeepFeedback)]
        if answers:
            version = self._keep_feedback(connection, answers, results, version)
        for i, operation in enumerate(operations):
            match operation:
                case CloseWindow():
                    results[i], version = self._close_window(connection, operation, version)
                case SetControl(name, value, at):
                    connection.execute(controls.delete().where(controls.c.name == name))
                    if value is not None:
                        connection.execute(insert(controls).values(name=name, value=value, since=at))
                case KeepSnapshot(at_version, tallies, payload):
                    connection.execute(learner.delete())
                    connection.execute(
                        insert(learner).values(id=1, version=at_version, tallies=tallies, payload=payload)
                    )
        return results, version

    def _keep_decisions(
        self, connection: Connection, quotes: list[tuple[int, KeepDecision]], results: list[Any]
    ) -> None:
        named = [op.row["id"] for _, op in quotes if op.named_by_caller]
        there: dict[str, Row] = {}
        if named:
            found = connection.execute(_SELECT_BY_ID, {"ids": named})
            there = {row["id"]: dict(row) for row in found.mappings()}
        fresh = []
        for i, operation in quotes:
            row = operation.row
            if operation.named_by_caller:
                kept = there.get(row["id"])
                if kept is not None:
                    results[i] = kept
                    continue
                there[row["id"]] = row
            results[i] = row
            fresh.append(row)
        if fresh:
            # By the driver itself: of many rows, most of the time would go into preparing parameters.
            connection.exec_driver_sql(self._insert_decision, [tuple(row.values()) for row in fresh])

    def _keep_feedback(
        self,
        connection: Connection,
        answers: list[tuple[int, KeepFeedback]],
        results: list[Any],
        version: int,
    ) -> int:
        ids = list({op.decision_id for _, op in answers})
        found = connection.execute(_SELECT_TO_ANSWER, {"ids": ids}).all()
        known = {row.id: row for row in found}
        given = {row.id: (row.reward, row.version) for row in found if row.reward is not None}
        fresh = []
        for i, op in answers:
            row = known.get(op.decision_id)
            if row is None:
                results[i] = FeedbackResult(FeedbackStatus.UNKNOWN)
            elif op.decision_id in given:
                reward, at_version = given[op.decision_id]
                same = reward == op.reward
                status = FeedbackStatus.AGAIN if same else FeedbackStatus.OTHER_REWARD
                results[i] = FeedbackResult(status, at_version, reward)
            elif row.made_at < op.decided_after:
                results[i] = FeedbackResult(FeedbackStatus.TOO_LATE)
            else:
                lesson = None
                if not op.frozen:
                    version += 1
                    lesson = Lesson(row.arm, row.vectors, op.reward, version)
                at_version = lesson.version if lesson else None
                status = FeedbackStatus.LEARNED if lesson else FeedbackStatus.KEPT
                results[i] = FeedbackResult(status, at_version, op.reward, lesson)
                given[op.decision_id] = (op.reward, at_version)
                fresh.append(_feedback_row(row.number, op.reward, op.at, False, at_version))
        if fresh:
            connection.execute(insert(feedback), fresh)
        return version

    def _close_window(
        self, connection: Connection, op: CloseWindow, version: int
    ) -> tuple[list[Lesson], int]:
        settled = connection.scalar(select(city.c.settled_through))
        closing = connection.execute(
            select(decisions.c.number, decisions.c.arm, decisions.c.vectors, feedback.c.reward)
            .select_from(decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number))
            .where(decisions.c.number > settled, decisions.c.made_at < op.decided_before)
            .order_by(decisions.c.number)
            .limit(op.most)
        ).all()
        lessons, fresh = [], []
        for row in closing:
            if row.reward is not None:
                continue
            at_version = None
            if not op.frozen:
                version += 1
                at_version = version
                lessons.append(Lesson(row.arm, row.vectors, op.reward, version))
            fresh.append(_feedback_row(row.number, op.reward, op.at, True, at_version))
        if fresh:
            connection.execute(insert(feedback), fresh)
        if closing:
            connection.execute(city.update().values(settled_through=closing[-1].number))
        return lessons, version

    # Reading

    def decision(self, id_: str) -> Row | None:
        """A decision with its feedback, if any, under `reward`, `received_at`, `by_default`, `version`."""
        with self._reading() as connection:
            row = connection.execute(_with_feedback().where(decisions.c.id == id_)).mappings().first()
            return dict(row) if row else None

    def latest_decisions(
        self,
        *,
        limit: int,
        before: int | None = None,
        arm: int | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[Row]:
        query = _with_feedback().order_by(decisions.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(decisions.c.number < before)
        if arm is not None:
            query = query.where(decisions.c.arm == arm)
        if since is not None:
            query = query.where(decisions.c.made_at >= since)
        if until is not None:
            query = query.where(decisions.c.made_at < until)
        with self._reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def latest_price(self, subject: str) -> float | None:
        with self._reading() as connection:
            price: float | None = connection.scalar(_LATEST_PRICE, {"subject": subject})
            return price

    def totals(self) -> tuple[int, int]:
        """How many decisions and feedback there are; numbers are given out in order and never taken back."""
        with self._reading() as connection:
            made = connection.scalar(select(sa.func.max(decisions.c.number))) or 0
            answered = connection.scalar(select(sa.func.max(feedback.c.number))) or 0
            return made, answered

    def reachable(self) -> bool:
        try:
            with self._reading() as connection:
                has, wants = schema.revisions(connection)
        except StorageUnavailable:
            return False
        return has == wants

    def _reading(self) -> "_Reading":
        return _Reading(self.engine)


class _Reading:
    """A connection for reading whose faults are ours."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def __enter__(self) -> Connection:
        try:
            self._connection = self._engine.connect()
        except SQLAlchemyError as fault:
            raise StorageUnavailable(f"the database cannot be read: {_reason(fault)}") from None
        return self._connection

    def __exit__(self, kind: Any, fault: BaseException | None, trace: Any) -> None:
        self._connection.close()
        if isinstance(fault, SQLAlchemyError):
            raise StorageUnavailable(f"the database cannot be read: {_reason(fault)}") from None


def _lessons_since(connection: Connection, version: int) -> list[Lesson]:
    query = (
        select(decisions.c.arm, decisions.c.vectors, feedback.c.reward, feedback.c.version)
        .select_from(feedback.join(decisions, feedback.c.decision == decisions.c.number))
        .where(feedback.c.version > version)
        .order_by(feedback.c.version)
    )
    return [Lesson(*row) for row in connection.execute(query)]


def _with_feedback() -> sa.Select[Any]:
    return select(
        decisions, feedback.c.reward, feedback.c.received_at, feedback.c.by_default, feedback.c.version
    ).select_from(decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number))


def _feedback_row(
    decision: int, reward: float, at: float, by_default: bool, version: int | None
) -> dict[str, Any]:
    return {
        "decision": decision,
        "reward": reward,
        "received_at": at,
        "by_default": by_default,
        "version": version,
    }


def _durable_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "busy_timeout=5000",
        "foreign_keys=ON",
        "wal_autocheckpoint=4000",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _reason(fault: SQLAlchemyError) -> str:
    """The driver's own words, without SQL or values."""
    cause = fault.orig if isinstance(fault, DBAPIError) else fault
    return str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__


def migrate(url: str, revision: str) -> tuple[str | None, str | None]:
    """Bring a database to a revision, up or down; what it had and what it has."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            before, _ = schema.revisions(connection)
            connection.rollback()
            schema.move(connection, revision)
            connection.commit()
            after, _ = schema.revisions(connection)
    except SQLAlchemyError as fault:
        raise StorageUnavailable(f"not migrated: {_reason(fault)}") from None
    except CommandError as fault:
        raise InvalidParameter(f"not migrated: {fault}") from None
    finally:
        engine.dispose()
    return before, after
