"""Upper confidence bounds: every arm's estimate and radius for a context, and the arm to choose.

Axes: `...` any batch (none for one city), K arms, d = c + s features, shared ones first.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pricemesh.core.arrays import Array, Ints
from pricemesh.errors import InvalidParameter

# Bounds that differ by less than this, relative to the best bound and its radius, count as equal and the
# lowest index wins, so that a batch and a single city choose the same arm although they round differently.
TIE_TOLERANCE = 1e-12

# In one intermediate array; more contexts are scored in chunks, which bounds the memory.
MAX_INTERMEDIATE_NUMBERS = 1_000_000


class Score(NamedTuple):
    """Every arm's estimate and radius; their sum is the upper confidence bound."""

    estimate: Array  # (..., K)
    radius: Array  # (..., K), the exploration factor included


def score_dense(theta: Array, covariance: Array, x: Array, alpha: Array | float) -> Score:
    """x'theta and alpha * sqrt(x' C x); theta (..., K, d), covariance (..., K, d, d), x (..., d)."""
    if theta.ndim > 2:
        per_arm = x[..., None, :]
        variance = np.vecdot(np.matvec(covariance, per_arm), per_arm)
        return Score(np.matvec(theta, x), alpha * np.sqrt(variance))
    # One city: one product for all arms, which reads the matrices once and not once per context.
    stacked = covariance.reshape(-1, x.shape[-1])
    if x.ndim == 1:
        radius = stacked.dot(x).reshape(theta.shape).dot(x)
        np.sqrt(radius, radius)
        radius *= alpha
        return Score(theta.dot(x), radius)
    return _score_rows(theta, stacked, x, alpha)


def _score_rows(theta: Array, stacked: Array, x: Array, alpha: Array | float) -> Score:
    """Score m contexts (m, d) of one city; `stacked` (K d, d) are the matrices of its arms."""
    chunk = max(1, MAX_INTERMEDIATE_NUMBERS // theta.size)
    if len(x) > chunk:
        scores = [_score_rows(theta, stacked, x[i : i + chunk], alpha) for i in range(0, len(x), chunk)]
        return Score(*map(np.concatenate, zip(*scores, strict=True)))
    variance = np.matvec(x.dot(stacked.T).reshape(len(x), *theta.shape), x)
    return Score(x.dot(theta.T), alpha * np.sqrt(variance))


def score_diagonal(theta: Array, variances: Array, x: Array, alpha: float) -> Score:
    """As `score_dense` with C = diag(variances); variances (..., K, d)."""
    return Score(np.matvec(theta, x), alpha * np.sqrt(np.matvec(variances, x * x)))


def choose(score: Score, allowed: NDArray[np.bool_] | None = None) -> Ints:
    """The allowed arm with the highest upper bound, (...,); among equals the lowest index."""
    bound = score.estimate + score.radius
    if allowed is not None:
        bound = np.where(allowed, bound, -np.inf)
    best: Any
    radius: Any
    if bound.ndim == 1:  # for one city a Python float is much faster than an array with one element
        place = bound.argmax()
        best, radius = bound.item(place), score.radius.item(place)
    else:
        places = bound.argmax(axis=-1, keepdims=True)
        best, radius = (np.take_along_axis(each, places, axis=-1) for each in (bound, score.radius))
    if not (best > -np.inf if bound.ndim == 1 else np.all(best > -np.inf)):
        raise InvalidParameter("no arm can be chosen: none is allowed, or no allowed arm has a finite bound")
    arm: Ints = (bound >= best - TIE_TOLERANCE * (abs(best) + radius)).argmax(axis=-1)
    return arm
