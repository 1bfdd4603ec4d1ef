"""How alike the cities of a group are: their heterogeneity t, and how far each of them is trusted.

Every city is compared with the pool of all others. With Lambda_j = B'B, B = diag(sqrt l) U' (`spectrum`), the
pool of all cities, M = sum_i w_i Lambda_i + ridge I, predicts B theta_j with a residual r and the covariance
G = B M^-1 B'. Without city j in the pool these are (I - w_j G)^-1 r and G (I - w_j G)^-1 (Woodbury), so one
pool serves all comparisons. For a city that is most of the pool, digits would cancel.

Axes: (..., K, J, c, c) and the like: K arms, J cities, c shared features. Arms come first here, so that a sum
over all cities is one product of matrices for each arm.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pricemesh.core.arrays import Array, Ints
from pricemesh.core.spectrum import Spectrum

MAX_INFLUENCE = 3.0  # when cities are compared, one counts at most as much as this many median cities
DEGREES_OF_FREEDOM = 4.0  # nu of the robust weights: the lower, the sooner an outlier is discounted
# Of the pool, w_j tr G. A city with more is compared with an explicit sum of the others. All shares add up to
# at most c, so these are at most c / MAX_SHARE cities.
MAX_SHARE = 0.5


class PooledPrediction(NamedTuple):
    """Of each city's estimate, in its own coordinates, by a pool that counts the city with `own_weight`."""

    residual: Array  # r (..., K, J, c)
    covariance: Array  # G (..., K, J, c, c)
    own_weight: Array | None  # w (..., K, J); None: zero for all

    def without_own(self) -> tuple[Array, Array]:
        """By the pool of the others: the residual (I - w G)^-1 r, and the trace of G (I - w G)^-1."""
        if self.own_weight is None:
            return self.residual, np.einsum("...ii->...", self.covariance)
        inverse = _inverse(_eye_plus(-self.own_weight, self.covariance))
        return np.matvec(inverse, self.residual), np.einsum("...ij,...ij->...", inverse, self.covariance)

    def distance(self) -> Array:
        """Of the city from the pool of the others, squared, in units of its variance I + G (I - w G)^-1 =
        (I - w G)^-1 (I + (1 - w) G)."""
        if self.own_weight is None:
            product = _eye_plus(np.ones(self.residual.shape[:-1]), self.covariance)
        else:
            product = np.matmul(
                _eye_plus(-self.own_weight, self.covariance),
                _eye_plus(1.0 - self.own_weight, self.covariance),
            )
        solution = np.linalg.solve(product, self.residual[..., None])[..., 0]
        distance: Array = np.vecdot(self.residual, solution)
        return distance


