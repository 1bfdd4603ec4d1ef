"""An export has what the audit records have, on SQLite and on Postgres."""

import csv
import io
from collections.abc import Callable
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pricemesh.city.settings import Settings
from pricemesh.errors import InvalidParameter, NotStarted, SchemaChanged, SchemaOutdated
from pricemesh.history.export import Export, Selection
from pricemesh.history.writing import Format
from pricemesh.runtime import Runtime
from pricemesh.store.migration import migrate
from pricemesh.store.outside import reader_beside
from tests.running import RunningCity, settings_for

Start = Callable[..., RunningCity]
PURCHASES: dict[str, Any] = {
    "reward": {"kind": "purchase", "cost": 2.0},
    "guardrails": {"ceiling": 11.0},
    "features": {"shared": ["demand", "price"], "local": ["strike", "demand"]},
}
START_TIME = 1_700_000_000.25


def content(settings: Settings, *columns: str, page_rows: int = 3, **filters: Any) -> bytes:
    database = settings.database
    selection = Selection(filters.pop("format", Format.CSV), columns, **filters)
    with reader_beside(database.url, settings.city, settings.schema_description) as reader:
        work = Export(settings, reader, selection, page_rows)
        work.begin()
        pieces = b"".join(iter(work.next, None))
        assert work.progress.done == work.progress.total
        return pieces


def table(settings: Settings, *columns: str, **filters: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content(settings, *columns, **filters).decode(), newline="")))


@pytest.fixture
def city(start: Start) -> RunningCity:
    """Ten decisions a second apart; every third has no feedback; the eighth and the ninth are pinned."""
    seconds = count()
    running = start(Runtime(clock=lambda: START_TIME + next(seconds) / 64), **PURCHASES)
    for i in range(10):
        if i == 7:
            running.http.post("/admin/pin", json={"price": 9.0, "reason": "test"}).raise_for_status()
        context = {
            "shared": {"demand": i / 8, "price": -i / 2},
            "local": {"strike": 0.0, "demand": 1.0},
        }
        body = {**context, "decision_id": f"d{i}", "subject": f'"{i}",\n'.replace("\n", ";")}
        running.http.post("/price", json=body).raise_for_status()
        if i % 3:
            assert running.sale(f"d{i}", i % 2).status_code == 200
    return running


def test_every_row_is_the_audit_record_of_its_decision(city: RunningCity) -> None:
    rows = table(city.pricing.settings, "all")
    assert [row["decision_id"] for row in rows] == [f"d{i}" for i in range(10)]
    for row in rows:
        record = city.http.get(f"/decisions/{row['decision_id']}").json()
        assert float(row["shared:demand"]) == record["context"]["shared"]["demand"]
        assert float(row["shared:price"]) == record["context"]["shared"]["price"]
        assert float(row["local:demand"]) == record["context"]["local"]["demand"]
        assert float(row["strike"]) == record["context"]["local"]["strike"]
        for name in ("price", "propensity", "estimate", "radius", "chance"):
            assert float(row[name]) == record[name]
        for name in ("arm", "learner_version", "number"):
            assert int(row[name]) == record[name]
        assert (row["policy"], row["subject"]) == (record["policy"], record["subject"])
        assert row["limited_by"] == ",".join(rule["rule"] for rule in record["limited_by"])
        assert row["contributed_by"] == ""
        assert datetime.fromisoformat(row["time"]).timestamp() == pytest.approx(record["made_at"], abs=1e-6)
        for arm in record["arms"]:
            assert float(row[f"estimate:{arm['arm']}"]) == arm["estimate"]
            assert float(row[f"radius:{arm['arm']}"]) == arm["radius"]
        check_feedback(row, record["feedback"])
    assert {row["limited_by"] for row in rows} == {"ceiling", "ceiling,pin"}


def check_feedback(row: dict[str, str], feedback: dict[str, Any] | None) -> None:
    if feedback is None:
        assert row["sold"] == row["reward"] == row["feedback_time"] == row["by_default"] == ""
        return
    assert (float(row["sold"]), float(row["reward"])) == (feedback["sold"], feedback["reward"])
    assert row["by_default"] == "false"
    received_at = datetime.fromisoformat(row["feedback_time"]).timestamp()
    assert received_at == pytest.approx(feedback["received_at"], abs=1e-6)


