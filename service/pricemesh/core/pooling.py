"""Partial pooling: how much of its peers' information on the shared parameters a city adopts.

Each city j of a group gives, per arm, its marginal information Lambda_j and h_j = Lambda_j theta_j in
units of the noise, and its estimate of that noise. The model: every city's theta is the centre of the
group plus a deviation of variance t per coordinate (in units of the noise).

Axes: (..., J, K, c, c) and the like: J cities of the group, K arms, c shared features.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from pricemesh.core.arrays import Array

TRUST_PASSES = 2  # how often trust and heterogeneity are estimated in turn
MAX_INFLUENCE = 3.0  # when cities are compared, one counts at most as much as this many median cities
DEGREES_OF_FREEDOM = 4.0  # nu of the robust weights: the lower, the sooner an outlier is discounted


class Evidence(NamedTuple):
    """The summaries of the cities of a group, per arm."""

    information: Array  # Lambda (..., J, K, c, c), symmetric, positive semi-definite
    response: Array  # h (..., J, K, c)
    noise: Array  # sigma^2 (..., J, K), zero where a city has no estimate of it


class Pool(NamedTuple):
    """What each of the I receivers adopts of its peers, and how that was estimated."""

    information: Array  # L (..., I, K, c, c), to add to the cc-block of W
    response: Array  # e (..., I, K, c), to add to the c-part of b
    trust: Array  # w (..., J, K)
    heterogeneity: Array  # t (..., K)
    city_information: Array  # (..., J, K, c, c), each city's term of A, which is then shrunk to L
    city_response: Array  # (..., J, K, c), each city's term of q, which is then shrunk to e


def pool(
    evidence: Evidence,
    receivers: slice,
    *,
    ridge: float,
    heterogeneity: float | Literal["auto"],
    robust: bool,
) -> Pool:
    """For each receiver, the information of all other cities of the group, discounted by t and by trust."""
    information, response = evidence.information, evidence.response
    lead, arms = information.shape[:-4], information.shape[-3]
    trust = np.ones(information.shape[:-2])
    t = np.full((*lead, arms), 0.0 if heterogeneity == "auto" else heterogeneity)
    if heterogeneity == "auto" or robust:
        spectrum = Spectrum.of(information, response)
        noise = median_of_positive(evidence.noise)
        if heterogeneity == "auto" and robust:
            t = spectrum.median_estimate(noise, ridge)
        for _ in range(TRUST_PASSES if robust else 1):
            if robust:
                trust = spectrum.trust(trust, noise, t, ridge)
            if heterogeneity == "auto":
                # Trust squared, so that a discounted city hardly raises the heterogeneity.
                t = spectrum.moment_estimate(trust * trust, noise, ridge)
        information, response = spectrum.shrink(t)
    elif t.any():
        information, response = _shrink(information, response, t[..., None, :])
    city_information, city_response = _scale(trust, information, response)
    peers_information, peers_response = _sum_of_others(city_information, city_response, receivers)
    if t.any():
        peers_information, peers_response = _shrink(peers_information, peers_response, t[..., None, :])
    return Pool(peers_information, peers_response, trust, t, city_information, city_response)


def _shrink(information: Array, response: Array, t: Array) -> tuple[Array, Array]:
    """(I + t Lambda)^-1 Lambda and (I + t Lambda)^-1 h: the information left after a deviation of
    variance t."""
    eye = np.eye(information.shape[-1])
    both = np.concatenate([information, response[..., None]], axis=-1)
    solution = np.linalg.solve(eye + t[..., None, None] * information, both)
    matrix = solution[..., :-1]
    return (matrix + matrix.swapaxes(-1, -2)) / 2.0, solution[..., -1]


def _scale(trust: Array, information: Array, response: Array) -> tuple[Array, Array]:
    """w Lambda and w h."""
    return trust[..., None, None] * information, trust[..., None] * response


def _sum_of_others(information: Array, response: Array, receivers: slice) -> tuple[Array, Array]:
    """For every receiver the sum over all cities but itself."""
    cities = information.shape[-4]
    not_self = (1.0 - np.eye(cities))[receivers]
    shape = (*information.shape[:-4], not_self.shape[0], *information.shape[-3:])
    flat_information = information.reshape(*information.shape[:-3], -1)
    flat_response = response.reshape(*response.shape[:-2], -1)
    return (
        np.matmul(not_self, flat_information).reshape(shape),
        np.matmul(not_self, flat_response).reshape(shape[:-1]),
    )


@dataclass(frozen=True)
class Spectrum:
    """Lambda_j = U diag(l) U' of every city and arm, and the estimates in those coordinates."""

    information: Array  # Lambda (..., J, K, c, c)
    response: Array  # h (..., J, K, c), within the range of Lambda
    values: Array  # l (..., J, K, c)
    root: Array  # B = diag(sqrt l) U' (..., J, K, c, c), so that B'B = Lambda
    vectors: Array  # U'
    projection: Array  # U'h
    estimate: Array  # B theta_j, zero in directions without information
    rank: Array  # (..., J, K)
    influence: Array  # (..., J, K), the factor on a city's information when cities are compared

    @classmethod
    def of(cls, information: Array, response: Array) -> "Spectrum":
        values, columns = np.linalg.eigh(information)
        values = np.maximum(values, 0.0)
        informative = values > 1e-10 * np.maximum(values[..., -1:], 1e-300)
        vectors = columns.swapaxes(-1, -2)
        # Ignore what a city reports on directions on which it has no information.
        projection = np.where(informative, np.matvec(vectors, response), 0.0)
        trace = values.sum(axis=-1)
        median_trace = median_of_positive(trace)[..., None, :]
        scale = np.sqrt(values)
        return cls(
            information=information,
            response=np.vecmat(projection, vectors),
            values=values,
            root=scale[..., None] * vectors,
            vectors=vectors,
            projection=projection,
            estimate=np.where(informative, projection / np.where(informative, scale, 1.0), 0.0),
            rank=informative.sum(axis=-1).astype(np.float64),
            influence=np.minimum(1.0, MAX_INFLUENCE * median_trace / np.maximum(trace, 1e-300)),
        )

    def shrink(self, t: Array) -> tuple[Array, Array]:
        """(I + t Lambda)^-1 Lambda and (I + t Lambda)^-1 h for every city."""
        factor = 1.0 / (1.0 + t[..., None, :, None] * self.values)
        information = np.matmul(self.root.swapaxes(-1, -2), factor[..., None] * self.root)
        return information, np.vecmat(factor * self.projection, self.vectors)

    def median_estimate(self, noise: Array, ridge: float) -> Array:
        """A first t per arm that a minority of cities cannot move, (..., K): each city's distance from the
        pool of the others gives one estimate of t, and their median counts."""
        others, response = _sum_of_others(
            *_scale(self.influence, self.information, self.response), slice(None)
        )
        covariance = _covariance(others, ridge)
        deviation = self.estimate - np.matvec(self.root, np.matvec(covariance, response))
        cities = self.rank.shape[-2]
        rank = np.maximum(self.rank, 1.0)
        # The median of a chi-squared variable is below its mean (Wilson and Hilferty).
        spread = np.vecdot(deviation, deviation) / (1.0 - 2.0 / (9.0 * rank)) ** 3
        expected = self.rank + _trace(self.information, covariance)
        slope = self.values.sum(axis=-1) * cities / max(cities - 1, 1)
        usable = (slope > 1e-9) & (noise > 0)[..., None, :]
        scale = np.where(usable, slope * noise[..., None, :], 1.0)
        per_city = np.where(usable, (spread - noise[..., None, :] * expected) / scale, 0.0)
        median: Array = np.median(per_city, axis=-2)
        return np.maximum(median, 0.0)

    def moment_estimate(self, trust: Array, noise: Array, ridge: float) -> Array:
        """t = tau^2 / sigma^2 per arm, (..., K): the t at which the weighted spread of the cities' estimates
        around their mean equals its expectation; `noise` is sigma^2 (..., K)."""
        trust = trust * self.influence
        own = self.information
        weighted = trust[..., None, None] * own
        total = weighted.sum(axis=-4)  # (..., K, c, c)
        inverse = _covariance(total, ridge)
        mean = np.matvec(inverse, (trust[..., None] * self.response).sum(axis=-3))
        deviation = self.estimate - np.matvec(self.root, mean[..., None, :, :])
        spread = (trust * np.vecdot(deviation, deviation)).sum(axis=-2)
        squares = (trust * trust)[..., None, None]
        expected = (trust * self.rank).sum(axis=-2) - _trace(inverse, (squares * own).sum(axis=-4))
        slope = (trust * self.values.sum(axis=-1)).sum(axis=-2) - _trace(
            inverse, (squares * np.matmul(own, own)).sum(axis=-4)
        )
        excess = spread - noise * expected
        usable = (slope > 1e-9) & (noise > 0)
        return np.where(usable, np.maximum(excess, 0.0) / np.where(usable, slope * noise, 1.0), 0.0)

    def trust(self, trust: Array, noise: Array, t: Array, ridge: float) -> Array:
        """w_j = min(1, (nu + rank_j) / (nu + D_j)), (..., J, K). D_j is the squared distance of city j from
        the pool of the others, in units of its variance; all are trusted where the noise is unknown."""
        information, response = self.shrink(t)
        others, others_response = _sum_of_others(
            *_scale(trust * self.influence, information, response), slice(None)
        )
        eye = np.eye(others.shape[-1])
        covariance = _covariance(others, ridge)
        centre = np.matvec(covariance, others_response)
        deviation = self.estimate - np.matvec(self.root, centre)
        between = covariance + t[..., None, :, None, None] * eye
        variance = eye + np.matmul(np.matmul(self.root, between), self.root.swapaxes(-1, -2))
        distance = np.vecdot(deviation, np.linalg.solve(variance, deviation[..., None])[..., 0])
        noise_known = noise > 0
        relative = distance / np.where(noise_known, noise, 1.0)[..., None, :]
        weights = np.minimum(1.0, (DEGREES_OF_FREEDOM + self.rank) / (DEGREES_OF_FREEDOM + relative))
        return np.where(noise_known[..., None, :], weights, 1.0)


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


def _covariance(information: Array, ridge: float) -> Array:
    """(Lambda + ridge I)^-1, the posterior covariance with the ridge as the prior."""
    inverse: Array = np.linalg.inv(information + ridge * np.eye(information.shape[-1]))  # type: ignore[assignment]
    return inverse


def _trace(a: Array, b: Array) -> Array:
    """tr(a b) for symmetric a, b."""
    total: Array = (a * b).sum(axis=(-1, -2))
    return total
