"""Disjoint LinUCB: every city learns from its own data only.

estimate = x'W^-1 b, radius = alpha sqrt(x'W^-1 x), with W = ridge I + sum x x' and b = sum r x per arm.
With `pending` on, the radius also counts the decisions without feedback (`core.pending`).

>>> from pricemesh.core.policies import Shape, make_policy
>>> learner = make_policy("disjoint", alpha=0.5, ridge=1.0).learner(Shape(arms=2, shared=1, local=0))
>>> for _ in range(3):
...     learner.learn([1.0], arm=1, reward=2.0)  # W = 1 + 3, b = 6
>>> learner.score([1.0])
Score(estimate=array([0. , 1.5]), radius=array([0.5 , 0.25]))
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from pricemesh.core.arrays import Array
from pricemesh.core.pending import Pending, PendingParameters
from pricemesh.core.policies.learner import Decided, ExplorationParameters, Learner, RidgeParameters, Shape
from pricemesh.core.ridge import Index, Ridge, terms
from pricemesh.core.ucb import Score, score_dense


@dataclass(frozen=True, kw_only=True)
class Disjoint(RidgeParameters, ExplorationParameters, PendingParameters):
    """The parameters of Disjoint LinUCB."""

    name: ClassVar[str] = "disjoint"

    def __post_init__(self) -> None:
        RidgeParameters.__post_init__(self)
        ExplorationParameters.__post_init__(self)
        PendingParameters.__post_init__(self)

    def learner(self, shape: Shape) -> "DisjointLearner":
        return DisjointLearner(self, shape)


class DisjointLearner(Learner):
    """One ridge regression per city and arm; there is nothing to exchange."""

    def __init__(self, policy: Disjoint, shape: Shape) -> None:
        super().__init__(shape)
        self.policy = policy
        self.sampling = policy.sampling
        self.own = Ridge.fresh(shape.batch, shape.arms, shape.dim, policy.ridge)
        self.pending = Pending.none_of(self.own) if policy.pending == "on" else None

    def state(self) -> dict[str, Array]:
        return self.own.state() | (self.pending.state() if self.pending else {})

    def restore(self, state: dict[str, Array]) -> None:
        self.own.restore(state)
        if self.pending:
            self.pending.restore(state, self.own)

    def _score(self, x: Array) -> Score:
        fit = self.pending or self.own
        return score_dense(self.own.theta, fit.inverse, x, self.policy.alpha)

    def _score_alone(self, x: Array) -> Score:
        return self._score(x)

    def _learn(self, at: Index, x: Array, reward: Array, decided: Decided) -> None:
        added = terms(x, reward)
        self.own.learn_terms(at, x, added)
        if self.pending:
            self.pending.learn(at, x, added.gram, self.own, waited=decided.pending)

    @property
    def counts_pending(self) -> bool:
        return self.pending is not None

    def pend(self, x: Array, arms: Any, chances: Any = None) -> None:
        del chances
        if self.pending:
            self.pending.pend(self._rows, x, arms, self.own)

    def release(self, x: Array, arms: Any, chances: Any = None) -> None:
        del chances
        if self.pending:
            self.pending.release(self._rows, x, arms, self.own)
