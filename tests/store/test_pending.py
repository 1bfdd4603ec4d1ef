"""Which decisions wait for feedback, by what commits report and by what a start reads."""

from collections.abc import Iterator
from typing import Any

import pytest

from pricemesh.store.commands import CloseWindow, Position, SaveDecisions, SaveFeedback
from pricemesh.store.database import Database
from tests.store.rows import decision, opened_at

CLOSE = CloseWindow(decided_before=3.0, amount=None, at=4.0, frozen=False, limit=2)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = opened_at(database_url)
    database.commit([SaveDecisions([decision(f"d{i}") for i in range(5)])])
    yield database
    database.close()


def answer(*ids: str, frozen: bool = False) -> SaveFeedback:
    return SaveFeedback([(id_, 0.5) for id_ in ids], 2.0, frozen, 0.0)


def waits_after(database: Database, counted: Position) -> dict[str, Any]:
    changes = list(database.changes_of_pending(counted))
    return {
        "begun": sum(len(change.begun) for change in changes),
        "released": sum(len(change.released) for change in changes),
    }


def test_a_commit_tells_how_far_the_rows_go(database: Database) -> None:
    before = database.position
    outcome = database.commit([SaveDecisions([decision("e0"), decision("e1")]), answer("d0", "d1", "d2")])
    assert outcome.position == Position(before.decision + 2, before.feedback + 3, 0) == database.position
    assert [lesson.waited for lesson in outcome.lessons] == [True] * 3


def test_windows_close_without_a_default_and_give_no_feedback(database: Database) -> None:
    database.commit([answer("d1")])
    outcomes = [database.commit([CLOSE]) for _ in range(4)]
    assert [outcome.results for outcome in outcomes] == [[2], [2], [1], [0]]
    assert [len(outcome.released) for outcome in outcomes] == [1, 2, 1, 0]
    assert not any(outcome.lessons for outcome in outcomes)
    assert outcomes[-1].position.settled == outcomes[-1].position.decision
    assert [row.feedback is None for row in database.reader.latest_decisions(limit=9)].count(True) == 4


def test_feedback_to_a_decision_that_waits_no_longer_is_learned_all_the_same(database: Database) -> None:
    """Its window was closed, then the clock went back."""
    database.commit([CLOSE])
    (early, late) = database.commit([answer("d0", "d4")]).lessons
    assert (early.waited, late.waited) == (False, True)


def test_feedback_that_is_not_learned_releases_its_decision(database: Database) -> None:
    outcome = database.commit([answer("d0", "d1", frozen=True)])
    assert (len(outcome.released), outcome.lessons) == (2, [])
    frozen = CloseWindow(decided_before=3.0, amount=-1.0, at=4.0, frozen=True, limit=9)
    assert len(database.commit([frozen]).released) == 3


def test_a_start_reads_what_changed_since_the_rows_that_a_snapshot_counted(database: Database) -> None:
    counted = database.position  # five wait
    database.commit([answer("d0")])
    database.commit([answer("d1", frozen=True)])
    database.commit([SaveDecisions([decision(f"e{i}") for i in range(3)])])
    database.commit([answer("e0")])
    # d0 was learned; d1 was not; two of e wait.
    assert waits_after(database, counted) == {"begun": 2, "released": 1}
    database.commit([CLOSE, CLOSE])
    # The windows of d0 to d3 have closed: d2 and d3 waited until then.
    assert waits_after(database, counted) == {"begun": 2, "released": 3}
    (first, *_) = database.lessons(0, counted)
    assert [lesson.waited for lesson in first] == [True, False]


def test_a_start_without_a_snapshot_counts_what_was_not_settled(database: Database) -> None:
    """Also decisions that are old by its clock, which it does not believe yet."""
    database.commit([SaveDecisions([decision(f"e{i}") for i in range(3)])])
    assert waits_after(database, Position()) == {"begun": 8, "released": 0}
    assert len(database.commit([CLOSE]).released) == 2
    assert waits_after(database, Position()) == {"begun": 6, "released": 0}
