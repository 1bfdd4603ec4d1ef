"""Cities of sales over real HTTP, driven tick by tick, decide exactly as the mesh in one process."""

from typing import Any

import pytest

from pricemesh.core.policies import make_policy
from pricemesh.lab.market import Market
from pricemesh.lab.mesh import Conduct, Mesh
from tests.gossip.over_http import SECRETS, Start, tick

LADDERS = ((8.0, 9.0, 10.0, 11.0), (8.5, 9.5, 10.5, 11.5), (9.0, 10.0, 11.0, 12.0))


@pytest.mark.parametrize("rounds", [40, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("policy", "ladders", "news"),
    [
        ({}, LADDERS[:1] * 3, 1.0),
        ({}, LADDERS, 1.0),
        ({"exploration": "thompson"}, LADDERS[:1] * 3, 1.0),
        ({"pending": "off"}, LADDERS[:1] * 3, 1.0),
        ({}, LADDERS[:1] * 3, 1.3),
    ],
    ids=["one ladder", "different ladders", "thompson", "without pending", "news"],
)
def test_services_that_model_demand_decide_as_the_mesh_in_one_process(
    start_cities: Start,
    policy: dict[str, Any],
    ladders: tuple[tuple[float, ...], ...],
    news: float,
    rounds: int,
) -> None:
    world = Market(cities=3, arms=4, shared=5, local=2, ladders=ladders)
    shared, local = world.feature_names
    names = [f"city{i}" for i in range(3)]
    ranges = {} if len(set(ladders)) == 1 else {"range": list(world.price_range)}
    services = start_cities(
        *names,
        own={
            name: {"arms": {"prices": prices, **ranges}} for name, prices in zip(names, ladders, strict=True)
        },
        features={"shared": list(shared), "local": list(local)},
        reward={"kind": "purchase"},
        policy={"name": "demand", **policy, "seed": 11},
        gossip={"secrets": SECRETS, "news": news},
    )
    mesh = Mesh(world, make_policy("demand", **policy), [11], Conduct(news=news))
    for step, now in zip(mesh.play(rounds), world.instance([11]).rounds(), strict=False):
        tick(services)
        for i, city in enumerate(services):
            x = now.context[0, i].tolist()
            asked = {
                "shared": dict(zip(shared, x, strict=False)),
                "local": dict(zip(local, x[5:], strict=True)),
                "decision_id": f"round{step.round}",
            }
            answer = city.http.post("/price", json=asked).json()
            assert answer["arm"] == step.arm[0, i], (step.round, i)
            assert answer["radius"] == pytest.approx(step.radius[0, i], rel=1e-9)
            assert answer["propensity"] == pytest.approx(step.propensity[0, i], abs=1e-9)
        for i, city in enumerate(services):
            sold = city.sale(f"round{step.round}", float(step.reward[0, i] > 0))
            assert sold.status_code == 200, sold.text
