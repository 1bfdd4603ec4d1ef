"""A market with named features, where the learners' linear assumption holds only roughly.

A customer buys with a chance that the link makes of the utility difference: pull - elasticity * dearness. The
context moves pull and elasticity; dearness = 4 (price / 8 - 1). Reward = price paid / 12, on every ladder.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import erfc, pi, sqrt
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from pricemesh.core.arrays import Array, not_negative, one_of
from pricemesh.errors import InvalidParameter
from pricemesh.lab.worlds import BLOCK, Round, Sales, check_size, generator, ladders

# Name, effect on utility, effect on elasticity. The effects vary between seeds by a fifth.
SHARED = (
    ("base", 0.6, 3.0),
    ("demand", 1.2, -0.8),
    ("rain", 0.8, -0.9),
    ("event", 1.0, -1.2),
    ("season", 1.5, -0.6),
    ("evening", 0.5, -0.4),
    ("weekend", 0.3, 0.6),
    ("fuel_price", -0.4, 0.5),
)
LOCAL = ("tourists", "strike", "construction", "school_holiday")
MIN_PRICE, MAX_PRICE = 8.0, 12.0
_MAX_EXPONENT = 700.0  # beyond it exp overflows
_erfc = np.frompyfunc(erfc, 1, 1)


def _logit(against: Array) -> Array:
    chance: Array = 1.0 / (1.0 + np.exp(np.minimum(against, _MAX_EXPONENT)))
    return chance


def _probit(against: Array) -> Array:
    """Phi(-b * against) = erfc(b * against / sqrt 2) / 2 with b = sqrt(2 pi) / 4: at zero its slope is that
    of the logit, 1/4. Its tails are shorter."""
    return 0.5 * np.asarray(_erfc(against * (sqrt(pi) / 4.0)), dtype=np.float64)


def _cliff(against: Array) -> Array:
    """2^-exp(-utility difference): hardly anyone buys at a price that is a little too high, while below it
    the chance rises slowly (a complementary log-log link)."""
    chance: Array = np.exp2(-np.exp(np.minimum(against, _MAX_EXPONENT)))
    return chance


def _step(against: Array) -> Array:
    """0.05 + 0.9 logistic(6 (utility difference + 0.3)): a drop 5.4 times as steep as the logit's. Far
    from it the price changes little; at any price 0.05 buy and 0.05 do not."""
    return 0.05 + 0.9 * _logit(6.0 * (against - 0.3))


# The chance of a sale, decreasing in `against` = -(utility difference).
LINKS: dict[str, Callable[[Array], Array]] = {
    "logit": _logit,
    "probit": _probit,
    "cliff": _cliff,
    "step": _step,
}


@dataclass(frozen=True, kw_only=True)
class Market:
    """`link` is the shape of demand: logit, probit or cliff. `bumps` is the standard deviation of what each
    single price adds to the utility difference, the same in all cities. `elasticity_spread` multiplies the
    random parts of the effects on elasticity: between seeds, between cities (`heterogeneity`) and of local
    features. `ladders` has the prices: one ladder for all cities or one for each; without them, `arms`
    evenly spaced prices from 8 to 12.
    """

    sells: ClassVar[bool] = True
    reward_unit: ClassVar[float] = MAX_PRICE

    cities: int = 12
    arms: int = 5
    shared: int = len(SHARED)
    local: int = 2
    heterogeneity: float = 0.0
    link: str = "logit"
    bumps: float = 0.0
    elasticity_spread: float = 1.0
    ladders: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        check_size(self.cities, self.arms)
        if not 1 <= self.shared <= len(SHARED) or not 0 <= self.local <= len(LOCAL):
            raise InvalidParameter(
                f"the market has 1 to {len(SHARED)} shared and 0 to {len(LOCAL)} local features, "
                f"not {self.shared} and {self.local}"
            )
        not_negative("heterogeneity", self.heterogeneity)
        one_of("link", self.link, tuple(LINKS))
        not_negative("bumps", self.bumps)
        not_negative("elasticity_spread", self.elasticity_spread)
        if self.ladders:
            ladders(self.ladders, self.cities, self.arms)  # raises if they are not possible

    @property
    def widest_local(self) -> int:
        return self.local

    @cached_property
    def city_prices(self) -> Array:
        """(N, K)"""
        usual = np.linspace(MIN_PRICE, MAX_PRICE, self.arms)
        return ladders(self.ladders or (tuple(usual.tolist()),), self.cities, self.arms)

    @property
    def price_range(self) -> tuple[float, float]:
        return float(self.city_prices.min()), float(self.city_prices.max())

    @property
    def prices(self) -> tuple[float, ...]:
        """The ladder of all cities. Raises InvalidParameter if they differ."""
        if (self.city_prices != self.city_prices[0]).any():
            raise InvalidParameter("the cities of this market have different prices: use city_prices")
        return tuple(self.city_prices[0].tolist())

    @property
    def feature_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(name for name, *_ in SHARED[: self.shared]), LOCAL[: self.local]

    def instance(self, seeds: Sequence[int]) -> "MarketInstance":
        return MarketInstance(self, seeds)


class MarketInstance(Sales):
    def __init__(self, world: Market, seeds: Sequence[int]) -> None:
        super().__init__(world)
        self._world = world
        self._seeds = seeds
        self._price = world.city_prices
        self._share_buying = LINKS[world.link]
        truth = [self._truth(generator(seed, "truth")) for seed in seeds]
        self.effects = np.stack(truth)  # (S, N, 2, d): on utility, on elasticity
        self.bumps = np.stack([self._bumps(generator(seed, "bumps")) for seed in seeds])  # (S, N, K)

    def _truth(self, rng: Generator) -> Array:
        world = self._world
        n, c, s = world.cities, world.shared, world.local
        usual = np.array([effects for _, *effects in SHARED[:c]]).T  # (2, c)
        spread = np.array([[1.0], [world.elasticity_spread]])
        common = usual * (1.0 + 0.2 * rng.standard_normal(usual.shape) * spread)
        own = world.heterogeneity * np.abs(usual) * rng.standard_normal((n, 2, c)) * spread
        local = rng.standard_normal((n, 2, s)) * spread
        return np.concatenate([common + own, local], axis=-1)

    def _bumps(self, rng: Generator) -> Array:
        """(N, K). Cities with the same price have the same bump at it."""
        levels, index = np.unique(self._price, return_inverse=True)
        drawn = self._world.bumps * rng.standard_normal(levels.size)
        return np.asarray(drawn[index.reshape(self._price.shape)])

    def rounds(self) -> Iterator[Round]:
        streams = [(generator(seed, "context"), generator(seed, "purchase")) for seed in self._seeds]
        shape = (BLOCK, self._world.cities)
        start = 0
        while True:
            contexts = np.stack([self._contexts(rng, shape, start) for rng, _ in streams], axis=1)
            luck = np.stack([rng.random(shape) for _, rng in streams], axis=1)
            for x, u in zip(contexts, luck, strict=True):
                yield Round(x, self.expected(x), u)
            start += BLOCK

    def expected(self, x: Array) -> Array:
        means: Array = self.chance(x) * self._price / MAX_PRICE
        return means

    def _contexts(self, rng: Generator, shape: tuple[int, int], start: int) -> Array:
        """Features between 0 and 1. A round is an hour; hour and weekday follow the clock, the rest is
        random."""
        c, s = self._world.shared, self._world.local
        hour = (start + np.arange(shape[0]))[:, None] % 168
        uniform = rng.random((*shape, len(SHARED) + len(LOCAL)))
        x = uniform[..., : len(SHARED)].copy()
        x[..., 0] = 1.0
        x[..., 2] = np.maximum(0.0, 2.0 * x[..., 2] - 1.0)  # no rain half of the time
        x[..., 3] = x[..., 3] > 0.85
        x[..., 5] = (1.0 + np.cos((hour % 24 - 19) * np.pi / 12)) / 2.0
        x[..., 6] = hour >= 120
        local = uniform[..., len(SHARED) : len(SHARED) + s]
        return np.concatenate([x[..., :c], local], axis=-1)

    def chance(self, x: Array) -> Array:
        """(S, N, K)"""
        pull = np.matvec(self.effects, x)  # (S, N, 2)
        elasticity = np.maximum(0.5, pull[..., 1:])
        dearness = 4.0 * (self._price / MIN_PRICE - 1.0)
        return self._share_buying(elasticity * dearness - pull[..., :1] - self.bumps)
