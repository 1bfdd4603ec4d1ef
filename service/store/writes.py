"""What the writer's operations do to the tables, within a transaction that somebody else opens and ends."""

from collections.abc import Sequence
from functools import cache
from itertools import chain, takewhile
from typing import Any

from sqlalchemy import Column, Connection, bindparam, insert, select

from service.store.operations import (
    CloseWindow,
    Decided,
    DropOrigin,
    FeedbackResult,
    FeedbackStatus,
    ForgetPeers,
    KeepDecisions,
    KeepFeedback,
    KeepLetters,
    KeepMesh,
    KeepPeers,
    KeepSnapshot,
    Lesson,
    Operation,
    SetControl,
    TrustKey,
)
from service.store.tables import (
    city,
    controls,
    decisions,
    dropped,
    feedback,
    learner,
    letters,
    mesh,
    peers,
    trusted,
)

ROWS_IN_A_STATEMENT = 100  # the driver keeps this many statements ready

_SELECT_BY_ID = select(*(decisions.c[name] for name in Decided._fields)).where(
    decisions.c.id.in_(bindparam("ids", expanding=True))
)
_SELECT_TO_ANSWER = (
    select(
        decisions.c.id,
        decisions.c.number,
        decisions.c.made_at,
        decisions.c.arm,
        decisions.c.vectors,
        feedback.c.reward,
        feedback.c.version,
        feedback.c.by_default,
    )
    .select_from(decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number))
    .where(decisions.c.id.in_(bindparam("ids", expanding=True)))
)


def carry_out(connection: Connection, operations: Sequence[Operation], version: int) -> tuple[list[Any], int]:
    """All operations within the transaction that is open; their results, and the learner's version then."""
    results: list[Any] = [None] * len(operations)
    quotes = [(i, op) for i, op in enumerate(operations) if isinstance(op, KeepDecisions)]
    if quotes:
        keep_decisions(connection, quotes, results)
    answers = [(i, op) for i, op in enumerate(operations) if isinstance(op, KeepFeedback)]
    if answers:
        version = keep_feedback(connection, answers, results, version)
    for i, operation in enumerate(operations):
        match operation:
            case CloseWindow():
                results[i], version = close_window(connection, operation, version)
            case SetControl(name, value, at):
                connection.execute(controls.delete().where(controls.c.name == name))
                if value is not None:
                    connection.execute(insert(controls).values(name=name, value=value, since=at))
            case KeepSnapshot(at_version, tallies, payload):
                connection.execute(learner.delete())
                connection.execute(
                    insert(learner).values(id=1, version=at_version, tallies=tallies, payload=payload)
                )
            case KeepLetters(kept, at):
                _replace(
                    connection,
                    letters.c.origin,
                    [{"origin": origin, "letter": wire, "received_at": at} for origin, wire in kept],
                )
            case KeepMesh(epoch, memory):
                changed = {"epoch": epoch, "memory": memory}
                values = {name: value for name, value in changed.items() if value is not None}
                connection.execute(mesh.update().values(**values))
            case KeepPeers(addresses, at):
                _replace(connection, peers.c.address, [{"address": each, "since": at} for each in addresses])
            case ForgetPeers(addresses):
                connection.execute(peers.delete().where(peers.c.address.in_(addresses)))
            case TrustKey(origin, key):
                for table in (letters, dropped):
                    connection.execute(table.delete().where(table.c.origin == origin))
                _replace(connection, trusted.c.origin, [{"origin": origin, "key": key}])
            case DropOrigin(origin, at, readmitted):
                for table in (letters, dropped):
                    connection.execute(table.delete().where(table.c.origin == origin))
                if not readmitted:
                    connection.execute(insert(dropped).values(origin=origin, since=at))
    return results, version


def _replace(connection: Connection, key: Column[str], rows: list[dict[str, Any]]) -> None:
    """Put rows in place of those with the same key."""
    if rows:
        connection.execute(key.table.delete().where(key.in_([row[key.name] for row in rows])))
        connection.execute(insert(key.table), rows)


