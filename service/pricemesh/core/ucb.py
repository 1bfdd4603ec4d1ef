"""Upper confidence bounds: every arm's estimate and radius for a context, and the arm to choose.

Axes: `...` any batch (none for one city), K arms, d = c + s features, shared ones first.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pricemesh.core.arrays import Array, Ints
from pricemesh.errors import InvalidParameter

# Arms whose bounds differ by less than this (relative) count as equal and the lowest index wins, so
# that rounding in a batch never decides where a single city would have decided otherwise.
TIE = 1e-12

MOST_NUMBERS = 1_000_000  # in one intermediate result: several contexts of a city are taken in such portions


class Score(NamedTuple):
    estimate: Array  # (..., K)
    radius: Array  # (..., K), the exploration factor included


def score_dense(theta: Array, covariance: Array, x: Array, alpha: float) -> Score:
    """x'theta and alpha * sqrt(x' C x); theta (..., K, d), covariance (..., K, d, d), x (..., d)."""
    if theta.ndim > 2:
        per_arm = x[..., None, :]
        variance = np.vecdot(np.matvec(covariance, per_arm), per_arm)
        return Score(np.matvec(theta, x), alpha * np.sqrt(variance))
    # One city: all arms in one product, which reads their matrices once and not once for each context.
    stacked = covariance.reshape(-1, x.shape[-1])
    if x.ndim == 1:
        radius = stacked.dot(x).reshape(theta.shape).dot(x)
        np.sqrt(radius, radius)
        radius *= alpha
        return Score(theta.dot(x), radius)
    return _score_rows(theta, stacked, x, alpha)


def _score_rows(theta: Array, stacked: Array, x: Array, alpha: float) -> Score:
    """Several contexts (m, d) of one city; `stacked` are its arms' matrices one below the other."""
    step = max(1, MOST_NUMBERS // theta.size)
    if len(x) > step:
        parts = [_score_rows(theta, stacked, x[i : i + step], alpha) for i in range(0, len(x), step)]
        return Score(*map(np.concatenate, zip(*parts, strict=True)))
    variance = np.matvec(x.dot(stacked.T).reshape(len(x), *theta.shape), x)
    return Score(x.dot(theta.T), alpha * np.sqrt(variance))


def score_diagonal(theta: Array, variances: Array, x: Array, alpha: float) -> Score:
    """The same with C = diag(variances), variances (..., K, d)."""
    return Score(np.matvec(theta, x), alpha * np.sqrt(np.matvec(variances, x * x)))


def choose(score: Score, allowed: NDArray[np.bool_] | None = None) -> Ints:
    """The allowed arm with the highest bound; the lowest index among equals. (...,)"""
    bound = score.estimate + score.radius
    if allowed is not None:
        bound = np.where(allowed, bound, -np.inf)
    # For one city a plain number is much faster than an array of one.
    best = bound.item(bound.argmax()) if bound.ndim == 1 else bound.max(axis=-1, keepdims=True)
    if not (best > -np.inf if bound.ndim == 1 else np.all(best > -np.inf)):
        raise InvalidParameter("no arm is allowed, or none has a finite bound")
    chosen: Ints = (bound >= best - TIE * (1.0 + abs(best))).argmax(axis=-1)
    return chosen
