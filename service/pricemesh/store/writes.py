"""What each command does to the tables, inside a transaction that the caller opens and ends."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from pricemesh.core.decision import OWN_COLUMNS, Decision, Occasion
from pricemesh.errors import StepConflict
from pricemesh.store.acts import record_act
from pricemesh.store.backend import Backend, Versions
from pricemesh.store.commands import (
    CloseWindow,
    Command,
    FeedbackResult,
    FeedbackStatus,
    ForgetSubject,
    Lesson,
    LiftRetraction,
    Margins,
    Position,
    Probe,
    Retract,
    SaveDecisions,
    SaveFeedback,
    SaveSnapshot,
    Unanswered,
)
from pricemesh.store.commit_result import CommitResult
from pricemesh.store.forgetting import forget_subject
from pricemesh.store.reads import decisions_by_id, feedback_by_id
from pricemesh.store.retracting import lift, retract, retracted_decisions
from pricemesh.store.sales import FoldRetractions, FoldSales
from pricemesh.store.sales_folding import fold_retractions, fold_sales
from pricemesh.store.shared_log import record_change
from pricemesh.store.state_writes import save_state
from pricemesh.store.tables import (
    city,
    decisions,
    feedback,
)

# As FEEDBACK_COLUMNS.
FeedbackRow = tuple[int, float, float | None, float, int | None, str | None]
FEEDBACK_COLUMNS = ("decision", "reward", "sold", "received_at", "version", "key")
# Among the decisions of one commit.
MOSTLY_COMMON_COLUMNS = ("subject", "limited_by", "propensity", "chance", *Occasion._fields)


# Other replicas need not be told of these.
NOT_IN_MEMORY = {CloseWindow, SaveSnapshot, ForgetSubject, FoldSales, FoldRetractions, Probe}


def carry_out(
    backend: Backend, connection: Connection, commands: Sequence[Command], version: int, position: Position
) -> CommitResult:
    """Carry out all commands; `version` is the learner's before them, `position` that of the rows."""
    results: list[Any] = [None] * len(commands)
    lessons: list[Lesson] = []
    released: list[Unanswered] = []
    rows: list[Decision] = []
    prices: list[tuple[int, SaveDecisions]] = []
    rewards: list[tuple[int, SaveFeedback]] = []
    others: list[tuple[int, Command]] = []
    for i, command in enumerate(commands):
        if isinstance(command, SaveDecisions):
            prices.append((i, command))
        elif isinstance(command, SaveFeedback):
            rewards.append((i, command))
        else:
            others.append((i, command))
    answered: list[int] = []
    if prices:
        rows, number = _save_decisions(backend, connection, prices, results)
        position = position._replace(decision=number or position.decision)
    if rewards:
        version, position, answered = _save_feedback(
            backend, connection, rewards, results, version, position, released
        )
        lessons += [item.lesson for i, _ in rewards for item in results[i] if item.lesson is not None]
    for i, command in others:
        if isinstance(command, CloseWindow):
            results[i], defaults, position = _close_window(
                backend, connection, command, version, position, released
            )
            lessons += defaults
            version = defaults[-1].version if defaults else version
        else:
            results[i] = _carry_out_other(connection, command)
    is_change = backend.shared and not {type(command) for _, command in others} <= NOT_IN_MEMORY
    changes = record_change(connection) if is_change else 0
    return CommitResult(
        results,
        lessons,
        rows,
        released=released,
        position=position,
        version=version,
        changes=changes,
        answered=answered,
    )


def _carry_out_other(connection: Connection, command: Command) -> Any:
    """What is neither traffic nor a window. Returns its result."""
    match command:
        case ForgetSubject(subject, limit, act):
            count = forget_subject(connection, subject, limit)
            total = count + act.detail["decisions"] if act else 0
            if act is not None and total and count < limit:
                record_act(connection, act._replace(detail={"decisions": total}))
            return count
        case Retract():
            return retract(connection, command)
        case LiftRetraction():
            return lift(connection, command)
        case FoldSales():
            return fold_sales(connection, command)
        case FoldRetractions():
            return fold_retractions(connection, command)
    save_state(connection, command)
    return None


# Decisions


