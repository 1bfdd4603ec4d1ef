"""Which rows a prune has deleted, and whether it was allowed to."""

import sqlite3
from contextlib import closing
from typing import NamedTuple

from pricemesh.lab.torture.ledger import Violated
from pricemesh.lab.torture.rows import DecisionRow, FeedbackRow
from pricemesh.lab.torture.simulated_city import SimulatedCity


class Age(NamedTuple):
    """Of what may leave; Unix seconds."""

    made_before: float
    now: float

    def is_old(self, row: DecisionRow) -> bool:
        """A time in the future was taken from a clock that was wrong."""
        return row.made_at < self.made_before or row.made_at > self.now


def pruned_decisions(
    city: SimulatedCity, decisions: list[DecisionRow], feedback: list[FeedbackRow], age: Age
) -> list[DecisionRow]:
    """Those of these decisions that are not in the database any more."""
    with closing(sqlite3.connect(f"file:{city.database_path}?mode=ro", uri=True)) as connection:
        left = {number for (number,) in connection.execute("SELECT number FROM decisions").fetchall()}
        (settled,) = connection.execute("SELECT settled_through FROM city").fetchone()
    gone = [row for row in decisions if row.number not in left]
    answers = {row.decision: row for row in feedback}
    lessons = [row for row in feedback if row.version is not None]
    newest = {row.number for row in decisions[-1:]} | {row.decision for row in feedback[-1:] + lessons[-1:]}
    pruned = [row.version for row in lessons if row.decision not in left]
    settings = city.settings
    closes_windows = settings.feedback.default_amount is not None or settings.learner().counts_pending
    for row in gone:
        is_open = row.number not in answers and closes_windows and row.number > settled
        if row.number in newest or not age.is_old(row) or is_open:
            seen = f"{city.name}: {row.id}, made {age.now - row.made_at:.1f} s ago, {answers.get(row.number)}"
            raise Violated("a prune deletes nothing but what is old", seen)
    if pruned != [row.version for row in lessons][: len(pruned)]:
        raise Violated("a prune deletes the first versions", f"{city.name}: {pruned}")
    return gone
