"""Thompson sampling with known probabilities: how likely each arm is to be the best, and a draw by them.

Arm k's reward is normal with mean m_k and standard deviation s_k, and arms are independent. Its propensity is
p_k = integral phi_k(v) prod_{j != k} Phi_j(v) dv = integral (phi_k / Phi_k) G dv with G(v) = prod_j Phi_j(v):
one grid of points v serves all arms.

The grid starts at `low` = max_j (m_j - 7 s_j): the best arm lies above it with a probability of 1 - 2e-12.
Every arm that reaches beyond `low` has it within 7 s_j, so that it varies with v - low on the scale of s_j,
be that 1 or 1e-9. In t = log(1 + (v - low) / smallest s_j) all of them are about equally smooth, and each
0.55 of t gets 16 Gauss-Legendre nodes.
"""

from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from math import erfc, exp, pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pricemesh.core.arrays import Array, Ints
from pricemesh.errors import InvalidParameter

# A deviation below these shares of the largest deviation or mean counts as that share: an arm without
# uncertainty becomes almost certain, and such arms with equal means share their probability equally.
MIN_SHARE_OF_DEVIATION = 1e-9
MIN_SHARE_OF_MEAN = 1e-12  # by which means are rounded
MIN_DEVIATION = 1e-200

REACH = 7.0  # standard deviations
SCAN_POINTS = 32
MIN_CUMULATIVE = 1e-11  # of G: below it, nothing is integrated
PANEL_WIDTH, PANEL_NODES = 0.55, 16
MAX_INTERMEDIATE_NUMBERS = 16_384  # in one array, which then stays in the cache

# Mills' ratio (1 - Phi(a)) / phi(a) for a >= 0 is smooth in 1 / (1 + a / 4): a polynomial of degree 12 that
# interpolates it at Chebyshev points for a <= 9 is exact to 1e-10; beyond, 1 - Phi is below 2e-19.
MILLS_DEGREE, MILLS_PACE, MILLS_END = 12, 0.25, 9.0
_MILLS_LOW = 1.0 / (1.0 + MILLS_PACE * MILLS_END)
_ROOT = 1.0 / sqrt(2.0 * pi)


@cache
def _mills_coefficients() -> tuple[float, ...]:
    """In ascending powers of u, which runs from -1 at the end to 1 at a = 0."""
    from numpy.polynomial import chebyshev  # not needed for upper confidence bounds, and slow to load

    points = chebyshev.chebpts1(MILLS_DEGREE + 1)
    sizes = (1.0 / ((points + 1.0) / 2.0 * (1.0 - _MILLS_LOW) + _MILLS_LOW) - 1.0) / MILLS_PACE
    ratios = [0.5 * erfc(a / sqrt(2.0)) / (_ROOT * exp(-a * a / 2.0)) for a in sizes.tolist()]
    values = chebyshev.cheb2poly(chebyshev.chebfit(points, ratios, MILLS_DEGREE))
    return tuple(values.tolist())


@cache
def _panel() -> tuple[Array, Array]:
    """Nodes and weights on [0, 1]."""
    from numpy.polynomial import legendre

    nodes, weights = legendre.leggauss(PANEL_NODES)
    return (nodes + 1.0) / 2.0, weights / 2.0


@cache
def _rule(panels: int) -> tuple[Array, Array]:
    """Nodes and weights of all panels on [0, 1]."""
    nodes, weights = _panel()
    return (np.arange(panels)[:, None] + nodes).ravel() / panels, np.tile(weights, panels) / panels


def normal(z: Array) -> tuple[Array, Array]:
    """phi(z) and Phi(z), to 1e-11; Phi(z) relative to itself to 1e-10 down to z = -9."""
    size = np.abs(z)
    density = np.exp(-0.5 * size * size)
    density *= _ROOT
    u = 2.0 / (1.0 - _MILLS_LOW) / (1.0 + MILLS_PACE * size)
    u -= (1.0 + _MILLS_LOW) / (1.0 - _MILLS_LOW)
    *rest, last = _mills_coefficients()
    tail = np.full_like(u, last)
    for coefficient in reversed(rest):
        tail *= u
        tail += coefficient
    tail *= density
    return density, np.where(z < 0.0, tail, 1.0 - tail)


class _Arms(NamedTuple):
    """m contexts; an arm that is not allowed has the mean minus infinity."""

    mean: Array  # (m, K)
    sd: Array  # (m, K)

    def at(self, places: Ints) -> "_Arms":
        return _Arms(self.mean[places], self.sd[places])

    def above(self, low: Array) -> tuple[Array, Array]:
        """The length in t from `low` to the end, and the smallest deviation among the arms that reach it."""
        tops = self.mean + REACH * self.sd
        smallest = np.where(tops > low[:, None], self.sd, np.inf).min(axis=-1)
        return np.log1p((tops.max(axis=-1) - low) / smallest), smallest

    def standardised(self, low: Array, smallest: Array, t: Array) -> tuple[Array, Array]:
        """(v - mean) / sd at the points t (m, n), as (m, K, n), and dv/dt / sd without its factor exp(t)."""
        pace = smallest[:, None] / self.sd
        z = pace[:, :, None] * np.expm1(t)[:, None, :]
        z += ((low[:, None] - self.mean) / self.sd)[:, :, None]
        return z, pace


