"""Units sold, propensities and chances in the rows, and databases made before there were any."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from pricemesh.core.decision import Margin
from pricemesh.errors import SchemaChanged
from pricemesh.runtime import Runtime
from pricemesh.store.commands import Margins, SaveDecisions, SaveFeedback
from pricemesh.store.database import Database
from pricemesh.store.migration import migrate
from pricemesh.store.tables import city as city_table
from tests.running import RunningCity, settings_for
from tests.store.rows import decision, opened_at

Start = Callable[..., RunningCity]


def test_a_database_made_before_there_were_purchases_is_one_of_values(
    start: Start, database_url: str
) -> None:
    """Its rows as version 0002 had them: nothing of what it learned changes."""
    city = start()
    for reward in (0.5, -2.0, 1.25):
        city.feedback(city.price()["decision_id"], reward)
    before = city.state()
    city.stop()
    assert migrate(database_url, "0002", "lisbon") == ("0006", "0002")
    assert _described(database_url).keys() == {"prices", "shared", "local"}
    assert migrate(database_url, "head", "lisbon") == ("0002", "0006")
    assert _described(database_url)["reward"] == {"kind": "value"}
    again = start()
    assert again.state() == before
    decisions = again.http.get("/decisions").json()["decisions"]
    assert {(each["propensity"], each["chance"], each["feedback"]["sold"]) for each in decisions} == {
        (1.0, None, None)
    }
    again.stop()
    settings = settings_for(database_url, reward={"kind": "purchase"})
    database = Database(database_url, "lisbon", Runtime())
    with pytest.raises(SchemaChanged, match=r"reward\.kind was value and cannot become purchase"):
        database.open(settings.schema_description)


def test_an_empty_database_moves_up_without_a_city(database_url: str) -> None:
    migrate(database_url, "base", "lisbon")
    assert migrate(database_url, "0002", "lisbon") == (None, "0002")
    assert migrate(database_url, "head", "lisbon") == ("0002", "0006")


def _described(database_url: str) -> dict[str, Any]:
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        description: dict[str, Any] = json.loads(connection.scalar(sa.select(city_table.c.description)) or "")
    engine.dispose()
    return description


def test_propensity_and_chance_are_stored_as_they_were_decided(database_url: str) -> None:
    database = opened_at(database_url)
    odds = {"a": (0.25, 0.5), "b": (1.0, None), "c": (0.125, 0.75)}
    rows = [decision(id_)._replace(propensity=p, chance=chance) for id_, (p, chance) in odds.items()]
    counted = database.commit([SaveDecisions(rows)]).position
    margins: Margins = {None: Margin(2.0)}
    items = [("a", 1.0), ("b", 0.0), ("c", 3.0)]
    outcome = database.commit([SaveFeedback(items, 2.0, False, 0.0, margins)])
    stored = {id_: database.reader.decision(id_) for id_ in odds}
    assert {id_: (row.decision.propensity, row.decision.chance) for id_, row in stored.items() if row} == odds
    assert [(lesson.reward, lesson.sold, lesson.chance) for lesson in outcome.lessons] == [
        (6.0, 1.0, 0.5),
        (0.0, 0.0, None),
        (18.0, 3.0, 0.75),
    ]
    database.close()
    again = Database(database_url, "lisbon", Runtime())
    again.open(settings_for(database_url).schema_description)
    assert [lesson for group in again.lessons(0, counted) for lesson in group] == outcome.lessons
    again.close()
