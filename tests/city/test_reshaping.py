"""Another ladder or other features for a city that has learned, on both databases."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from pricemesh.city.reshaping import Plan, carry_out, make_plan
from pricemesh.city.settings import Settings
from pricemesh.errors import InvalidParameter, SchemaChanged, StorageCause, StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store.commands import Probe
from pricemesh.store.database import Database
from pricemesh.store.maintenance import owning
from tests.postgres import Postgres
from tests.running import RunningCity, settings_for

SHARED = [
    {"name": "demand", "min": -1, "max": 1},
    {"name": "rain", "min": 0, "max": 1},
    {"name": "event", "min": 0, "max": 1},
]
LOCAL = [{"name": "tourists", "min": -1, "max": 1}, {"name": "cost", "min": 0, "max": 5}]
PRICES = [8.0, 9.0, 10.0, 11.0, 12.0]
FIRST: dict[str, Any] = {
    "arms": {"prices": PRICES},
    "features": {"shared": SHARED, "local": LOCAL},
}
WEEKEND = {"name": "weekend", "min": 0, "max": 1}
KINDS: dict[str, dict[str, Any]] = {
    "netpool": {"reward": {"kind": "value", "largest": 100.0}},
    "demand": {"reward": {"kind": "purchase", "cost": "cost"}},
}


def with_features(shared: list[dict[str, Any]], local: list[dict[str, Any]]) -> dict[str, Any]:
    return {"features": {"shared": shared, "local": local}}


CHANGES: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, float]]] = {
    "add an arm": ({"arms": {"prices": [8.0, 9.0, 9.5, 10.0, 11.0, 12.0]}}, {}, {}),
    "remove an arm": ({"arms": {"prices": [8.0, 10.0, 11.0, 12.0]}}, {}, {}),
    "reprice an arm": ({"arms": {"prices": [8.0, 9.0, 10.0, 11.5, 12.0]}}, {}, {}),
    "add a feature": (with_features([WEEKEND, *SHARED], LOCAL), {}, {"weekend": 0.5}),
    "remove a feature": (with_features(SHARED[:1] + SHARED[2:], LOCAL), {}, {}),
    "rename a feature": (
        with_features([SHARED[0], SHARED[1], {**SHARED[2], "name": "match"}], LOCAL),
        {"match": "event"},
        {},
    ),
    "move a feature": (with_features(SHARED[:2], [SHARED[2], *LOCAL]), {}, {}),
    "narrow bounds": (with_features([{**SHARED[0], "max": 0.5}, *SHARED[1:]], LOCAL), {}, {}),
}


def context(rng: Random, sections: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {
        part: {each["name"]: rng.uniform(each["min"], each["max"]) for each in sections["features"][part]}
        for part in ("shared", "local")
    }


def teach(city: RunningCity, sections: Mapping[str, Any], count: int, seed: int) -> list[str]:
    """Prices, all but every seventh with feedback; returns the ids of those without."""
    rng, waiting = Random(seed), []
    is_purchase = city.pricing.settings.reward.is_purchase
    for i in range(count):
        body = context(rng, sections) | {"decision_id": f"{seed}-{i}"}
        assert city.http.post("/price", json=body).status_code == 200
        if i % 7 == 0:
            waiting.append(f"{seed}-{i}")
            continue
        amount = {"sold": float(rng.randrange(2))} if is_purchase else {"reward": rng.uniform(-5.0, 5.0)}
        assert city.http.post("/feedback", json={"decision_id": f"{seed}-{i}", **amount}).status_code == 200
    return waiting


def reshape(settings: Settings, renamed: Mapping[str, str], filled: Mapping[str, float]) -> Plan:
    with owning(settings.database.url, settings.city) as connection:
        with connection.begin():
            plan = make_plan(connection, settings, renamed, filled, lambda _done, _total: None)
        carry_out(connection, settings, plan, 1e9)
    return plan


class ByHand:
    """A learner that learns the readable rows from nothing, with contexts taken apart and put together by the
    names of their features."""

    def __init__(self, url: str, before: Settings, now: Settings, *names: Mapping[str, Any]) -> None:
        self.learner = now.learner()
        self.count = self.unreadable = 0
        self._before, self._now = before, now
        self._renamed, self._filled = names
        engine = sa.create_engine(url)
        query = sa.text(
            "SELECT decisions.arm, price, vectors, chance, reward, sold, version FROM decisions "
            "LEFT JOIN feedback ON decision = decisions.number ORDER BY version, decisions.number"
        )
        with engine.connect() as connection:
            for row in sorted(connection.execute(query).all(), key=lambda row: row.version or 10**9):
                self._take(row)
        engine.dispose()

    def _take(self, row: Any) -> None:
        space, dim = self._before.features.space, self._before.shape.dim
        named = space.named(np.frombuffer(row.vectors, count=dim))
        values = named["shared"] | named["local"] | dict(self._filled)
        values |= {new: values[old] for new, old in self._renamed.items()}
        features = [*self._now.features.shared, *self._now.features.local]
        x = np.array([values[each.name] for each in features])
        inside = all(each.min <= value <= each.max for each, value in zip(features, x, strict=True))
        prices = self._now.arms.prices
        arm = prices.index(row.price) if row.price in prices else None
        if row.version is None:
            if inside and arm is not None:
                chance = None if row.chance is None else np.array([row.chance])
                self.learner.pend(x[None], np.array([arm]), chance)
            return
        outcome = row.sold if self.learner.learns_sales else row.reward
        if inside and arm is not None:
            self.learner.learn(x, arm, outcome, row.chance)
        elif inside and self.learner.learns_sales:
            self.learner.learn_at_price(x, row.price, outcome, row.chance)
        else:
            self.unreadable += 1
            return
        self.count += 1


def states_agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    for name, values in one.items():
        np.testing.assert_allclose(other[name], values, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("policy", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_the_learner_is_the_one_that_learns_the_readable_rows_in_the_new_terms(
    change: str, policy: str, tmp_path: Path
) -> None:
    change_and_compare(change, policy, f"sqlite:///{tmp_path}/city.db")


@pytest.mark.parametrize(("change", "policy"), [("remove an arm", "demand"), ("add a feature", "netpool")])
def test_so_it_is_on_postgres(change: str, policy: str, postgres_url: str) -> None:
    change_and_compare(change, policy, postgres_url)


def change_and_compare(change: str, policy: str, database_url: str) -> None:
    sections, renamed, filled = CHANGES[change]
    before = settings_for(database_url, **FIRST, **KINDS[policy])
    after = settings_for(database_url, **{**FIRST, **sections}, **KINDS[policy])
    city = RunningCity(before)
    waiting = teach(city, FIRST, 60, seed=1)
    records = {id_: city.http.get(f"/decisions/{id_}").content for id_ in ("1-1", "1-2", waiting[0])}
    city.stop()
    with pytest.raises(SchemaChanged, match="pricemesh reshape"):
        Database(database_url, "lisbon", Runtime()).open(after.schema_description)
    plan = reshape(after, renamed, filled)
    by_hand = ByHand(database_url, before, after, renamed, filled)
    assert (plan.lessons_learned, plan.live.counts.unreadable) == (by_hand.count, by_hand.unreadable)
    city = RunningCity(after)
    try:
        assert city.pricing.version == plan.lessons
        states_agree(by_hand.learner.state(), city.pricing.learner.state())
        for id_, record in records.items():
            assert city.http.get(f"/decisions/{id_}").content == record
        assert city.http.get("/state").json()["gossip"]["epoch"] == 2
    finally:
        city.stop()


@pytest.mark.parametrize("policy", KINDS)
def test_what_waited_and_what_comes_later_is_learned_in_the_new_terms(policy: str, database_url: str) -> None:
    """Removing the first local feature moves the cost to another place of the context."""
    before = settings_for(database_url, **FIRST, **KINDS[policy])
    sections = {**FIRST, "features": {"shared": SHARED, "local": LOCAL[1:]}}
    after = settings_for(database_url, **sections, **KINDS[policy])
    city = RunningCity(before)
    waiting = teach(city, FIRST, 30, seed=2)
    cost = city.http.get(f"/decisions/{waiting[0]}").json()["context"]["local"]["cost"]
    city.stop()
    reshape(after, {}, {})
    city = RunningCity(after)
    amount = {"sold": 1.0} if policy == "demand" else {"reward": 2.5}
    answer = city.http.post("/feedback", json={"decision_id": waiting[0], **amount})
    assert answer.status_code == 200, answer.text
    price = city.http.get(f"/decisions/{waiting[0]}").json()["price"]
    assert answer.json()["reward"] == pytest.approx(price - cost if policy == "demand" else 2.5, abs=1e-12)
    more_waiting = teach(city, sections, 20, seed=3)
    live = city.pricing.learner.state()
    city.stop()
    city = RunningCity(after)
    try:
        states_agree(live, city.pricing.learner.state())
        assert city.http.get(f"/decisions/{more_waiting[0]}").json()["context"]["local"].keys() == {"cost"}
    finally:
        city.stop()


def test_rows_that_could_not_be_read_count_again_when_they_can(database_url: str) -> None:
    """Going back restores what was learned."""
    before = settings_for(database_url, **FIRST, **KINDS["netpool"])
    fewer = settings_for(database_url, **{**FIRST, "arms": {"prices": PRICES[2:]}}, **KINDS["netpool"])
    city = RunningCity(before)
    teach(city, FIRST, 40, seed=4)
    state = city.pricing.learner.state()
    city.stop()
    plan = reshape(fewer, {}, {})
    assert plan.live.counts.unreadable == sum(plan.lost_prices.values()) > 0
    reshape(before, {}, {})
    city = RunningCity(before)
    try:
        states_agree(state, city.pricing.learner.state())
        assert city.pricing.live.counts.unreadable == 0
    finally:
        city.stop()


def test_a_pin_stays_at_its_price_or_is_in_the_way(database_url: str) -> None:
    city = RunningCity(settings_for(database_url, **FIRST, **KINDS["netpool"]))
    assert city.http.post("/admin/pin", json={"price": 10.0}).status_code == 200
    city.stop()
    without = settings_for(database_url, **{**FIRST, "arms": {"prices": [8.0, 9.0]}}, **KINDS["netpool"])
    with pytest.raises(InvalidParameter, match="10 is pinned"):
        reshape(without, {}, {})
    moved = settings_for(database_url, **{**FIRST, "arms": {"prices": PRICES[1:]}}, **KINDS["netpool"])
    reshape(moved, {}, {})
    city = RunningCity(moved)
    try:
        assert city.http.post("/price", json=context(Random(5), FIRST)).json()["price"] == 10.0
    finally:
        city.stop()


@pytest.mark.parametrize("policy", KINDS)
def test_a_decision_of_a_longer_ladder_is_answered_again_beside_new_ones(policy: str, tmp_path: Path) -> None:
    """Where a subject's steps are limited, decisions that exist are looked up before others are made."""
    url, steps = f"sqlite:///{tmp_path / 'lisbon.db'}", {"guardrails": {"max_step": 1.0}, **KINDS[policy]}
    city = RunningCity(settings_for(url, **FIRST, **steps))
    city.http.post("/admin/pin", json={"price": PRICES[-1]})
    first = context(Random(6), FIRST) | {"decision_id": "first", "subject": "ann"}
    answer = city.http.post("/price", json=first).json()
    assert answer["arm"] == len(PRICES) - 1
    city.http.delete("/admin/pin")
    city.stop()
    settings = settings_for(url, **{**FIRST, "arms": {"prices": PRICES[:2]}}, **steps)
    reshape(settings, {}, {})
    city = RunningCity(settings)
    try:
        body = {"requests": [first, first | {"decision_id": "second"}]}
        again, new = city.http.post("/price/batch", json=body).json()["decisions"]
        assert again == answer
        assert new["price"] == PRICES[1]  # the nearest to the subject's last one
    finally:
        city.stop()


