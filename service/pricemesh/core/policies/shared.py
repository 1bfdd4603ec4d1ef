"""Shared LinUCB: the central server that sees every observation; the yardstick of the simulator.

One ridge regression per group on the block-sparse vector [x_c, 0..., x_s, ...0] of size c + n s.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pricemesh.core.arrays import Array, Ints
from pricemesh.core.policies.learner import Learner, RidgeParameters, Shape
from pricemesh.core.ridge import Index, Ridge
from pricemesh.core.ucb import Score, score_dense
from pricemesh.errors import InvalidParameter


@dataclass(frozen=True, kw_only=True)
class Shared(RidgeParameters):
    name: ClassVar[str] = "shared"

    def learner(self, shape: Shape) -> "SharedLearner":
        return SharedLearner(self, shape)


class SharedLearner(Learner):
    """Batch (..., n): the n cities of a group feed one regression. Nothing is left to exchange."""

    def __init__(self, policy: Shared, shape: Shape) -> None:
        if shape.alone:
            raise InvalidParameter(
                "the policy shared is a central server and runs in the simulator only; "
                "a city that learns from its peers wants netpool"
            )
        super().__init__(shape)
        self.policy = policy
        self._lead, cities = shape.batch[:-1], shape.batch[-1]
        size = shape.shared + cities * shape.local
        self.pool = Ridge.fresh(self._lead, shape.arms, size, policy.ridge)
        self._lead_rows: Index = tuple(np.indices(self._lead, sparse=True)) if self._lead else ()
        # Where each city's features stand in the global vector: (n, d).
        self._places: Ints = np.concatenate(
            [
                np.broadcast_to(np.arange(shape.shared), (cities, shape.shared)),
                shape.shared + np.arange(cities * shape.local).reshape(cities, shape.local),
            ],
            axis=1,
        )

    def _score(self, x: Array) -> Score:
        theta = self.pool.theta[..., self._places].swapaxes(-2, -3)
        block = self.pool.inverse[..., self._places[:, :, None], self._places[:, None, :]]
        return score_dense(theta, np.moveaxis(block, -3, -4), x, self.policy.alpha)

    def _learn(self, at: Index, x: Array, reward: Array) -> None:
        arm = np.asarray(at[-1])
        for city in range(self.shape.batch[-1]):
            whole = np.zeros((*self._lead, self.pool.theta.shape[-1]))
            whole[..., self._places[city]] = x[..., city, :]
            self.pool.learn((*self._lead_rows, arm[..., city]), whole, reward[..., city])