@dataclass(frozen=True)
class Comparison:
    """The cities of a group side by side."""

    values: Array  # l (..., K, J, c)
    vectors: Array  # U' (..., K, J, c, c)
    estimate: Array  # B theta_j (..., K, J, c)
    rank: Array  # (..., K, J)
    noise: Array  # sigma^2 of the group (..., K)
    influence: Array  # (..., K, J), the factor on a city's information when cities are compared
    ridge: float

    @classmethod
    def of(cls, spectrum: Spectrum, noise: Array, ridge: float) -> "Comparison":
        """`noise` is each city's sigma^2 (..., J, K), zero where it has no estimate of it."""
        trace = spectrum.values.sum(axis=-1)
        median_trace = median_of_positive(trace)[..., None, :]
        influence = np.minimum(1.0, MAX_INFLUENCE * median_trace / np.maximum(trace, 1e-300))
        return cls(
            values=np.ascontiguousarray(spectrum.values.swapaxes(-3, -2)),
            vectors=np.ascontiguousarray(spectrum.vectors.swapaxes(-4, -3)),
            estimate=np.ascontiguousarray(spectrum.estimate.swapaxes(-3, -2)),
            rank=np.ascontiguousarray(spectrum.rank.swapaxes(-2, -1)),
            noise=median_of_positive(noise),
            influence=np.ascontiguousarray(influence.swapaxes(-2, -1)),
            ridge=ridge,
        )

    def shrink(self, t: Array) -> "Comparison":
        """With (I + t Lambda)^-1 Lambda and (I + t Lambda)^-1 h in place of Lambda and h, t (..., K): the
        information left after a deviation of variance t."""
        growth = 1.0 + t[..., None, None] * self.values
        return replace(self, values=self.values / growth, estimate=self.estimate / np.sqrt(growth))

    def terms(self, weight: Array) -> tuple[Array, Array]:
        """weight_j Lambda_j (..., K, J, c, c) and weight_j h_j (..., K, J, c); `weight` (..., K, J)."""
        return _terms(self._roots(), self.estimate, weight)

    # Estimates

    def median_estimate(self) -> Array:
        """A first t per arm that a minority of cities cannot move, (..., K): each city's distance from the
        pool of the others gives one estimate of t, and their median counts."""
        deviation, variance = self._predict(self.influence).without_own()
        rank = np.maximum(self.rank, 1.0)
        # The median of a chi-squared variable is below its mean (Wilson and Hilferty).
        spread = np.vecdot(deviation, deviation) / (1.0 - 2.0 / (9.0 * rank)) ** 3
        expected = self.rank + variance
        cities, noise = self.rank.shape[-1], self.noise[..., None]
        slope = self.values.sum(axis=-1) * cities / max(cities - 1, 1)
        usable = (slope > 1e-9) & (noise > 0)
        scale = np.where(usable, slope * noise, 1.0)
        per_city = np.where(usable, (spread - noise * expected) / scale, 0.0)
        median: Array = np.median(per_city, axis=-1)
        return np.maximum(median, 0.0)

    def moment_estimate(self, trust: Array) -> Array:
        """t = tau^2 / sigma^2 per arm, (..., K): the t at which the weighted spread of the cities' estimates
        around their mean equals its expectation; `trust` (..., K, J)."""
        weight = trust * self.influence
        total, response = self._sums(weight)
        inverse = self._covariance(total)
        deviation = self._residual(np.matvec(inverse, response))
        spread = (weight * np.vecdot(deviation, deviation)).sum(axis=-1)
        # Of each direction, l v'Cv, so that tr(C sum_j w_j^2 Lambda_j) is the sum of w_j^2 of these.
        squares = (weight * weight)[..., None] * self.values * self._variances(inverse)
        expected = (weight * self.rank).sum(axis=-1) - squares.sum(axis=(-1, -2))
        slope = (weight[..., None] * self.values - squares * self.values).sum(axis=(-1, -2))
        excess = spread - self.noise * expected
        usable = (slope > 1e-9) & (self.noise > 0)
        return np.where(usable, np.maximum(excess, 0.0) / np.where(usable, slope * self.noise, 1.0), 0.0)

    def trust(self, trust: Array, t: Array) -> Array:
        """w_j = min(1, (nu + rank_j) / (nu + D_j)), (..., K, J). D_j is the squared distance of city j from
        the pool of the others, in units of its variance; all are trusted where the noise is unknown."""
        distance = self.shrink(t)._predict(trust * self.influence).distance()
        noise_known = (self.noise > 0)[..., None]
        relative = distance / np.where(noise_known, self.noise[..., None], 1.0)
        weights = np.minimum(1.0, (DEGREES_OF_FREEDOM + self.rank) / (DEGREES_OF_FREEDOM + relative))
        return np.where(noise_known, weights, 1.0)

    # Each city against the pool of the others

    def _predict(self, weight: Array) -> PooledPrediction:
        """By the pool of all cities with these weights (..., K, J)."""
        cities, features = self.values.shape[-2:]
        if cities <= features / MAX_SHARE:  # each may have a large share
            return self._predict_explicitly(weight, 0.0, 0.0)
        total, response = self._sums(weight)
        covariance = self._covariance(total)
        roots, own_weight = self._roots(), weight.copy()
        half = np.matmul(_rows(roots), covariance).reshape(roots.shape)
        prediction = PooledPrediction(
            self._residual(np.matvec(covariance, response)),
            np.matmul(half, roots.swapaxes(-1, -2)),
            own_weight,
        )
        share = weight * np.einsum("...ii->...", prediction.covariance)
        large = int((share > MAX_SHARE).sum(axis=-1).max(initial=0))
        if large:
            some = np.argpartition(-share, large - 1, axis=-1)[..., :large]
            better = self._predict_some(weight, some)
            np.put_along_axis(prediction.residual, some[..., None], better.residual, -2)
            np.put_along_axis(prediction.covariance, some[..., None, None], better.covariance, -3)
            np.put_along_axis(own_weight, some, 0.0, -1)
        return prediction

    def _predict_some(self, weight: Array, some: Ints) -> PooledPrediction:
        """Of the cities `some` (..., K, m), each by an explicit sum over the others."""
        rest = weight.copy()
        np.put_along_axis(rest, some, 0.0, -1)
        information, response = self._sums(rest)
        part = replace(
            self,
            values=np.take_along_axis(self.values, some[..., None], -2),
            vectors=np.take_along_axis(self.vectors, some[..., None, None], -3),
            estimate=np.take_along_axis(self.estimate, some[..., None], -2),
        )
        weight = np.take_along_axis(weight, some, -1)
        return part._predict_explicitly(weight, information[..., None, :, :], response[..., None, :])

    def _predict_explicitly(
        self, weight: Array, information: Array | float, response: Array | float
    ) -> PooledPrediction:
        """Each by a sum over the other cities here, and these sums over cities elsewhere."""
        roots = self._roots()
        terms, response_terms = _terms(roots, self.estimate, weight)
        covariance = self._covariance(information + sum_of_others(terms, 2))
        centre = np.matvec(covariance, response + sum_of_others(response_terms, 1))
        return PooledPrediction(
            self.estimate - np.matvec(roots, centre),
            np.matmul(np.matmul(roots, covariance), roots.swapaxes(-1, -2)),
            None,
        )

    # Sums over all cities

    def _sums(self, weight: Array) -> tuple[Array, Array]:
        """sum_j weight_j Lambda_j (..., K, c, c) and sum_j weight_j h_j (..., K, c)."""
        information = self._sum_along(weight[..., None] * self.values)
        along = weight[..., None] * np.sqrt(self.values) * self.estimate
        return information, np.vecmat(along.reshape(*along.shape[:-2], -1), _rows(self.vectors))

    def _variances(self, covariance: Array) -> Array:
        """v'Cv of each direction v of each city, (..., K, J, c) of C (..., K, c, c)."""
        rows = _rows(self.vectors)
        variances: Array = np.vecdot(np.matmul(rows, covariance), rows).reshape(self.values.shape)
        return variances

    def _sum_along(self, values: Array) -> Array:
        """sum_j U_j diag(values_j) U_j', (..., K, c, c) of (..., K, J, c)."""
        rows = _rows(self.vectors)
        weighted = values.reshape(*values.shape[:-2], -1, 1) * rows
        total: Array = np.matmul(rows.swapaxes(-1, -2), weighted)
        return total

    def _residual(self, theta: Array) -> Array:
        """B_j (theta_j - theta), (..., K, J, c) of theta (..., K, c)."""
        along = np.matvec(_rows(self.vectors), theta).reshape(self.values.shape)
        residual: Array = self.estimate - np.sqrt(self.values) * along
        return residual

    def _roots(self) -> Array:
        """B (..., K, J, c, c)."""
        roots: Array = np.sqrt(self.values)[..., None] * self.vectors
        return roots

    def _covariance(self, information: Array) -> Array:
        """(Lambda + ridge I)^-1, the posterior covariance with the ridge as the prior."""
        return _inverse(information + self.ridge * np.eye(information.shape[-1]))


