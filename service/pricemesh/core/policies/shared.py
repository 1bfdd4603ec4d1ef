"""Shared LinUCB: a central server that sees every observation; the simulator compares policies with it.

One ridge regression per group and arm on z = [x_c, 0..., x_s, ...0] of size c + n s, in which every city
has its own block for x_s: estimate = z'W^-1 b, radius = alpha sqrt(z'W^-1 z).

>>> from pricemesh.core.policies import Shape, make_policy
>>> learner = make_policy("shared", ridge=1.0).learner(Shape(arms=1, shared=1, local=0, batch=(3,)))
>>> learner.learn([[1.0]] * 3, arm=[0, 0, 0], reward=[1.0, 2.0, 3.0])  # three cities: W = 1 + 3, b = 6
>>> learner.score([[1.0]] * 3).estimate.round(9).tolist()
[[1.5], [1.5], [1.5]]
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pricemesh.core.arrays import Array, Ints
from pricemesh.core.policies.learner import Decided, Learner, RidgeParameters, Shape
from pricemesh.core.ridge import Index, Ridge
from pricemesh.core.ucb import Score, score_dense
from pricemesh.errors import InvalidParameter


@dataclass(frozen=True, kw_only=True)
class Shared(RidgeParameters):
    """The parameters of Shared LinUCB."""

    name: ClassVar[str] = "shared"

    def learner(self, shape: Shape) -> "SharedLearner":
        return SharedLearner(self, shape)


class SharedLearner(Learner):
    """Batch (..., n): the n cities of a group feed one regression, so there is nothing to exchange."""

    def __init__(self, policy: Shared, shape: Shape) -> None:
        if shape.is_one_city:
            raise InvalidParameter(
                "the policy shared needs a central server and runs in the simulator only: "
                "use netpool for a city that learns from its peers"
            )
        super().__init__(shape)
        self.policy = policy
        self._lead, cities = shape.batch[:-1], shape.batch[-1]
        size = shape.shared + cities * shape.local
        self.pool = Ridge.fresh(self._lead, shape.arms, size, policy.ridge)
        self._lead_rows: Index = tuple(np.indices(self._lead, sparse=True)) if self._lead else ()
        # The places of each city's features in z: (n, d).
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

    def _learn(self, at: Index, x: Array, reward: Array, _decided: Decided) -> None:
        arm = np.asarray(at[-1])
        for city in range(self.shape.batch[-1]):
            z = np.zeros((*self._lead, self.pool.theta.shape[-1]))
            z[..., self._places[city]] = x[..., city, :]
            self.pool.learn((*self._lead_rows, arm[..., city]), z, reward[..., city])
