"""NetPool (not in the paper): cities exchange information matrices and pool them as far as they agree.

F = W_i with L added to its cc-block, f = b_i with e added to its c-part (L, e from `pooling`,
where `Comparison.trust` is the weight of a suspect city);
estimate = x'F^-1 f, radius = alpha sqrt(x'V^-1 x), where V is F and the city's decisions without feedback
(`pending`). By default `scaling` reads alpha and ridge from the data, so that rewards may have any unit. With
heterogeneity 0, trust equal and a given ridge it equals the central server (Shared LinUCB), while all raw
data stay in their city.

>>> from pricemesh.core.policies import Shape, make_policy
>>> from pricemesh.core.summary import Summary
>>> policy = make_policy("netpool", heterogeneity=0.0, trust="equal", ridge=1.0)
>>> lisbon, porto = (policy.learner(Shape(arms=1, shared=1, local=0)) for _ in range(2))
>>> lisbon.learn([1.0], arm=0, reward=1.0)  # W = 1 + 1, b = 1
>>> porto.learn([1.0], arm=0, reward=5.0)  # Lambda = 1, h = 5
>>> lisbon.absorb_summaries("lisbon", {"porto": Summary.of("porto", 1, 1, bytes(16), porto.numbers())})
>>> round(float(lisbon.score([1.0]).estimate[0]), 9)  # (1 + 5) / (2 + 1)
2.0
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from pricemesh.core.arrays import Array, not_negative, one_of, positive
from pricemesh.core.attribution import Attribution
from pricemesh.core.pending import Pending, PendingParameters
from pricemesh.core.policies.checks import (
    max_abs,
    refuse_beyond,
    refuse_if,
    refuse_impossible_information,
    refuse_infinite,
)
from pricemesh.core.policies.learner import Decided, ExplorationParameters, Learner, Shape
from pricemesh.core.pooling import Pool, Pooling
from pricemesh.core.ridge import Index, Ridge, RidgeStatistics, terms
from pricemesh.core.scaling import (
    DEVIATIONS,
    MIN_OBSERVATIONS,
    NO_SCALE,
    Scale,
    Scales,
    fitted_ridge,
    is_due,
    noise_of_mesh,
)
from pricemesh.core.summary import Field, Parts
from pricemesh.core.ucb import Score, score_dense

Auto = Literal["auto"]
# Of the local coefficients in a letter, where the ridge comes from the data: a letter depends on rows alone.
LETTER_RIDGE = 1.0


@dataclass(frozen=True, kw_only=True)
class NetPool(ExplorationParameters, PendingParameters):
    """The parameters of NetPool. `auto` is read from the data; a number is in the unit of the rewards."""

    name: ClassVar[str] = "netpool"
    alpha: float | Auto = "auto"
    ridge: float | Auto = "auto"
    heterogeneity: float | Auto = "auto"
    trust: Literal["robust", "equal"] = "robust"
    pending: Literal["on", "off"] = "on"

    def __post_init__(self) -> None:
        ExplorationParameters.__post_init__(self)
        PendingParameters.__post_init__(self)
        for name, check in (("alpha", positive), ("ridge", positive), ("heterogeneity", not_negative)):
            value = getattr(self, name)
            if isinstance(value, str):
                one_of(name, value, ("auto",))
            else:
                check(name, value)
        one_of("trust", self.trust, ("robust", "equal"))

    @property
    def letter_ridge(self) -> float:
        return LETTER_RIDGE if self.ridge == "auto" else self.ridge

    def learner(self, shape: Shape) -> "NetPoolLearner":
        return NetPoolLearner(self, shape)


class PoolFold(NamedTuple):
    """The result of one fold: the pool, and each peer's term of it."""

    pool: Pool
    origins: tuple[str, ...] | None
    attribution: Attribution
    shrink: Array | None  # (I + t A)^-1 (K, c, c)
    scale: Scale


