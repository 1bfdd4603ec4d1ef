"""Live cities as they describe themselves, and the world that fits their arms and features."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pricemesh.core.arrays import Array
from pricemesh.errors import InvalidParameter
from pricemesh.lab.caller import Caller, CallFailed
from pricemesh.lab.market import Market
from pricemesh.lab.worlds import Linear, World


@dataclass(frozen=True)
class Town:
    """A city as its /state describes it."""

    url: str
    name: str
    prices: tuple[float, ...]
    shared: tuple[dict[str, Any], ...]
    local: tuple[dict[str, Any], ...]
    is_purchase: bool = False  # it learns from units sold; otherwise from the world's own rewards

    def body(self, x: Array) -> bytes:
        values = x.tolist()
        shared = dict(zip((item["name"] for item in self.shared), values, strict=False))
        local = dict(zip((item["name"] for item in self.local), values[len(self.shared) :], strict=False))
        return json.dumps({"shared": shared, "local": local}).encode()

    def feedback(self, decision_id: str, reward: float) -> bytes:
        """A reward above 0 is a purchase of one unit."""
        amount = {"sold": int(reward > 0)} if self.is_purchase else {"reward": reward}
        return json.dumps({"decision_id": decision_id, **amount}).encode()


async def survey(callers: Sequence[Caller]) -> list[Town]:
    """The arms, features and kind of reward of each city, from its /state."""
    towns = []
    for caller in callers:
        try:
            status, body = await caller.call("GET", "/state")
        except CallFailed as fault:
            raise CallFailed(f"{caller.url}: {fault}") from None
        if status != 200:
            raise CallFailed(f"{caller.url}/state answers {status}: {body[:300].decode(errors='replace')}")
        try:
            state = json.loads(body)
            features = state["features"]
            prices = tuple(arm["price"] for arm in state["arms"])
            town = Town(
                caller.url,
                state["city"],
                prices,
                tuple(features["shared"]),
                tuple(features["local"]),
                state["reward"]["kind"] == "purchase",
            )
        except (ValueError, KeyError, TypeError):
            raise CallFailed(
                f"{caller.url}/state is not that of a city of pricemesh: check the address"
            ) from None
        towns.append(town)
    return towns


def world_for(towns: Sequence[Town], name: str, heterogeneity: float = 0.0) -> World:
    """The world that fits these cities. Raises InvalidParameter if none does."""
    first = towns[0]
    for town in towns:
        if town.prices != first.prices or town.shared != first.shared:
            raise InvalidParameter(
                f"{town.name} and {first.name} differ in prices or shared features: drive them apart"
            )
    if name == "market":
        return _market(towns, heterogeneity)
    items = [(town, item) for town in towns for item in (*town.shared, *town.local)]
    positive = any(item["min"] > -1 for _, item in items)
    for town, item in items:
        if item["min"] > (0 if positive else -1) or item["max"] < 1:
            raise InvalidParameter(
                f"a world's features lie between {0 if positive else -1} and 1, but {town.name} holds "
                f"{item['name']} to [{item['min']:g}, {item['max']:g}]: widen it"
            )
    return Linear(
        cities=len(towns),
        arms=len(first.prices),
        shared=len(first.shared),
        local=tuple(len(town.local) for town in towns),
        heterogeneity=heterogeneity,
        positive=positive,
    )


def _market(towns: Sequence[Town], heterogeneity: float) -> Market:
    first = towns[0]
    widths = {len(town.local) for town in towns}
    world = Market(
        cities=len(towns),
        arms=len(first.prices),
        shared=len(first.shared),
        local=max(widths),
        heterogeneity=heterogeneity,
    )
    shared, local = world.feature_names
    for town in towns:
        names = tuple(item["name"] for item in town.shared), tuple(item["name"] for item in town.local)
        if names != (shared, local) or town.prices != world.prices:
            raise InvalidParameter(
                f"the market world has the features {', '.join(shared + local)} and the prices "
                f"{list(world.prices)}; {town.name} has {', '.join(names[0] + names[1])} and "
                f"{list(town.prices)}. deploy/city.toml is a city of that world; try --world linear"
            )
    return world
