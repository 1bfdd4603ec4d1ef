"""What retractions cover, by the rows, against what operators asked for and were told."""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple

from pricemesh.lab.torture.ledger import Ledger, Violated
from pricemesh.lab.torture.rows import FeedbackRow

QUERY = "SELECT id, reason, selection, feedback_count, lifted_at FROM retractions ORDER BY id"
COVERED_QUERY = "SELECT retraction, feedback FROM retracted"
INVARIANT = "a retraction covers what it selects"

Selection = Mapping[str, Any]  # as in the body of a request


class RetractionRow(NamedTuple):
    id: int
    reason: str
    selection: Selection
    feedback_count: int
    lifted_at: float | None


class RetractionCall(NamedTuple):
    selection: Selection
    known: frozenset[int]  # feedback that was selected when it was sent
    is_dry_run: bool


class RetractionAudit:
    """Of one city. Every call has a reason of its own, by which its row is known."""

    def __init__(self, city: str) -> None:
        self._city = city
        self.calls: dict[str, RetractionCall] = {}  # by reason
        self.refused: set[str] = set()  # reasons of calls that, by their answer, changed nothing
        self.lifts: set[int] = set()  # retractions that operators tried to lift
        self._rows: dict[int, RetractionRow] = {}
        self._covered: dict[int, set[int]] = {}  # feedback, by retraction
        self._seen: set[str] = set()  # reasons

    def forget_rows(self) -> None:
        """The database was replaced."""
        self.forget_selections()
        self._rows, self._covered = {}, {}

    def forget_selections(self) -> None:
        """Rows left: what was selected before may not be there now."""
        self.calls = {reason: call._replace(known=frozenset()) for reason, call in self.calls.items()}

    @property
    def in_force(self) -> list[int]:
        return [row.id for row in self._rows.values() if row.lifted_at is None]

    # Rows

    def read(self, connection: sqlite3.Connection, feedback: Mapping[str, FeedbackRow]) -> None:
        """After each change. `feedback` is that in the rows, by decision id."""
        self._covered = {}
        for retraction, number in connection.execute(COVERED_QUERY).fetchall():
            self._covered.setdefault(retraction, set()).add(number)
        rows = [
            RetractionRow(id_, reason, json.loads(selection), count, lifted_at)
            for id_, reason, selection, count, lifted_at in connection.execute(QUERY).fetchall()
        ]
        self._rows = {row.id: row for row in rows}
        if [row.id for row in rows] != list(range(1, len(rows) + 1)):
            raise Violated(INVARIANT, f"{self._city}: the numbers {list(self._rows)}")
        for row in rows:
            self._check_row(row, feedback)

    def _check_row(self, row: RetractionRow, feedback: Mapping[str, FeedbackRow]) -> None:
        call, covered = self.calls[row.reason], self._covered.get(row.id, set())
        is_wrong = row.selection != call.selection or call.is_dry_run or row.reason in self.refused
        if row.lifted_at is not None:
            is_wrong |= bool(covered) or row.id not in self.lifts
        elif row.reason not in self._seen:
            self._seen.add(row.reason)
            is_wrong |= not call.known <= covered <= selected(row.selection, feedback)
            is_wrong |= bool(call.known) and row.feedback_count != len(covered)
            is_wrong |= self._is_repetition(row, covered)
        if is_wrong:
            seen = f"{self._city}: {row} covers {sorted(covered)}; {call}"
            raise Violated(INVARIANT, seen)

    def _is_repetition(self, row: RetractionRow, covered: set[int]) -> bool:
        """Whether another one in force had covered all of it."""
        return any(
            other.id < row.id
            and other.lifted_at is None
            and other.selection == row.selection
            and covered <= self._covered.get(other.id, set())
            for other in self._rows.values()
        )

    # Answers

    def check_acknowledged(self, ledger: Ledger) -> None:
        for id_, reason in ledger.retractions.items():
            row = self._rows.get(id_)
            if row is None or row.reason != reason:
                seen = f"{self._city}: retraction {id_}, {reason}, but {row}"
                raise Violated("what was acknowledged is in the rows", seen)
        for id_ in ledger.lifted:
            row = self._rows.get(id_)
            if row is None or row.lifted_at is None:
                seen = f"{self._city}: retraction {id_} was lifted, but {row}"
                raise Violated("what was acknowledged is in the rows", seen)


def selected(selection: Selection, feedback: Mapping[str, FeedbackRow]) -> frozenset[int]:
    """The numbers of feedback that a selection means."""
    ids = selection.get("decisions")
    since, until = selection.get("since", float("-inf")), selection.get("until", float("inf"))
    return frozenset(
        row.number
        for id_, row in feedback.items()
        if (id_ in ids if ids is not None else "key" not in selection and since <= row.received_at < until)
    )
