"""Changes of a configuration that need `pricemesh reshape`: other prices, other features."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

MORE_PRICES = (8.75, 9.0, 9.5, 10.0, 10.5, 11.0, 12.0, 13.0)
MIN_PRICES, MAX_PRICES = 3, 7
MORE_FEATURES: tuple[dict[str, Any], ...] = (
    {"name": "match", "min": 0.0, "max": 1.0},
    {"name": "holiday", "min": -1.0, "max": 1.0},
)
ALIASES = {"rain": "rainfall", "event": "festival", "strike": "walkout", "match": "game", "holiday": "leave"}
OTHER_NAMES = ALIASES | {alias: name for name, alias in ALIASES.items()}
UPPER_BOUNDS = (0.7, 1.0, 1.4)
TERMS = ("arms", "features", "reward")  # sections that a database is made for


@dataclass
class Reshape:
    """The sections of a configuration that change, and the options of the command."""

    sections: dict[str, Any]
    renamed: dict[str, str] = field(default_factory=dict)  # by the new name
    filled: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, sections: Mapping[str, Any]) -> "Reshape":
        """One that changes nothing yet."""
        features = sections["features"]
        return cls(
            {
                "arms": {**sections["arms"], "prices": list(sections["arms"]["prices"])},
                "features": {part: [dict(each) for each in features[part]] for part in ("shared", "local")},
                "reward": dict(sections["reward"]),
            }
        )

    @property
    def prices(self) -> list[float]:
        prices: list[float] = self.sections["arms"]["prices"]
        return prices

    def part(self, name: str) -> list[dict[str, Any]]:
        part: list[dict[str, Any]] = self.sections["features"][name]
        return part

    @property
    def features(self) -> list[dict[str, Any]]:
        return self.part("shared") + self.part("local")

    @property
    def names(self) -> set[str]:
        return {feature["name"] for feature in self.features}

    @property
    def cost(self) -> Any:
        return self.sections["reward"].get("cost")

    def __str__(self) -> str:
        parts = [[each["name"] for each in self.part(name)] for name in ("shared", "local")]
        return f"{self.prices}, {parts}, renamed {self.renamed}, filled {self.filled}"


def draw_reshape(rng: Random, sections: Mapping[str, Any]) -> Reshape:
    """Another ladder, other features, or both."""
    change = Reshape.of(sections)
    place = rng.randrange(3)
    if place != 0:
        rng.choice(PRICE_CHANGES)(rng, change)
    if place != 1:
        rng.choice(FEATURE_CHANGES)(rng, change)
    return change


def reshape_like(rng: Random, sections: Mapping[str, Any], target: Mapping[str, Any]) -> Reshape:
    """The terms of another city. A feature under its other name is renamed, any other new one is filled."""
    before, change = Reshape.of(sections).names, Reshape.of(target)
    for feature in change.features:
        name = feature["name"]
        other = OTHER_NAMES[name]
        if name in before:
            continue
        if other in before and other not in change.names:
            change.renamed[name] = other
        else:
            change.filled[name] = _value(rng, feature)
    return change


def _value(rng: Random, feature: Mapping[str, Any]) -> float:
    return round(rng.uniform(feature["min"], feature["max"]), 2)


# Prices; the lowest stays, because it is below a floor that some meshes have


def _add_price(rng: Random, change: Reshape) -> None:
    if len(change.prices) < MAX_PRICES:
        change.prices.append(rng.choice([price for price in MORE_PRICES if price not in change.prices]))
        change.prices.sort()


def _remove_price(rng: Random, change: Reshape) -> None:
    if len(change.prices) > MIN_PRICES:
        change.prices.remove(rng.choice(change.prices[1:]))


def _reprice(rng: Random, change: Reshape) -> None:
    change.prices.remove(rng.choice(change.prices[1:]))
    _add_price(rng, change)


# Features; the one that is a unit's cost stays


def _add_feature(rng: Random, change: Reshape) -> None:
    new = [each for each in MORE_FEATURES if not {each["name"], OTHER_NAMES[each["name"]]} & change.names]
    if new:
        feature, part = dict(rng.choice(new)), change.part(rng.choice(("shared", "local")))
        part.insert(rng.randint(0, len(part)), feature)
        change.filled[feature["name"]] = _value(rng, feature)


def _remove_feature(rng: Random, change: Reshape) -> None:
    part = change.part(rng.choice(("shared", "local")))
    if len(part) > 1:
        part[:] = _without(part, rng.choice([each for each in part if each["name"] != change.cost]))


def _move_feature(rng: Random, change: Reshape) -> None:
    source, target = rng.sample((change.part("shared"), change.part("local")), 2)
    if len(source) > 1:
        feature = rng.choice(source)
        source[:] = _without(source, feature)
        target.insert(rng.randint(0, len(target)), feature)


def _rename_feature(rng: Random, change: Reshape) -> None:
    feature = rng.choice(change.features)
    old = feature["name"]
    feature["name"] = new = OTHER_NAMES[old]
    change.renamed[new] = old
    if change.cost == old:
        change.sections["reward"]["cost"] = new


def _bound_feature(rng: Random, change: Reshape) -> None:
    rng.choice(change.features)["max"] = rng.choice(UPPER_BOUNDS)


def _without(part: list[dict[str, Any]], feature: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in part if each is not feature]


PRICE_CHANGES: tuple[Callable[[Random, Reshape], None], ...] = (_add_price, _remove_price, _reprice)
FEATURE_CHANGES: tuple[Callable[[Random, Reshape], None], ...] = (
    _add_feature,
    _remove_feature,
    _move_feature,
    _rename_feature,
    _bound_feature,
)
