"""The mesh in one process: N cities in groups play T rounds of a world, for many seeds at once.

In every m-th round the cities exchange summaries, update weights and absorb peers. In every round each city
observes its context, decides, is rewarded and learns. The learners are those of the service.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pricemesh.core.arrays import Array, Ints
from pricemesh.core.choice import Randomness, decide
from pricemesh.core.ladder import Ladder
from pricemesh.core.news import EVERY_CHANGE, bytes_of_news, news, updated
from pricemesh.core.policies import Learner, Policy, Shape
from pricemesh.core.policies.shared import SharedLearner
from pricemesh.core.summary import Summary
from pricemesh.core.thompson import city_seed, uniform_of
from pricemesh.core.ucb import Score
from pricemesh.errors import InvalidParameter
from pricemesh.lab.worlds import Instance, Round, SalesInstance, SalesWorld, World, at_arm, play_out

Number = TypeVar("Number", np.float64, np.int64)


class Step(NamedTuple):
    """What happened in one round, S seeds by N cities."""

    round: int  # from 1
    arm: Ints
    best_arm: Ints
    reward: Array
    regret: Array  # expected reward of the best arm minus that of the arm chosen
    radius: Array  # of the arm chosen
    propensity: Array  # its probability of being chosen
    score: Score  # of all arms, (S, N, K)
    now: Round
    instance: Instance


class Row(NamedTuple):
    seed: int
    round: int
    city: int
    arm: int
    best_arm: int
    reward: float
    regret: float
    radius: float
    propensity: float


@dataclass
class _Block:
    """All groups of one size, one batch (S, groups, size) of a learner."""

    cities: Ints  # (groups * size,)
    learner: Learner
    batch: tuple[int, int, int]
    published: Array  # the letters of all cities as numbers, (*batch, size)


class _Decisions(NamedTuple):
    """Of one round, with what they will bring; S seeds by N cities."""

    context: Array
    arm: Ints
    outcome: Array  # what the learners learn: rewards, or sales
    chances: list[Array | None]  # by block


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """How the cities play: groups, gossip, delay of feedback and drift of the world, counted in rounds."""

    groups: tuple[int, ...] | None = None  # sizes, in the order of the cities; None: one group of all
    gossip_every: int = 1  # from one exchange of summaries to the next
    delay: int = 0  # from a decision to its feedback
    drift_at: int | None = None  # after these rounds the truth is drawn anew; None: never
    news: float = EVERY_CHANGE  # the factor by which information grows until it is published

    def __post_init__(self) -> None:
        for name, value, minimum in (
            ("gossip_every", self.gossip_every, 1),
            ("delay", self.delay, 0),
            ("drift_at", self.drift_at, 0),
        ):
            if value is not None and value < minimum:
                raise InvalidParameter(f"{name} counts rounds, from {minimum}: not {value}")
        if not self.news >= EVERY_CHANGE:
            raise InvalidParameter(f"news is a factor of at least 1, which publishes all: not {self.news}")

    def sizes(self, world: World) -> tuple[int, ...]:
        """The sizes of the groups. Raises InvalidParameter if they do not add up to the world's cities."""
        sizes = self.groups or (world.cities,)
        if sum(sizes) != world.cities or min(sizes) < 1:
            raise InvalidParameter(f"groups {sizes} do not add up to {world.cities} cities")
        return sizes


DEFAULT_CONDUCT = Conduct()


