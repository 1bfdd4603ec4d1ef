"""`POST /beliefs`: the answer equals the next decision, and asking changes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.running import CONTEXT, RunningCity, settings_for, start_mesh


@pytest.fixture
def mesh(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[RunningCity]]:
    cities = start_mesh(tmp_path, ("lisbon", "porto"), policy={"name": getattr(request, "param", "netpool")})
    for city in cities:
        teach(city, 12)
    for _ in range(2):
        for city in cities:
            city.tick()
    yield cities
    for city in cities:
        city.stop()


def teach(city: RunningCity, rounds: int) -> None:
    rng = np.random.default_rng(len(city.pricing.settings.city))
    for _ in range(rounds):
        demand, rain, event, tourists, strike = rng.random(5).round(4).tolist()
        context = {
            "shared": {"demand": demand, "rain": rain, "event": event},
            "local": {"tourists": tourists, "strike": strike},
        }
        decision = city.http.post("/price", json=context).json()
        city.feedback(decision["decision_id"], float(rng.random()))


def beliefs(city: RunningCity, context: dict[str, Any] = CONTEXT) -> dict[str, Any]:
    answer = city.http.post("/beliefs", json=context)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.parametrize("mesh", ["netpool", "netlinucb", "netsgducb", "disjoint"], indirect=True)
def test_beliefs_equal_the_next_decision(mesh: list[RunningCity]) -> None:
    city = mesh[0]
    answer = beliefs(city)
    decision = city.price(decision_id="next")
    record = city.http.get("/decisions/next").json()
    assert answer["chosen"] == decision["arm"]
    for arm, then in zip(answer["arms"], record["arms"], strict=True):
        assert (arm["estimate"], arm["radius"]) == (then["estimate"], then["radius"])
    assert answer["version"] == record["learner_version"] == 12
    shares = answer["policy"] != "disjoint"
    assert answer["told_by"] == (["porto"] if shares else [])
    assert answer["separable"] is (answer["policy"] != "netsgducb")
    differs = [abs(arm["own"]["radius"] - arm["radius"]) > 1e-9 for arm in answer["arms"]]
    assert any(differs) is shares


def test_own_beliefs_equal_those_of_the_same_city_alone(mesh: list[RunningCity], tmp_path: Path) -> None:
    together = beliefs(mesh[0])
    oldest_first = mesh[0].http.get("/decisions?limit=500").json()["decisions"][::-1]
    alone = RunningCity(settings_for(f"sqlite:///{tmp_path}/alone.db"))
    learner = alone.pricing.learner
    for row in oldest_first:
        x = [*row["context"]["shared"].values(), *row["context"]["local"].values()]
        learner.learn(np.array(x), row["arm"], row["feedback"]["reward"])
    from_alone = beliefs(alone)
    for arm, own in zip(together["arms"], from_alone["arms"], strict=True):
        assert arm["own"]["estimate"] == pytest.approx(own["estimate"], abs=1e-12)
        assert arm["own"]["radius"] == pytest.approx(own["radius"], abs=1e-12)
    assert together["chosen_alone"] == from_alone["chosen"]
    alone.stop()


def test_asking_decides_and_stores_nothing(mesh: list[RunningCity]) -> None:
    before = mesh[0].state()
    beliefs(mesh[0])
    after = mesh[0].state()
    assert [state["decisions"] for state in (before, after)] == [12, 12]
    assert before["arms"] == after["arms"]


def test_guardrails_and_pins_rule_arms_out_by_name(tmp_path: Path) -> None:
    city = RunningCity(
        settings_for(f"sqlite:///{tmp_path}/city.db", guardrails={"floor": 8.5, "ceiling": 11.0})
    )
    assert [arm["ruled_out_by"] for arm in beliefs(city)["arms"]] == ["floor", None, None, None, "ceiling"]
    assert beliefs(city)["chosen"] == 1
    city.http.post("/admin/pin", json={"price": 10.0})
    pinned = beliefs(city)
    assert [arm["ruled_out_by"] for arm in pinned["arms"]] == ["floor", "pin", None, "pin", "ceiling"]
    assert pinned["chosen"] == pinned["chosen_alone"] == city.price()["arm"] == 2
    city.stop()


@pytest.mark.parametrize(
    ("context", "field"),
    [
        (CONTEXT | {"shared": {"demand": 0.5, "rain": 2.0, "event": 1.0}}, "shared.rain"),
        (CONTEXT | {"local": {}}, "local.tourists"),
        (CONTEXT | {"subject": "ann"}, "subject"),
    ],
)
def test_an_invalid_context_is_refused_by_field(
    mesh: list[RunningCity], context: dict[str, Any], field: str
) -> None:
    refusal = mesh[0].http.post("/beliefs", json=context)
    assert refusal.status_code == 422
    assert field in [fault["field"] for fault in refusal.json()["errors"]]