def test_a_reshape_that_is_repeated_has_nothing_to_do(tmp_path: Path) -> None:
    """As after a command whose end nobody saw."""
    url = f"sqlite:///{tmp_path / 'lisbon.db'}"
    city = RunningCity(settings_for(url, **FIRST, **KINDS["netpool"]))
    teach(city, FIRST, 5, 1)
    city.stop()
    renamed = with_features([SHARED[0], SHARED[1], {**SHARED[2], "name": "match"}], [*LOCAL, WEEKEND])
    settings = settings_for(url, **FIRST | renamed, **KINDS["netpool"])
    assert reshape(settings, {"match": "event"}, {"weekend": 0.5}).changes
    with owning(url, settings.city) as connection:
        plan = make_plan(connection, settings, {"match": "event"}, {"weekend": 0.5}, lambda *_: None)
    assert not plan.changes


def test_weights_of_peers_begin_anew_on_another_ladder(tmp_path: Path) -> None:
    """They are kept for each arm, and every tick steps from those of the last one."""
    url, lockstep = (
        f"sqlite:///{tmp_path / 'lisbon.db'}",
        {"policy": {"name": "netlinucb"}, **KINDS["netpool"]},
    )
    lockstep["gossip"] = {"lockstep": True}
    city = RunningCity(settings_for(url, **FIRST, **lockstep))
    teach(city, FIRST, 10, 1)
    city.tick()
    assert city.pricing.learner.memory()["weights"].shape[0] == len(PRICES)
    city.stop()
    shorter = {**FIRST, "arms": {"prices": PRICES[1:]}}
    settings = settings_for(url, **shorter, **lockstep)
    reshape(settings, {}, {})
    city = RunningCity(settings)
    try:
        city.tick()
        assert city.pricing.learner.memory()["weights"].shape[0] == len(PRICES) - 1
    finally:
        city.stop()


