"""The mesh in one process: N cities in groups play T rounds of a world, for many seeds at once.

A round: at every m-th, summaries are exchanged, weights move and peers are absorbed; then every city
observes its context, decides, is rewarded and learns. All on the learners that the service runs.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.core.arrays import Array, Ints
from service.core.policies import Learner, Policy, Shape
from service.core.policies.shared import SharedLearner
from service.core.summary import Summary
from service.core.ucb import choose
from service.errors import InvalidParameter
from service.sim.worlds import World, at_arm

Number = TypeVar("Number", np.float64, np.int64)


class Step(NamedTuple):
    """What happened in one round, S seeds by N cities."""

    round: int  # from 1
    arm: Ints
    best_arm: Ints
    reward: Array
    regret: Array  # expected reward of the best arm minus that of the arm chosen
    radius: Array  # of the arm chosen


class Row(NamedTuple):
    seed: int
    round: int
    city: int
    arm: int
    best_arm: int
    reward: float
    regret: float
    radius: float


@dataclass(frozen=True)
class _Block:
    """All groups of one size, learnt in one batch (S, groups, size)."""

    cities: Ints  # (groups * size,)
    learner: Learner
    batch: tuple[int, int, int]


def check_mesh(world: World, groups: Sequence[int] | None, gossip_every: int) -> tuple[int, ...]:
    """The sizes of the groups, if they and the period of gossip can be."""
    sizes = tuple(groups or (world.cities,))
    if sum(sizes) != world.cities or min(sizes) < 1:
        raise InvalidParameter(f"groups {sizes} do not add up to {world.cities} cities")
    if gossip_every < 1:
        raise InvalidParameter(f"gossip_every counts rounds, from 1: not {gossip_every}")
    return sizes


class Mesh:
    """N cities of one policy. `groups` are the sizes of the groups, in the order of the cities."""

    def __init__(
        self,
        world: World,
        policy: Policy,
        seeds: Sequence[int],
        *,
        groups: Sequence[int] | None = None,
        gossip_every: int = 1,
    ) -> None:
        sizes = check_mesh(world, groups, gossip_every)
        self.world, self.policy, self.seeds = world, policy, tuple(seeds)
        self.gossip_every = gossip_every
        self.blocks = [self._block(size, sizes) for size in sorted(set(sizes))]

    def _block(self, size: int, sizes: tuple[int, ...]) -> _Block:
        starts = np.cumsum((0, *sizes))
        members = [np.arange(starts[i], starts[i + 1]) for i, n in enumerate(sizes) if n == size]
        batch = (len(self.seeds), len(members), size)
        shape = Shape(self.world.arms, self.world.shared, self.world.widest_local, batch)
        return _Block(np.concatenate(members), self.policy.learner(shape), batch)

    def play(self, rounds: int) -> Iterator[Step]:
        instance = self.world.instance(self.seeds)
        shape = (len(self.seeds), self.world.cities)
        for index, now in zip(range(rounds), instance.rounds(), strict=False):
            if index % self.gossip_every == 0:
                self.gossip()
            arm = np.empty(shape, dtype=np.int64)
            radius = np.empty(shape)
            for block in self.blocks:
                score = block.learner.score(self._of(block, now.context))
                chosen = choose(score)
                arm[:, block.cities] = chosen.reshape(len(self.seeds), -1)
                radius[:, block.cities] = at_arm(score.radius, chosen).reshape(len(self.seeds), -1)
            reward = instance.reward(now, arm)
            for block in self.blocks:
                block.learner.learn(
                    self._of(block, now.context), self._of(block, arm), self._of(block, reward)
                )
            best = now.expected.argmax(axis=-1)
            regret = at_arm(now.expected, best) - at_arm(now.expected, arm)
            yield Step(index + 1, arm, best, reward, regret, radius)

    def gossip(self) -> None:
        """One tick: everyone in a group gets everyone's newest summary."""
        for block in self.blocks:
            if block.learner.fields:
                block.learner.absorb(block.learner.summarise())

    @staticmethod
    def _of(block: _Block, values: NDArray[Number]) -> NDArray[Number]:
        return values[:, block.cities].reshape(*block.batch, *values.shape[2:])

    @property
    def bytes_per_tick(self) -> int:
        """What one city sends at one tick: its summary in wire form; to the central server of `shared`
        every observation since the last tick (context, arm and reward)."""
        learner = self.blocks[0].learner
        if isinstance(learner, SharedLearner):
            return self.gossip_every * 8 * (learner.shape.dim + 2)
        if not learner.fields:
            return 0
        numbers = np.zeros(learner.layout.size)
        return len(Summary.of("", 0, 0, bytes(16), numbers).to_bytes())


def rows(step: Step, seeds: Sequence[int]) -> Iterator[Row]:
    """A step as flat rows, one for each seed and city."""
    for s, seed in enumerate(seeds):
        columns = (a[s].tolist() for a in step[1:])
        for city, (arm, best, reward, regret, radius) in enumerate(zip(*columns, strict=True)):
            yield Row(seed, step.round, city, arm, best, reward, regret, radius)


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
