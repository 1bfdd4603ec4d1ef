"""After a commit whose answer was lost, the next one returns what the tables had before it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from pricemesh.errors import InDoubt, StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store.commands import DropOrigin, Probe, SetControl, TrustKey
from pricemesh.store.database import Database
from tests.faulty_disk import FaultyDisk
from tests.store.rows import opened, save

LOST = OperationalError("commit", {}, OSError("the answer is lost"))
PIN = SetControl("pin", "{}", 1.0)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def database(tmp_path: Path, disk: FaultyDisk) -> Iterator[Database]:
    database = opened(tmp_path / "city.db", Runtime(disk=disk))
    yield database
    database.close()


def test_what_a_commit_did_that_was_not_answered_is_returned_once(
    database: Database, disk: FaultyDisk
) -> None:
    disk.after = LOST
    with pytest.raises(InDoubt):
        database.commit([PIN, DropOrigin("porto", 1.0), TrustKey("faro", b"key")])
    disk.after = None
    recovered = database.commit([SetControl("freeze", "{}", 2.0)]).recovered
    assert recovered is not None
    assert recovered.controls == {"pin": ("{}", 1.0)}  # the freeze is for its own caller to put in force
    assert recovered.mesh_record.dropped == ["porto"]
    assert recovered.mesh_record.trusted == {"faro": b"key"}
    assert database.commit([Probe()]).recovered is None


def test_it_waits_for_a_commit_that_succeeds(database: Database, disk: FaultyDisk) -> None:
    disk.after = LOST
    for command in (PIN, SetControl("pin", None, 2.0), SetControl("freeze", "{}", 3.0)):
        with pytest.raises(InDoubt):
            database.commit([command])
    disk.after, disk.before = None, LOST
    with pytest.raises(StorageUnavailable):
        database.commit([PIN])
    disk.before = None
    recovered = database.commit([Probe()]).recovered
    assert recovered is not None
    assert recovered.controls == {"freeze": ("{}", 3.0)}


def test_after_a_commit_that_surely_failed_nothing_is_read_again(
    database: Database, disk: FaultyDisk
) -> None:
    disk.before = LOST
    with pytest.raises(StorageUnavailable):
        database.commit([PIN])
    disk.before = None
    assert database.commit([Probe()]).recovered is None


def test_a_recall_between_them_changes_nothing(database: Database, disk: FaultyDisk) -> None:
    disk.after = LOST
    with pytest.raises(InDoubt):
        database.commit([PIN])
    disk.after = None
    database.recall([], ["ann"])
    assert database.commit([Probe()]).recovered is not None


def test_a_recall_that_fails_after_a_commit_is_not_in_doubt(database: Database) -> None:
    database.commit(save("a"))
    with database._backend.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE decisions RENAME TO elsewhere")
    with pytest.raises(StorageUnavailable) as failure:
        database.recall(["a"], [])
    assert not isinstance(failure.value, InDoubt)
