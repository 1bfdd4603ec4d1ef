"""What the writer's operations do to the tables, within a transaction that somebody else opens and ends."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

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
        feedback.c.by_default,
    )
    .select_from(decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number))
    .where(decisions.c.id.in_(bindparam("ids", expanding=True)))
)


def carry_out(connection: Connection, operations: Sequence[Operation], version: int) -> tuple[list[Any], int]:
    """All operations within the transaction that is open; their results, and the learner's version then."""
    results: list[Any] = [None] * len(operations)
    quotes = [(i, op) for i, op in enumerate(operations) if isinstance(op, KeepDecision)]
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
    return results, version


def keep_decisions(
    connection: Connection, quotes: list[tuple[int, KeepDecision]], results: list[Any]
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
        connection.exec_driver_sql(_insert_decision(connection), [tuple(row.values()) for row in fresh])


def _insert_decision(connection: Connection) -> str:
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    marks = ", ".join(mark for _ in DECISION_COLUMNS)
    return f"INSERT INTO decisions ({', '.join(DECISION_COLUMNS)}) VALUES ({marks})"


def keep_feedback(
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
        elif row.by_default:
            results[i] = FeedbackResult(FeedbackStatus.TOO_LATE)
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
