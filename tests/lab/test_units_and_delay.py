"""In the mesh: rewards in any unit, and decisions that wait for feedback."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from pricemesh.core.arrays import Array, Ints
from pricemesh.core.policies import make_policy
from pricemesh.lab.mesh import Conduct, Mesh
from pricemesh.lab.worlds import Linear, LinearInstance, Round

SEEDS = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class InUnits(Linear):
    """The linear world with all rewards multiplied."""

    factor: float = 1.0

    def instance(self, seeds: Sequence[int]) -> LinearInstance:
        return _Instance(self, seeds)


class _Instance(LinearInstance):
    def __init__(self, world: InUnits, seeds: Sequence[int]) -> None:
        super().__init__(world, seeds)
        self._factor = world.factor

    def reward(self, now: Round, arm: Ints) -> Array:
        return self._factor * super().reward(now, arm)


def decisions(mesh: Mesh, rounds: int) -> Array:
    return np.array([step.arm for step in mesh.play(rounds)])


@pytest.mark.parametrize("delay", [0, 15])
@pytest.mark.parametrize("groups", [(4,), (1, 3)])
def test_the_unit_of_rewards_changes_no_decision(groups: tuple[int, ...], delay: int) -> None:
    conduct = Conduct(groups=groups, gossip_every=5, delay=delay)
    runs = [
        decisions(Mesh(InUnits(cities=4, factor=factor), make_policy("netpool"), SEEDS, conduct), 150)
        for factor in (1.0, 1e-6, 100.0, 1e6)
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run, runs[0])


@pytest.mark.parametrize("name", ["netpool", "disjoint", "netlinucb"])
def test_without_delay_counting_decisions_that_wait_changes_no_decision(name: str) -> None:
    world, conduct = Linear(cities=4), Conduct(gossip_every=5)
    runs = [
        decisions(Mesh(world, make_policy(name, pending=pending), SEEDS, conduct), 400)
        for pending in ("on", "off")
    ]
    np.testing.assert_array_equal(runs[0], runs[1])


def test_with_late_feedback_counting_decisions_that_wait_lowers_the_regret() -> None:
    """The paired differences of ten seeds lie more than four standard errors below zero."""
    world, conduct, seeds = Linear(cities=4), Conduct(gossip_every=5, delay=60), range(10)
    with_pending, without = (
        sum(
            step.regret.sum(axis=1)
            for step in Mesh(world, make_policy("netpool", pending=pending), seeds, conduct).play(300)
        )
        for pending in ("on", "off")
    )
    difference = np.asarray(with_pending - without)
    assert difference.mean() + 4 * difference.std(ddof=1) / np.sqrt(len(seeds)) < 0
