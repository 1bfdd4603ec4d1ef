"""Closing windows: the default reward for decisions without feedback."""

from collections.abc import Iterator

import pytest

from pricemesh.store.commands import CloseWindow, SaveDecisions, SaveFeedback
from pricemesh.store.database import Database
from tests.store.rows import decision, opened_at


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = opened_at(database_url)
    database.commit([SaveDecisions([decision(f"d{i}") for i in range(5)])])
    yield database
    database.close()


@pytest.mark.parametrize("frozen", [False, True])
def test_decisions_that_have_feedback_count_as_settled(database: Database, frozen: bool) -> None:
    """Otherwise a full group of them would look like nothing to do, and what follows would wait."""
    database.commit([SaveFeedback([("d0", 0.5), ("d1", 0.5)], 2.0, False, 0.0)])
    command = CloseWindow(decided_before=3.0, amount=-1.0, at=4.0, frozen=frozen, limit=2)
    outcomes = [database.commit([command]) for _ in range(4)]
    assert [outcome.results for outcome in outcomes] == [[2], [2], [1], [0]]
    versions = [[lesson.version for lesson in outcome.lessons] for outcome in outcomes]
    assert versions == ([[], [], [], []] if frozen else [[], [3, 4], [5], []])
    rewards = [row.feedback.reward for row in database.reader.latest_decisions(limit=9) if row.feedback]
    assert rewards == [-1.0, -1.0, -1.0, 0.5, 0.5]


def test_a_later_command_of_the_group_goes_on_from_the_version_after_the_defaults(database: Database) -> None:
    first = CloseWindow(decided_before=3.0, amount=-1.0, at=4.0, frozen=False, limit=2)
    outcome = database.commit([first, first])
    assert outcome.results == [2, 2]
    assert [lesson.version for lesson in outcome.lessons] == [1, 2, 3, 4]