def _save_decisions(
    backend: Backend, connection: Connection, prices: list[tuple[int, SaveDecisions]], results: list[Any]
) -> tuple[list[Decision], int]:
    """Insert decisions, except under an id of the caller's that exists: then the existing one is the
    result. Returns the new ones, and the number of the last; 0 without any."""
    _check_steps(backend, connection, prices)
    ids = [id_ for _, command in prices for id_ in command.caller_ids]
    existing = decisions_by_id(backend, connection, ids) if ids else {}
    rows: list[Decision] = []
    for i, command in prices:
        if not command.caller_ids:
            results[i] = command.rows
            rows += command.rows
            continue
        results[i] = []
        for row in command.rows:
            stored = existing.get(row.id)
            if stored is None:
                stored = row
                rows.append(row)
                if row.id in command.caller_ids:
                    existing[row.id] = row
            results[i].append(stored)
    return rows, _insert_decisions(backend, connection, rows) if rows else 0


def _check_steps(
    backend: Backend, connection: Connection, prices: Sequence[tuple[int, SaveDecisions]]
) -> None:
    """Refuse decisions whose step was measured from a price that is not the subject's last one any more."""
    steps_from = {subject: price for _, each in prices for subject, price in each.steps_from.items()}
    if not steps_from:
        return
    backend.take_turn(connection)
    last_prices = dict(backend.latest_prices(connection, list(steps_from)))
    if any(last_prices.get(subject) != price for subject, price in steps_from.items()):
        raise StepConflict


def _insert_decisions(backend: Backend, connection: Connection, rows: Sequence[Decision]) -> int:
    *own, occasions = zip(*rows, strict=True)
    columns: dict[str, Sequence[Any]] = dict(zip(OWN_COLUMNS, own, strict=True))
    columns |= zip(Occasion._fields, zip(*occasions, strict=True), strict=True)
    common = {name: columns.pop(name)[0] for name in MOSTLY_COMMON_COLUMNS if len(set(columns[name])) == 1}
    return backend.insert(connection, "decisions", common, columns).number


# Feedback


def _save_feedback(
    backend: Backend,
    connection: Connection,
    commands: list[tuple[int, SaveFeedback]],
    results: list[Any],
    version: int,
    position: Position,
    released: list[Unanswered],
) -> tuple[int, Position, list[int]]:
    """Insert rewards for decisions that have none yet. Returns the learner's version and the position after
    them, and the numbers of these decisions; adds to `released`."""
    before = version
    ids = list({id_ for _, command in commands for id_, _ in command.items})
    by_id = feedback_by_id(backend, connection, ids)
    stored = {id_: row[7:10] for id_, row in by_id.items() if row[7] is not None}  # reward, sold, version
    retracted = retracted_decisions(connection, [by_id[id_][1] for id_ in stored]) if stored else ()
    rows: list[FeedbackRow] = []
    new_ids: set[str] = set()
    for i, command in commands:
        results[i] = []
        for id_, amount in command.items:
            if id_ not in by_id:
                results[i].append(FeedbackResult(FeedbackStatus.UNKNOWN))
                continue
            _, number, made_at, arm, price, vectors, chance, _, _, _, by_default, terms = by_id[id_]
            if by_default:
                result = FeedbackResult(FeedbackStatus.TOO_LATE)
            elif id_ in stored:
                reward, sold, row_version = stored[id_]
                same = amount == (reward if command.margins is None else sold)
                status = FeedbackStatus.AGAIN if same else FeedbackStatus.OTHER_REWARD
                result = FeedbackResult(status, row_version, reward, sold, is_retracted=number in retracted)
            elif made_at < command.decided_after:
                result = FeedbackResult(FeedbackStatus.TOO_LATE)
            else:
                reward, sold = _reward(command.margins, price, vectors, amount, terms)
                lesson, waited = None, number > position.settled
                if not command.frozen:
                    version += 1
                    lesson = Lesson(arm, vectors, reward, version, sold, chance, waited, price, terms)
                elif waited:
                    released.append(Unanswered(arm, vectors, chance, terms))
                row_version = lesson.version if lesson else None
                status = FeedbackStatus.LEARNED if lesson else FeedbackStatus.STORED
                result = FeedbackResult(status, row_version, reward, sold, lesson)
                stored[id_] = (reward, sold, row_version)
                new_ids.add(id_)
                rows.append((number, reward, sold, command.at, row_version, command.key))
            results[i].append(result)
    position, shift = _insert_feedback(
        backend, connection, rows, position, before, version - before, by_default=False
    )
    if shift:
        for i, command in commands:
            pairs = zip(command.items, results[i], strict=True)
            results[i] = [_shifted(each, shift) if id_ in new_ids else each for (id_, _), each in pairs]
    return version + shift, position, [row[0] for row in rows]


