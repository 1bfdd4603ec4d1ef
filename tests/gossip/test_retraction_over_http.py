"""A retraction at one city is in force at its peers: they are as if the feedback had never been."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from pricemesh.city.live_learner import LiveLearner
from tests.gossip.over_http import context, letters_of, tick
from tests.rewriting import assert_same_learner, copy_without
from tests.running import RunningCity, settings_for, start_mesh

NAMES = ("faro", "lisbon", "porto")
POLICIES: dict[str, dict[str, Any]] = {"netpool": {}, "demand": {"reward": {"kind": "purchase", "cost": 1.0}}}
BATCH = 500


def teach(city: RunningCity, name: str, count: int, *, absurd: bool = False) -> list[str]:
    """Feedback of customers, or what none of them would do."""
    rng = Random(f"{city.pricing.settings.city}-{name}")
    field = "sold" if city.pricing.settings.reward.is_purchase else "reward"
    ids = []
    for start in range(0, count, BATCH):
        named = [f"{name}{i}" for i in range(start, min(count, start + BATCH))]
        asked = {"requests": [context(rng) | {"decision_id": id_} for id_ in named]}
        made = city.http.post("/price/batch", json=asked).json()["decisions"]
        items = []
        for each in made:
            usual = float(rng.random() < 0.4) if field == "sold" else rng.gauss(each["arm"], 0.3)
            amount = (1.0 if field == "sold" else 900.0) if absurd else usual
            items.append({"decision_id": each["decision_id"], field: amount})
        outcomes = city.http.post("/feedback/batch", json={"items": items}).json()["outcomes"]
        assert {outcome["status"] for outcome in outcomes} == {200}
        ids += named
    return ids


def numbers_of(city: RunningCity, origin: str) -> np.ndarray[Any, Any]:
    """Of the letter of this city that is held here."""
    return np.array(city.app.gossip.node.letters[origin].summary.numbers)


def pooled_scores(live: LiveLearner) -> np.ndarray[Any, Any]:
    score = live.learner.score(np.random.default_rng(3).uniform(size=(50, 5)))
    return np.stack([score.estimate, score.radius])


def mesh_without(
    folder: Path, mesh: list[RunningCity], omitted: list[str], **sections: Any
) -> list[RunningCity]:
    """A mesh that has all rows of this one but these."""
    folder.mkdir()
    for city in mesh:
        settings = city.pricing.settings
        target = settings_for(f"sqlite:///{folder}/{settings.city}.db", city=settings.city, **sections)
        copy_without(settings.database.url, target, frozenset(omitted))
    return start_mesh(folder, NAMES, **sections)


def same_mesh(mesh: list[RunningCity], other: list[RunningCity]) -> None:
    for city, twin in zip(mesh, other, strict=True):
        assert_same_learner(city.pricing.live, twin.pricing.live)
        np.testing.assert_allclose(
            pooled_scores(city.pricing.live), pooled_scores(twin.pricing.live), rtol=1e-9, atol=1e-9
        )
        for origin in NAMES:
            np.testing.assert_allclose(
                numbers_of(city, origin), numbers_of(twin, origin), rtol=1e-9, atol=1e-9
            )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("honest", [400, pytest.param(5000, marks=pytest.mark.slow)])
def test_after_a_retraction_the_mesh_is_one_that_never_had_the_feedback(
    tmp_path: Path, policy: str, honest: int
) -> None:
    sections = POLICIES[policy] | {"gossip": {"news": 1.0}}  # letters tell all
    mesh = start_mesh(tmp_path, NAMES, **sections)
    twins: list[RunningCity] = []
    try:
        faro, lisbon, porto = mesh
        teach(faro, "faro", 60)
        teach(porto, "porto", 60)
        teach(lisbon, "before", honest // 2)
        absurd = teach(lisbon, "absurd", honest // 10, absurd=True)
        teach(lisbon, "after", honest // 2)
        for _ in range(3):
            tick(mesh)
        epochs = {city.app.gossip.node.letters["lisbon"].summary.epoch for city in mesh}
        spoiled = pooled_scores(porto.pricing.live)
        body = {"decisions": absurd, "reason": "no customer does that"}
        answer = lisbon.http.post("/admin/retract", json=body)
        assert (answer.status_code, answer.json()["relearned"]) == (200, True)
        for _ in range(3):
            tick(mesh)
        assert {city.app.gossip.node.letters["lisbon"].summary.epoch for city in mesh} == {max(epochs) + 1}
        assert letters_of(faro) == letters_of(porto) == letters_of(lisbon)
        assert {peer["status"] for peer in porto.peers().values()} == {"fresh"}
        assert not np.allclose(pooled_scores(porto.pricing.live), spoiled, rtol=1e-3)
        twins = mesh_without(tmp_path / "never", mesh, absurd, **sections)
        for _ in range(3):
            tick(twins)
        same_mesh(mesh, twins)
        lisbon.http.post("/admin/retractions/1/lift", json={"reason": "they do"}).raise_for_status()
        for _ in range(3):
            tick(mesh)
        np.testing.assert_allclose(pooled_scores(porto.pricing.live), spoiled, rtol=1e-9, atol=1e-9)
    finally:
        for city in (*mesh, *twins):
            city.stop()
