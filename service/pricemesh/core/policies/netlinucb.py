"""NetLinUCB (paper, Definition 1): shared estimates averaged over the group with adaptive weights.

estimate = x_c' sum_j omega_ji theta_j,c + x_s' theta_i,s;
radius^2 = alpha^2 (sum_j omega_ji^2 x_c' V_j x_c + x_s' U_i x_s).
`split` marginal: V, U are blocks of W^-1; block: inverses of the blocks W_cc and W_ss, as in the paper.
With `pending` on, W in the city's own radius also counts its decisions without feedback.

>>> from pricemesh.core.policies import Shape, make_policy
>>> from pricemesh.core.summary import Summary
>>> policy = make_policy("netlinucb", combine="counts", rho=0.0)  # omega_ji is city j's share of counts + 1
>>> lisbon, porto = (policy.learner(Shape(arms=1, shared=1, local=0)) for _ in range(2))
>>> for _ in range(3):
...     porto.learn([1.0], arm=0, reward=2.0)  # theta = 6 / (1 + 3) = 1.5
>>> lisbon.absorb_summaries("lisbon", {"porto": Summary.of("porto", 1, 3, bytes(16), porto.numbers())})
>>> lisbon.weights_of("porto")  # (3 + 1) / (3 + 1 + 1)
[0.8]
>>> round(float(lisbon.score([1.0]).estimate[0]), 3)  # 0.8 * 1.5
1.2
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from pricemesh.core.arrays import Array, one_of
from pricemesh.core.pending import Pending, PendingParameters
from pricemesh.core.policies.checks import eigenvalues, log_determinants, max_abs, refuse_beyond, refuse_if
from pricemesh.core.policies.learner import Decided, ExplorationParameters, RidgeParameters, Shape
from pricemesh.core.policies.weighted import WeightedFold, WeightedLearner, WeightedParameters
from pricemesh.core.ridge import Index, Ridge, terms
from pricemesh.core.summary import Field, Parts
from pricemesh.core.ucb import Score, score_dense


@dataclass(frozen=True, kw_only=True)
class NetLinUcb(RidgeParameters, ExplorationParameters, WeightedParameters, PendingParameters):
    """The parameters of NetLinUCB."""

    name: ClassVar[str] = "netlinucb"
    split: Literal["marginal", "block"] = "marginal"

    def __post_init__(self) -> None:
        RidgeParameters.__post_init__(self)
        ExplorationParameters.__post_init__(self)
        WeightedParameters.__post_init__(self)
        PendingParameters.__post_init__(self)
        one_of("split", self.split, ("marginal", "block"))

    def learner(self, shape: Shape) -> "NetLinUcbLearner":
        return NetLinUcbLearner(self, shape)


class NetLinUcbLearner(WeightedLearner):
    """`own` is the city's regression; `theta` and `covariance`, by which it scores, include the peers."""

    fields = (
        Field("theta", 1),
        Field("covariance", 2),
        Field("count", 0),
        Field("context", 1, per_arm=False),
    )

    def __init__(self, policy: NetLinUcb, shape: Shape) -> None:
        super().__init__(policy, shape, (shape.shared, shape.shared))
        self.policy = policy
        self.sampling = policy.sampling
        dims = (shape.dim,) if policy.split == "marginal" else (shape.shared, shape.local)
        # One regression on all features, or one on the shared and one on the local features.
        self.own = [Ridge.fresh(shape.batch, shape.arms, dim, policy.ridge) for dim in dims]
        self.pending = [Pending.none_of(ridge) for ridge in self.own] if policy.pending == "on" else []
        self.theta = np.zeros((*shape.batch, shape.arms, shape.dim))
        self.covariance = np.zeros((*shape.batch, shape.arms, shape.dim, shape.dim))
        self._refresh((...,))

    def state(self) -> dict[str, Array]:
        arrays = {"context": self.context}
        for place, ridge in enumerate(self.own):
            arrays |= {f"{name}{place}": value for name, value in ridge.state().items()}
        for place, pending in enumerate(self.pending):
            arrays |= {f"{name}{place}": value for name, value in pending.state().items()}
        return arrays

    def restore(self, state: dict[str, Array]) -> None:
        self.context = state["context"]
        for place, ridge in enumerate(self.own):
            ridge.restore({name: state[f"{name}{place}"] for name in ridge.state()})
        for place, pending in enumerate(self.pending):
            pending.restore({name: state[f"{name}{place}"] for name in pending.state()}, self.own[place])
        self._refresh((...,))

    def _score(self, x: Array) -> Score:
        return score_dense(self.theta, self.covariance, x, self.policy.alpha)

    def _score_alone(self, x: Array) -> Score:
        return score_dense(*self._combine((...,), 1.0, 0.0, 0.0), x, self.policy.alpha)

    def _learn(self, at: Index, x: Array, reward: Array, decided: Decided) -> None:
        for place, (ridge, part) in enumerate(self._split(x)):
            added = terms(part, reward)
            ridge.learn_terms(at, part, added)
            if self.pending:
                self.pending[place].learn(at, part, added.gram, ridge, waited=decided.pending)
        self._update_mean_context(x)
        self._refresh(at)

    def _split(self, x: Array) -> list[tuple[Ridge, Array]]:
        """Each regression with its part of the context."""
        first, *others = self.own
        end = first.theta.shape[-1]
        return [(first, x[..., :end]), *((ridge, x[..., end:]) for ridge in others)]

    @property
    def counts_pending(self) -> bool:
        return bool(self.pending)

    def pend(self, x: Array, arms: Any, chances: Any = None) -> None:
        del chances
        for pending, (ridge, part) in zip(self.pending, self._split(x), strict=False):
            pending.pend(self._rows, part, arms, ridge)
        self._refresh_arms(arms)

    def release(self, x: Array, arms: Any, chances: Any = None) -> None:
        del chances
        for pending, (ridge, part) in zip(self.pending, self._split(x), strict=False):
            pending.release(self._rows, part, arms, ridge)
        self._refresh_arms(arms)

    def _refresh_arms(self, arms: Any) -> None:
        if self.pending:
            self._refresh((*self._rows, arms if self._rows else np.unique(arms)))

    def summarise(self) -> Parts:
        c, shared = self.shape.shared, self.own[0]
        return {
            "theta": shared.theta[..., :c],
            "covariance": shared.inverse[..., :c, :c],
            "count": shared.count,
            "context": self.context,
        }

    def volumes(self, parts: Parts) -> Array:
        """The covariance is the inverse of the information with that of the prior."""
        return -log_determinants(parts["covariance"])

    def adopt(self, fold: WeightedFold) -> None:
        super().adopt(fold)
        self._refresh((...,))

    def _shared_moments(self, group: Parts) -> tuple[Array, Array]:
        return group["theta"], group["covariance"]

    def _contributions(self, x: Array, arm: int) -> tuple[Array, Array]:
        variance = np.vecdot(x @ self.covariance[arm], x)
        radius = self.policy.alpha * np.sqrt(variance)
        return self._weighted_contributions(x, arm, self.policy.alpha, radius)

    def _check(self, parts: Parts, version: int, max_square: float, max_reward: float) -> None:
        counts = parts["count"]
        refuse_if(counts.sum() > version, f"its counts add up to {counts.sum():g}, its version is {version}")
        values = eigenvalues(parts["covariance"])
        lower = 1.0 / (self.policy.ridge + counts * max_square)
        slack = 1e-9 / self.policy.ridge
        refuse_if((values[..., 0] < lower - slack).any(), "a covariance is smaller than its counts allow")
        refuse_if(
            (values[..., -1] > 1.0 / self.policy.ridge + slack).any(),
            "a covariance is larger than before any data",
        )
        # theta = V X'r, and V X' has singular values s / (s^2 + ridge) of at most 1 / (2 sqrt ridge).
        limit = np.sqrt(counts) * max_reward / (2.0 * np.sqrt(self.policy.ridge))
        refuse_beyond(max_abs(parts["theta"]), limit, "an estimate is larger than the rewards allow")
        self._check_context(parts, max_square)

    def _refresh(self, at: Index) -> None:
        """Recompute `theta` and `covariance` of the arms that `at` selects."""
        self.theta[at], self.covariance[at] = self._combine(
            at, self._own_weight[at], self._peers_theta[at], self._peers_variance[at]
        )

    def _combine(
        self, at: Index, weight: Array | float, peers_theta: Array | float, peers_variance: Array | float
    ) -> tuple[Array, Array]:
        """Own theta and covariance; in the shared part, weighted and with the sums over peers added."""
        c, shared, local = self.shape.shared, self.own[0], self.own[-1]
        spread = self.pending or self.own
        first = c if len(self.own) == 1 else 0  # where the local features start in their regression
        weight = np.asarray(weight)
        theta, covariance = self.theta[at].copy(), self.covariance[at].copy()
        theta[..., :c] = peers_theta + weight[..., None] * shared.theta[at][..., :c]
        theta[..., c:] = local.theta[at][..., first:]
        own_variance = (weight * weight)[..., None, None] * spread[0].inverse[at][..., :c, :c]
        covariance[..., :c, :c] = peers_variance + own_variance
        covariance[..., c:, c:] = spread[-1].inverse[at][..., first:, first:]
        return theta, covariance
