"""Demand (not in the paper): one model of what sells, for all prices and all cities.

The logit of the chance of a sale is z_k'theta (`demand.basis`); a decision earns margin_k times that chance.
A sale is added to the sums G and h at the chance that its decision assumed (`demand.sales`), so that the sums
depend on the city's rows alone. Cities exchange them for the common coefficients, with the local ones
integrated out, and pool them as NetPool does: F = G + 1/v + L, theta = F^-1 (h + e). The radius uses V = F +
w zz' of all decisions without feedback.
Chosen is the largest margin_k sigma(eta_k + alpha_t sd_k), alpha_t = max(alpha, 1.5 / sqrt(1 + t / 30)).

>>> import numpy as np
>>> from pricemesh.core.ladder import Ladder
>>> from pricemesh.core.policies import Shape, make_policy
>>> ladder = Ladder(np.array([1.0, 2.0, 3.0]), low=1.0, high=3.0)
>>> learner = make_policy("demand").learner(Shape(arms=3, shared=1, local=0, ladder=ladder))
>>> for _ in range(40):
...     learner.learn([1.0], arm=0, reward=1.0, chance=0.5)  # always sold at 1
...     learner.learn([1.0], arm=2, reward=0.0, chance=0.5)  # never at 3
>>> learner.score([1.0]).estimate.round(1).tolist()  # price times chance; 2 was never tried
[0.9, 1.0, 0.4]
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from pricemesh.core.arrays import Array, Ints, checked_context, not_negative, one_of, positive
from pricemesh.core.attribution import Attribution
from pricemesh.core.demand.attribution import attribution_of
from pricemesh.core.demand.basis import MAX_ARM_SQUARE, Basis
from pricemesh.core.demand.curve import Curves, with_one
from pricemesh.core.demand.prediction import Prediction, predict
from pricemesh.core.demand.prior import fitted_variances
from pricemesh.core.demand.sales import MAX_RESIDUAL, MAX_WEIGHT, linearise, sigmoid
from pricemesh.core.policies.checks import (
    log_determinants,
    max_abs,
    refuse_beyond,
    refuse_if,
    refuse_impossible_information,
    refuse_infinite,
)
from pricemesh.core.policies.learner import Decided, ExplorationParameters, Learner, Shape
from pricemesh.core.pooling import Pool, Pooling
from pricemesh.core.ridge import (
    Index,
    Ridge,
    RidgeStatistics,
    inverse_of_positive_definite,
    outer,
    terms,
)
from pricemesh.core.summary import Field, Layout, Parts
from pricemesh.core.ucb import Score
from pricemesh.errors import InvalidFeedback, InvalidParameter

EARLY_ALPHA, EARLY_FEEDBACK = 1.5, 30.0


@dataclass(frozen=True, kw_only=True)
class Demand(ExplorationParameters):
    """The parameters of Demand: `alpha` is the exploration that remains for ever."""

    name: ClassVar[str] = "demand"
    alpha: float = 0.25
    heterogeneity: float | Literal["auto"] = "auto"
    trust: Literal["robust", "equal"] = "robust"
    pending: Literal["on", "off"] = "on"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("alpha", self.alpha)
        if isinstance(self.heterogeneity, str):
            one_of("heterogeneity", self.heterogeneity, ("auto",))
        else:
            not_negative("heterogeneity", self.heterogeneity)
        one_of("trust", self.trust, ("robust", "equal"))
        one_of("pending", self.pending, ("on", "off"))

    def learner(self, shape: Shape) -> "DemandLearner":
        return DemandLearner(self, shape)


class DemandFold(NamedTuple):
    """The result of one fold, in the units of the coefficients."""

    information: Array  # L (..., I, 1, n, n)
    response: Array  # e (..., I, 1, n)
    variance: Array  # v (..., 1, 1, p), the same for all receivers
    pool: Pool
    origins: tuple[str, ...] | None
    attribution: Attribution


class DemandLearner(Learner):
    """Arrays over coefficients have an axis of length one where those of other learners have their arms."""

    fields = (Field("information", 2), Field("response", 1), Field("count", 0))
    learns_sales = True

    def __init__(self, policy: Demand, shape: Shape) -> None:
        if shape.ladder is None:
            raise InvalidParameter(
                "the policy demand learns from sales: "
                'write kind = "purchase" under [reward], or choose netpool'
            )
        self.policy = policy
        self._ladder = shape.ladder
        self.basis = Basis(shape.ladder, shape.arms, shape.shared, shape.local)
        super().__init__(shape)
        self.sampling = policy.sampling
        self._place: Index = (*self._rows, 0)
        self.weights = np.ones((*shape.batch[:-1], 1, 1))
        size = self.basis.size
        self.own = RidgeStatistics.fresh(shape.batch, 1, size, 0.0)  # G, h
        self.waiting = np.zeros((*shape.batch, size, size))  # sum of w zz' over decisions without feedback
        self.heterogeneity = np.zeros((*shape.batch[:-1], 1))
        self._learns_many = False
        self._pooling = Pooling(1.0, policy.heterogeneity, policy.trust == "robust")
        self._add_peers(0.0, 0.0, self.basis.prior_variance)

    def _layout(self) -> Layout:
        return Layout(1, self.basis.common_size, self.fields)

    def state(self) -> dict[str, Array]:
        return {**self.own.state(), "waiting": self.waiting}

    def restore(self, state: dict[str, Array]) -> None:
        self.own.restore({name: state[name] for name in self.own.state()})
        self.waiting = state["waiting"]
        self._add_peers(0.0, 0.0, self.basis.prior_variance)

    # Scores

    def _score(self, x: Array) -> Score:
        return self._in_money(x, self.curves.score(x))

    def _score_alone(self, x: Array) -> Score:
        alone = self._alone()
        theta, gram = alone.theta[..., 0, :], alone.gram[..., 0, :, :]
        return self._in_money(x, Curves(self.basis.maps, theta, gram + self.waiting).score(x))

    def _in_money(self, x: Array, logits: Score) -> Score:
        margins = self._ladder.margins(x)
        chance = sigmoid(logits.estimate)
        step = np.copysign(self._alpha * logits.radius, margins)
        return Score(margins * chance, margins * (sigmoid(logits.estimate + step) - chance))

    @property
    def _alpha(self) -> Array:
        """alpha_t, (..., 1)."""
        early: Array = EARLY_ALPHA / np.sqrt(1.0 + self.own.count / EARLY_FEEDBACK)
        return np.maximum(self.policy.alpha, early)

    def chances(self, x: Array, arms: Ints) -> Array:
        logits = self.curves.logits
        chosen = logits[arms] if logits.ndim == 2 else np.take_along_axis(logits, arms[..., None, None], -2)
        return sigmoid(np.vecdot(chosen if logits.ndim == 2 else chosen[..., 0, :], with_one(x)))

    def curve_at(self, x: Any, prices: Array) -> tuple[Prediction, Prediction]:
        context = checked_context(x, self._context_shape)
        rows, margins = self.basis.rows_at(context, prices), self._ladder.margins_at(context, prices)
        alone = self._alone()
        covariance = inverse_of_positive_definite(alone.gram[0] + self.waiting)
        return (
            predict(rows, self.pooled.theta[0], self.curves.covariance, alpha=self._alpha, margins=margins),
            predict(rows, alone.theta[0], covariance, alpha=self._alpha, margins=margins),
        )

    # Sales

    def _learn(self, at: Index, x: Array, reward: Array, decided: Decided) -> None:
        self._learn_row(self.basis.rows(x, np.asarray(at[-1])), reward, decided)

    def learn_at_price(self, x: Any, price: float, reward: Any, chance: float | None = None) -> None:
        context = checked_context(x, self._context_shape)
        (row,) = self.basis.rows_at(context, np.array([price]))
        self._learn_row(row, np.asarray(float(reward)), Decided(chance, pending=False))

    def reads_price(self, price: float) -> bool:
        """Within the range that the mesh agrees on: beyond it a row would be longer than peers allow."""
        return self._ladder.low <= price <= self._ladder.high

    def _learn_row(self, z: Array, reward: Array, decided: Decided) -> None:
        if not ((reward >= 0.0) & (reward <= 1.0)).all():
            raise InvalidFeedback("the share of units sold must lie between 0 and 1")
        chance = self._own_chances(z) if decided.chance is None else np.asarray(decided.chance)
        root, residual = linearise(chance, reward)
        row = root[..., None] * z
        added = terms(row, residual)
        self.own.add(self._place, added)
        waited = self.counts_pending and decided.pending and decided.chance is not None
        if waited:
            self.waiting -= added.gram
        if self._learns_many:
            self.pooled.add(self._place, added)
            return
        self.pooled.learn_terms(self._place, row, added)
        self.curves.move(self.pooled.theta[..., 0, :])
        if not waited:
            self._narrow(np.atleast_2d(row))

    @contextmanager
    def learning_many(self) -> Iterator[None]:
        self._learns_many = True
        try:
            yield
        finally:
            self._learns_many = False
            self.pooled.refresh()
            self.curves.move(self.pooled.theta[..., 0, :])
            self._spread()

    def _own_chances(self, z: Array) -> Array:
        """By own data alone, and by their sums alone: whenever a learner was restored, the sums stay the same
        function of the rows, to the last bit."""
        gram, response = self._gram_with_prior(self.basis.prior_variance), self.own.response
        try:
            theta = np.linalg.solve(gram, response[..., None])[..., 0]
        except np.linalg.LinAlgError:  # rounding made it singular
            theta = self._alone().theta
        return sigmoid(np.vecdot(z, theta[..., 0, :]))

    def _alone(self) -> Ridge:
        """The regression on own data."""
        return Ridge(**self._arrays(self.basis.prior_variance))

    # Decisions without feedback

    @property
    def counts_pending(self) -> bool:
        return self.policy.pending == "on"

    def pend(self, x: Array, arms: Any, chances: Any = None) -> None:
        if self.counts_pending and chances is not None:
            rows = self._weighted_rows(x, arms, chances)
            self.waiting += rows.T @ rows if self.shape.is_one_city else outer(rows)
            self._narrow(rows)

    def release(self, x: Array, arms: Any, chances: Any = None) -> None:
        if self.counts_pending and chances is not None:
            rows = self._weighted_rows(x, arms, chances)
            self.waiting -= rows.T @ rows if self.shape.is_one_city else outer(rows)
            self._spread()

    def _weighted_rows(self, x: Array, arms: Any, chances: Any) -> Array:
        """sqrt(w) z: (m, p) of one city, (..., p) of a batch. A decision of another policy, whose chance is
        None, does not count."""
        chance = np.asarray(chances, dtype=np.float64)
        root, _ = linearise(chance, np.zeros_like(chance))
        rows: Array = np.nan_to_num(root)[..., None] * self.basis.rows(x, np.asarray(arms))
        return rows

    def _narrow(self, rows: Array) -> None:
        if not self.curves.narrow(rows):
            self._spread()

    def _spread(self) -> None:
        self.curves.spread(self.pooled.gram[..., 0, :, :] + self.waiting)

    # Peers

    def summarise(self) -> Parts:
        """The information of the city's sales on the common part, with the local part integrated out."""
        n, own = self.basis.common_size, self.own
        prior = np.diag(1.0 / self.basis.prior_variance[n:])
        p, q, r = own.gram[..., :n, :n], own.gram[..., :n, n:], own.gram[..., n:, n:] + prior
        right_side = np.concatenate([q.swapaxes(-1, -2), own.response[..., n:, None]], axis=-1)
        local_part = np.matmul(q, np.linalg.solve(r, right_side))
        information = p - local_part[..., :-1]
        return {
            "information": (information + information.swapaxes(-1, -2)) / 2.0,
            "response": own.response[..., :n] - local_part[..., -1],
            "count": own.count,
        }

    def prepare(self, parts: Parts) -> Parts:
        """In units in which all prior variances are one; so is then the noise."""
        scale = self._prior_deviations
        noise = np.where(parts["count"] > 0, 1.0, 0.0)
        return self._pooling.prepare(outer(scale) * parts["information"], scale * parts["response"], noise)

    def volumes(self, parts: Parts) -> Array:
        """In units of the prior."""
        scale = self._prior_deviations
        return log_determinants(np.eye(len(scale)) + outer(scale) * parts["information"])

    def fold(
        self, group: Parts, origins: tuple[str, ...] | None = None, *, again: bool = False
    ) -> DemandFold:
        del again  # the summaries alone determine the result
        basis, scale = self.basis, self._prior_deviations
        result = self._pooling.pool(group, self._receivers)
        variance = basis.prior_variance[None, None]
        if result.city_information.shape[-4] > 1:
            total, response = result.city_information.sum(axis=-4), result.city_response.sum(axis=-3)
            variance = fitted_variances(basis, total, response)[..., None, :, :]
        return DemandFold(
            result.information / outer(scale),
            result.response / scale,
            variance,
            result,
            origins,
            attribution_of(result, origins, scale),
        )

    @property
    def _prior_deviations(self) -> Array:
        """Of the common coefficients, (n,)."""
        deviations: Array = np.sqrt(self.basis.prior_variance[: self.basis.common_size])
        return deviations

    def adopt(self, fold: DemandFold) -> None:
        refuse_infinite(fold.information, fold.response)
        self._add_peers(*map(self._per_city, (fold.information, fold.response, fold.variance)))
        self.heterogeneity = fold.pool.heterogeneity
        self.origins, self.attribution = fold.origins, fold.attribution
        self.weights = fold.pool.trust.swapaxes(-1, -2)

    def shares(self) -> dict[str, float]:
        """Each peer's share of the information on the common coefficients, in units of their priors."""
        if self.attribution.matrices is None:
            return {}
        prior = self.basis.prior_variance[: self.basis.common_size]
        peers = np.diagonal(self.attribution.matrices[:, 0], axis1=-2, axis2=-1) @ prior
        own = np.diagonal(self.summarise()["information"][0]) @ prior
        total = max(float(own + peers.sum()), 1e-300)
        return dict(zip(self.attribution.origins, (peers / total).tolist(), strict=True))

    def _contributions(self, x: Array, arm: int) -> tuple[Array, Array]:
        """On the scale of the logit, where peers' parts add up."""
        n, z = self.basis.common_size, self.basis.rows(x, np.full(len(x), arm))
        mean, wide = z @ self.pooled.inverse[0], z @ self.curves.covariance
        estimate, _ = self.attribution.contributions(0, mean[:, :n], mean[:, :n])
        _, squared = self.attribution.contributions(0, wide[:, :n], wide[:, :n])
        deviation = np.sqrt(np.maximum(np.vecdot(wide, z), 1e-300))
        return estimate, self._alpha * squared / deviation[:, None]

    def _check(self, parts: Parts, version: int, max_square: float, max_reward: float) -> None:
        del max_reward  # sales have a bound of their own
        counts, information = parts["count"], parts["information"]
        refuse_if(counts.sum() > version, f"its counts add up to {counts.sum():g}, its version is {version}")
        max_row = 2.0 + 2.0 * max_square + MAX_ARM_SQUARE
        max_trace = counts * MAX_WEIGHT * max_row
        # h = Z'W^1/2 M r, the eigenvalues of M lie in [0, 1], and every entry of r is at most MAX_RESIDUAL.
        max_response = counts * MAX_RESIDUAL * np.sqrt(MAX_WEIGHT * max_row)
        refuse_beyond(max_abs(parts["response"]), max_response, "a response is larger than sales allow")
        refuse_impossible_information(information, max_trace)

    def _arrays(self, variance: Array) -> dict[str, Array]:
        """The own sums with the prior."""
        arrays = {name: value.copy() for name, value in self.own.state().items()}
        return arrays | {"gram": self._gram_with_prior(variance)}

    def _gram_with_prior(self, variance: Array) -> Array:
        gram = self.own.gram.copy()
        diagonal = np.einsum("...ii->...i", gram)  # a view
        diagonal += 1.0 / variance
        return gram

    def _add_peers(self, information: Array | float, response: Array | float, variance: Array) -> None:
        """Set `pooled` to the own sums, the prior of these variances and the peers' L and e."""
        n, arrays = self.basis.common_size, self._arrays(variance)
        arrays["gram"][..., :n, :n] += information
        arrays["response"][..., :n] += response
        self.pooled = Ridge(**arrays)
        theta, gram = self.pooled.theta[..., 0, :], self.pooled.gram[..., 0, :, :]
        self.curves = Curves(self.basis.maps, theta, gram + self.waiting)