def test_parquet_has_the_values_of_csv_with_types(city: RunningCity) -> None:
    settings = city.pricing.settings
    file = pq.read_table(io.BytesIO(content(settings, "all", format=Format.PARQUET)))
    rows = table(settings, "all")
    assert file.column_names == list(rows[0])
    for exported, row in zip(file.to_pylist(), rows, strict=True):
        for name, value in exported.items():
            if value is None:
                assert row[name] == ""
            elif isinstance(value, datetime):
                assert value == datetime.fromisoformat(row[name])
            elif isinstance(value, bool):
                assert row[name] == ("true" if value else "false")
            else:
                assert value == type(value)(row[name])


def test_filters_choose_what_a_page_of_decisions_would(city: RunningCity) -> None:
    settings = city.pricing.settings
    records = city.http.get("/decisions", params={"limit": 100}).json()["decisions"][::-1]
    times = [record["made_at"] for record in records]

    def ids(**filters: Any) -> list[str]:
        return [row["decision_id"] for row in table(settings, "decision_id", **filters)]

    assert ids(since=times[3]) == [f"d{i}" for i in range(3, 10)]
    assert ids(until=times[3]) == ["d0", "d1", "d2"]
    assert ids(since=times[3], until=times[5]) == ["d3", "d4"]
    assert ids(since=times[9] + 1) == []
    for arm in {record["arm"] for record in records}:
        assert ids(arm=arm) == [record["decision_id"] for record in records if record["arm"] == arm]
    with pytest.raises(InvalidParameter, match="there is no arm 5: the arms are 0 to 4"):
        ids(arm=5)


def test_the_size_of_pages_makes_no_difference(city: RunningCity) -> None:
    settings = city.pricing.settings
    whole = content(settings, page_rows=1000)
    assert all(content(settings, page_rows=rows) == whole for rows in (1, 2, 10))


def test_decisions_after_the_start_of_an_export_are_left_to_the_next(city: RunningCity) -> None:
    settings = city.pricing.settings
    with reader_beside(settings.database.url, settings.city, settings.schema_description) as reader:
        work = Export(settings, reader, Selection(Format.CSV, ["decision_id"]), 4)
        work.begin()
        first = work.next()
        body = {"shared": {"demand": 0.0, "price": 0.0}, "local": {"strike": 0.0, "demand": 1.0}}
        city.http.post("/price", json=body).raise_for_status()
        rest = b"".join(iter(work.next, None))
    assert first is not None
    assert (first + rest).decode().split() == ["decision_id", *(f"d{i}" for i in range(10))]


def test_a_stopped_city_can_be_exported_and_starts_again(start: Start, city: RunningCity) -> None:
    before = content(city.pricing.settings)
    city.stop()
    assert content(city.pricing.settings) == before
    assert start(**PURCHASES).state()["decisions"] == 10


def test_an_empty_city_gives_a_file_without_rows(start: Start) -> None:
    settings = start().pricing.settings
    assert content(settings, "time", "price") == b"time,price\n"
    file = pq.read_table(io.BytesIO(content(settings, format=Format.PARQUET)))
    assert file.num_rows == 0
    assert "demand" in file.column_names


def test_the_database_must_be_the_one_of_the_configuration(city: RunningCity) -> None:
    settings = city.pricing.settings
    other = settings_for(settings.database.url, **{**PURCHASES, "features": {"shared": ["demand"]}})
    with pytest.raises(SchemaChanged, match="give the one with which the city is served"):
        content(other)


def test_a_database_that_no_city_has_used_says_so(tmp_path: Path) -> None:
    settings = settings_for(f"sqlite:///{tmp_path}/city.db")
    with pytest.raises(NotStarted, match=r"there is no database .*city\.db"):
        content(settings)
    assert not (tmp_path / "city.db").exists()
    migrate(settings.database.url, "head", "lisbon")
    with pytest.raises(NotStarted, match="no city has used this database yet"):
        content(settings)
    migrate(settings.database.url, "0002", "lisbon")
    with pytest.raises(SchemaOutdated, match="run `pricemesh migrate`"):
        content(settings)
