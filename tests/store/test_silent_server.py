"""A Postgres that is stopped, or behind a network that loses packets: calls end, and return when it does."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from pricemesh.errors import DatabaseInUse, InDoubt, StorageCause, StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store import postgres as postgres_module
from pricemesh.store.backend import TimeLimits
from pricemesh.store.commands import Probe, SaveDecisions
from pricemesh.store.database import Database
from pricemesh.store.migration import migrate
from pricemesh.store.postgres import LARGE_COMMIT_ROWS
from pricemesh.store.postgres import Postgres as PostgresBackend
from tests.postgres import Postgres
from tests.proxy import Links
from tests.running import CONTEXT, IMPATIENT, RunningCity, settings_for
from tests.store.rows import decision, opened_at, save

LIMITS = TimeLimits(commit_seconds=1.0, read_seconds=1.0)


@pytest.fixture
def url(postgres: Postgres) -> str:
    url = postgres.new_database(f"silent{time.time_ns()}")
    migrate(url, "head", "lisbon")
    return url


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(url, "lisbon", Runtime(), limits=LIMITS)
    database.open(settings_for(url).schema_description)
    assert list(database.lessons(0)) == []
    yield database
    database.close()


@pytest.fixture
def pause(postgres: Postgres) -> Iterator[Callable[[], None]]:
    """Stops the server; it goes on after the test at the latest."""
    yield postgres.pause
    postgres.resume()


def driver_of(database: Database) -> Any:
    assert database._connection is not None
    return database._connection.connection.driver_connection


def fails(use: Callable[[], object]) -> StorageUnavailable:
    with pytest.raises(StorageUnavailable) as failure:
        use()
    assert failure.value.cause == StorageCause.TIMEOUT
    return failure.value


def test_a_time_limit_that_could_not_be_set_does_not_stop_later_commits(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = save(*(f"large-{i}" for i in range(LARGE_COMMIT_ROWS)))
    with monkeypatch.context() as patch:
        patch.setattr(postgres_module, "_set_config", lambda _values: "SELECT pg_sleep(60)")
        fails(lambda: database.write(large))
    database.write(save("small"))
    database.write(large)


def test_a_commit_to_a_stopped_server_ends_in_doubt_and_later_ones_are_refused_at_once(
    database: Database, postgres: Postgres, pause: Callable[[], None]
) -> None:
    database.commit(save("a"))
    pause()
    assert isinstance(fails(lambda: database.commit(save("b"))), InDoubt)
    assert database.is_silent
    for use in (lambda: database.commit(save("c")), lambda: database.recall(["a"], [])):
        assert not isinstance(fails(use), InDoubt)
    fails(lambda: database.commit([Probe()]))  # it asks, and ends as well
    with pytest.raises(StorageUnavailable):
        database.reader.totals()
    postgres.resume()
    until_it_works(lambda: database.commit([Probe()]))
    assert not database.is_silent
    database.commit(save("c"))


def test_the_insert_that_a_stopped_server_has_received_is_in_doubt_and_is_stored_once(
    database: Database, postgres: Postgres, pause: Callable[[], None]
) -> None:
    """The server goes on with what it had received. Its outcome is settled before the next commit."""
    database.commit(save("a", "b"))
    pause()
    doubt = fails(lambda: database.commit(save("c")))
    assert isinstance(doubt, InDoubt)
    assert "same decision_id" in str(doubt)
    postgres.resume()
    until_it_works(lambda: database.commit([Probe()]))
    stored = {row.decision.id for row in database.reader.latest_decisions(limit=10)}
    (again,) = database.commit([SaveDecisions([decision("c", price=9.0)], frozenset({"c"}))]).results
    assert again[0].price == (8.0 if "c" in stored else 9.0)


def until_it_works(use: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            use()
            return
        except StorageUnavailable:
            if time.monotonic() > deadline:
                raise


def until_ready(city: RunningCity) -> None:
    """Without traffic."""
    deadline = time.monotonic() + 20
    while city.http.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline


def test_a_connection_that_the_server_believes_alive_does_not_keep_the_lock(database: Database) -> None:
    """As behind a network that loses packets: this end is closed, the other one is not told."""
    database.commit(save("a"))
    descriptor = driver_of(database).pgconn.socket
    alive = os.dup(descriptor)
    try:
        near, far = socket.socketpair()
        far.close()
        os.dup2(near.fileno(), descriptor)
        near.close()
        with pytest.raises(StorageUnavailable):
            database.commit(save("b"))
        database.commit(save("c"))
    finally:
        os.close(alive)


def test_another_process_that_serves_the_city_is_never_ended(database: Database, url: str) -> None:
    other = Database(url, "lisbon", Runtime(), limits=LIMITS)
    with pytest.raises(DatabaseInUse):
        other.open(settings_for(url).schema_description)
    database.commit(save("a"))


def test_a_database_that_was_closed_can_be_opened_at_once(url: str) -> None:
    """Without waiting for the server to notice that the session has ended."""
    for _ in range(20):
        database = opened_at(url)
        database.close()


def test_a_table_that_another_program_locks_fails_a_commit_without_a_doubt(
    database: Database, url: str
) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("LOCK TABLE decisions"))
        failure = fails(lambda: database.commit(save("a")))
    engine.dispose()
    assert not isinstance(failure, InDoubt)
    assert not database.is_silent
    database.commit(save("a"))


def test_the_server_ends_what_a_city_leaves_undone(url: str) -> None:
    """Statements, waits for locks, and transactions of a process that was stopped in the middle."""
    backend = PostgresBackend(sa.make_url(url), LIMITS)
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    with backend.engine.connect() as connection:
        shown = [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names]
    backend.engine.dispose()
    assert shown == ["900ms", "800ms", "10s"]


def test_a_large_commit_may_take_longer_than_a_small_one(database: Database) -> None:
    for rows, seconds in ((1, 1.0), (500, 5.0), (500, 5.0), (1, 1.0)):
        database.commit(save(*(f"{rows}-{time.time_ns()}-{i}" for i in range(rows))))
        assert driver_of(database).silence_seconds == seconds
        assert database._connection is not None
        shown = database._connection.exec_driver_sql("SHOW statement_timeout").scalar()
        database._connection.rollback()
        assert shown == f"{round(900 * seconds)}ms"


def test_a_city_on_a_stopped_server_answers_503_everywhere_and_goes_on_after_it(
    url: str, postgres: Postgres, pause: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    city = RunningCity(settings_for(url, **IMPATIENT))
    city.price(decision_id="before")
    pause()
    price = city.http.post("/price", json=CONTEXT)  # the server may have received the INSERT
    assert (price.status_code, price.json()["type"]) == (503, "urn:pricemesh:problem:in-doubt")
    for path in ("/readyz", "/state", "/decisions/before", "/decisions"):
        assert city.http.get(path).status_code == 503
    price = city.http.post("/price", json=CONTEXT | {"decision_id": "during"})
    assert (price.status_code, price.json()["type"]) == (503, "urn:pricemesh:problem:storage-unavailable")
    assert "nothing was changed" in price.json()["detail"]
    postgres.resume()
    until_ready(city)
    assert city.price(decision_id="during")["decision_id"] == "during"
    city.stop()
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sum("the database is lost" in message for message in messages) == 1
    assert sum("the database is back" in message for message in messages) == 1


def test_a_city_behind_a_network_that_loses_packets_goes_on_after_it(url: str, postgres: Postgres) -> None:
    links = Links()
    near = url.replace(f":{postgres.port}/", f":{links.add('city>database', postgres.port)}/")
    city = RunningCity(settings_for(near, **IMPATIENT))
    city.price(decision_id="before")
    links.cut("database")
    assert city.http.post("/price", json=CONTEXT).status_code == 503
    assert city.http.get("/readyz").status_code == 503
    assert city.http.get("/state").status_code == 503
    links.mend()
    until_ready(city)
    assert city.price(decision_id="after")["decision_id"] == "after"
    city.stop()
    links.close()
