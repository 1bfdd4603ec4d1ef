"""Feedback that is taken back, and what lifts that again: SQL inside a transaction that the caller opens and
ends. Rows of feedback stay as they are; `retracted` says which of them do not count.

One transaction also raises `city.rewrites`, by which a learner knows that it has to learn again, and the
epoch of this city's letters.
"""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, insert, select

from pricemesh.errors import NothingToRetract, PricemeshError, UnknownDecision, UnknownRetraction
from pricemesh.store.acts import Act, ActKind, record_act
from pricemesh.store.commands import (
    LiftResult,
    LiftRetraction,
    Retract,
    Retraction,
    RetractionResult,
    Selection,
    SelectionCounts,
)
from pricemesh.store.rewriting import mark_rewritten
from pricemesh.store.tables import (
    city,
    decisions,
    feedback,
    imports,
    retracted,
    retractions,
)

IDS_PER_STATEMENT = 1000
MAX_NAMED_IDS = 20  # in an error
MAX_SHOWN_IN_FORCE = 20  # in /state

Queries = list[sa.Select[Any]]  # of numbers of feedback, none twice

_OF_DECISION = feedback.c.decision == decisions.c.number


def retract(connection: Connection, command: Retract) -> RetractionResult | PricemeshError:
    """The same selection again, while its retraction is in force and covers all of it, changes nothing: a
    caller whose answer was lost may ask again."""
    selection = _selected(connection, command.selection)
    if isinstance(selection, PricemeshError):
        return selection
    queries, counts = selection
    text = as_json(command.selection)
    if not counts.selected:
        return NothingToRetract(f"no feedback is selected by {text:.200}: nothing was changed")
    in_force = (retractions.c.selection == text) & retractions.c.lifted_at.is_(None)
    for row in connection.execute(select(retractions).where(in_force)).all():
        if _covers(connection, row.id, queries):
            return RetractionResult(Retraction(*row), counts, _rewrites(connection))
    id_ = 1 + (connection.scalar(select(sa.func.max(retractions.c.id))) or 0)
    for query in queries:
        rows = query.add_columns(sa.literal(id_, sa.Integer))
        connection.execute(insert(retracted).from_select(["feedback", "retraction"], rows))
    # Replicas may have added to what was counted.
    total = _count(connection, select(retracted.c.feedback).where(retracted.c.retraction == id_))
    retraction = Retraction(id_, command.at, command.by, command.reason, text, total)
    connection.execute(insert(retractions).values(retraction._asdict()))
    detail = {"retraction": id_, "feedback": total}
    record_act(connection, Act(command.at, ActKind.RETRACT, command.by, command.reason, detail))
    return RetractionResult(retraction, counts._replace(selected=total), mark_rewritten(connection))


def lift(connection: Connection, command: LiftRetraction) -> LiftResult | PricemeshError:
    """A retraction that was lifted before stays as it is."""
    row = connection.execute(select(retractions).where(retractions.c.id == command.retraction)).first()
    if row is None:
        return UnknownRetraction(f"there is no retraction {command.retraction}: nothing was changed")
    retraction = Retraction(*row)
    if retraction.lifted_at is not None:
        return LiftResult(retraction, 0, 0, 0, _rewrites(connection))
    is_own = retracted.c.retraction == retraction.id
    covered = select(retracted.c.feedback).join(feedback, feedback.c.number == retracted.c.feedback)
    covered = covered.where(is_own)
    total = _count(connection, covered)
    still = _count(connection, covered.where(_is_retracted(retracted.c.feedback, besides=retraction.id)))
    connection.execute(retracted.delete().where(is_own))
    lifted = {"lifted_at": command.at, "lifted_by": command.by, "lift_reason": command.reason}
    connection.execute(retractions.update().where(retractions.c.id == retraction.id).values(lifted))
    detail = {"retraction": retraction.id, "feedback": total - still}
    record_act(connection, Act(command.at, ActKind.LIFT_RETRACTION, command.by, command.reason, detail))
    pruned = retraction.feedback_count - total
    retraction = Retraction(**{**retraction._asdict(), **lifted})
    return LiftResult(retraction, total - still, still, pruned, mark_rewritten(connection))


# Reading


def count_selected(connection: Connection, selection: Selection) -> SelectionCounts | PricemeshError:
    """What a retraction of this selection would cover now."""
    selected = _selected(connection, selection)
    return selected if isinstance(selected, PricemeshError) else selected[1]