class Mesh:
    """N cities of one policy."""

    def __init__(
        self,
        world: World,
        policy: Policy,
        seeds: Sequence[int],
        conduct: Conduct = DEFAULT_CONDUCT,
    ) -> None:
        sizes = conduct.sizes(world)
        self.world, self.policy, self.seeds = world, policy, tuple(seeds)
        self.conduct = conduct
        self._city_seeds = [[city_seed(f"city{i}", seed) for i in range(world.cities)] for seed in self.seeds]
        self.blocks = [self._block(size, sizes) for size in sorted(set(sizes))]
        self._ticks = 0
        self._bytes_published = 0  # of all seeds and cities, counted where only news is published

    def _block(self, size: int, sizes: tuple[int, ...]) -> _Block:
        starts = np.cumsum((0, *sizes))
        members = [np.arange(starts[i], starts[i + 1]) for i, n in enumerate(sizes) if n == size]
        batch = (len(self.seeds), len(members), size)
        cities = np.concatenate(members)
        ladder = self._ladder(cities.reshape(batch[1:]))
        shape = Shape(self.world.arms, self.world.shared, self.world.widest_local, batch, ladder)
        learner = self.policy.learner(shape)
        return _Block(cities, learner, batch, learner.numbers() if learner.fields else np.empty(0))

    def _ladder(self, cities: Ints) -> Ladder | None:
        """What the arms of these cities cost, (groups, size, K), where the world sells."""
        if not isinstance(self.world, SalesWorld):
            return None
        prices, (low, high) = self.world.city_prices, self.world.price_range
        if (prices == prices[0]).all():
            return Ladder(prices[0], low, high)
        return Ladder(prices[cities], low, high, is_common=False)

    def play(self, rounds: int) -> Iterator[Step]:
        """Yields a step before it is learned, so that the caller sees the learners as they were when
        deciding."""
        waiting: deque[_Decisions] = deque()
        stream = play_out(self.world, self.seeds, self.conduct.drift_at)
        for index, (now, instance) in zip(range(rounds), stream, strict=False):
            if index % self.conduct.gossip_every == 0:
                self.gossip()
            score = self.score(now.context)
            arm, propensity = decide(score, self._randomness(index + 1))
            reward = instance.reward(now, arm)
            best = now.expected.argmax(axis=-1)
            regret = at_arm(now.expected, best) - at_arm(now.expected, arm)
            radius = at_arm(score.radius, arm)
            yield Step(index + 1, arm, best, reward, regret, radius, propensity, score, now, instance)
            outcome = reward
            if self.learns_sales:
                assert isinstance(instance, SalesInstance)
                outcome = instance.sold(now, arm)
            waiting.append(self._pend(now.context, arm, outcome))
            if len(waiting) > self.conduct.delay:
                self._learn(waiting.popleft())

    def score(self, context: Array) -> Score:
        """Every arm's estimate and radius in every city, (S, N, K)."""
        per_arm = (*context.shape[:2], self.world.arms)
        estimate, radius = np.empty(per_arm), np.empty(per_arm)
        for block in self.blocks:
            score = block.learner.score(self._of(block, context))
            estimate[:, block.cities] = score.estimate.reshape(len(self.seeds), -1, self.world.arms)
            radius[:, block.cities] = score.radius.reshape(len(self.seeds), -1, self.world.arms)
        return Score(estimate, radius)

    def _randomness(self, round_: int) -> Randomness | None:
        """What a round's choices are drawn by: the same as in a service whose city is named `city0`, whose
        seed is this one and whose decision is named `round1`."""
        sampling = self.blocks[0].learner.sampling
        if sampling is None:
            return None
        id_ = f"round{round_}"
        return Randomness(
            sampling, np.array([[uniform_of(seed, id_) for seed in seeds] for seeds in self._city_seeds])
        )

    @property
    def learns_sales(self) -> bool:
        return self.blocks[0].learner.learns_sales

    def _pend(self, context: Array, arm: Ints, outcome: Array) -> "_Decisions":
        """Count the decisions of a round until their feedback comes."""
        chances = []
        for block in self.blocks:
            x, arms = self._of(block, context), self._of(block, arm)
            chances.append(block.learner.chances(x, arms))
            block.learner.pend(x, arms, chances[-1])
        return _Decisions(context, arm, outcome, chances)

    def _learn(self, decisions: "_Decisions") -> None:
        context, arm, outcome, chances = decisions
        for block, chance in zip(self.blocks, chances, strict=True):
            learner = block.learner
            learner.learn(
                self._of(block, context),
                self._of(block, arm),
                self._of(block, outcome),
                chance,
                pending=learner.counts_pending,
            )

    def gossip(self) -> None:
        """One tick: every city publishes its news and absorbs the newest summary of every city in its
        group."""
        self._ticks += 1
        for block in self.blocks:
            learner = block.learner
            if not learner.fields:
                continue
            if self.conduct.news <= EVERY_CHANGE:
                learner.absorb(learner.summarise())
                continue
            numbers, layout = learner.numbers(), learner.layout
            blocks = news(learner, block.published, numbers, self.conduct.news)
            block.published = updated(layout, block.published, numbers, blocks)
            self._bytes_published += int(bytes_of_news(layout, blocks).sum())
            learner.absorb(layout.unpack(block.published))

    @staticmethod
    def _of(block: _Block, values: NDArray[Number]) -> NDArray[Number]:
        return values[:, block.cities].reshape(*block.batch, *values.shape[2:])

    @property
    def bytes_per_tick(self) -> int:
        """What one city sends at one tick: its summary in wire form, on average its news where only that is
        published; to the central server of `shared` every observation since the last tick (context, arm and
        reward)."""
        learner = self.blocks[0].learner
        if isinstance(learner, SharedLearner):
            return self.conduct.gossip_every * 8 * (learner.shape.dim + 2)
        if not learner.fields:
            return 0
        if self.conduct.news > EVERY_CHANGE:
            letters = max(1, self._ticks) * len(self.seeds) * self.world.cities
            return round(self._bytes_published / letters)
        numbers = np.zeros(learner.layout.size)
        return len(Summary.of("", 0, 0, bytes(16), numbers).to_bytes())


def rows(step: Step, seeds: Sequence[int]) -> Iterator[Row]:
    """A step as flat rows, one for each seed and city."""
    for s, seed in enumerate(seeds):
        columns = (a[s].tolist() for a in step[1:7])
        for city, values in enumerate(zip(*columns, strict=True)):
            yield Row(seed, step.round, city, *values)


def group_sizes(label: str) -> tuple[int, ...]:
    """The sizes a label stands for, as the paper writes them: `12` one group, `3x4` three groups of
    four, `6x2` two groups of six, `1x12` twelve cities alone; or the sizes themselves, `5,4,3`.

    The paper writes the two factors in either order; the larger is the size of a group, save in 1xN.
    """
    label = label.replace(" ", "")
    if re.fullmatch(r"\d+(,\d+)*", label):
        sizes = tuple(int(size) for size in label.split(","))
    elif factors := re.fullmatch(r"(\d+)[x*](\d+)", label):
        low, high = sorted(int(factor) for factor in factors.groups())
        sizes = (1,) * high if low == 1 else (high,) * low
    else:
        raise InvalidParameter(f"groups are written 12, 6x2, 3x4, 1x12 or 5,4,3, not {label!r}")
    if not sizes or min(sizes) < 1:
        raise InvalidParameter(f"a group has at least one city: {label!r}")
    return sizes