def keep_decisions(
    connection: Connection, quotes: list[tuple[int, KeepDecisions]], results: list[Any]
) -> None:
    named = [id_ for _, op in quotes for id_ in op.named_by_caller]
    there: dict[str, Decided] = {}
    if named:
        found = connection.execute(_SELECT_BY_ID, {"ids": named})
        there = {row.id: Decided(*row) for row in found}
    fresh: list[Decided] = []
    for i, operation in quotes:
        if not operation.named_by_caller:
            results[i] = operation.rows
            fresh += operation.rows
            continue
        results[i] = []
        for row in operation.rows:
            kept = there.get(row.id)
            if kept is None:
                kept = row
                fresh.append(row)
                if row.id in operation.named_by_caller:
                    there[row.id] = row
            results[i].append(kept)
    insert_decisions(connection, fresh)


def insert_decisions(connection: Connection, rows: Sequence[Decided]) -> None:
    """By the driver itself, many to a statement: of many rows, most of the time would go into preparing
    parameters and stepping from row to row, and this thread would stand in line for the interpreter anew
    after each step."""
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    for start in range(0, len(rows), ROWS_IN_A_STATEMENT):
        several = rows[start : start + ROWS_IN_A_STATEMENT]
        statement = _insert_statement(mark, len(several))
        connection.exec_driver_sql(statement, tuple(chain.from_iterable(several)))


@cache
def _insert_statement(mark: str, rows: int) -> str:
    marks = ", ".join(mark for _ in Decided._fields)
    return f"INSERT INTO decisions ({', '.join(Decided._fields)}) VALUES " + ", ".join([f"({marks})"] * rows)


def keep_feedback(
    connection: Connection,
    answers: list[tuple[int, KeepFeedback]],
    results: list[Any],
    version: int,
) -> int:
    ids = list({id_ for _, op in answers for id_, _ in op.items})
    found = connection.execute(_SELECT_TO_ANSWER, {"ids": ids}).all()
    known = {row.id: row for row in found}
    given = {row.id: (row.reward, row.version) for row in found if row.reward is not None}
    fresh = []
    for i, op in answers:
        results[i] = []
        for id_, reward in op.items:
            row = known.get(id_)
            if row is None:
                result = FeedbackResult(FeedbackStatus.UNKNOWN)
            elif row.by_default:
                result = FeedbackResult(FeedbackStatus.TOO_LATE)
            elif id_ in given:
                kept_reward, at_version = given[id_]
                same = kept_reward == reward
                status = FeedbackStatus.AGAIN if same else FeedbackStatus.OTHER_REWARD
                result = FeedbackResult(status, at_version, kept_reward)
            elif row.made_at < op.decided_after:
                result = FeedbackResult(FeedbackStatus.TOO_LATE)
            else:
                lesson = None
                if not op.frozen:
                    version += 1
                    lesson = Lesson(row.arm, row.vectors, reward, version)
                at_version = lesson.version if lesson else None
                status = FeedbackStatus.LEARNED if lesson else FeedbackStatus.KEPT
                result = FeedbackResult(status, at_version, reward, lesson)
                given[id_] = (reward, at_version)
                fresh.append(_feedback_row(row.number, reward, op.at, False, at_version))
            results[i].append(result)
    if fresh:
        connection.execute(insert(feedback), fresh)
    return version


def close_window(connection: Connection, op: CloseWindow, version: int) -> tuple[list[Lesson], int]:
    settled = connection.scalar(select(city.c.settled_through))
    closing = connection.execute(
        select(
            decisions.c.number,
            decisions.c.made_at,
            decisions.c.arm,
            decisions.c.vectors,
            feedback.c.reward,
        )
        .select_from(decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number))
        .where(decisions.c.number > settled)
        .order_by(decisions.c.number)
        .limit(op.most)
    ).all()
    # Only as far as every decision before is settled: a clock may have stepped back.
    closing = list(takewhile(lambda row: row.made_at < op.decided_before, closing))
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
