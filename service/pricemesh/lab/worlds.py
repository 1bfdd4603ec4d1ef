"""Synthetic truth: parameters, contexts, noise and the best arm, for many cities and seeds at once.

A world is a set of parameters; an `Instance` plays it. The draws of a seed depend on that seed alone, not on
the policy, the other seeds or the number of rounds, so all policies meet the same luck.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.random import Generator

from pricemesh.core.arrays import Array, Ints, not_negative
from pricemesh.errors import InvalidParameter

BLOCK = 64  # rounds drawn from the generators at once
DRIFT_OFFSET = 1_000_003  # added to a seed for its world after a drift


class Round(NamedTuple):
    """Contexts and rewards of one round, S seeds by N cities."""

    context: Array  # (S, N, c + s), zero where a city has fewer local features than others
    expected: Array  # (S, N, K), the mean reward of every arm
    luck: Array  # (S, N), the draw that turns a mean into a reward


class Instance(Protocol):
    """A world and its truth for a list of seeds."""

    def rounds(self) -> Iterator[Round]:
        """Without end."""

    def expected(self, x: Array) -> Array:
        """The mean reward of every arm (S, N, K) for the contexts x (S, N, d)."""

    def reward(self, now: Round, arm: Ints) -> Array:
        """The rewards of the chosen arms (S, N)."""


@runtime_checkable
class SalesInstance(Instance, Protocol):
    """An instance of a world where the reward is sold * price / reward_unit."""

    def chance(self, x: Array) -> Array:
        """The true chance of a sale at every arm (S, N, K) for the contexts x (S, N, d)."""

    def sold(self, now: Round, arm: Ints) -> Array:
        """1.0 where the chosen arms (S, N) sold, else 0.0."""


class World(Protocol):
    @property
    def sells(self) -> bool:
        """Whether a reward is the price of a sale or nothing. If so, the world is a `SalesWorld`."""

    @property
    def cities(self) -> int: ...
    @property
    def arms(self) -> int: ...
    @property
    def shared(self) -> int: ...
    @property
    def widest_local(self) -> int: ...
    def instance(self, seeds: Sequence[int]) -> Instance: ...


@runtime_checkable
class SalesWorld(World, Protocol):
    """A world where customers buy at a price or do not."""

    @property
    def city_prices(self) -> Array:
        """(N, K): each city's ladder, ascending."""

    @property
    def price_range(self) -> tuple[float, float]:
        """The range that all cities agree on; it covers all ladders."""

    @property
    def reward_unit(self) -> float:
        """Reward = sold * price / reward_unit."""

    def instance(self, seeds: Sequence[int]) -> SalesInstance: ...


@dataclass(frozen=True, kw_only=True)
class Linear:
    """The paper's world: theta_c is common to all cities up to `heterogeneity`, theta_s belongs to one city;
    entries N(0, 1/(c+s)); a context is N(mean, I) divided by max(1, its length); noise N(0, sigma^2).

    `gap` scales the arms' deviations from their mean, `outliers` is the probability that a context is
    five times as long, `correlation` is that of any two features of a context, `positive` contexts are
    folded to have no negative entries. `local` and `context_mean` may differ between cities: then give a
    number for each.
    """

    sells: ClassVar[bool] = False

    cities: int = 12
    arms: int = 5
    shared: int = 8
    local: int | tuple[int, ...] = 2
    noise: float = 0.5
    heterogeneity: float = 0.0
    context_mean: float | tuple[float, ...] = 0.0
    outliers: float = 0.0
    correlation: float = 0.0
    gap: float = 1.0
    positive: bool = False

    def __post_init__(self) -> None:
        check_size(self.cities, self.arms)
        if self.shared < 1 or min(self.locals_) < 0 or len(self.locals_) != self.cities:
            raise InvalidParameter(
                "the linear world needs at least one shared feature, no negative number of local "
                "ones, and one such number for each city or for all"
            )
        not_negative("noise", self.noise)
        not_negative("heterogeneity", self.heterogeneity)
        not_negative("gap", self.gap)
        if not np.isfinite(self.means).all() or len(self.means) != self.cities:
            raise InvalidParameter(
                f"context_mean must be a number, or one for each city, not {self.context_mean!r}"
            )
        if not 0 <= self.outliers <= 1:
            raise InvalidParameter(f"outliers is a probability, not {self.outliers!r}")
        if not 0 <= self.correlation <= 1:
            raise InvalidParameter(f"correlation lies between 0 and 1, not {self.correlation!r}")

    @property
    def locals_(self) -> tuple[int, ...]:
        return (self.local,) * self.cities if isinstance(self.local, int) else self.local

    @property
    def means(self) -> tuple[float, ...]:
        one = self.context_mean
        return one if isinstance(one, tuple) else (one,) * self.cities

    @property
    def widest_local(self) -> int:
        return max(self.locals_)

    def instance(self, seeds: Sequence[int]) -> "LinearInstance":
        return LinearInstance(self, seeds)


