"""`POST /beliefs` and the audit record of cities that learn a demand curve."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.dashboard.test_beliefs import beliefs
from tests.running import CONTEXT, RunningCity, settings_for, start_mesh

COST, UNITS = 2.0, 2
SALES = {"kind": "purchase", "cost": COST, "max_units": UNITS}
PRICES = [8.0, 9.0, 10.0, 11.0, 12.0]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningCity]]:
    cities = start_mesh(tmp_path_factory.mktemp("sales"), ("lisbon", "porto"), reward=SALES)
    for seed, city in enumerate(cities):
        sell(city, 40, seed)
    for _ in range(2):
        for city in cities:
            city.tick()
    yield cities
    for city in cities:
        city.stop()


def sell(city: RunningCity, rounds: int, seed: int) -> None:
    """Customers who buy less often the higher the price."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        demand, rain, event = rng.random(3).round(4).tolist()
        context = CONTEXT | {"shared": {"demand": demand, "rain": rain, "event": event}}
        decision = city.http.post("/price", json=context).json()
        sold = int((rng.random(UNITS) < sigmoid(10.0 - decision["price"] + demand)).sum())
        assert city.sale(decision["decision_id"], sold).status_code == 200


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def logit(chance: float) -> float:
    return math.log(chance / (1 - chance))


def test_every_arm_has_its_chance_and_the_money_is_the_margin_times_it(mesh: list[RunningCity]) -> None:
    answer = beliefs(mesh[0])
    assert (answer["policy"], answer["told_by"]) == ("demand", ["porto"])
    for arm in answer["arms"]:
        margin = UNITS * (arm["price"] - COST)
        for told in (arm, arm["own"]):
            assert 0.0 < told["chance_low"] < told["chance"] < told["chance_high"] < 1.0
            assert told["estimate"] == pytest.approx(margin * told["chance"], rel=1e-10)
            assert told["estimate"] + told["radius"] == pytest.approx(margin * told["chance_high"], rel=1e-10)
            middle = (logit(told["chance_low"]) + logit(told["chance_high"])) / 2
            assert middle == pytest.approx(logit(told["chance"]), abs=1e-9)
        assert abs(arm["chance"] - arm["own"]["chance"]) > 1e-6


def test_chances_are_the_sigmoid_of_theta_times_the_features(mesh: list[RunningCity]) -> None:
    """z is written out here; without peers theta is that of the city's own sales."""
    learner: Any = mesh[0].pricing.learner
    theta = learner.pooled.theta[0]
    x = [*CONTEXT["shared"].values(), *CONTEXT["local"].values()]
    kernel = [
        [0.7 * math.exp(-(((k - j) / 1.5) ** 2) / 2) + 0.3 * (k == j) for j in range(5)] for k in range(5)
    ]
    root = np.linalg.cholesky(kernel)
    for arm in beliefs(mesh[0])["arms"]:
        u = (arm["price"] - 10.0) / 2.0
        main, slopes = x[:3], [u * value for value in x[:3]]
        z = [1.0, u, *main, *slopes, *root[arm["arm"]], *x[3:], *(u * value for value in x[3:])]
        assert arm["chance"] == pytest.approx(sigmoid(float(z @ theta)), rel=1e-10)


def test_the_curve_covers_the_ladder_and_meets_every_arm(mesh: list[RunningCity]) -> None:
    answer = beliefs(mesh[0])
    curve = answer["curve"]
    assert [point["price"] for point in curve] == pytest.approx(np.linspace(8.0, 12.0, 41))
    by_price = {point["price"]: point for point in curve}
    for arm in answer["arms"]:
        point = by_price[arm["price"]]
        for name in ("chance", "chance_low", "chance_high"):
            assert (point[name], point["own"][name]) == (arm[name], arm["own"][name])
    for point in curve:
        for told in (point, point["own"]):
            margin = UNITS * (point["price"] - COST)
            for end in ("", "_low", "_high"):
                assert told[f"revenue{end}"] == pytest.approx(margin * told[f"chance{end}"], rel=1e-12)


