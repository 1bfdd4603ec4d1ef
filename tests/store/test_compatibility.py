"""Software beside a database that a later version has migrated, as during an upgrade of replicas."""

import pytest
import sqlalchemy as sa

from pricemesh.errors import DatabaseInUse, NotStarted
from pricemesh.runtime import Runtime
from pricemesh.store.database import Database
from pricemesh.store.migration import migrate
from pricemesh.store.shared_database import SharedDatabase
from tests.running import RunningCity, settings_for

LATER = "9998"  # a revision that this version does not know


def migrate_later(url: str, oldest_revision: str) -> None:
    """As a later version would: one more column, and who can use it."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE decisions ADD COLUMN later INTEGER"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :it"), {"it": LATER})
        connection.execute(sa.text("UPDATE compatibility SET oldest_revision = :it"), {"it": oldest_revision})
    engine.dispose()


def test_a_city_goes_on_and_starts_on_tables_that_it_can_use(postgres_url: str) -> None:
    url = postgres_url
    city = RunningCity(settings_for(url))
    migrate_later(url, "0004")
    assert city.http.get("/readyz").status_code == 200
    city.feedback(city.price()["decision_id"], 1.0)
    city.stop()
    city = RunningCity(settings_for(url))
    assert city.state()["version"] == 1
    assert city.price()["arm"] >= 0
    city.stop()


def test_tables_that_it_cannot_use_are_refused(postgres_url: str) -> None:
    url = postgres_url
    city = RunningCity(settings_for(url))
    migrate_later(url, LATER)
    assert city.http.get("/readyz").status_code == 503
    city.stop()
    with pytest.raises(NotStarted):
        Database(url, "lisbon", Runtime()).open(settings_for(url).schema_description)


def test_replicas_are_migrated_while_they_serve(postgres_url: str) -> None:
    url = postgres_url
    replica = SharedDatabase(url, "lisbon", Runtime())
    replica.open(settings_for(url).schema_description)
    assert list(replica.lessons(0)) == []
    assert migrate(url, "head", "lisbon", replicas=True) == ("0006", "0006")
    with pytest.raises(DatabaseInUse):  # going down takes a table away
        migrate(url, "0003", "lisbon", replicas=True)
    replica.close()
