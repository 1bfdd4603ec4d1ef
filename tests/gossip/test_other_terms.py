"""A mesh whose ladder changes city by city."""

from pathlib import Path

import httpx
import numpy as np

from pricemesh.city.settings import Settings
from tests.city.test_reshaping import reshape
from tests.gossip.over_http import NAMES, SECRETS, teach, tick
from tests.running import RunningCity, start_mesh

MORE_PRICES = (8.0, 9.0, 10.0, 10.5, 11.0, 12.0)
TICKS = 10  # more than a city of other terms waits until it is called again


def change_ladder(city: RunningCity) -> RunningCity:
    """Stop, reshape, start on the same port."""
    before = city.pricing.settings
    settings = Settings.model_validate(before.model_dump() | {"arms": {"prices": MORE_PRICES}})
    city.stop()
    reshape(settings, {}, {})
    return RunningCity(settings, httpx.URL(city.url).port or 0)


def statuses(city: RunningCity) -> dict[str, str]:
    return {origin: peer["status"] for origin, peer in city.peers().items()}


def test_cities_of_other_terms_are_shown_as_such_and_heard_again_when_all_agree(tmp_path: Path) -> None:
    """Nobody is silent or quarantined meanwhile, nobody has to trust anybody anew, and what a city was told
    before still counts."""
    cities = start_mesh(tmp_path, NAMES, gossip={"secrets": SECRETS})
    try:
        for city in cities:
            teach(city, 20)
        tick(cities)
        faro, lisbon, _ = cities
        x = np.array([0.5, 0.25, 1.0, 0.1, 0.0])
        before = lisbon.pricing.learner.score(x).estimate
        cities[2] = change_ladder(cities[2])
        for _ in range(TICKS):
            tick(cities)
        assert statuses(lisbon) == {"faro": "fresh", "porto": "other terms"}
        assert statuses(faro) == {"lisbon": "fresh", "porto": "other terms"}
        assert statuses(cities[2]) == {"faro": "other terms", "lisbon": "other terms"}
        np.testing.assert_allclose(lisbon.pricing.learner.score(x).estimate, before, rtol=1e-9)
        assert "differ in prices" in lisbon.peers()["porto"]["reason"]
        for i in (0, 1):
            cities[i] = change_ladder(cities[i])
            for _ in range(TICKS):
                tick(cities)
        for city in cities:
            assert set(statuses(city).values()) == {"fresh"}
            epochs = {peer["epoch"] for peer in city.peers().values()}
            assert epochs == {2}
            assert city.app.gossip.intake.quarantine.marks == {}
        letters = cities[1].app.gossip.node.letters
        assert {origin: letter.edition for origin, letter in letters.items()} == dict.fromkeys(NAMES, (2, 20))
    finally:
        for city in cities:
            city.stop()
