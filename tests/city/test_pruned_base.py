"""What a start, or another version, does with a base that pruned rows have left."""

from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from pricemesh.city.settings import Settings
from pricemesh.errors import AlreadyImported, DatabaseInUse, InvalidParameter, NotStarted
from pricemesh.store import importing
from pricemesh.store.importing import StagedRows
from pricemesh.store.maintenance import owning, owning_database
from pricemesh.store.migration import migrate
from pricemesh.store.tables import base, compatibility
from tests.city.old_rows import (
    DAY,
    START,
    Tables,
    assert_equal,
    brute_force,
    prune,
    started,
    write_days,
    years_settings,
)
from tests.running import RunningCity

PRICES = [8.0, 9.0, 10.0, 11.0, 12.0]


@pytest.fixture
def netpool(database_url: str) -> Settings:
    return years_settings(database_url, {"name": "netpool"})


def test_a_damaged_base_is_noticed_at_a_start(netpool: Settings) -> None:
    write_days(netpool, range(30))
    tables = Tables(netpool)
    prune(netpool, at_day=30, older_than_days=15)
    tables.forget_snapshot()
    payload = bytearray(tables.execute(sa.select(base.c.payload))[0][0])
    payload[100] ^= 1
    tables.execute(base.update().values(payload=bytes(payload)))
    with pytest.raises(NotStarted, match="what pruned rows taught is damaged"):
        started(netpool)
    tables.close()


def test_parameters_that_the_base_was_learned_with_cannot_change(database_url: str) -> None:
    settings = years_settings(database_url, {"name": "netpool", "ridge": 1.0, "alpha": 0.5})
    write_days(settings, range(30))
    prune(settings, at_day=30, older_than_days=15)
    expected = started(settings).learner.state()
    scoring = {"name": "netpool", "ridge": 1.0, "alpha": 0.9, "heterogeneity": 0.1, "trust": "equal"}
    state = started(years_settings(database_url, scoring)).learner.state()
    assert all((state[name] == value).all() for name, value in expected.items())
    with pytest.raises(NotStarted, match=r"ridge was 1\.0, is now 2\.0.*put the old values back"):
        started(years_settings(database_url, {"name": "netpool", "ridge": 2.0, "alpha": 0.5}))
    with pytest.raises(NotStarted, match="the policy was netpool, is now disjoint"):
        started(years_settings(database_url, {"name": "disjoint"}))


def test_older_software_is_kept_from_a_pruned_database(netpool: Settings) -> None:
    write_days(netpool, range(30))
    tables = Tables(netpool)
    assert tables.execute(sa.select(compatibility.c.oldest_revision))[0][0] < "0005"
    prune(netpool, at_day=30, older_than_days=15)
    assert tables.execute(sa.select(compatibility.c.oldest_revision))[0][0] == "0005"
    tables.close()


def test_an_earlier_schema_is_refused_where_what_rows_taught_would_be_lost(netpool: Settings) -> None:
    write_days(netpool, range(30))
    prune(netpool, at_day=30, older_than_days=15)
    url = netpool.database.url
    with pytest.raises(InvalidParameter, match="an earlier schema has no place for what they taught"):
        migrate(url, "0004", "lisbon")
    assert migrate(url, "head", "lisbon") == ("0006", "0006")


def test_imported_rows_leave_by_the_time_of_their_decisions_and_are_not_imported_again(
    netpool: Settings,
) -> None:
    write_days(netpool, range(95, 101))
    with owning_database(netpool.database.url, "lisbon") as database:
        import_ = importing.begin(database.connection, "history", "sales.csv", "digest", START)
        vectors = np.random.default_rng(1).random((50, 15))
        columns = zip(
            *(
                (
                    f"old{i}",
                    START + i * DAY,
                    i % 5,
                    8.0 + i % 5,
                    each.tobytes(),
                    1.0,
                    float(i % 3),
                    *[None] * 3,
                )
                for i, each in enumerate(vectors)
            ),
            strict=True,
        )
        staged = importing.stage(database, import_, StagedRows._make(map(list, columns)), 51)
        importing.finish(database.connection, staged, START + 101 * DAY)
    write_days(netpool, range(101, 130))
    tables = Tables(netpool)
    expected = brute_force(netpool, tables.rows(), tables.settled())
    assert prune(netpool, at_day=129, older_than_days=60).rows == 0  # the first lesson is too young
    assert prune(netpool, at_day=129, older_than_days=24).learned >= 50
    tables.forget_snapshot()
    assert_equal(netpool, started(netpool).learner, expected)
    with (
        owning(netpool.database.url, "lisbon") as connection,
        pytest.raises(AlreadyImported, match="imported before"),
    ):
        importing.begin(connection, "history", "sales.csv", "digest", START)
    tables.close()


def test_replicas_are_stopped_for_a_prune_and_go_on_after_it(postgres_url: str) -> None:
    settings = years_settings(postgres_url, {"name": "netpool"}, database={"replicas": True})
    write_days(settings, range(30))
    tables = Tables(settings)
    expected = brute_force(settings, tables.rows(), tables.settled())
    version = tables.numbers()[2]
    city = RunningCity(settings)
    impatient = {"replicas": True, "lock_wait_seconds": 0.0}
    with pytest.raises(DatabaseInUse, match="stop it first"):
        prune(
            years_settings(postgres_url, {"name": "netpool"}, database=impatient),
            at_day=30,
            older_than_days=15,
        )
    city.stop()
    prune(settings, at_day=30, older_than_days=15)
    tables.forget_snapshot()
    city = RunningCity(settings)
    assert_equal(settings, city.pricing.learner, expected)
    assert city.feedback(city.price()["decision_id"], 1.0).json()["version"] == version + 1
    city.stop()
    tables.close()


UNITS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        {"name": "disjoint"},
        {"reward": {"kind": "value", "largest": 1e6}},
        {"reward": {"kind": "value", "largest": 1e6, "scale": 10.0}},
    ),
    ({"name": "demand"}, {"arms": {"prices": PRICES}}, {"arms": {"prices": PRICES, "range": [5.0, 15.0]}}),
]


@pytest.mark.parametrize(("policy", "before", "now"), UNITS, ids=["reward.scale", "arms.range"])
def test_another_unit_is_learned_from_the_rows_and_refused_without_them(
    database_url: str, policy: dict[str, Any], before: dict[str, Any], now: dict[str, Any]
) -> None:
    first, other = (years_settings(database_url, policy, **sections) for sections in (before, now))
    write_days(first, range(30))
    tables = Tables(first)
    tables.save_snapshot(started(first))
    expected = brute_force(other, tables.rows(), tables.settled())
    assert_equal(other, started(other).learner, expected)
    prune(first, at_day=30, older_than_days=15)
    with pytest.raises(NotStarted, match=r"reward\.scale or arms\.range was .*put the old values back"):
        started(other)
    tables.close()
