"""Cities that learn from units sold, and the refusals of the wrong kind of feedback, on both ways in."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.running import CONTEXT, RunningCity, settings_for

Start = Callable[..., RunningCity]
SALES = {"kind": "purchase", "cost": "tourists", "max_units": 3}
COST = CONTEXT["local"]["tourists"]
SEND_SOLD = 'this city learns from sales: send "sold"'
SEND_REWARD = 'this city learns from rewards: send "reward"'


@pytest.fixture(params=[True, False], ids=["fast path", "asgi"])
def ways(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], RunningCity]]:
    running: list[RunningCity] = []

    def start(reward: dict[str, Any]) -> RunningCity:
        url = f"sqlite:///{tmp_path}/city{len(running)}.db"
        running.append(RunningCity(settings_for(url, reward=reward, server={"fast_path": request.param})))
        return running[-1]

    yield start
    for city in running:
        city.stop()


def errors_of(response: httpx.Response) -> list[tuple[str, str]]:
    assert response.status_code == 422, response.text
    return [(error["field"], error["detail"]) for error in response.json()["errors"]]


def test_a_sale_is_learned_as_money_and_answered_with_both(start: Start) -> None:
    city = start(reward=SALES)
    decision = city.price(decision_id="d1")
    assert decision["propensity"] == 1.0
    money = (decision["price"] - COST) * 2
    receipt = city.http.post("/feedback", json={"decision_id": "d1", "sold": 2})
    learned = {"learned": True, "version": 1}
    assert receipt.json() == {"decision_id": "d1", "sold": 2.0, "reward": money, **learned}
    record = city.http.get("/decisions/d1").json()
    assert record["propensity"] == 1.0
    assert decision["estimate"] == pytest.approx(3 * (decision["price"] - COST) * record["chance"])
    assert (record["feedback"]["sold"], record["feedback"]["reward"]) == (2.0, money)
    assert city.http.get("/decisions").json()["decisions"] == [record]
    state = city.state()
    assert state["reward"] == {**SALES, "scale": 1.0}
    arm = state["arms"][decision["arm"]]
    assert (arm["count"], arm["units_sold"], arm["mean_reward"]) == (1, 2.0, money)
    assert sum(each["units_sold"] for each in state["arms"]) == 2.0
    metrics = city.http.get("/metrics").text
    labels = f'{{arm="{decision["arm"]}",city="lisbon",price="{decision["price"]:g}"}}'
    assert f"pricemesh_units_sold_total{labels} 2.0" in metrics
    assert f"pricemesh_rewards_learned{labels} {money}" in metrics


def test_the_same_sale_again_is_learned_once_and_another_is_a_conflict(start: Start) -> None:
    city = start(reward=SALES)
    city.price(decision_id="d1")
    first = city.http.post("/feedback", json={"decision_id": "d1", "sold": 1})
    again = city.http.post("/feedback", json={"decision_id": "d1", "sold": 1.0})
    assert again.json() == first.json()
    other = city.http.post("/feedback", json={"decision_id": "d1", "sold": 0})
    assert other.status_code == 409
    assert other.json()["detail"] == "decision 'd1' has sold 1 already"
    assert city.state()["version"] == 1


def test_nothing_sold_is_a_reward_of_zero(start: Start) -> None:
    city = start(reward=SALES | {"cost": 11.5})
    city.price(decision_id="d1")
    receipt = city.http.post("/feedback", json={"decision_id": "d1", "sold": 0})
    assert b'"sold":0.0,"reward":0.0' in receipt.content


def estimates_of(city: RunningCity) -> list[float]:
    return [arm["estimate"] for arm in city.http.post("/beliefs", json=CONTEXT).json()["arms"]]


def test_a_restart_gives_the_learner_that_learned_the_sales(start: Start) -> None:
    city = start(reward=SALES)
    ids = [city.price()["decision_id"] for _ in range(30)]
    items = [{"decision_id": id_, "sold": i % 4} for i, id_ in enumerate(ids)]
    outcomes = city.http.post("/feedback/batch", json={"items": items}).json()["outcomes"]
    assert [outcome["status"] for outcome in outcomes] == [200] * 30
    before, estimates = city.state(), estimates_of(city)
    assert sum(each["units_sold"] for each in before["arms"]) == sum(item["sold"] for item in items)
    again = start(reward=SALES)  # from the snapshot that the stop saved
    assert again.state() == before
    assert estimates_of(again) == pytest.approx(estimates, rel=1e-12)
    for policy in ({"name": "netpool", "ridge": 2.0}, {"name": "demand"}):  # learns all rows again
        other = start(reward=SALES, policy=policy)
        assert [arm["units_sold"] for arm in other.state()["arms"]] == [
            arm["units_sold"] for arm in before["arms"]
        ]
    assert estimates_of(other) == pytest.approx(estimates, rel=1e-9)


def test_unanswered_decisions_learn_the_default_sold(start: Start) -> None:
    section = {"window_seconds": 0.2, "default_sold": 1}
    city = start(reward=SALES, feedback=section, clock={"steady_seconds": 0.0})
    decision = city.price()
    deadline = time.monotonic() + 20
    while (feedback := city.http.get(f"/decisions/{decision['decision_id']}").json()["feedback"]) is None:
        assert time.monotonic() < deadline
    assert (feedback["sold"], feedback["by_default"]) == (1.0, True)
    assert feedback["reward"] == decision["price"] - COST


@pytest.mark.parametrize(
    ("sold", "fault"),
    [
        ("4", "at most 3 (reward.max_units), not 4"),
        ("-1", "must be at least 0, not -1"),
        ("NaN", "must be a finite number, not nan"),
        ("1e999", "must be a finite number, not inf"),
        ("true", "must be a number, not true"),
        ('"1"', "must be a number, not '1'"),
        ("null", "must be a number, not null"),
    ],
)
def test_impossible_sales_are_named(ways: Callable[..., RunningCity], sold: str, fault: str) -> None:
    city = ways(SALES)
    city.price(decision_id="d1")
    item = f'{{"decision_id": "d1", "sold": {sold}}}'
    assert errors_of(city.http.post("/feedback", content=item)) == [("sold", fault)]
    batch = f'{{"items": [{{"decision_id": "d1", "sold": 1}}, {item}]}}'
    assert errors_of(city.http.post("/feedback/batch", content=batch)) == [("items.1.sold", fault)]
    assert city.state()["feedback"] == 0


@pytest.mark.parametrize(
    ("reward", "wrong", "hint"),
    [
        (SALES, {"reward": 1.0}, ("reward", SEND_SOLD)),
        (SALES, {"sold": 1, "reward": 1.0}, ("reward", SEND_SOLD)),
        ({"kind": "value", "largest": 5}, {"sold": 1}, ("sold", SEND_REWARD)),
        ({"kind": "value", "largest": 5}, {"sold": 1, "reward": 1.0}, ("sold", SEND_REWARD)),
    ],
)
def test_feedback_of_the_other_kind_is_told_what_to_send(
    ways: Callable[..., RunningCity], reward: dict[str, Any], wrong: dict[str, Any], hint: tuple[str, str]
) -> None:
    city = ways(reward)
    city.price(decision_id="d1")
    item = {"decision_id": "d1", **wrong}
    assert errors_of(city.http.post("/feedback", json=item)) == [hint]
    right = {"decision_id": "d1", "sold" if reward is SALES else "reward": 1}
    field, text = hint
    batch = {"items": [right, item, {"decision_id": "d1"}]}
    missing = (f"items.2.{'sold' if reward is SALES else 'reward'}", "is missing")
    assert errors_of(city.http.post("/feedback/batch", json=batch)) == [(f"items.1.{field}", text), missing]
    assert city.state()["feedback"] == 0


def test_a_city_of_values_shows_no_sales(start: Start) -> None:
    city = start()
    decision = city.price()
    city.feedback(decision["decision_id"], 0.5)
    assert city.http.get(f"/decisions/{decision['decision_id']}").json()["feedback"]["sold"] is None
    assert {arm["units_sold"] for arm in city.state()["arms"]} == {None}
    assert city.state()["reward"] == {"kind": "value", "largest": 1e12, "scale": 1.0}
    assert "pricemesh_units_sold_total{" not in city.http.get("/metrics").text


@pytest.mark.parametrize(
    ("reward", "name", "field", "bounds"),
    [
        (SALES, "SaleRequest", "sold", (0, 3)),
        ({"kind": "value", "largest": 0.5}, "FeedbackRequest", "reward", (-0.5, 0.5)),
    ],
)
def test_openapi_shows_the_feedback_of_the_citys_kind(
    tmp_path: Path, reward: dict[str, Any], name: str, field: str, bounds: tuple[float, float]
) -> None:
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db", reward=reward))
    document = city.http.get("/openapi.json").json()
    content = document["paths"]["/feedback"]["post"]["requestBody"]["content"]["application/json"]
    assert content["schema"]["$ref"].endswith(f"/{name}")
    shown = document["components"]["schemas"][name]["properties"][field]
    assert (shown["minimum"], shown["maximum"]) == bounds
    assert {"FeedbackRequest", "SaleRequest"} & set(document["components"]["schemas"]) == {name}
    city.price(decision_id=content["example"]["decision_id"])
    assert city.http.post("/feedback", json=content["example"]).status_code == 200
    city.stop()