def _shifted(result: FeedbackResult, shift: int) -> FeedbackResult:
    """The same of feedback whose version is higher by `shift`, or of its repetition in the same commit."""
    if result.version is None:
        return result
    version, lesson = result.version + shift, result.lesson
    if lesson is not None:
        lesson = msgspec.structs.replace(lesson, version=version)
    return msgspec.structs.replace(result, version=version, lesson=lesson)


def _reward(
    margins: Margins | None, price: float, vectors: bytes, amount: float, terms: int | None
) -> tuple[float, float | None]:
    """The reward, and the units sold: None in a city of values."""
    if margins is None:
        return amount, None
    return margins[terms].reward(price, vectors, amount), amount


def _insert_feedback(
    backend: Backend,
    connection: Connection,
    rows: Sequence[FeedbackRow],
    position: Position,
    version: int,
    count: int,
    *,
    by_default: bool,
) -> tuple[Position, int]:
    """Rows of which `count` have the versions after `version`. Returns the position after them, and by how
    much their versions are higher, because replicas wrote before."""
    if not rows:
        return position, 0
    columns = dict(zip(FEEDBACK_COLUMNS, zip(*rows, strict=True), strict=True))
    common = {"by_default": by_default}
    inserted = backend.insert(connection, "feedback", common, columns, Versions(version, count))
    return position._replace(feedback=inserted.number), inserted.after - version


def _close_window(
    backend: Backend,
    connection: Connection,
    command: CloseWindow,
    version: int,
    position: Position,
    released: list[Unanswered],
) -> tuple[int, list[Lesson], Position]:
    """Give the default amount to the oldest decisions without feedback. Returns how many decisions are
    settled by this, also those that had feedback, the lessons and the position after them; adds to
    `released`."""
    settled = connection.scalar(select(city.c.settled_through))
    names = ("number", "made_at", "arm", "price", "vectors", "chance", "terms")
    oldest = connection.execute(
        select(*(decisions.c[name] for name in names), feedback.c.reward)
        .select_from(decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number))
        .where(decisions.c.number > settled)
        .order_by(decisions.c.number)
        .limit(command.limit)
    )
    waiting = oldest.all()
    dated = zip(waiting, _dates(connection, waiting, command), strict=True)
    # Stop at the first decision whose window is open, so that `settled_through` covers all before it even
    # when a clock has stepped back.
    closing = [row for row, date in takewhile(lambda pair: pair[1] < command.decided_before, dated)]
    lessons: list[Lesson] = []
    rows: list[FeedbackRow] = []
    for row in closing:
        if row.reward is not None:
            continue
        waited = row.number > position.settled
        if waited and (command.frozen or command.amount is None):
            released.append(Unanswered(row.arm, row.vectors, row.chance, row.terms))
        if command.amount is None:
            continue
        reward, sold = _reward(command.margins, row.price, row.vectors, command.amount, row.terms)
        row_version = None
        if not command.frozen:
            version += 1
            row_version = version
            rest = (row.chance, waited, row.price, row.terms)
            lessons.append(Lesson(row.arm, row.vectors, reward, version, sold, *rest))
        rows.append((row.number, reward, sold, command.at, row_version, None))
    position, shift = _insert_feedback(
        backend, connection, rows, position, version - len(lessons), len(lessons), by_default=True
    )
    if shift:
        lessons = [msgspec.structs.replace(lesson, version=lesson.version + shift) for lesson in lessons]
    if closing:
        last = closing[-1].number
        connection.execute(city.update().values(settled_through=last))
        position = position._replace(settled=max(position.settled, last))
    return len(closing), lessons, position


def _dates(connection: Connection, rows: Sequence[Any], command: CloseWindow) -> list[float]:
    """When each decision was made. A time in the future comes from a clock that was wrong then: that decision
    was made before the next one with a possible time. Otherwise it would hold all later windows open."""
    latest = command.at
    if len(rows) == command.limit and all(row.made_at > command.at for row in rows):
        next_possible = (
            select(decisions.c.made_at)
            .where(decisions.c.number > rows[-1].number, decisions.c.made_at <= command.at)
            .order_by(decisions.c.number)
            .limit(1)
        )
        latest = connection.scalar(next_possible) or latest
    dates = []
    for row in reversed(rows):
        if row.made_at <= command.at:
            latest = row.made_at
        dates.append(latest)
    return dates[::-1]