@pytest.mark.parametrize(
    ("sections", "names", "words"),
    [
        (with_features([WEEKEND, *SHARED], LOCAL), ({}, {}), "--fill weekend=0.0"),
        (
            with_features([{**SHARED[0], "name": "orders"}, *SHARED[1:]], LOCAL),
            ({}, {}),
            "--rename orders=demand",
        ),
        ({}, ({"nothing": "rain"}, {}), "no feature 'nothing'"),
        ({}, ({"rain": "snow"}, {}), "no feature 'snow'"),
        ({}, ({}, {"rain": 0.0}), "not a new feature"),
        ({"reward": {"kind": "purchase", "cost": 1.0}}, ({}, {}), "reward.kind"),
    ],
)
def test_what_cannot_be_done_is_told_and_changes_nothing(
    sections: dict[str, Any], names: tuple[dict[str, str], dict[str, float]], words: str, database_url: str
) -> None:
    before = settings_for(database_url, **FIRST, **KINDS["netpool"])
    city = RunningCity(before)
    teach(city, FIRST, 5, seed=6)
    city.stop()
    with pytest.raises(InvalidParameter, match=words):
        reshape(settings_for(database_url, **{**FIRST, **KINDS["netpool"], **sections}), *names)
    city = RunningCity(before)
    assert city.http.get("/state").json()["gossip"]["epoch"] == 1
    city.stop()


def test_a_city_that_was_reshaped_while_its_connection_was_lost_commits_nothing(
    postgres: Postgres, postgres_url: str
) -> None:
    """As when a server starts again: the lock is free until the city connects."""
    before = settings_for(postgres_url, **FIRST, **KINDS["netpool"])
    database = Database(postgres_url, "lisbon", Runtime())
    database.open(before.schema_description)
    list(database.lessons(0))
    postgres.end_connections()
    fewer = settings_for(postgres_url, **{**FIRST, "arms": {"prices": PRICES[1:]}}, **KINDS["netpool"])
    reshape(fewer, {}, {})
    for cause in (StorageCause.CONNECTION_LOST, StorageCause.OTHER_TERMS, StorageCause.OTHER_TERMS):
        with pytest.raises(StorageUnavailable) as refused:
            database.commit([Probe()])
        assert refused.value.cause == cause
    database.close()
