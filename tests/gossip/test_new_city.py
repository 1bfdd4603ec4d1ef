"""A city without any sale of its own prices from its peers' word, also after the whole mesh was reshaped."""

import socket
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest

from pricemesh.city.settings import Settings
from tests.city.test_reshaping import KINDS, PRICES, WEEKEND, context, reshape
from tests.city.test_reshaping import SHARED as FEATURES
from tests.gossip.over_http import NAMES, SECRETS, tick
from tests.running import RunningCity, settings_for, start_mesh

OLD: dict[str, Any] = {
    "arms": {"prices": PRICES},
    "features": {"shared": FEATURES, "local": [{"name": "cost", "min": 0, "max": 5}]},
}
NEW: dict[str, Any] = {
    "arms": {"prices": [8.0, 9.0, 10.0, 10.5, 11.0, 12.0]},
    "features": {**OLD["features"], "shared": [WEEKEND, *FEATURES]},
}
LESSONS = 150  # of each peer
TICKS = 10  # more than a city of other terms waits until it is called again
WORTH, NOISE = 3.0, 0.3  # of a decision for each unit of rain, which is all that matters in cities of values
DEAREST_SALE = 10.0  # nobody in a city of purchases pays more


def outcome(policy: str, price: float, body: Mapping[str, Any]) -> dict[str, float]:
    """The truth, the same in all cities."""
    if policy == "demand":
        return {"sold": float(price <= DEAREST_SALE)}
    return {"reward": WORTH * body["shared"]["rain"]}


def teach(city: RunningCity, policy: str, sections: Mapping[str, Any], seed: int) -> None:
    rng = Random(f"{city.pricing.settings.city}-{seed}")
    for _ in range(LESSONS):
        body = context(rng, sections)
        made = city.http.post("/price", json=body).json()
        told = {"decision_id": made["decision_id"], **outcome(policy, made["price"], body)}
        if "reward" in told:
            told["reward"] += rng.gauss(0.0, NOISE)
        assert city.http.post("/feedback", json=told).status_code == 200


def change_terms(city: RunningCity) -> RunningCity:
    """Stop, reshape, start on the same port."""
    settings = Settings.model_validate(city.pricing.settings.model_dump() | NEW)
    city.stop()
    reshape(settings, {}, {"weekend": 0.5})
    return RunningCity(settings, httpx.URL(city.url).port or 0)


def statuses(city: RunningCity) -> dict[str, str]:
    return {origin: peer["status"] for origin, peer in city.peers().items()}


def check_first_price(city: RunningCity, policy: str, sections: Mapping[str, Any]) -> None:
    """The city has learned nothing, and its audit record shows what its peers know and who told it."""
    settings = city.pricing.settings
    assert city.pricing.version == 0
    body = context(Random(3), sections)
    listener = settings.learner()
    letters = city.app.gossip.node.letters
    summaries = {origin: letters[origin].summary for origin in ("faro", "porto")}
    listener.absorb_summaries("lisbon", summaries)
    made = city.http.post("/price", json=body).json()
    record = city.http.get(f"/decisions/{made['decision_id']}").json()
    own, *peers = record["contributions"]
    assert (own["origin"], [each["origin"] for each in peers]) == ("lisbon", ["faro", "porto"])
    assert all(abs(each["estimate"]) > 0.01 and abs(each["radius"]) > 0 for each in peers)
    x = np.array([*body["shared"].values(), *body["local"].values()])
    estimates = [arm["estimate"] for arm in record["arms"]]
    np.testing.assert_allclose(estimates, listener.score(x).estimate, rtol=1e-9, atol=1e-9)
    alone = settings.learner().score(x).estimate
    for arm in (0, -1):
        price, cost = settings.arms.prices[arm], body["local"]["cost"]
        amounts = outcome(policy, price, body)
        truth = (price - cost) * amounts["sold"] if policy == "demand" else amounts["reward"]
        assert abs(estimates[arm] - truth) < abs(alone[arm] - truth)
    if policy == "netpool":
        assert own["estimate"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("policy", KINDS)
def test_a_new_city_prices_from_its_peers_word_and_a_reshape_of_the_mesh_keeps_it_so(
    policy: str, tmp_path: Path
) -> None:
    cities = start_mesh(tmp_path, NAMES, gossip={"secrets": SECRETS}, **OLD, **KINDS[policy])
    try:
        for i in (0, 2):
            teach(cities[i], policy, OLD, seed=1)
        tick(cities)
        check_first_price(cities[1], policy, OLD)
        cities[0] = change_terms(cities[0])
        for _ in range(TICKS):
            tick(cities)
        assert statuses(cities[1]) == {"faro": "other terms", "porto": "fresh"}
        cities[1] = change_terms(cities[1])
        for _ in range(TICKS):
            tick(cities)
        assert statuses(cities[1]) == {"faro": "fresh", "porto": "other terms"}
        cities[2] = change_terms(cities[2])
        for i in (0, 2):
            teach(cities[i], policy, NEW, seed=2)
        for _ in range(TICKS):
            tick(cities)
        assert statuses(cities[1]) == {"faro": "fresh", "porto": "fresh"}
        check_first_price(cities[1], policy, NEW)
    finally:
        for city in cities:
            city.stop()


SLOW = {"interval_seconds": 600.0, "secrets": SECRETS}  # no tick but the first happens during a test


@pytest.mark.parametrize("policy", KINDS)
def test_a_city_that_knows_nobody_hears_its_peers_before_it_serves(policy: str, tmp_path: Path) -> None:
    """Without any tick that an operator asks for: a new city, and the same city after a reshape."""
    faro = RunningCity(settings_of(tmp_path, "faro", policy, OLD))
    teach(faro, policy, OLD, seed=1)
    port = httpx.URL(faro.url).port or 0
    faro.stop()
    faro = RunningCity(faro.pricing.settings, port)  # a start publishes what was not news enough
    lisbon = RunningCity(settings_of(tmp_path, "lisbon", policy, OLD, faro.url))
    try:
        assert origins_of_first_price(lisbon, OLD) == ["lisbon", "faro"]
        faro, lisbon = change_terms(faro), change_terms(lisbon)
        assert origins_of_first_price(lisbon, NEW) == ["lisbon", "faro"]
    finally:
        faro.stop()
        lisbon.stop()


def test_a_peer_that_never_answers_does_not_keep_a_new_city_from_serving(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"http://127.0.0.1:{mute.getsockname()[1]}"
        lisbon = RunningCity(settings_of(tmp_path, "lisbon", "netpool", OLD, address))
        try:
            assert origins_of_first_price(lisbon, OLD) == ["lisbon"]
        finally:
            lisbon.stop()


def settings_of(folder: Path, name: str, policy: str, sections: Mapping[str, Any], *peers: str) -> Settings:
    gossip = {**SLOW, "peers": peers}
    return settings_for(
        f"sqlite:///{folder}/{name}.db", city=name, gossip=gossip, **sections, **KINDS[policy]
    )


def origins_of_first_price(city: RunningCity, sections: Mapping[str, Any]) -> list[str]:
    made = city.http.post("/price", json=context(Random(3), sections)).json()
    record = city.http.get(f"/decisions/{made['decision_id']}").json()
    return [each["origin"] for each in record["contributions"]]
