"""The world of the Swissmetro: in each round a real traveller of each canton buys with the fitted chance.

A price is a multiple of today's rail fare for the traveller's trip, and so is the reward."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from pricemesh.core.arrays import Array, Ints
from pricemesh.errors import InvalidParameter
from pricemesh.lab.swissmetro.answers import CANTONS, LOCAL, MULTIPLES, SHARED, load
from pricemesh.lab.worlds import BLOCK, Round, Sales, check_size, generator, ladders

MIN_PRICE, MAX_PRICE = 0.7, 1.6


@dataclass(frozen=True, kw_only=True)
class Swissmetro:
    """The `cities` cantons with most answers. `ladders` has the prices: one ladder for all cities or one for
    each; without them, `arms` evenly spaced multiples from 0.7 to 1.6. The truth is the same for all seeds; a
    seed draws the travellers, with replacement, and their luck."""

    sells: ClassVar[bool] = True
    reward_unit: ClassVar[float] = 1.0
    shared: ClassVar[int] = len(SHARED)
    widest_local: ClassVar[int] = len(LOCAL)

    cities: int = len(CANTONS)
    arms: int = 10
    ladders: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        check_size(self.cities, self.arms)
        if self.cities > len(CANTONS):
            raise InvalidParameter(
                f"the swissmetro world has at most {len(CANTONS)} cities, not {self.cities}"
            )
        low, high = self.price_range
        if low < MULTIPLES[0] or high > MULTIPLES[-1]:
            raise InvalidParameter(
                f"prices of the swissmetro world are multiples of the rail fare from {MULTIPLES[0]:g} to "
                f"{MULTIPLES[-1]:g}, not {low:g} to {high:g}"
            )

    @cached_property
    def city_prices(self) -> Array:
        """(N, K)"""
        usual = np.linspace(MIN_PRICE, MAX_PRICE, self.arms)
        return ladders(self.ladders or (tuple(usual.tolist()),), self.cities, self.arms)

    @property
    def price_range(self) -> tuple[float, float]:
        return float(self.city_prices.min()), float(self.city_prices.max())

    @property
    def feature_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return SHARED, LOCAL

    @property
    def city_names(self) -> tuple[str, ...]:
        return tuple(CANTONS.values())[: self.cities]

    def instance(self, seeds: Sequence[int]) -> "SwissmetroInstance":
        return SwissmetroInstance(self, seeds)


class SwissmetroInstance(Sales):
    def __init__(self, world: Swissmetro, seeds: Sequence[int]) -> None:
        super().__init__(world)
        self._world = world
        self._seeds = seeds
        answers = load()
        self._answers = np.bincount(answers.city)[: world.cities]  # of each city, which lie together
        self._first = np.cumsum(self._answers) - self._answers
        self._context = answers.context
        rows = slice(0, int(self._answers.sum()))
        self._chance = _at_prices(answers.chance[rows], world.city_prices[answers.city[rows]])  # (R, K)

    def rounds(self) -> Iterator[Round]:
        streams = [(generator(seed, "context"), generator(seed, "purchase")) for seed in self._seeds]
        shape = (BLOCK, self._world.cities)
        while True:
            draws = [self._first + rng.integers(0, self._answers, shape) for rng, _ in streams]
            luck = np.stack([rng.random(shape) for _, rng in streams], axis=1)
            for rows, u in zip(np.stack(draws, axis=1), luck, strict=True):
                yield Round(self._context[rows], self._chance[rows] * self._paid, u)

    def expected(self, x: Array) -> Array:
        means: Array = self.chance(x) * self._paid
        return means

    def chance(self, x: Array) -> Array:
        """(S, N, K). Raises InvalidParameter for a context that no traveller of the city has."""
        return np.asarray(self._chance[self._rows(x)])

    def _rows(self, x: Array) -> Ints:
        rows = [[self._row_of[n].get(one.tobytes(), -1) for n, one in enumerate(seed)] for seed in x]
        found = np.array(rows, dtype=np.int64)
        if (found < 0).any():
            raise InvalidParameter("the swissmetro world knows the chances of its travellers only")
        return found

    @cached_property
    def _row_of(self) -> list[dict[bytes, int]]:
        """For each city the row of a context. Travellers with the same context have the same chances."""
        return [
            {self._context[row].tobytes(): row for row in range(first, first + count)}
            for first, count in zip(self._first.tolist(), self._answers.tolist(), strict=True)
        ]


def _at_prices(chance: Array, prices: Array) -> Array:
    """Chances (R, K) at each row's prices (R, K), linear between the multiples of the table (R, M)."""
    step = MULTIPLES[1] - MULTIPLES[0]
    place = (prices - MULTIPLES[0]) / step
    left = np.clip(np.floor(place).astype(np.int64), 0, len(MULTIPLES) - 2)
    weight = place - left
    low, high = (np.take_along_axis(chance, left + i, axis=1) for i in (0, 1))
    return np.asarray(low + weight * (high - low))