class LinearInstance:
    def __init__(self, world: Linear, seeds: Sequence[int]) -> None:
        self._world = world
        self._seeds = seeds
        widths = world.shared + np.array(world.locals_)
        # (N, d): which features a city has, where cities differ in their local ones.
        self._has = np.arange(world.shared + world.widest_local) < widths[:, None]
        self.theta = np.stack([self._truth(seed) for seed in seeds])  # (S, N, K, d)

    def _truth(self, seed: int) -> Array:
        world, rng = self._world, generator(seed, "truth")
        n, k, c, s = world.cities, world.arms, world.shared, world.widest_local
        common = rng.standard_normal((k, c))
        theta = rng.standard_normal((n, k, c + s))
        own = rng.standard_normal((n, k, c))
        theta[..., :c] = common + world.heterogeneity * own
        theta *= self._has[:, None, :] / np.sqrt(c + s)
        mean = theta.mean(axis=1, keepdims=True)
        return np.asarray(mean + world.gap * (theta - mean))

    def rounds(self) -> Iterator[Round]:
        world = self._world
        shape = (BLOCK, world.cities)
        normal = [generator(seed, "context") for seed in self._seeds]
        noise = [generator(seed, "noise") for seed in self._seeds]
        chance = [generator(seed, "outlier") for seed in self._seeds]
        while True:
            contexts = np.stack([self._contexts(rng, shape) for rng in normal], axis=1)
            far = np.stack([rng.random(shape) for rng in chance], axis=1) < world.outliers
            contexts *= np.where(far, 5.0, 1.0)[..., None]  # (BLOCK, S, N, d)
            luck = np.stack([rng.standard_normal(shape) for rng in noise], axis=1)
            for x, epsilon in zip(contexts, luck, strict=True):
                yield Round(x, self.expected(x), epsilon)

    def expected(self, x: Array) -> Array:
        means: Array = np.matvec(self.theta, x)
        return means

    def _contexts(self, rng: Generator, shape: tuple[int, int]) -> Array:
        x = rng.standard_normal((*shape, self._has.shape[1]))
        if common := self._world.correlation:
            x *= np.sqrt(1.0 - common)
            x += np.sqrt(common) * rng.standard_normal((*shape, 1))
        x = (np.array(self._world.means)[:, None] + x) * self._has
        if self._world.positive:
            x = np.abs(x)
        x /= np.maximum(1.0, np.sqrt(np.vecdot(x, x)))[..., None]
        return x

    def reward(self, now: Round, arm: Ints) -> Array:
        return at_arm(now.expected, arm) + self._world.noise * now.luck


class Sales:
    """What sells, and for which reward, in a world of sales. A round's customer has one threshold: where
    demand falls with the price, a customer who pays a price would pay every lower one."""

    def __init__(self, world: SalesWorld) -> None:
        self._paid = world.city_prices / world.reward_unit  # (N, K)

    def reward(self, now: Round, arm: Ints) -> Array:
        paid = self._paid[np.arange(len(self._paid)), arm]
        return np.where(now.luck * paid < at_arm(now.expected, arm), paid, 0.0)

    def sold(self, now: Round, arm: Ints) -> Array:
        return (self.reward(now, arm) > 0.0).astype(np.float64)


def play_out(
    world: World, seeds: Sequence[int], drift_at: int | None = None
) -> Iterator[tuple[Round, Instance]]:
    """Rounds without end, each with its instance. After `drift_at` rounds the truth is drawn anew."""
    first = world.instance(seeds)
    for now in islice(first.rounds(), drift_at):
        yield now, first
    second = world.instance([seed + DRIFT_OFFSET for seed in seeds])
    for now in second.rounds():
        yield now, second


def generator(seed: int, stream: str) -> Generator:
    """An independent generator for each (seed, stream)."""
    return np.random.default_rng([seed, *stream.encode()])


def at_arm(per_arm: Array, arm: Ints) -> Array:
    """per_arm (..., K) at the chosen arms (...)."""
    return np.take_along_axis(per_arm, arm[..., None], axis=-1)[..., 0]


def check_size(cities: int, arms: int) -> None:
    if cities < 1:
        raise InvalidParameter(f"a world needs at least one city, not {cities}")
    if arms < 2:
        raise InvalidParameter(f"a world needs at least two arms to choose from, not {arms}")


def ladders(prices: Sequence[Sequence[float]], cities: int, arms: int) -> Array:
    """One ladder for all cities or one for each, as (N, K). Raises InvalidParameter unless every ladder has
    `arms` ascending prices above zero."""
    if len(prices) not in (1, cities):
        raise InvalidParameter(f"give one ladder for all {cities} cities or one for each, not {len(prices)}")
    for ladder in prices:
        if len(ladder) != arms:
            raise InvalidParameter(f"a ladder has one price for each of {arms} arms, not {_listed(ladder)}")
        numbers = np.array(ladder, dtype=np.float64)
        if not np.isfinite(numbers).all() or numbers[0] <= 0 or (np.diff(numbers) <= 0).any():
            raise InvalidParameter(f"a ladder has ascending prices above zero, not {_listed(ladder)}")
    return np.broadcast_to(np.array(prices, dtype=np.float64), (cities, arms))


def _listed(ladder: Sequence[float]) -> str:
    return ", ".join(f"{price:g}" for price in ladder) or "none"
