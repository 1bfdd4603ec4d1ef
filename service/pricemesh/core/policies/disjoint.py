"""Disjoint LinUCB: every city alone. Estimate x'W^-1 b, radius alpha sqrt(x'W^-1 x)."""

from dataclasses import dataclass
from typing import ClassVar

from pricemesh.core.arrays import Array
from pricemesh.core.policies.learner import Learner, RidgeParameters, Shape
from pricemesh.core.ridge import Index, Ridge
from pricemesh.core.ucb import Score, score_dense


@dataclass(frozen=True, kw_only=True)
class Disjoint(RidgeParameters):
    name: ClassVar[str] = "disjoint"

    def learner(self, shape: Shape) -> "DisjointLearner":
        return DisjointLearner(self, shape)


class DisjointLearner(Learner):
    def __init__(self, policy: Disjoint, shape: Shape) -> None:
        super().__init__(shape)
        self.policy = policy
        self.own = Ridge.fresh(shape.batch, shape.arms, shape.dim, policy.ridge)

    def state(self) -> dict[str, Array]:
        return self.own.state()

    def restore(self, state: dict[str, Array]) -> None:
        self.own.restore(state)

    def _score(self, x: Array) -> Score:
        return score_dense(self.own.theta, self.own.inverse, x, self.policy.alpha)

    def _score_alone(self, x: Array) -> Score:
        return self._score(x)

    def _learn(self, at: Index, x: Array, reward: Array) -> None:
        self.own.learn(at, x, reward)
