"""A randomised choice over HTTP: its probability is told, stored and reproducible, within the guardrails."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pricemesh.core.thompson import city_seed, draw, propensities, uniform_of
from tests.running import CONTEXT, RunningCity

Start = Callable[..., RunningCity]
THOMPSON = {"name": "netpool", "exploration": "thompson"}


def record_of(city: RunningCity, decision_id: str) -> dict[str, Any]:
    record: dict[str, Any] = city.http.get(f"/decisions/{decision_id}").json()
    return record


def expected(record: dict[str, Any], seed: int = 0, allowed: Any = None) -> tuple[int, float]:
    """Arm and propensity from what the audit record tells, and nothing else."""
    estimates, radii = (np.array([arm[name] for arm in record["arms"]]) for name in ("estimate", "radius"))
    p = propensities(estimates + 0.5 * radii, 0.15 * radii, allowed)
    arm = int(draw(p, uniform_of(city_seed("lisbon", seed), record["decision_id"])))
    return arm, float(p[arm])


def learn(city: RunningCity, decisions: int = 12) -> None:
    for number in range(decisions):
        city.feedback(city.price()["decision_id"], 0.1 * (number % 5))


def test_the_propensity_is_told_stored_and_reproducible_from_the_record(start: Start) -> None:
    city = start(policy=THOMPSON)
    learn(city)
    answers = [city.price(decision_id=f"order-{i}") for i in range(20)] + [city.price()]
    assert len({answer["arm"] for answer in answers}) > 1
    for answer in answers:
        record = record_of(city, answer["decision_id"])
        assert record["propensity"] == answer["propensity"]
        arm, propensity = expected(record)
        assert (answer["arm"], answer["propensity"]) == (arm, pytest.approx(propensity, rel=1e-9))
        assert 0.0 < propensity <= 1.0


def test_a_repeated_decision_keeps_its_arm_and_its_propensity(start: Start) -> None:
    city = start(policy=THOMPSON)
    first = city.price(decision_id="order-7")
    learn(city)
    assert city.price(decision_id="order-7") == first
    again = start(policy={**THOMPSON, "seed": 5})  # after a restart with another seed, too
    assert again.price(decision_id="order-7") == first


def test_a_batch_draws_as_single_calls_do(start: Start) -> None:
    """Nothing is learned between them, so the same ids in another city with the same seed draw the same."""
    city = start(policy=THOMPSON, feedback={"window_seconds": 1000.0})
    batch = {"requests": [CONTEXT | {"decision_id": f"order-{i}"} for i in range(30)]}
    for answer in city.http.post("/price/batch", json=batch).json()["decisions"]:
        arm, propensity = expected(record_of(city, answer["decision_id"]))
        assert (answer["arm"], answer["propensity"]) == (arm, pytest.approx(propensity, rel=1e-9))


def test_the_seed_of_the_policy_changes_the_draws(start: Start) -> None:
    city = start(policy={**THOMPSON, "seed": 5})
    ids = [f"order-{i}" for i in range(30)]
    arms = [city.price(decision_id=id_)["arm"] for id_ in ids]
    records = [record_of(city, id_) for id_ in ids]
    assert arms == [expected(record, seed=5)[0] for record in records]
    assert arms != [expected(record, seed=0)[0] for record in records]


def test_a_propensity_is_that_among_the_arms_which_guardrails_allow(start: Start) -> None:
    city = start(policy=THOMPSON, guardrails={"floor": 9.0, "ceiling": 11.0, "max_step": 1.0})
    allowed = np.array([False, True, True, True, False])
    for i in range(20):
        answer = city.price(decision_id=f"free-{i}")
        arm, propensity = expected(record_of(city, f"free-{i}"), allowed=allowed)
        assert (answer["arm"], answer["propensity"]) == (arm, pytest.approx(propensity, rel=1e-9))
    last = city.price(decision_id="step-0", subject="anna")["arm"]
    for i in range(1, 12):
        answer = city.price(decision_id=f"step-{i}", subject="anna")
        near = allowed & (np.abs(np.arange(5) - last) <= 1)
        arm, propensity = expected(record_of(city, f"step-{i}"), allowed=near)
        assert (answer["arm"], answer["propensity"]) == (arm, pytest.approx(propensity, rel=1e-9))
        last = arm
    city.http.post("/admin/pin", json={"price": 10.0})
    pinned = city.price()
    assert (pinned["price"], pinned["propensity"]) == (10.0, 1.0)


def test_without_randomised_choice_every_propensity_is_one(city: RunningCity) -> None:
    learn(city)
    assert city.price(decision_id="order-1")["propensity"] == 1.0
    assert record_of(city, "order-1")["propensity"] == 1.0


def test_beliefs_tell_the_probability_of_every_price(start: Start) -> None:
    city = start(policy=THOMPSON, guardrails={"floor": 9.0})
    learn(city)
    beliefs = city.http.post("/beliefs", json=CONTEXT).json()
    p = [arm["propensity"] for arm in beliefs["arms"]]
    assert p[0] == 0.0
    assert sum(p) == pytest.approx(1.0, abs=1e-12)
    assert p[beliefs["chosen"]] == max(p)
    decision = city.price()
    assert decision["propensity"] == pytest.approx(p[decision["arm"]], rel=1e-9)
