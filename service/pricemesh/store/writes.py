"""What the writer's operations do to the tables, within a transaction that somebody else opens and ends."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from sqlalchemy import Column, Connection, insert, select

from pricemesh.core.decision import Decision
from pricemesh.store import statements
from pricemesh.store.commands import (
    AddPeers,
    CloseWindow,
    Command,
    DropOrigin,
    FeedbackResult,
    FeedbackStatus,
    Lesson,
    RemovePeers,
    SaveDecisions,
    SaveFeedback,
    SaveLetters,
    SaveSnapshot,
    SetControl,
    TrustKey,
    UpdateMesh,
)
from pricemesh.store.tables import (
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


def carry_out(
    connection: Connection, operations: Sequence[Command], version: int
) -> tuple[list[Any], list[Lesson], list[Decision], int]:
    """All commands within the open transaction; their results, what is to be learned, which decisions
    are new, and the learner's version then."""
    results: list[Any] = [None] * len(operations)
    lessons: list[Lesson] = []
    fresh: list[Decision] = []
    quotes = [(i, op) for i, op in enumerate(operations) if isinstance(op, SaveDecisions)]
    if quotes:
        fresh = keep_decisions(connection, quotes, results)
    answers = [(i, op) for i, op in enumerate(operations) if isinstance(op, SaveFeedback)]
    if answers:
        version = keep_feedback(connection, answers, results, version)
        lessons += [item.lesson for i, _ in answers for item in results[i] if item.lesson is not None]
    for i, operation in enumerate(operations):
        match operation:
            case CloseWindow():
                results[i], version = close_window(connection, operation, version)
                lessons += results[i]
            case SetControl(name, value, at):
                connection.execute(controls.delete().where(controls.c.name == name))
                if value is not None:
                    connection.execute(insert(controls).values(name=name, value=value, since=at))
            case SaveSnapshot(at_version, tallies, payload):
                connection.execute(learner.delete())
                connection.execute(
                    insert(learner).values(id=1, version=at_version, tallies=tallies, payload=payload)
                )
            case SaveLetters(kept, at):
                _replace(
                    connection,
                    letters.c.origin,
                    [{"origin": origin, "letter": wire, "received_at": at} for origin, wire in kept],
                )
            case UpdateMesh(epoch, memory):
                changed = {"epoch": epoch, "memory": memory}
                values = {name: value for name, value in changed.items() if value is not None}
                connection.execute(mesh.update().values(**values))
            case AddPeers(addresses, at):
                _replace(connection, peers.c.address, [{"address": each, "since": at} for each in addresses])
            case RemovePeers(addresses):
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
    return results, lessons, fresh, version


def _replace(connection: Connection, key: Column[str], rows: list[dict[str, Any]]) -> None:
    """Put rows in place of those with the same key."""
    if rows:
        connection.execute(key.table.delete().where(key.in_([row[key.name] for row in rows])))
        connection.execute(insert(key.table), rows)


def keep_decisions(
    connection: Connection, quotes: list[tuple[int, SaveDecisions]], results: list[Any]
) -> list[Decision]:
    named = [id_ for _, op in quotes for id_ in op.named_by_caller]
    there: dict[str, Decision] = {}
    if named:
        there = {row.id: row for row in statements.decided(connection, named)}
    fresh: list[Decision] = []
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
    statements.insert_decisions(connection, fresh)
    return fresh


def keep_feedback(
    connection: Connection,
    answers: list[tuple[int, SaveFeedback]],
    results: list[Any],
    version: int,
) -> int:
    ids = list({id_ for _, op in answers for id_, _ in op.items})
    known = {row[0]: row for row in statements.answered(connection, ids)}
    given = {id_: (row[5], row[6]) for id_, row in known.items() if row[5] is not None}
    fresh: list[statements.FeedbackRow] = []
    for i, op in answers:
        results[i] = []
        for id_, reward in op.items:
            if id_ not in known:
                results[i].append(FeedbackResult(FeedbackStatus.UNKNOWN))
                continue
            _, number, made_at, arm, vectors, _, _, by_default = known[id_]
            if by_default:
                result = FeedbackResult(FeedbackStatus.TOO_LATE)
            elif id_ in given:
                kept_reward, at_version = given[id_]
                same = kept_reward == reward
                status = FeedbackStatus.AGAIN if same else FeedbackStatus.OTHER_REWARD
                result = FeedbackResult(status, at_version, kept_reward)
            elif made_at < op.decided_after:
                result = FeedbackResult(FeedbackStatus.TOO_LATE)
            else:
                lesson = None
                if not op.frozen:
                    version += 1
                    lesson = Lesson(arm, vectors, reward, version)
                at_version = lesson.version if lesson else None
                status = FeedbackStatus.LEARNED if lesson else FeedbackStatus.KEPT
                result = FeedbackResult(status, at_version, reward, lesson)
                given[id_] = (reward, at_version)
                fresh.append((number, reward, op.at, at_version))
            results[i].append(result)
    statements.insert_feedback(connection, fresh, by_default=False)
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
    lessons: list[Lesson] = []
    fresh: list[statements.FeedbackRow] = []
    for row in closing:
        if row.reward is not None:
            continue
        at_version = None
        if not op.frozen:
            version += 1
            at_version = version
            lessons.append(Lesson(row.arm, row.vectors, op.reward, version))
        fresh.append((row.number, op.reward, op.at, at_version))
    statements.insert_feedback(connection, fresh, by_default=True)
    if closing:
        connection.execute(city.update().values(settled_through=closing[-1].number))
    return lessons, version