def retractions_from(connection: Connection, before: int | None, limit: int) -> list[Retraction]:
    """Newest first."""
    query = select(retractions).order_by(retractions.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(retractions.c.id < before)
    return [Retraction(*row) for row in connection.execute(query)]


def retractions_in_force(connection: Connection) -> list[Retraction]:
    """The newest, without their selections, which may be long."""
    columns = [sa.literal("").label(c.name) if c.name == "selection" else c for c in retractions.c]
    query = select(*columns).where(retractions.c.lifted_at.is_(None))
    query = query.order_by(retractions.c.id.desc()).limit(MAX_SHOWN_IN_FORCE)
    return [Retraction(*row) for row in connection.execute(query)]


def retracted_decisions(connection: Connection, numbers: Sequence[int]) -> set[int]:
    """Those of these decisions, by their numbers, whose feedback does not count."""
    found: set[int] = set()
    for start in range(0, len(numbers), IDS_PER_STATEMENT):
        some = feedback.c.decision.in_(numbers[start : start + IDS_PER_STATEMENT])
        found.update(
            connection.scalars(select(feedback.c.decision).where(some, _is_retracted(feedback.c.number)))
        )
    return found


def as_json(selection: Selection) -> str:
    """Without fields that are not set."""
    fields = {name: value for name, value in selection._asdict().items() if value not in (None, ())}
    if "import_name" in fields:
        fields["import"] = fields.pop("import_name")
    return json.dumps(fields)


def _selected(
    connection: Connection, selection: Selection
) -> tuple[Queries, SelectionCounts] | PricemeshError:
    queries = feedback_queries(connection, selection)
    if isinstance(queries, PricemeshError):
        return queries
    selected = sum(_count(connection, query) for query in queries)
    already = sum(_count(connection, query.where(_is_retracted(feedback.c.number))) for query in queries)
    without_feedback = len(set(selection.decisions)) - selected if selection.decisions else 0
    return queries, SelectionCounts(selected, already, without_feedback)


def feedback_queries(connection: Connection, selection: Selection) -> Queries | PricemeshError:
    """Of the numbers of the feedback that is selected."""
    query = select(feedback.c.number)
    if selection.decisions:
        ids = list(dict.fromkeys(selection.decisions))
        groups = [ids[i : i + IDS_PER_STATEMENT] for i in range(0, len(ids), IDS_PER_STATEMENT)]
        fault = _unknown_ids(connection, groups)
        return fault or [query.join(decisions, _OF_DECISION).where(decisions.c.id.in_(g)) for g in groups]
    if selection.import_name is not None:
        row = connection.execute(select(imports).where(imports.c.name == selection.import_name)).first()
        if row is None:
            return NothingToRetract(f"there is no import {selection.import_name!r}")
        if row.finished_at is None:
            return NothingToRetract(
                f"the import {selection.import_name!r} has not finished: nothing counts yet"
            )
        return [query.join(decisions, _OF_DECISION).where(decisions.c.import_id == row.id)]
    if selection.key is not None:
        return [query.where(feedback.c.key == selection.key)]
    if selection.since is not None:
        query = query.where(feedback.c.received_at >= selection.since)
    if selection.until is not None:
        query = query.where(feedback.c.received_at < selection.until)
    return [query]


def _unknown_ids(connection: Connection, groups: Sequence[Sequence[str]]) -> UnknownDecision | None:
    unknown: list[str] = []
    for ids in groups:
        known = set(connection.scalars(select(decisions.c.id).where(decisions.c.id.in_(ids))))
        unknown += [id_ for id_ in ids if id_ not in known]
    if not unknown:
        return None
    names = ", ".join(map(repr, unknown[:MAX_NAMED_IDS]))
    more = f" and {len(unknown) - MAX_NAMED_IDS} more" if len(unknown) > MAX_NAMED_IDS else ""
    return UnknownDecision(f"not known, or pruned: decision {names}{more}; nothing was changed")


def _is_retracted(number: Any, besides: int | None = None) -> sa.ColumnElement[bool]:
    row = retracted.alias()
    query = select(row.c.feedback).where(row.c.feedback == number)
    if besides is not None:
        query = query.where(row.c.retraction != besides)
    return query.exists()


def _covers(connection: Connection, retraction: int, queries: Queries) -> bool:
    row = retracted.alias()
    own = select(row.c.feedback).where(row.c.feedback == feedback.c.number, row.c.retraction == retraction)
    return not any(_count(connection, query.where(~own.exists())) for query in queries)


def _count(connection: Connection, query: sa.Select[Any]) -> int:
    return connection.scalar(select(sa.func.count()).select_from(query.subquery())) or 0


def _rewrites(connection: Connection) -> int:
    return connection.scalar(select(city.c.rewrites)) or 0
