"""A market with named features, where the learners' linear assumption holds only roughly.

A customer buys with logistic probability. The context moves the utility and the elasticity; a higher
elasticity gives the price more weight. Reward = price paid / highest price.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from pricemesh.core.arrays import Array, Ints, not_negative
from pricemesh.errors import InvalidParameter
from pricemesh.lab.worlds import BLOCK, Round, at_arm, check_size, generator

# Name, effect on utility, effect on elasticity. The effects vary between seeds by a fifth.
SHARED = (
    ("base", 0.6, 3.0),
    ("demand", 1.2, -0.8),
    ("rain", 0.8, -0.9),
    ("event", 1.0, -1.2),
    ("competitor_price", 1.5, -0.6),
    ("evening", 0.5, -0.4),
    ("weekend", 0.3, 0.6),
    ("fuel_price", -0.4, 0.5),
)
LOCAL = ("tourists", "strike", "construction", "school_holiday")
MIN_PRICE, MAX_PRICE = 8.0, 12.0


@dataclass(frozen=True, kw_only=True)
class Market:
    cities: int = 12
    arms: int = 5
    shared: int = len(SHARED)
    local: int = 2
    heterogeneity: float = 0.0

    def __post_init__(self) -> None:
        check_size(self.cities, self.arms)
        if not 1 <= self.shared <= len(SHARED) or not 0 <= self.local <= len(LOCAL):
            raise InvalidParameter(
                f"the market has 1 to {len(SHARED)} shared and 0 to {len(LOCAL)} local features, "
                f"not {self.shared} and {self.local}"
            )
        not_negative("heterogeneity", self.heterogeneity)

    @property
    def widest_local(self) -> int:
        return self.local

    @property
    def prices(self) -> tuple[float, ...]:
        return tuple(float(p) for p in np.linspace(MIN_PRICE, MAX_PRICE, self.arms))

    @property
    def feature_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(name for name, *_ in SHARED[: self.shared]), LOCAL[: self.local]

    def instance(self, seeds: Sequence[int]) -> "MarketInstance":
        return MarketInstance(self, seeds)


class MarketInstance:
    def __init__(self, world: Market, seeds: Sequence[int]) -> None:
        self._world = world
        self._seeds = seeds
        self._price = np.array(world.prices)
        truth = [self._truth(generator(seed, "truth")) for seed in seeds]
        self.effects = np.stack(truth)  # (S, N, 2, d): on utility, on elasticity

    def _truth(self, rng: Generator) -> Array:
        world = self._world
        n, c, s = world.cities, world.shared, world.local
        usual = np.array([effects for _, *effects in SHARED[:c]]).T  # (2, c)
        common = usual * (1.0 + 0.2 * rng.standard_normal(usual.shape))
        own = world.heterogeneity * np.abs(usual) * rng.standard_normal((n, 2, c))
        local = rng.standard_normal((n, 2, s))
        return np.concatenate([common + own, local], axis=-1)

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
        means: Array = self._share_buying(x) * self._price / MAX_PRICE
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

    def _share_buying(self, x: Array) -> Array:
        """(S, N, K)"""
        pull = np.matvec(self.effects, x)  # (S, N, 2)
        elasticity = np.maximum(0.5, pull[..., 1:])
        dearness = 4.0 * (self._price / MIN_PRICE - 1.0)
        buying: Array = 1.0 / (1.0 + np.exp(elasticity * dearness - pull[..., :1]))
        return buying

    def reward(self, now: Round, arm: Ints) -> Array:
        """A round's customer has one threshold: a customer who pays a price would pay every lower one."""
        paid = self._price[arm] / MAX_PRICE
        return np.where(now.luck * paid < at_arm(now.expected, arm), paid, 0.0)
