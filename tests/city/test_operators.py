"""Guardrails, pins and freezes: what an operator can rely on."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from tests.running import CONTEXT, RunningCity

Start = Callable[..., RunningCity]


def test_arms_outside_floor_and_ceiling_are_never_chosen_and_said_so(start: Start) -> None:
    city = start(guardrails={"floor": 8.5, "ceiling": 10.0})
    for i in range(40):
        decision = city.price()
        assert decision["price"] in (9.0, 10.0)
        assert decision["limited_by"] == [{"rule": "floor", "arms": [0]}, {"rule": "ceiling", "arms": [3, 4]}]
        city.feedback(decision["decision_id"], float(-i))
    record = city.http.get(f"/decisions/{decision['decision_id']}").json()
    assert record["limited_by"] == decision["limited_by"]
    assert city.state()["guardrails"] == {"floor": 8.5, "ceiling": 10.0, "max_step": None}


def test_a_subjects_price_moves_by_at_most_the_step_across_restarts_too(start: Start) -> None:
    city = start(guardrails={"max_step": 1.0})
    last: dict[str, float] = {}
    rng = np.random.default_rng(0)
    for i in range(60):
        subject = f"customer-{i % 3}"
        decision = city.price(subject=subject)
        if subject in last:
            assert abs(decision["price"] - last[subject]) <= 1.0
        last[subject] = decision["price"]
        city.feedback(decision["decision_id"], float(rng.normal() - decision["arm"] * (i % 2)))
        if i == 30:
            city = start(guardrails={"max_step": 1.0})


def test_a_subject_whose_last_price_is_outside_new_limits_comes_as_near_as_they_allow(start: Start) -> None:
    city = start(guardrails={"max_step": 1.0})
    assert city.price(subject="ann")["price"] == 8.0
    city = start(guardrails={"max_step": 1.0, "floor": 11.0})
    assert city.price(subject="ann")["price"] == 11.0


def test_a_pin_holds_for_everyone_until_it_is_lifted_and_across_restarts(start: Start) -> None:
    city = start()
    answer = city.http.post("/admin/pin", json={"price": 11.0, "reason": "campaign"})
    assert answer.json()["controls"]["pin"]["value"] == {"arm": 3, "price": 11.0, "reason": "campaign"}
    pinned = city.price(subject="ann")
    assert pinned["price"] == 11.0
    assert pinned["limited_by"] == [{"rule": "pin", "arms": [0, 1, 2, 4]}]
    city = start()
    assert city.price()["price"] == 11.0
    assert 'pricemesh_pinned{city="lisbon"} 1.0' in city.http.get("/metrics").text
    assert "pin" not in city.http.delete("/admin/pin").json()["controls"]
    assert city.price()["limited_by"] == []
    assert "pin" not in start().state()["controls"]


@pytest.mark.parametrize("price", [8.0, 8.5])
def test_a_pin_to_no_arm_or_beyond_the_guardrails_is_refused(start: Start, price: float) -> None:
    city = start(guardrails={"floor": 9.0})
    refused = city.http.post("/admin/pin", json={"price": price})
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:pricemesh:problem:impossible-pin"
    assert city.state()["controls"] == {}


def test_while_frozen_feedback_is_kept_and_never_learned(start: Start) -> None:
    city = start()
    before, during, after = (city.price()["decision_id"] for _ in range(3))
    city.feedback(before, 1.0)
    city.http.post("/admin/freeze", json={"reason": "odd rewards"})
    assert city.feedback(during, 2.0).json() == {
        "decision_id": during,
        "reward": 2.0,
        "learned": False,
        "version": None,
    }
    city = start()
    assert "freeze" in city.state()["controls"]
    city.http.delete("/admin/freeze")
    assert city.feedback(during, 2.0).json()["learned"] is False
    assert city.feedback(during, 3.0).status_code == 409
    assert city.feedback(after, 3.0).json()["version"] == 2
    state = city.state()
    assert (state["version"], state["feedback"]) == (2, 3)
    assert sum(arm["count"] for arm in state["arms"]) == 2
    assert start().state() == state


def test_a_step_holds_under_concurrent_calls_and_after_old_decisions_are_asked_again(start: Start) -> None:
    city = start(guardrails={"max_step": 1.0})
    low, high = (CONTEXT | {"shared": {"demand": d, "rain": 0.0, "event": 0.0}} for d in (-1.0, 1.0))
    for price in (8.0, 9.0, 10.0, 11.0, 12.0):  # teach it: the dearer the better where demand is high
        city.http.post("/admin/pin", json={"price": price})
        for context, sign in ((low, -1.0), (high, 1.0)):
            id_ = city.http.post("/price", json=context).json()["decision_id"]
            city.feedback(id_, sign * price)
    city.http.delete("/admin/pin")

    def ask(i: int) -> None:
        body = (low, high)[i % 2] | {"subject": "ann", "decision_id": f"o{i}"}
        city.http.post("/price", json=body)
        if i % 5 == 0:
            city.http.post("/price", json=body)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(160)))
    page = city.http.get("/decisions", params={"limit": 500}).json()["decisions"]
    prices = [decision["price"] for decision in page[::-1] if decision["subject"] == "ann"]
    assert len(prices) == 160
    assert len(set(prices)) > 1, "the price was meant to move"
    assert max(abs(b - a) for a, b in pairwise(prices)) <= 1.0
    first = city.http.get("/decisions/o0").json()["price"]
    again = city.http.post("/price", json=low | {"subject": "ann", "decision_id": "o0"}).json()
    assert again["price"] == first
    after = city.http.post("/price", json=high | {"subject": "ann"}).json()
    assert abs(after["price"] - prices[-1]) <= 1.0


def test_a_pin_kept_from_before_does_not_break_a_new_floor(start: Start) -> None:
    start().http.post("/admin/pin", json={"price": 9.0})
    city = start(guardrails={"floor": 10.5})
    decision = city.price()
    assert decision["price"] >= 10.5
    assert decision["limited_by"] == [{"rule": "floor", "arms": [0, 1, 2]}]


def test_after_the_default_reward_an_answer_is_too_late(start: Start) -> None:
    city = start(feedback={"window_seconds": 0.2, "default_reward": 0.0})
    id_ = city.price()["decision_id"]
    for _ in range(100):
        if city.state()["version"] == 1:
            break
        time.sleep(0.05)
    assert [city.feedback(id_, reward).status_code for reward in (0.0, 1.0)] == [410, 410]