def propensities(mean: Array, sd: Array, allowed: NDArray[np.bool_] | None = None) -> Array:
    """The probability (..., K) that each allowed arm is the best one, given means and deviations (..., K).

    >>> propensities(np.array([1.0, 1.0, 9.0]), np.array([0.5, 0.0, 1.0]), np.array([True, True, False]))
    array([0.5, 0.5, 0. ])
    """
    mean, sd = np.broadcast_arrays(np.asarray(mean, dtype=np.float64), np.asarray(sd, dtype=np.float64))
    shape = mean.shape
    within = np.broadcast_to(True if allowed is None else allowed, shape)
    if not within.any(axis=-1).all() or not np.isfinite(np.where(within, mean + sd, 0.0)).all():
        raise InvalidParameter("no arm can be chosen: none is allowed, or an allowed arm has no finite score")
    if (sd[within] < 0.0).any():
        raise InvalidParameter("a standard deviation is negative")
    rows = (-1, shape[-1])
    mean, sd, within = mean.reshape(rows), sd.reshape(rows), within.reshape(rows)
    least = np.maximum(
        MIN_SHARE_OF_DEVIATION * np.where(within, sd, 0.0).max(axis=-1),
        MIN_SHARE_OF_MEAN * np.where(within, np.abs(mean), 0.0).max(axis=-1),
    )
    sd = np.maximum(np.where(within, sd, 0.0), np.maximum(least, MIN_DEVIATION)[:, None])
    return _integrate(_Arms(np.where(within, mean, -np.inf), sd)).reshape(shape)


def _integrate(arms: _Arms) -> Array:
    contexts, size = arms.mean.shape
    low, length, smallest = np.empty((3, contexts))
    for at in _chunks(np.arange(contexts), size * SCAN_POINTS):
        low[at], length[at], smallest[at] = _span(arms.at(at))
    panels = np.ceil(length / PANEL_WIDTH).astype(np.int64)
    p = np.empty_like(arms.mean)
    # The nodes of a context depend on nothing but itself: in a batch it gets what it would get alone.
    for count in set(panels.tolist()):
        nodes, weights = _rule(count)
        for at in _chunks(np.flatnonzero(panels == count), size * nodes.size):
            t = length[at, None] * nodes
            z, pace = arms.at(at).standardised(low[at], smallest[at], t)
            density, cumulative = normal(z)
            weight = weights * np.exp(t) * cumulative.prod(axis=-2)
            density /= cumulative  # at least Phi(-7)
            p[at] = pace * np.matvec(density, weight)
    p /= p.sum(axis=-1, keepdims=True)
    return p


def _chunks(places: Ints, numbers_each: int) -> Iterator[Ints]:
    step = max(1, MAX_INTERMEDIATE_NUMBERS // numbers_each)
    for start in range(0, len(places), step):
        yield places[start : start + step]


def _span(arms: _Arms) -> tuple[Array, Array, Array]:
    """Where each context's integral starts, its length in t, and the smallest deviation above the start."""
    low = (arms.mean - REACH * arms.sd).max(axis=-1)
    length, smallest = arms.above(low)
    # Many arms push G up together: a coarse scan moves the start closer to where it rises.
    t = length[:, None] * (np.arange(SCAN_POINTS) / SCAN_POINTS)
    _, cumulative = normal(arms.standardised(low, smallest, t)[0])
    last = np.maximum((cumulative.prod(axis=-2) < MIN_CUMULATIVE).sum(axis=-1) - 1, 0)
    low = low + smallest * np.expm1(np.take_along_axis(t, last[:, None], axis=-1)[:, 0])
    return low, *arms.above(low)


def draw(p: Array, uniform: Array | float) -> Ints:
    """The arm (...) whose share of [0, 1) contains `uniform`; never one of probability 0."""
    ends = p.cumsum(axis=-1)
    target = np.asarray(uniform) * ends[..., -1]  # below the last end, however the sum was rounded
    arm: Ints = (ends > target[..., None]).argmax(axis=-1)
    return arm


def city_seed(city: str, seed: int) -> bytes:
    """What all draws of a city come from. It is no secret."""
    return blake2b(f"{seed}/{city}".encode(), digest_size=32).digest()


def uniform_of(seed: bytes, decision_id: str) -> float:
    """A number in [0, 1) that the seed and the decision's id determine: its draw can be repeated.

    >>> round(uniform_of(city_seed("lisbon", 0), "round1"), 6)
    0.310676
    """
    digest = blake2b(decision_id.encode(), digest_size=8, key=seed).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