def test_the_curve_has_uneven_arms_and_the_whole_agreed_range(tmp_path: Path) -> None:
    arms = {"prices": [8.03, 9.0, 11.0], "range": [8.0, 12.0]}
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db", arms=arms, reward=SALES))
    prices = [point["price"] for point in beliefs(city)["curve"]]
    city.stop()
    assert len(prices) == 42
    assert prices == sorted(prices)
    assert (prices[0], prices[1], prices[-1]) == (8.0, 8.03, 12.0)


def test_beliefs_are_the_chance_of_the_next_decision(mesh: list[RunningCity]) -> None:
    city = mesh[0]
    answer = beliefs(city)
    decision = city.price(decision_id="next")
    record = city.http.get("/decisions/next").json()
    assert answer["chosen"] == decision["arm"]
    assert record["chance"] == pytest.approx(answer["arms"][decision["arm"]]["chance"], rel=1e-10)


def test_contributions_add_up_to_the_logit_and_to_its_radius(mesh: list[RunningCity]) -> None:
    city = mesh[0]
    answer = beliefs(city)
    arm = answer["arms"][city.price(decision_id="parts")["arm"]]
    record = city.http.get("/decisions/parts").json()
    assert record["scale"] == "logit"
    assert [part["origin"] for part in record["contributions"]] == ["lisbon", "porto"]
    total = sum(part["estimate"] for part in record["contributions"])
    assert total == pytest.approx(logit(record["chance"]), abs=1e-9)
    width = sum(part["radius"] for part in record["contributions"])
    assert width == pytest.approx(logit(arm["chance_high"]) - logit(arm["chance"]), abs=1e-9)
    assert all(part["radius"] > 0.0 for part in record["contributions"])
    learner: Any = city.pricing.learner
    z = learner.basis.rows(np.array([[0.5, 0.25, 1.0, 0.1, 0.0]]), np.array([arm["arm"]]))[0]
    own = float(learner.own.response[0] @ learner.pooled.inverse[0] @ z)
    assert record["contributions"][0]["estimate"] == pytest.approx(own, abs=1e-9)
    assert city.http.get("/decisions?limit=1").json()["decisions"] == [record]


def test_a_price_at_cost_leaves_the_own_part_of_the_radius_open(tmp_path: Path) -> None:
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db", reward=SALES | {"cost": 12.0}))
    city.http.post("/admin/pin", json={"price": 12.0})
    city.price(decision_id="at-cost")
    record = city.http.get("/decisions/at-cost").json()
    city.stop()
    (own,) = record["contributions"]
    assert (record["estimate"], record["radius"], own["radius"]) == (0.0, 0.0, None)
    assert own["estimate"] == pytest.approx(logit(record["chance"]), abs=1e-9)


def test_other_policies_answer_without_chances_and_in_money(tmp_path: Path) -> None:
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/c.db", reward=SALES, policy={"name": "netpool"}))
    answer = beliefs(city)
    city.price(decision_id="money")
    record = city.http.get("/decisions/money").json()
    city.stop()
    assert answer["curve"] is None
    names = ("chance", "chance_low", "chance_high")
    assert {told[name] for arm in answer["arms"] for told in (arm, arm["own"]) for name in names} == {None}
    assert (record["scale"], record["chance"]) == ("money", None)
    assert record["contributions"][0]["estimate"] == record["estimate"]


def test_openapi_describes_the_curve_and_the_scale(mesh: list[RunningCity]) -> None:
    models = mesh[0].http.get("/openapi.json").json()["components"]["schemas"]
    assert "41 prices" in models["Beliefs"]["properties"]["curve"]["description"]
    fields = {
        "price",
        "own",
        *(f"{name}{end}" for name in ("chance", "revenue") for end in ("", "_low", "_high")),
    }
    assert set(models["CurvePoint"]["properties"]) == fields
    assert models["DecisionRecord"]["properties"]["scale"]["enum"] == ["money", "logit"]
