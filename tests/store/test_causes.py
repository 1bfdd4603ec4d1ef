"""Why commits fail, as real databases say it, and whether a failed commit may have happened."""

import errno
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from pricemesh.errors import InDoubt, StorageCause, StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store.backend import TimeLimits
from pricemesh.store.causes import cause_of, was_rolled_back
from pricemesh.store.commands import Command, Probe, SaveDecisions
from pricemesh.store.database import Database
from pricemesh.store.migration import migrate
from tests.postgres import Postgres
from tests.running import settings_for
from tests.store.rows import decision, opened_at, save

Break = Callable[[Database], None]


def executing(*statements: str) -> Break:
    """On the writer's own connection."""

    def execute(database: Database) -> None:
        assert database._connection is not None
        for statement in statements:
            database._connection.exec_driver_sql(statement)
        database._connection.commit()

    return execute


def cause_after(database: Database, spoil: Break, commands: list[Command] | None = None) -> StorageCause:
    database.commit(save("before"))
    spoil(database)
    with pytest.raises(StorageUnavailable, match="nothing was changed") as failure:
        database.commit(commands or save("after"))
    assert not isinstance(failure.value, InDoubt)
    return failure.value.cause


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (executing("PRAGMA query_only=ON"), StorageCause.READ_ONLY),
        (executing("DROP TABLE feedback", "DROP TABLE decisions"), StorageCause.GONE),
    ],
)
def test_causes_on_sqlite(tmp_path: Path, spoil: Break, cause: StorageCause) -> None:
    database = opened_at(f"sqlite:///{tmp_path}/city.db")
    assert cause_after(database, spoil) == cause
    database.close()


def test_a_probe_finds_a_full_disk_where_a_small_write_would_not(tmp_path: Path) -> None:
    database = opened_at(f"sqlite:///{tmp_path}/city.db")
    fill = executing("PRAGMA max_page_count=1")  # no page more than there are
    assert cause_after(database, fill, [Probe()]) == StorageCause.DISK_FULL
    executing("PRAGMA max_page_count=1000000")(database)
    database.commit([Probe()])
    database.close()


def test_a_file_that_another_program_locks_is_a_timeout(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/city.db"
    database = Database(url, "lisbon", Runtime(), limits=TimeLimits(commit_seconds=0.1))
    database.open(settings_for(url).schema_description)
    assert list(database.lessons(0)) == []
    with closing(sqlite3.connect(tmp_path / "city.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        assert cause_after_nothing(database) == StorageCause.TIMEOUT
        other.rollback()
    database.commit(save("after"))
    database.close()


def cause_after_nothing(database: Database) -> StorageCause:
    with pytest.raises(StorageUnavailable, match="nothing was changed") as failure:
        database.commit(save("after"))
    return failure.value.cause


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (executing("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"), StorageCause.READ_ONLY),
        (executing("DROP TABLE feedback", "DROP TABLE decisions"), StorageCause.GONE),
    ],
)
def test_causes_on_postgres(postgres: Postgres, spoil: Break, cause: StorageCause) -> None:
    url = postgres.new_database(f"causes{time.time_ns()}")
    migrate(url, "head", "lisbon")
    database = opened_at(url)
    assert cause_after(database, spoil) == cause
    database.close()


def test_a_command_that_the_database_refuses_is_told_apart_from_a_lost_database(database_url: str) -> None:
    database = opened_at(database_url)
    twice = SaveDecisions([decision("a"), decision("a")])
    assert cause_after(database, lambda _: None, [twice]) == StorageCause.REFUSED
    outcome = database.commit([*save("b"), twice])
    assert [fault.cause for fault in outcome.faults] == [StorageCause.REFUSED]
    database.close()


def sqlite_fault(code: int) -> OperationalError:
    origin = sqlite3.OperationalError("words")
    origin.sqlite_errorcode = code
    return OperationalError("COMMIT", {}, origin)


@pytest.mark.parametrize(
    ("fault", "cause", "certain"),
    [
        (sqlite_fault(sqlite3.SQLITE_FULL), StorageCause.DISK_FULL, True),
        (sqlite_fault(sqlite3.SQLITE_IOERR_FSYNC), StorageCause.IO_ERROR, False),
        (sqlite_fault(sqlite3.SQLITE_IOERR_WRITE), StorageCause.IO_ERROR, False),
        (sqlite_fault(sqlite3.SQLITE_CORRUPT), StorageCause.CORRUPT, True),
        (sqlite_fault(sqlite3.SQLITE_READONLY_DBMOVED), StorageCause.GONE, True),
        (sqlite_fault(sqlite3.SQLITE_READONLY), StorageCause.READ_ONLY, True),
        (sqlite_fault(sqlite3.SQLITE_CANTOPEN), StorageCause.GONE, True),
        (OSError(errno.ENOSPC, "words"), StorageCause.DISK_FULL, False),
        (OSError("words"), StorageCause.OTHER, False),
        (RuntimeError("words"), StorageCause.OTHER, False),
    ],
)
def test_faults_have_a_cause_and_leave_a_doubt_or_none(
    fault: Exception, cause: StorageCause, certain: bool
) -> None:
    assert (cause_of(fault), was_rolled_back(fault)) == (cause, certain)


class ServerFault(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "lost", "cause", "certain"),
    [
        ("53100", False, StorageCause.DISK_FULL, True),
        ("XX001", False, StorageCause.CORRUPT, True),
        ("58030", False, StorageCause.IO_ERROR, True),
        ("57014", False, StorageCause.TIMEOUT, True),
        ("57P01", True, StorageCause.CONNECTION_LOST, False),
        (None, True, StorageCause.CONNECTION_LOST, False),
        (None, False, StorageCause.GONE, False),  # no connection could be made
    ],
)
def test_what_a_server_says(sqlstate: str | None, lost: bool, cause: StorageCause, certain: bool) -> None:
    fault: Any = OperationalError("COMMIT", {}, ServerFault(sqlstate), connection_invalidated=lost)
    assert (cause_of(fault), was_rolled_back(fault)) == (cause, certain)


def test_a_value_that_the_server_refuses_is_no_loss_of_the_database() -> None:
    assert cause_of(IntegrityError("INSERT", {}, ServerFault("23505"))) == StorageCause.REFUSED
