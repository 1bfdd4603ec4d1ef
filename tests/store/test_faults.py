"""A fault of the database, at whatever moment, is a StorageUnavailable, and what was committed is learned."""

import logging
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from pricemesh.errors import StorageUnavailable
from pricemesh.runtime import Disk, Runtime
from pricemesh.store.commands import Command, SaveDecisions, SaveFeedback
from pricemesh.store.database import Database
from pricemesh.store.migration import migrate
from tests.postgres import Postgres
from tests.store.rows import decision, opened, opened_at, save


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "city.db"


def with_an_unreadable_row(path: Path) -> Database:
    """The driver finds the fault in the second row, after the statement has begun to return rows."""
    database = opened(path)
    database.commit([SaveDecisions([decision("a", "ann"), decision("b", "bob")])])
    database.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE decisions SET limited_by = CAST(x'ff' AS TEXT) WHERE id = 'b'")
        connection.commit()
    return opened(path)


def test_a_row_that_cannot_be_read_is_a_fault_of_the_database(path: Path) -> None:
    database = with_an_unreadable_row(path)
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        database.recall(["a", "b"], [])
    again = SaveDecisions([decision("a"), decision("b")], frozenset({"a", "b"}))
    with pytest.raises(StorageUnavailable, match="does not take writes"):
        database.commit([again])
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        database.reader.latest_decisions(limit=10)
    assert database.recall(["a"], ["ann"]).latest_prices == {"ann": 8.0}
    database.commit(save("c"))
    database.close()


def test_a_value_that_pricemesh_does_not_write_is_a_fault_of_the_database(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is: the loop that asked has other callers."""
    database = opened(path)
    database.commit(save("a"))
    monkeypatch.setattr("pricemesh.store.reads.Decision.from_columns", lambda _: 1 / 0)
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        database.recall(["a"], [])
    assert "ZeroDivisionError" in caplog.text
    database.close()


def test_a_connection_that_the_driver_has_closed_is_a_fault_and_is_made_anew(postgres: Postgres) -> None:
    url = postgres.new_database(f"closed{time.time_ns()}")
    migrate(url, "head", "lisbon")
    database = opened_at(url)
    for use in (lambda: database.recall(["a"], []), lambda: database.commit(save("a"))):
        connection = database._connection
        assert connection is not None
        driver = connection.connection.driver_connection
        assert driver is not None
        postgres.end_connections()  # the server releases the lock, too
        driver.close()
        with pytest.raises(StorageUnavailable):
            use()
        use()
    database.close()


class FailingAt(Disk):
    """Raises before one of the commits, counted from 1."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.commits = 0

    def before_commit(self) -> None:
        self.commits += 1
        if self.commits == self._number:
            raise RuntimeError("nobody foresaw this")


def test_lessons_of_committed_commands_are_returned_whatever_befalls_the_next(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingAt(5)  # two commits, the group, the first command alone, the second
    database = opened(path, Runtime(disk=disk))
    database.commit(save("a"))
    database.commit(save("b"))
    twice = SaveDecisions([decision("c"), decision("c")])  # the database refuses this, and so the group
    commands: list[Command] = [
        SaveFeedback([("a", 0.5)], 2.0, False, 0.0),
        SaveFeedback([("b", 0.5)], 2.0, False, 0.0),
        twice,
    ]
    outcome = database.commit(commands)
    assert [lesson.version for lesson in outcome.lessons] == [1]
    assert [type(result) for result in outcome.results] == [list, StorageUnavailable, StorageUnavailable]
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "nobody foresaw this" in caplog.text
    again = database.commit([SaveFeedback([("b", 0.5)], 3.0, False, 0.0)])
    assert [lesson.version for lesson in again.lessons] == [2]
    database.close()
