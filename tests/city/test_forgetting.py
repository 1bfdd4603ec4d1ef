"""Forgetting a subject: it leaves all rows and the memory of a city that serves."""

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from pricemesh.client import City
from pricemesh.errors import DatabaseInUse, NotStarted
from pricemesh.runtime import Runtime
from pricemesh.store.commands import ForgetSubject, SaveDecisions
from pricemesh.store.stopped_database import StoppedDatabase
from pricemesh.store.tables import decisions
from tests.running import RunningCity, settings_for
from tests.store.rows import decision, opened_at

Start = Callable[..., RunningCity]


def subjects(url: str) -> list[str | None]:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = list(connection.scalars(sa.select(decisions.c.subject).order_by(decisions.c.number)))
    engine.dispose()
    return found


def test_a_running_city_forgets_a_subject_and_its_last_price(start: Start, database_url: str) -> None:
    city = start(guardrails={"max_step": 1.0})
    for subject in ("ann", "bob"):
        city.http.post("/admin/pin", json={"price": 8.0})
        city.price(subject=subject)
        city.http.delete("/admin/pin")
    for i in range(60):  # the highest price pays best
        city.http.post("/admin/pin", json={"price": (8.0, 12.0)[i % 2]})
        city.feedback(city.price()["decision_id"], 100.0 * (i % 2))
    city.http.delete("/admin/pin")
    assert city.price(subject="bob")["limited_by"] != []
    assert city.price(subject="ann")["limited_by"] != []

    with City(city.url) as client:
        assert client.forget("ann") == 2
        assert client.forget("ann") == 0
    assert "ann" not in subjects(database_url)
    assert subjects(database_url).count("bob") == 2
    assert city.price(subject="ann")["limited_by"] == []
    assert city.price(subject="bob")["limited_by"] != []


def test_forgetting_in_parts_keeps_the_last_price_until_the_last_part(database_url: str) -> None:
    database = opened_at(database_url)
    database.commit([SaveDecisions([decision(f"d{i}", "ann", price=float(i)) for i in range(7)])])
    counts: list[int] = []
    while not counts or counts[-1] == 3:
        assert database.reader.latest_price("ann") == 6.0
        counts += database.commit([ForgetSubject("ann", limit=3)]).results
    assert counts == [3, 3, 1]
    assert database.reader.latest_price("ann") is None
    database.close()


def test_a_subject_must_be_named(city: RunningCity) -> None:
    assert city.http.post("/admin/forget", json={"subject": ""}).status_code == 422
    assert city.http.post("/admin/forget", json={}).status_code == 422


def test_a_stopped_city_forgets_in_one_transaction(city: RunningCity, database_url: str) -> None:
    for _ in range(3):
        city.price(subject="ann")
    settings = settings_for(database_url)
    database = StoppedDatabase(database_url, "lisbon", Runtime())
    assert database.count_decisions("ann") == 3  # while the city serves
    with pytest.raises(DatabaseInUse):
        database.forget(settings.schema_description, "ann")
    city.stop()
    database = StoppedDatabase(database_url, "lisbon", Runtime(), 10.0)
    assert database.forget(settings.schema_description, "ann") == 3
    database.close()
    assert subjects(database_url) == [None] * 3


def test_nothing_of_the_subject_is_left_in_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/city.db"
    database = opened_at(url)
    rows = [decision(f"d{i}", f"customer-{i % 2}-of-ours") for i in range(500)]
    database.commit([SaveDecisions(rows)])
    database.close()
    assert b"customer-1-of-ours" in (tmp_path / "city.db").read_bytes()
    stopped = StoppedDatabase(url, "lisbon", Runtime())
    assert stopped.forget(settings_for(url).schema_description, "customer-1-of-ours") == 250
    stopped.close()
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"customer-1-of-ours" not in files
    assert b"customer-0-of-ours" in files


def test_a_file_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match="there is no database"):
        StoppedDatabase(f"sqlite:///{tmp_path}/other.db", "lisbon", Runtime())
    assert not list(tmp_path.iterdir())
