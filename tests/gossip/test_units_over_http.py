"""Meshes over real HTTP whose rewards differ only in their unit make the same decisions."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.gossip.over_http import SECRETS, tick
from tests.running import RunningCity, start_mesh

UNITS = (1.0, 1e-6, 100.0, 1e6)
NAMES = ("faro", "lisbon", "porto")
ROUNDS, TICK_EVERY = 40, 5  # more than 60 rewards in a mesh: its letters then set the scale


@pytest.fixture
def meshes(tmp_path: Path) -> Iterator[list[list[RunningCity]]]:
    with ExitStack() as stack:
        started = []
        for i in range(len(UNITS)):
            folder = tmp_path / str(i)
            folder.mkdir()
            cities = start_mesh(folder, NAMES, policy={"name": "netpool"}, gossip={"secrets": SECRETS})
            started.append(cities)
            for city in cities:
                stack.callback(city.stop)
        yield started


def test_the_unit_of_rewards_changes_no_decision(meshes: list[list[RunningCity]]) -> None:
    rng = np.random.default_rng(3)
    arms: list[list[int]] = [[] for _ in UNITS]
    for round_ in range(ROUNDS):
        contexts, noise = rng.uniform(0.0, 1.0, (len(NAMES), 5)), rng.normal(0.0, 0.3, len(NAMES))
        if round_ % TICK_EVERY == 0:
            for cities in meshes:
                tick(cities)
        for i in range(len(NAMES)):
            x = contexts[i].tolist()
            asked = {
                "shared": dict(zip(("demand", "rain", "event"), x, strict=False)),
                "local": dict(zip(("tourists", "strike"), x[3:], strict=True)),
                "decision_id": f"round{round_}",
            }
            for unit, cities, chosen in zip(UNITS, meshes, arms, strict=True):
                decision = cities[i].http.post("/price", json=asked).json()
                chosen.append(decision["arm"])
                reward = 1.0 + x[0] * decision["arm"] - 0.4 * decision["arm"] ** 2 + noise[i]
                assert cities[i].feedback(decision["decision_id"], unit * reward).status_code == 200
    assert len(set(arms[0])) > 2
    for other in arms[1:]:
        assert other == arms[0]