class NetPoolLearner(Learner):
    """`own` are the statistics of the city's data; `pooled`, by which it scores, includes the peers."""

    fields = (
        Field("information", 2),
        Field("response", 1),
        Field("count", 0),
        Field("noise", 0),
    )

    def __init__(self, policy: NetPool, shape: Shape) -> None:
        super().__init__(shape)
        self.policy = policy
        self.sampling = policy.sampling
        self.own = RidgeStatistics.fresh(shape.batch, shape.arms, shape.dim, policy.letter_ridge)
        self.pooled = Ridge.fresh(shape.batch, shape.arms, shape.dim, policy.letter_ridge)
        self.pending = Pending.none_of(self.pooled) if policy.pending == "on" else None
        self.heterogeneity = np.zeros((*shape.batch[:-1], shape.arms))
        self._shrink: Array | None = None
        self._peers: tuple[Array | float, Array | float] = (0.0, 0.0)  # L and e
        self._scales = Scales.unknown(shape.batch)
        self._pooling = Pooling(policy.letter_ridge, policy.heterogeneity, policy.trust == "robust")
        self._reads_scale = "auto" in (policy.alpha, policy.ridge)
        self._lessons = 0  # of each city
        self._use_scale()

    def state(self) -> dict[str, Array]:
        arrays = self.own.state() | (self.pending.state() if self.pending else {})
        return arrays | ({"scale": np.stack(self._scales.alone, axis=-1)} if self._reads_scale else {})

    def restore(self, state: dict[str, Array]) -> None:
        self.own.restore(state)
        if self.pending:
            self.pending.restore(state, self.pooled)
        if self._reads_scale:
            self._scales.alone = Scale(*np.moveaxis(state["scale"], -1, 0))
        self._lessons = int(self.own.count.sum(axis=-1).max())
        self._use_scale()
        self._add_peers(0.0, 0.0)

    def _score(self, x: Array) -> Score:
        spread = self.pending or self.pooled
        return score_dense(self.pooled.theta, spread.inverse, x, self._alpha)

    def _score_alone(self, x: Array) -> Score:
        """With the scale that the city would use without peers."""
        scale = self._scale_in_force(replace(self._scales, mesh=NO_SCALE))
        arrays = self.own.state()
        alone = Ridge(**arrays | {"gram": arrays["gram"] + self._ridge_beyond_own(scale)})
        spread = alone
        if self.pending:
            spread = Ridge(**arrays | {"gram": alone.gram + self.pending.gram})
        return score_dense(alone.theta, spread.inverse, x, self._alpha_of(scale))

    def _learn(self, at: Index, x: Array, reward: Array, decided: Decided) -> None:
        added = terms(x, reward)
        self.own.add(at, added)
        self.pooled.learn_terms(at, x, added)
        if self.pending:
            self.pending.learn(at, x, added.gram, self.pooled, waited=decided.pending)
        if self._reads_scale:
            self._lessons += 1
            if is_due(self._lessons):
                self._read_own_scale()
            elif self._is_young:
                self._use_scale()

    @property
    def is_unit_free(self) -> bool:
        return self.policy.alpha == self.policy.ridge == "auto"

    # Decisions without feedback

    @property
    def counts_pending(self) -> bool:
        return self.pending is not None

    def pend(self, x: Array, arms: Any, chances: Any = None) -> None:
        del chances
        if self.pending:
            self.pending.pend(self._rows, x, arms, self.pooled)

    def release(self, x: Array, arms: Any, chances: Any = None) -> None:
        del chances
        if self.pending:
            self.pending.release(self._rows, x, arms, self.pooled)

    # The scale of rewards

    def _read_own_scale(self) -> None:
        """The scale that counts without letters."""
        parts = self.summarise()
        variance = noise_of_mesh(parts["noise"][..., None, :], parts["count"][..., None, :])
        fitted = fitted_ridge(parts["information"], parts["response"], variance)
        self._scales.alone = Scale(variance, np.where(variance > 0, fitted, 0.0))
        ridge = self._scale.ridge
        self._use_scale()
        if (self._scale.ridge != ridge).any():
            self._add_peers(*self._peers)

    def _use_scale(self) -> None:
        """Set alpha and ridge; `_add_peers` then brings the fit to this ridge."""
        self._scale = self._scale_in_force(self._scales)
        known = self._scales.mesh.ridge + self._scales.alone.ridge > 0
        self._is_young = self._reads_scale and not known.all()  # by the size of rewards, which changes
        self._alpha = self._alpha_of(self._scale)

    def _scale_in_force(self, scales: Scales) -> Scale:
        return scales.in_force(self.own.squares.sum(axis=-1), self.own.count.sum(axis=-1))

    def _alpha_of(self, scale: Scale) -> Array | float:
        """For one city a number, for a batch (..., 1)."""
        if self.policy.alpha != "auto":
            return self.policy.alpha
        alpha = DEVIATIONS * np.sqrt(scale.variance)
        return float(alpha) if self.shape.is_one_city else alpha[..., None]

    def _ridge_beyond_own(self, scale: Scale) -> Array | float:
        """What the ridge of this scale has beyond that in `own`, (..., 1, d, d)."""
        if self.policy.ridge != "auto":
            return 0.0
        extra: Array = (scale.ridge - LETTER_RIDGE)[..., None, None, None] * np.eye(self.shape.dim)
        return extra

    def summarise(self) -> Parts:
        """The information of the city's data on the shared part, with the local part integrated out."""
        c, own, ridge = self.shape.shared, self.own, self.policy.letter_ridge
        p = own.gram[..., :c, :c] - ridge * np.eye(c)
        q, r = own.gram[..., :c, c:], own.gram[..., c:, c:]
        right_side = np.concatenate([q.swapaxes(-1, -2), own.response[..., c:, None]], axis=-1)
        local_part = np.matmul(q, np.linalg.solve(r, right_side))
        information = p - local_part[..., :-1]
        return {
            "information": (information + information.swapaxes(-1, -2)) / 2.0,
            "response": own.response[..., :c] - local_part[..., -1],
            "count": own.count,
            "noise": own.noise(ridge),
        }

    def prepare(self, parts: Parts) -> Parts:
        return parts | self._pooling.prepare(parts["information"], parts["response"], parts["noise"])

    def fold(self, group: Parts, origins: tuple[str, ...] | None = None, *, again: bool = False) -> PoolFold:
        del again  # the summaries alone determine the result
        result = self._pooling.pool(group, self._receivers)
        scale = self._scale_of_mesh(group, result)
        if origins is None or len(origins) == 1:
            return PoolFold(result, origins, Attribution(), None, scale)
        information, response = result.city_information[1:], result.city_response[1:]
        spread = result.heterogeneity[:, None, None] * information.sum(axis=0)
        shrink: Array = np.linalg.inv(np.eye(self.shape.shared) + spread)
        attribution = Attribution.of_peers(origins[1:], response, information, result.trust[1:])
        return PoolFold(result, origins, attribution, shrink, scale)

    def _scale_of_mesh(self, group: Parts, result: Pool) -> Scale:
        """By the letters alone, of each receiver (..., I); unknown without peers."""
        receivers = (..., self._receivers, slice(None), slice(None))
        information = group["information"][(*receivers, slice(None))] + result.information
        response = group["response"][receivers] + result.response
        count = group["count"]
        has_peers = count.shape[-2] > 1
        noise = noise_of_mesh(group["noise"], count) if has_peers else np.zeros(count.shape[:-2])
        variance = np.broadcast_to(noise[..., None], information.shape[:-3])
        is_known = (noise > 0) & (count.sum(axis=(-1, -2)) >= MIN_OBSERVATIONS)
        if not self._reads_scale or not is_known.any():
            return Scale(variance, np.zeros_like(variance))
        ridge = fitted_ridge(information, response, variance)
        return Scale(variance, np.where(is_known[..., None], ridge, 0.0))

    def adopt(self, fold: PoolFold) -> None:
        result = fold.pool
        refuse_infinite(result.information, result.response)
        self._scales.mesh = Scale(*map(self._per_city, fold.scale))
        self._use_scale()
        self._add_peers(self._per_city(result.information), self._per_city(result.response))
        self.heterogeneity = result.heterogeneity
        self.origins, self.attribution, self._shrink = fold.origins, fold.attribution, fold.shrink
        self.weights = result.trust.swapaxes(-1, -2)

    def shares(self) -> dict[str, float]:
        """Each peer's share of tr Lambda_i + tr L, the information of the city itself and of its peers."""
        if self.attribution.matrices is None or self._shrink is None:
            return {}
        per_arm = np.trace(np.matmul(self._shrink, self.attribution.matrices), axis1=-2, axis2=-1)
        peers = per_arm.sum(axis=-1)  # (J,)
        own = np.trace(self.summarise()["information"], axis1=-2, axis2=-1).sum()
        total = max(float(own + peers.sum()), 1e-300)
        return dict(zip(self.attribution.origins, (peers / total).tolist(), strict=True))

    def _contributions(self, x: Array, arm: int) -> tuple[Array, Array]:
        """With z = F^-1 x: estimate = z'f. With z = V^-1 x: radius^2 = alpha^2 z'V z. The peers' e is part of
        f, their L of V; what waits for feedback is the city's own."""
        c = self.shape.shared
        assert self._shrink is not None
        z = x @ self.pooled.inverse[arm]
        estimate, squared = self.attribution.contributions(arm, z[:, :c] @ self._shrink[arm], z[:, :c])
        if self.pending:
            z = x @ self.pending.inverse[arm]
            _, squared = self.attribution.contributions(arm, z[:, :c] @ self._shrink[arm], z[:, :c])
        radius = np.sqrt(np.maximum(np.vecdot(x, z), 1e-300))
        return estimate, self._alpha * squared / radius[:, None]

    def _check(self, parts: Parts, version: int, max_square: float, max_reward: float) -> None:
        counts, information = parts["count"], parts["information"]
        refuse_if(counts.sum() > version, f"its counts add up to {counts.sum():g}, its version is {version}")
        refuse_if((parts["noise"] < 0).any(), "a noise variance is negative")
        max_noise = np.full_like(counts, max_reward**2)
        refuse_beyond(parts["noise"], max_noise, "a noise variance is larger than the rewards allow")
        # h = X'M r, and the eigenvalues of M lie in [0, 1].
        max_response = counts * max_reward * np.sqrt(max_square)
        refuse_beyond(max_abs(parts["response"]), max_response, "a response is larger than the rewards allow")
        refuse_impossible_information(information, counts * max_square)

    def _add_peers(self, information: Array | float, response: Array | float) -> None:
        """Set `pooled` to the own statistics plus the peers' L and e, with the ridge in force."""
        c = self.shape.shared
        self._peers = information, response
        arrays = {name: value.copy() for name, value in self.own.state().items()}
        arrays["gram"] += self._ridge_beyond_own(self._scale)
        arrays["gram"][..., :c, :c] += information
        arrays["response"][..., :c] += response
        self.pooled = Ridge(**arrays)
        if self.pending:
            self.pending.refresh(self.pooled)
