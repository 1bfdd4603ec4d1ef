"""An export reads every row in the arms and features that the city has now."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from pricemesh.core.decision import NO_ARM
from pricemesh.history.export import Export, Selection
from pricemesh.history.writing import Format
from pricemesh.store.outside import reader_beside
from pricemesh.store.tables import city as city_table
from pricemesh.store.tables import decisions, terms
from tests.running import RunningCity, settings_for

Start = Callable[..., RunningCity]
BEFORE: dict[str, Any] = {
    "arms": {"prices": [8.0, 9.0, 10.0]},
    "features": {"shared": ["demand", "rain"], "local": ["strike"]},
}
AFTER: dict[str, Any] = {
    "arms": {"prices": [9.0, 10.0, 11.0]},
    "features": {"shared": ["wet", "demand", "event"], "local": []},
}


def exported(city: RunningCity, *columns: str, **filters: Any) -> list[dict[str, str]]:
    settings = city.pricing.settings
    with reader_beside(settings.database.url, settings.city, settings.schema_description) as reader:
        work = Export(settings, reader, Selection(Format.CSV, columns, **filters), 3)
        work.begin()
        text = b"".join(iter(work.next, None)).decode()
    return list(csv.DictReader(io.StringIO(text)))


def change_terms(url: str) -> None:
    """The tables as they are when the city got other arms and features: `rain` is called `wet`, `event` is
    new and 0.5 in older rows, `strike` is gone. One decision is at a price that was no arm."""
    description = json.dumps(settings_for(url, **AFTER).schema_description)
    change = json.dumps({"renamed": {"wet": "rain"}, "filled": {"event": 0.5}})
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(terms.insert().values(id=2, description=description, change=change, since=1.0))
        connection.execute(city_table.update().values(description=description, terms=2))
        connection.execute(
            decisions.update()
            .where(decisions.c.id == "d3")
            .values(arm=NO_ARM, price=9.5, vectors=decisions.c.vectors, import_id=1)
        )
    engine.dispose()


def test_rows_of_other_terms_are_read_in_the_present_ones(start: Start, database_url: str) -> None:
    city = start(**BEFORE)
    for i, price in enumerate((8.0, 9.0, 10.0, 9.0)):
        city.http.post("/admin/pin", json={"price": price, "reason": "test"}).raise_for_status()
        context = {"shared": {"demand": i, "rain": i / 8}, "local": {"strike": 7.0}}
        city.http.post("/price", json={**context, "decision_id": f"d{i}"}).raise_for_status()
        city.feedback(f"d{i}", 1.0 + i).raise_for_status()
    records = [city.http.get(f"/decisions/d{i}").json() for i in range(4)]
    city.http.delete("/admin/pin").raise_for_status()
    city.stop()
    change_terms(database_url)
    city = start(**AFTER)
    new = {"shared": {"wet": 0.25, "demand": 4.0, "event": 1.0}, "local": {}}
    city.http.post("/price", json={**new, "decision_id": "d4"}).raise_for_status()
    rows = exported(city, "all")
    names = ("wet", "demand", "event")
    contexts = [[float(row[name]) for name in names] for row in rows]
    assert contexts == [
        [0.0, 0.0, 0.5],
        [0.125, 1.0, 0.5],
        [0.25, 2.0, 0.5],
        [0.375, 3.0, 0.5],
        [0.25, 4.0, 1.0],
    ]
    assert "strike" not in rows[0]
    assert [row["price"] for row in rows[:4]] == ["8.0", "9.0", "10.0", "9.5"]
    assert [row["arm"] for row in rows[:4]] == ["", "0", "1", ""]
    assert [row["import"] for row in rows[2:4]] == ["", "1"]
    for row, record in zip(rows[:3], records, strict=False):
        assert float(row["estimate"]) == record["estimate"]
        assert float(row["radius"]) == record["radius"]
        before = record["arms"]
        assert [row[f"estimate:{arm}"] for arm in range(3)] == [
            repr(before[1]["estimate"]),
            repr(before[2]["estimate"]),
            "",
        ]
        assert row["radius:0"] == repr(before[1]["radius"])
    assert rows[3]["estimate"] == rows[3]["radius"] == ""
    assert float(rows[4]["estimate:2"]) == city.http.get("/decisions/d4").json()["arms"][2]["estimate"]
    at_nine = [row["decision_id"] for row in exported(city, "decision_id", arm=0)]
    assert at_nine[:1] == ["d1"]
    assert "d0" not in at_nine
    assert {row["retracted"] for row in rows} == {"false"}
