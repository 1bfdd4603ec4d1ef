"""Sales, acts, alerts and the value of the mesh over HTTP."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.running import CONTEXT, RunningCity

Start = Callable[..., RunningCity]
PURCHASES: dict[str, Any] = {
    "reward": {"kind": "purchase", "cost": 2.0},
    "display": {"currency": "EUR", "unit": "ride"},
}


@pytest.fixture
def shop(start: Start) -> RunningCity:
    return start(**PURCHASES)


def sell(city: RunningCity, sold: float | None) -> float:
    """The price."""
    decision = city.price()
    if sold is not None:
        assert city.sale(decision["decision_id"], sold).status_code == 200
    price: float = decision["price"]
    return price


def sales(city: RunningCity, **parameters: Any) -> dict[str, Any]:
    answer = city.http.get("/sales", params=parameters)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.parametrize("per", ["hour", "day", "week"])
def test_sales_count_every_decision_at_once(shop: RunningCity, per: str) -> None:
    amounts: list[float | None] = [1.0, 0.0, None, 1.0]
    prices = [sell(shop, amount) for amount in amounts]
    body = sales(shop, per=per)
    assert (body["currency"], body["unit"], body["time_zone"], body["per"]) == ("EUR", "ride", "UTC", per)
    assert body["complete"]
    total = body["total"]
    assert (total["decisions"], total["answered"], total["bought"], total["sold"]) == (4, 3, 2, 2.0)
    assert total["revenue"] == pytest.approx(prices[0] + prices[3])
    assert total["reward"] == pytest.approx(prices[0] + prices[3] - 4.0)
    assert total["conversion"] == 0.5
    assert total["mean_price"] == pytest.approx(sum(prices) / 4)
    assert total["lowest_price"] == min(prices)
    assert sum(bucket["decisions"] for bucket in body["buckets"]) == 4
    assert "arms" not in body["buckets"][-1]
    for before, after in zip(body["buckets"], body["buckets"][1:], strict=False):
        assert before["end"] == after["start"]


def test_sales_by_arm_add_up_to_the_bucket(shop: RunningCity) -> None:
    for sold in (1.0, 0.0, 1.0):
        sell(shop, sold)
    (bucket,) = (each for each in sales(shop, per="hour", arms=True)["buckets"] if each["decisions"])
    for name in ("decisions", "answered", "sold", "revenue", "reward"):
        assert sum(arm[name] for arm in bucket["arms"]) == pytest.approx(bucket[name])
    prices = shop.pricing.settings.arms.prices
    assert all(prices[arm["arm"]] == arm["price"] for arm in bucket["arms"])


def test_a_city_of_values_has_rewards_and_no_sales(city: RunningCity) -> None:
    city.feedback(city.price()["decision_id"], 0.5)
    total = sales(city)["total"]
    assert (total["decisions"], total["reward"], total["mean_reward"]) == (1, 0.5, 0.5)
    assert {total[name] for name in ("sold", "revenue", "conversion", "mean_price_paid")} == {None}


def test_retracted_feedback_leaves_the_sales_and_comes_back(shop: RunningCity) -> None:
    decision = shop.price()
    shop.sale(decision["decision_id"], 1)
    sell(shop, 1)
    before = sales(shop)["total"]
    body = {"decisions": [decision["decision_id"]], "reason": "a refund"}
    assert shop.http.post("/admin/retract", json=body).status_code == 200
    after = sales(shop)["total"]
    assert (after["decisions"], after["answered"], after["retracted"], after["sold"]) == (2, 1, 1, 1.0)
    assert after["revenue"] == pytest.approx(before["revenue"] - decision["price"])
    assert shop.http.post("/admin/retractions/1/lift", json={"reason": "no refund"}).status_code == 200
    assert sales(shop)["total"] == pytest.approx(before)


def test_too_many_buckets_are_refused_with_advice(city: RunningCity) -> None:
    answer = city.http.get("/sales", params={"per": "hour", "since": 0, "until": 1e9})
    assert answer.status_code == 422
    assert "per=day" in answer.json()["detail"]
    assert city.http.get("/sales", params={"since": 10, "until": 5}).status_code == 422
    assert city.http.get("/sales", params={"per": "minute"}).status_code == 422


def test_acts_say_who_did_what_and_why(city: RunningCity) -> None:
    http = city.http
    assert http.post("/admin/pin", json={"price": 9.0, "reason": "campaign"}).status_code == 200
    assert http.delete("/admin/pin", params={"reason": "over"}).status_code == 200
    assert http.delete("/admin/pin").status_code == 200  # nothing is pinned: no act
    assert http.post("/admin/freeze", json={"reason": "a bug"}).status_code == 200
    assert http.delete("/peers/porto", params={"reason": "it lies"}).status_code == 200
    body = http.get("/acts").json()
    acts = [(act["kind"], act["by"], act["reason"], act["detail"]) for act in body["acts"]]
    assert acts == [
        ("drop", "operator", "it lies", {"peer": "porto"}),
        ("freeze", "operator", "a bug", {}),
        ("lift pin", "operator", "over", {}),
        ("pin", "operator", "campaign", {"price": 9.0}),
    ]
    assert not body["more"]
    times = [act["at"] for act in body["acts"]]
    assert times == sorted(times, reverse=True)
    older = http.get("/acts", params={"until": times[1], "limit": 1}).json()
    assert ([act["kind"] for act in older["acts"]], older["more"]) == (["lift pin"], True)


def test_a_forgotten_subject_is_in_no_act(city: RunningCity) -> None:
    city.price(subject="ann")
    assert city.http.post("/admin/forget", json={"subject": "ann"}).json() == {"decisions": 1}
    assert city.http.post("/admin/forget", json={"subject": "ann"}).json() == {"decisions": 0}
    (act,) = city.http.get("/acts").json()["acts"]
    assert (act["kind"], act["detail"]) == ("forget", {"decisions": 1})


def test_the_state_has_the_lowest_price_of_30_days(shop: RunningCity) -> None:
    empty = shop.http.get("/state").json()["lowest_prices_30_days"]
    assert empty["groups"] == [{"group": "all", "price": None}]
    prices = [sell(shop, None) for _ in range(3)]
    found = shop.http.get("/state").json()["lowest_prices_30_days"]
    assert found["groups"] == [{"group": "all", "price": min(prices)}]
    assert found["complete"]


def test_a_quiet_city_has_no_alerts_and_no_value_of_the_mesh(city: RunningCity) -> None:
    assert city.http.get("/alerts").json()["alerts"] == []
    body = city.http.get("/mesh-value").json()
    assert (body["decisions"], body["gain"], body["peers"]) == (0, None, [])
    city.http.post("/price/batch", json={"requests": [CONTEXT] * 150})
    body = city.http.get("/mesh-value").json()
    assert (body["decisions"], body["gain"], body["other_choices"]) == (150, 0.0, 0.0)
