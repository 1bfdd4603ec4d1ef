"""NetPool, ours: cities exchange information matrices and pool them as far as the cities are alike.

F = W_i with L added to its cc-block, f = b_i with e added to its c-part (L, e from `pooling`);
estimate x'F^-1 f, radius alpha sqrt(x'F^-1 x). With heterogeneity 0 and trust equal it is exactly the
central server (Shared LinUCB) without any raw data leaving a city.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from service.core.arrays import Array, not_negative, one_of
from service.core.policies.learner import Learner, RidgeParameters, Shape
from service.core.pooling import Evidence, pool
from service.core.ridge import Index, Ridge, Tallies
from service.core.summary import Field, Parts
from service.core.ucb import Score, score_dense


@dataclass(frozen=True, kw_only=True)
class NetPool(RidgeParameters):
    name: ClassVar[str] = "netpool"
    heterogeneity: float | Literal["auto"] = "auto"
    trust: Literal["robust", "equal"] = "robust"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.heterogeneity, str):
            one_of("heterogeneity", self.heterogeneity, ("auto",))
        else:
            not_negative("heterogeneity", self.heterogeneity)
        one_of("trust", self.trust, ("robust", "equal"))

    def learner(self, shape: Shape) -> "NetPoolLearner":
        return NetPoolLearner(self, shape)


class NetPoolLearner(Learner):
    fields = (
        Field("information", 2),
        Field("response", 1),
        Field("count", 0),
        Field("noise", 0),
    )

    def __init__(self, policy: NetPool, shape: Shape) -> None:
        super().__init__(shape)
        self.policy = policy
        self.own = Tallies.fresh(shape.batch, shape.arms, shape.dim, policy.ridge)
        # The same regression started from what the peers know.
        self.pooled = Ridge.fresh(shape.batch, shape.arms, shape.dim, policy.ridge)
        self.heterogeneity = np.zeros((*shape.batch[:-1], shape.arms))

    def state(self) -> dict[str, Array]:
        return self.own.state()

    def restore(self, state: dict[str, Array]) -> None:
        self.own.restore(state)
        self._pool(0.0, 0.0)

    def _score(self, x: Array) -> Score:
        return score_dense(self.pooled.theta, self.pooled.inverse, x, self.policy.alpha)

    def _learn(self, at: Index, x: Array, reward: Array) -> None:
        self.own.add(at, x, reward)
        self.pooled.learn(at, x, reward)

    def summarise(self) -> Parts:
        """The own data's information on the shared part once the local part is integrated out."""
        c, own, ridge = self.shape.shared, self.own, self.policy.ridge
        p = own.gram[..., :c, :c] - ridge * np.eye(c)
        q, r = own.gram[..., :c, c:], own.gram[..., c:, c:]
        towards = np.concatenate([q.swapaxes(-1, -2), own.response[..., c:, None]], axis=-1)
        explained = np.matmul(q, np.linalg.solve(r, towards))
        information = p - explained[..., :-1]
        return {
            "information": (information + information.swapaxes(-1, -2)) / 2.0,
            "response": own.response[..., :c] - explained[..., -1],
            "count": own.count,
            "noise": own.noise(ridge),
        }

    def absorb(self, group: Parts, origins: tuple[str, ...] | None = None) -> None:
        policy = self.policy
        told = pool(
            Evidence(group["information"], group["response"], group["noise"]),
            self._receivers,
            ridge=policy.ridge,
            heterogeneity=policy.heterogeneity,
            robust=policy.trust == "robust",
        )
        self._pool(self._per_city(told.information), self._per_city(told.response))
        self.heterogeneity = told.heterogeneity
        self.origins = origins
        self.weights = told.trust.swapaxes(-1, -2)

    def _pool(self, information: Array | float, response: Array | float) -> None:
        """Own tallies with what the peers tell of the shared part added."""
        c = self.shape.shared
        sums = {name: value.copy() for name, value in self.own.state().items()}
        sums["gram"][..., :c, :c] += information
        sums["response"][..., :c] += response
        self.pooled = Ridge(**sums)
