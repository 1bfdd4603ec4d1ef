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
from pricemesh.core.comparison import Comparison, sum_of_others
from pricemesh.core.spectrum import Spectrum
from pricemesh.core.summary import Parts

TRUST_PASSES = 2  # how often trust and heterogeneity are estimated in turn


class Pool(NamedTuple):
    """What each of the I receivers adopts of its peers, and how that was estimated."""

    information: Array  # L (..., I, K, c, c), to add to the cc-block of W
    response: Array  # e (..., I, K, c), to add to the c-part of b
    trust: Array  # w (..., J, K)
    heterogeneity: Array  # t (..., K)
    city_information: Array  # (..., J, K, c, c), each city's term of A, which is then shrunk to L
    city_response: Array  # (..., J, K, c), each city's term of q, which is then shrunk to e


@dataclass(frozen=True)
class Pooling:
    """The parameters. `prepare` depends on each city alone, `pool` on all of them."""

    ridge: float
    heterogeneity: float | Literal["auto"]
    robust: bool

    def prepare(self, information: Array, response: Array, noise: Array) -> Parts:
        """What `pool` needs of each city, from Lambda (..., J, K, c, c), h (..., J, K, c) and sigma^2
        (..., J, K), which is zero where a city has no estimate of it."""
        if self.heterogeneity == "auto" or self.robust:
            return {**Spectrum.of(information, response)._asdict(), "noise": noise}
        return {"information": information, "response": response}

    def pool(self, cities: Parts, receivers: slice) -> Pool:
        """For each receiver, the information of all other cities of the group, discounted by t and by trust.
        `cities` is what `prepare` returned, of all cities of the group."""
        if self.heterogeneity == "auto" or self.robust:
            terms = self._compare(cities)
        else:
            terms = self._take(self.heterogeneity, cities)
        information, response = (
            sum_of_others(terms.information, 2, receivers),
            sum_of_others(terms.response, 1, receivers),
        )
        t = terms.heterogeneity
        if t.any():
            information, response = _shrink(information, response, t[..., None])
        return Pool(
            information.swapaxes(-3, -4),
            response.swapaxes(-2, -3),
            terms.trust.swapaxes(-1, -2),
            t,
            terms.information.swapaxes(-3, -4),
            terms.response.swapaxes(-2, -3),
        )

    def _compare(self, cities: Parts) -> "_Terms":
        """Read t or the trust or both from the differences between cities."""
        spectrum = Spectrum(*(cities[name] for name in Spectrum._fields))
        comparison = Comparison.of(spectrum, cities["noise"], self.ridge)
        trust = np.ones_like(comparison.rank)
        t = np.zeros_like(comparison.noise)
        if self.heterogeneity != "auto":
            t += self.heterogeneity
        elif self.robust:
            t = comparison.median_estimate()
        for _ in range(TRUST_PASSES if self.robust else 1):
            if self.robust:
                trust = comparison.trust(trust, t)
            if self.heterogeneity == "auto":
                # Trust squared, so that a discounted city hardly raises the heterogeneity.
                t = comparison.moment_estimate(trust * trust)
        return _Terms(*comparison.shrink(t).terms(trust), trust, t)

    def _take(self, heterogeneity: float, cities: Parts) -> "_Terms":
        """Without a comparison: t is given, and all are trusted."""
        information = cities["information"].swapaxes(-3, -4).copy()
        response = cities["response"].swapaxes(-2, -3).copy()
        trust = np.ones(response.shape[:-1])
        t = np.full(response.shape[:-2], heterogeneity)
        if heterogeneity:
            information, response = _shrink(information, response, t[..., None])
        return _Terms(information, response, trust, t)


class _Terms(NamedTuple):
    """Each city's term of the sums over peers; axes here have the arms before the cities."""

    information: Array  # w_j (I + t Lambda_j)^-1 Lambda_j (..., K, J, c, c)
    response: Array  # w_j (I + t Lambda_j)^-1 h_j (..., K, J, c)
    trust: Array  # w (..., K, J)
    heterogeneity: Array  # t (..., K)


def _shrink(information: Array, response: Array, t: Array) -> tuple[Array, Array]:
    """(I + t Lambda)^-1 Lambda and (I + t Lambda)^-1 h: the information left after a deviation of
    variance t."""
    eye = np.eye(information.shape[-1])
    both = np.concatenate([information, response[..., None]], axis=-1)
    solution = np.linalg.solve(eye + t[..., None, None] * information, both)
    matrix = solution[..., :-1]
    return (matrix + matrix.swapaxes(-1, -2)) / 2.0, solution[..., -1]
