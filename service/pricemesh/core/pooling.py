"""Partial pooling: what a city should believe of its peers' information on the shared parameters.

Each city j of a group gives, per arm, its marginal information Lambda_j and h_j = Lambda_j theta_j
in units of the noise, and its estimate of that noise. A peer's theta is taken to be the group's
centre plus a deviation of variance t per coordinate (in units of the noise), and so is one's own.

Axes: (..., J, K, c, c) and the like: J cities of the group, K arms, c shared features.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from pricemesh.core.arrays import Array

PASSES = 2
BOAST = 3.0  # in judging others, no city counts for more than so many typical ones
TAIL = 4.0  # degrees of freedom of the robust weights: the lower, the sooner a stranger is discounted


class Evidence(NamedTuple):
    """What the cities of a group know of one another, per arm."""

    information: Array  # Lambda (..., J, K, c, c), symmetric, positive semi-definite
    response: Array  # h (..., J, K, c)
    noise: Array  # sigma^2 (..., J, K), zero where a city knows none


class Pooled(NamedTuple):
    information: Array  # L (..., I, K, c, c), to add to the cc-block of W
    response: Array  # e (..., I, K, c), to add to the c-part of b
    trust: Array  # w (..., J, K)
    heterogeneity: Array  # t (..., K)
    each_information: Array  # (..., J, K, c, c), each city's part of A before it is shrunk to L
    each_response: Array  # (..., J, K, c), of q before it is shrunk to e


def pool(
    evidence: Evidence,
    receivers: slice,
    *,
    ridge: float,
    heterogeneity: float | Literal["auto"],
    robust: bool,
) -> Pooled:
    """Everything the others of the group tell each of the receivers."""
    information, response = evidence.information, evidence.response
    lead, arms = information.shape[:-4], information.shape[-3]
    trust = np.ones(information.shape[:-2])
    t = np.full((*lead, arms), 0.0 if heterogeneity == "auto" else heterogeneity)
    if heterogeneity == "auto" or robust:
        spectrum = Spectrum.of(information, response)
        noise = median_of_positive(evidence.noise)
        if heterogeneity == "auto" and robust:
            t = spectrum.median_estimate(noise, ridge)
        for _ in range(PASSES if robust else 1):
            if robust:
                trust = spectrum.trust(trust, noise, t, ridge)
            if heterogeneity == "auto":
                # Squared, so that whoever is discounted soon stops passing for heterogeneity.
                t = spectrum.moment_estimate(trust * trust, noise, ridge)
        information, response = spectrum.discounted(t)
    elif t.any():
        information, response = _shrunk(information, response, t[..., None, :])
    each_information, each_response = _scaled(trust, information, response)
    centre, pull = _others(each_information, each_response, receivers)
    if t.any():
        centre, pull = _shrunk(centre, pull, t[..., None, :])
    return Pooled(centre, pull, trust, t, each_information, each_response)


def _shrunk(information: Array, response: Array, t: Array) -> tuple[Array, Array]:
    """(I + t Lambda)^-1 applied to Lambda and h: information across a deviation of variance t."""
    eye = np.eye(information.shape[-1])
    both = np.concatenate([information, response[..., None]], axis=-1)
    shrunk = np.linalg.solve(eye + t[..., None, None] * information, both)
    matrix = shrunk[..., :-1]
    return (matrix + matrix.swapaxes(-1, -2)) / 2.0, shrunk[..., -1]


def _scaled(trust: Array, information: Array, response: Array) -> tuple[Array, Array]:
    return trust[..., None, None] * information, trust[..., None] * response


def _others(information: Array, response: Array, receivers: slice) -> tuple[Array, Array]:
    """For every receiver the sum over all cities but itself."""
    cities = information.shape[-4]
    but_oneself = (1.0 - np.eye(cities))[receivers]
    shape = (*information.shape[:-4], but_oneself.shape[0], *information.shape[-3:])
    flat = information.reshape(*information.shape[:-3], -1)
    pulls = response.reshape(*response.shape[:-2], -1)
    return (
        np.matmul(but_oneself, flat).reshape(shape),
        np.matmul(but_oneself, pulls).reshape(shape[:-1]),
    )


@dataclass(frozen=True)
class Spectrum:
    """Lambda_j = U diag(l) U' of every city and arm, and the estimates in those coordinates."""

    information: Array  # Lambda (..., J, K, c, c)
    response: Array  # h (..., J, K, c), within the range of Lambda
    values: Array  # l (..., J, K, c)
    root: Array  # B = diag(sqrt l) U' (..., J, K, c, c), so that B'B = Lambda
    vectors: Array  # U'
    projected: Array  # U'h
    estimate: Array  # B theta_j, zero where a city knows nothing
    rank: Array  # (..., J, K)
    voice: Array  # (..., J, K), how much of a city's information counts in judging others

    @classmethod
    def of(cls, information: Array, response: Array) -> "Spectrum":
        values, columns = np.linalg.eigh(information)
        values = np.maximum(values, 0.0)
        known = values > 1e-10 * np.maximum(values[..., -1:], 1e-300)
        vectors = columns.swapaxes(-1, -2)
        # What a city says of directions it has no information on is not heard.
        projected = np.where(known, np.matvec(vectors, response), 0.0)
        trace = values.sum(axis=-1)
        typical = median_of_positive(trace)[..., None, :]
        scale = np.sqrt(values)
        return cls(
            information=information,
            response=np.vecmat(projected, vectors),
            values=values,
            root=scale[..., None] * vectors,
            vectors=vectors,
            projected=projected,
            estimate=np.where(known, projected / np.where(known, scale, 1.0), 0.0),
            rank=known.sum(axis=-1).astype(np.float64),
            voice=np.minimum(1.0, BOAST * typical / np.maximum(trace, 1e-300)),
        )

    def discounted(self, t: Array) -> tuple[Array, Array]:
        """(I + t Lambda)^-1 Lambda and (I + t Lambda)^-1 h for every city."""
        kept = 1.0 / (1.0 + t[..., None, :, None] * self.values)
        information = np.matmul(self.root.swapaxes(-1, -2), kept[..., None] * self.root)
        return information, np.vecmat(kept * self.projected, self.vectors)

    def median_estimate(self, noise: Array, ridge: float) -> Array:
        """A first t per arm that a minority of cities cannot move: the median over cities of what each
        one's distance from the others' pool says alone, (..., K)."""
        others, pull = _others(*_scaled(self.voice, self.information, self.response), slice(None))
        covariance = _covariance(others, ridge)
        apart = self.estimate - np.matvec(self.root, np.matvec(covariance, pull))
        cities = self.rank.shape[-2]
        rank = np.maximum(self.rank, 1.0)
        # The median of a chi-squared variable is below its mean (Wilson and Hilferty).
        spread = np.vecdot(apart, apart) / (1.0 - 2.0 / (9.0 * rank)) ** 3
        expected = self.rank + _trace(self.information, covariance)
        slope = self.values.sum(axis=-1) * cities / max(cities - 1, 1)
        usable = (slope > 1e-9) & (noise > 0)[..., None, :]
        scale = np.where(usable, slope * noise[..., None, :], 1.0)
        each = np.where(usable, (spread - noise[..., None, :] * expected) / scale, 0.0)
        median: Array = np.median(each, axis=-2)
        return np.maximum(median, 0.0)

    def moment_estimate(self, trust: Array, noise: Array, ridge: float) -> Array:
        """t = tau^2 / sigma^2 per arm, by equating the weighted spread of the cities' estimates
        around their mean with its expectation, (..., K); `noise` sigma^2 (..., K)."""
        trust = trust * self.voice
        own = self.information
        weighted = trust[..., None, None] * own
        total = weighted.sum(axis=-4)  # (..., K, c, c)
        inverse = _covariance(total, ridge)
        mean = np.matvec(inverse, (trust[..., None] * self.response).sum(axis=-3))
        apart = self.estimate - np.matvec(self.root, mean[..., None, :, :])
        spread = (trust * np.vecdot(apart, apart)).sum(axis=-2)
        squares = (trust * trust)[..., None, None]
        expected = (trust * self.rank).sum(axis=-2) - _trace(inverse, (squares * own).sum(axis=-4))
        slope = (trust * self.values.sum(axis=-1)).sum(axis=-2) - _trace(
            inverse, (squares * np.matmul(own, own)).sum(axis=-4)
        )
        excess = spread - noise * expected
        usable = (slope > 1e-9) & (noise > 0)
        return np.where(usable, np.maximum(excess, 0.0) / np.where(usable, slope * noise, 1.0), 0.0)

    def trust(self, trust: Array, noise: Array, t: Array, ridge: float) -> Array:
        """w_j = min(1, (nu + rank) / (nu + D_j)): D_j compares city j with the others' pool."""
        information, response = self.discounted(t)
        others, pull = _others(*_scaled(trust * self.voice, information, response), slice(None))
        eye = np.eye(others.shape[-1])
        covariance = _covariance(others, ridge)
        centre = np.matvec(covariance, pull)
        apart = self.estimate - np.matvec(self.root, centre)
        between = covariance + t[..., None, :, None, None] * eye
        variance = eye + np.matmul(np.matmul(self.root, between), self.root.swapaxes(-1, -2))
        distance = np.vecdot(apart, np.linalg.solve(variance, apart[..., None])[..., 0])
        quiet = noise > 0
        scaled = distance / np.where(quiet, noise, 1.0)[..., None, :]
        weights = np.minimum(1.0, (TAIL + self.rank) / (TAIL + scaled))
        return np.where(quiet[..., None, :], weights, 1.0)


def median_of_positive(values: Array) -> Array:
    """The median over cities of what is positive, (..., J, K) to (..., K); zero where nothing is."""
    known = values > 0
    count = known.sum(axis=-2, keepdims=True)
    ascending = np.sort(np.where(known, values, np.inf), axis=-2)
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    high = np.minimum(high, np.maximum(count - 1, 0))
    middle = np.take_along_axis(ascending, low, -2) + np.take_along_axis(ascending, high, -2)
    median: Array = np.where(count > 0, middle / 2.0, 0.0)[..., 0, :]
    return median


def _covariance(information: Array, ridge: float) -> Array:
    """(Lambda + ridge I)^-1: what is left uncertain, the ridge being the prior."""
    inverse: Array = np.linalg.inv(information + ridge * np.eye(information.shape[-1]))  # type: ignore[assignment]
    return inverse


def _trace(a: Array, b: Array) -> Array:
    """tr(a b) for symmetric a, b."""
    total: Array = (a * b).sum(axis=(-1, -2))
    return total