def _terms(roots: Array, estimate: Array, weight: Array) -> tuple[Array, Array]:
    """w Lambda and w h from B and B theta."""
    information = np.matmul(roots.swapaxes(-1, -2), weight[..., None, None] * roots)
    return information, np.vecmat(weight[..., None] * estimate, roots)


def sum_of_others(terms: Array, axes: int, receivers: slice = slice(None)) -> Array:
    """For every receiver the sum over all cities but itself: (..., I, ...) of (..., J, ...); `axes` is the
    number of axes after that of the cities."""
    lead, own = terms.shape[: terms.ndim - axes - 1], terms.shape[terms.ndim - axes :]
    cities = np.arange(terms.shape[-axes - 1])
    not_self = (cities[receivers, None] != cities).astype(np.float64)
    sums: Array = np.matmul(not_self, terms.reshape(*lead, cities.size, -1)).reshape(*lead, -1, *own)
    return sums


def median_of_positive(values: Array) -> Array:
    """The median over cities of the positive values, (..., J, K) to (..., K); zero where there are none."""
    is_positive = values > 0
    count = is_positive.sum(axis=-2, keepdims=True)
    ascending = np.sort(np.where(is_positive, values, np.inf), axis=-2)
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    high = np.minimum(high, np.maximum(count - 1, 0))
    middle = np.take_along_axis(ascending, low, -2) + np.take_along_axis(ascending, high, -2)
    median: Array = np.where(count > 0, middle / 2.0, 0.0)[..., 0, :]
    return median


def _rows(vectors: Array) -> Array:
    """(..., K, J c, c), a view of (..., K, J, c, c)."""
    return vectors.reshape(*vectors.shape[:-3], -1, vectors.shape[-1])


def _eye_plus(factor: Array, matrices: Array) -> Array:
    """I + factor G of G (..., c, c) and factor (...)."""
    sums: Array = factor[..., None, None] * matrices
    np.einsum("...ii->...i", sums)[...] += 1.0
    return sums


def _inverse(matrices: Array) -> Array:
    inverse: Array = np.linalg.inv(matrices)  # type: ignore[assignment]
    return inverse
