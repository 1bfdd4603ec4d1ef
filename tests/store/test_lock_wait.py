"""A start waits a moment for the process that owned the database before."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from pricemesh.errors import DatabaseInUse, StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store.database import Database
from pricemesh.store.migration import migrate
from tests.postgres import Postgres
from tests.running import settings_for
from tests.store.rows import opened, save


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self, on_sleep: Callable[[float], None] = lambda _now: None) -> None:
        self.now = 1000.0
        self.sleeps: list[float] = []
        self._on_sleep = on_sleep

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds
        self._on_sleep(self.now)

    @property
    def runtime(self) -> Runtime:
        return Runtime(monotonic=lambda: self.now, sleep=self.sleep)


def waiting_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "waiting for it" in record.getMessage()]


def test_a_start_takes_over_as_soon_as_the_owner_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "city.db"
    owner = opened(path)
    owner.commit(save("first"))
    clock = Clock(lambda now: owner.close() if now >= 1003.0 else None)
    url = f"sqlite:///{path}"
    database = Database(url, "lisbon", clock.runtime, lock_wait_seconds=10.0)
    database.open(settings_for(url).schema_description)
    assert database.reader.decision("first") is not None
    assert 1003.0 <= clock.now < 1003.2
    assert len(waiting_lines(caplog)) == 1
    database.close()


@pytest.mark.parametrize(("seconds", "sleeps"), [(0.0, 0), (0.12, 3)])
def test_a_start_gives_up_after_its_wait(tmp_path: Path, seconds: float, sleeps: int) -> None:
    path = tmp_path / "city.db"
    owner = opened(path)
    clock = Clock()
    url = f"sqlite:///{path}"
    with pytest.raises(DatabaseInUse):
        Database(url, "lisbon", clock.runtime, seconds).open(settings_for(url).schema_description)
    assert len(clock.sleeps) == sleeps
    assert clock.now == pytest.approx(1000.0 + seconds)
    with pytest.raises(DatabaseInUse):
        migrate(url, "base", "lisbon", clock.runtime, seconds)
    assert len(clock.sleeps) == 2 * sleeps
    owner.close()


def test_a_start_on_postgres_waits_for_a_lock_that_the_server_still_holds(postgres: Postgres) -> None:
    url = postgres.new_database(f"waits{time.time_ns()}")
    migrate(url, "head", "lisbon")
    description = settings_for(url).schema_description
    owner = Database(url, "lisbon", Runtime())
    owner.open(description)
    end = threading.Timer(0.5, owner.close)
    end.start()
    database = Database(url, "lisbon", Runtime(), lock_wait_seconds=30.0)
    database.open(description)
    end.join()
    assert list(database.lessons(0)) == []
    database.commit(save("first"))
    database.close()


def test_a_running_city_that_lost_its_lock_refuses_at_once(postgres: Postgres) -> None:
    url = postgres.new_database(f"robbed{time.time_ns()}")
    migrate(url, "head", "lisbon")
    description = settings_for(url).schema_description
    clock = Clock()
    database = Database(url, "lisbon", clock.runtime, lock_wait_seconds=30.0)
    database.open(description)
    assert list(database.lessons(0)) == []
    postgres.end_connections()
    other = Database(url, "lisbon", Runtime(), lock_wait_seconds=30.0)
    other.open(description)
    for id_ in ("one", "two"):
        with pytest.raises(StorageUnavailable):
            database.commit(save(id_))
    assert clock.sleeps == []
    other.close()
    database.close()


def test_a_lock_file_is_not_waited_for_when_it_cannot_be_written(tmp_path: Path) -> None:
    clock = Clock()
    url = f"sqlite:///{tmp_path}/missing/city.db"
    with pytest.raises(StorageUnavailable, match="cannot write beside"):
        Database(url, "lisbon", clock.runtime, 10.0).open(settings_for(url).schema_description)
    assert clock.sleeps == []


def test_the_lock_of_another_city_on_the_same_server_does_not_hinder(postgres: Postgres) -> None:
    url = postgres.new_database(f"apart{time.time_ns()}")
    migrate(url, "head", "lisbon")
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        connection.execute(sa.text("select pg_advisory_lock(1)"))
        database = Database(url, "lisbon", Runtime())
        database.open(settings_for(url).schema_description)
        database.close()
    engine.dispose()
