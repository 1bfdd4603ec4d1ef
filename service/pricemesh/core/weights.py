"""Omega: how much each city's summary counts in each other city, per arm (paper, Algorithm 1).

Stored receiver first: weights[..., k, i, j] is the paper's omega_ji, and sums to one over j.
All cities given belong to one group; a summary never leaves its group.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pricemesh.core.arrays import Array, fraction, one_of

Combine = Literal["product", "sum", "counts"]
Cosine = Literal["shift", "clip"]


@dataclass(frozen=True, kw_only=True)
class Weighting:
    """How weights are made: the two similarities, how they combine, how slowly they move."""

    combine: Combine = "product"
    cosine: Cosine = "shift"
    rho: float = 0.9

    def __post_init__(self) -> None:
        one_of("combine", self.combine, ("product", "sum", "counts"))
        one_of("cosine", self.cosine, ("shift", "clip"))
        fraction("rho", self.rho)

    def target(self, counts: Array, contexts: Array, receivers: slice) -> Array:
        """Omega_new (..., K, I, J) from counts (..., J, K), started at one, and contexts (..., J, c)."""
        per_arm = counts.swapaxes(-1, -2)  # (..., K, J)
        relative = per_arm / per_arm.sum(axis=-1, keepdims=True)
        similar = relative[..., receivers, None] * relative[..., None, :]
        if self.combine != "counts":
            alike = self._alike(contexts, receivers)[..., None, :, :]
            similar = similar * alike if self.combine == "product" else similar + alike
        return normalised(similar, receivers)

    def _alike(self, contexts: Array, receivers: slice) -> Array:
        """Cosine of the angle between the cities' contexts, mapped to [0, 1]; (..., I, J)."""
        length = np.sqrt(np.vecdot(contexts, contexts))[..., None]
        unit = contexts / np.where(length > 0, length, 1.0)
        cosine = np.matmul(unit[..., receivers, :], unit.swapaxes(-1, -2))
        alike: Array = (1.0 + cosine) / 2.0 if self.cosine == "shift" else np.maximum(cosine, 0.0)
        return alike

    def step(self, weights: Array, counts: Array, contexts: Array, receivers: slice) -> Array:
        """Omega <- rho Omega + (1 - rho) Omega_new."""
        return self.rho * weights + (1.0 - self.rho) * self.target(counts, contexts, receivers)


def identity(lead: tuple[int, ...], arms: int, cities: int, receivers: slice) -> Array:
    """Omega = I: every city starts by listening to itself alone; (..., K, I, J)."""
    eye = np.eye(cities)[receivers]
    return np.broadcast_to(eye, (*lead, arms, *eye.shape)).copy()


def normalised(weights: Array, receivers: slice) -> Array:
    """Rows that sum to one; a row of zeros becomes the receiver's own."""
    total = weights.sum(axis=-1, keepdims=True)
    alone = np.eye(weights.shape[-1])[receivers]
    return np.where(total > 0, weights / np.where(total > 0, total, 1.0), alone)


def realigned(weights: Array, known: tuple[str, ...], now: tuple[str, ...]) -> Array:
    """One city's weights (..., K, 1, J) for another set of senders, itself first: a newcomer starts at
    zero, one that left is forgotten."""
    moved = np.zeros((*weights.shape[:-1], len(now)))
    for new, origin in enumerate(now):
        if origin in known:
            moved[..., new] = weights[..., known.index(origin)]
    return normalised(moved, slice(0, 1))
