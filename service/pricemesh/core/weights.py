"""Omega: how much each city's summary counts in each other city, per arm (paper, Algorithm 1).

Stored receiver first: weights[..., k, i, j] is the paper's omega_ji, and sums to one over j.
All cities of one call belong to one group; a summary never leaves its group.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pricemesh.core.arrays import Array, fraction, one_of

Combine = Literal["product", "sum", "counts"]
Cosine = Literal["shift", "clip"]


@dataclass(frozen=True, kw_only=True)
class Weighting:
    """The parameters of Omega: how the similarity of counts and that of contexts combine (`combine`), how a
    cosine maps to [0, 1] (`cosine`), and how slowly the weights follow (`rho`)."""

    combine: Combine = "product"
    cosine: Cosine = "shift"
    rho: float = 0.9

    def __post_init__(self) -> None:
        one_of("combine", self.combine, ("product", "sum", "counts"))
        one_of("cosine", self.cosine, ("shift", "clip"))
        fraction("rho", self.rho)

    def target(self, counts: Array, contexts: Array, receivers: slice) -> Array:
        """Omega_new (..., K, I, J) from counts (..., J, K) that start at one, and contexts (..., J, c)."""
        per_arm = counts.swapaxes(-1, -2)  # (..., K, J)
        relative = per_arm / per_arm.sum(axis=-1, keepdims=True)
        similarity = relative[..., receivers, None] * relative[..., None, :]
        if self.combine != "counts":
            by_context = self._context_similarity(contexts, receivers)[..., None, :, :]
            similarity = similarity * by_context if self.combine == "product" else similarity + by_context
        return normalise(similarity, receivers)

    def _context_similarity(self, contexts: Array, receivers: slice) -> Array:
        """Cosine of the angle between the cities' contexts, mapped to [0, 1]; (..., I, J)."""
        length = np.sqrt(np.vecdot(contexts, contexts))[..., None]
        unit = contexts / np.where(length > 0, length, 1.0)
        cosine = np.matmul(unit[..., receivers, :], unit.swapaxes(-1, -2))
        similarity: Array = (1.0 + cosine) / 2.0 if self.cosine == "shift" else np.maximum(cosine, 0.0)
        return similarity

    def step(self, weights: Array, counts: Array, contexts: Array, receivers: slice) -> Array:
        """Omega <- rho Omega + (1 - rho) Omega_new."""
        return self.rho * weights + (1.0 - self.rho) * self.target(counts, contexts, receivers)


def identity(lead: tuple[int, ...], arms: int, cities: int, receivers: slice) -> Array:
    """Omega = I, the initial weights: every city counts for itself only; (..., K, I, J)."""
    eye = np.eye(cities)[receivers]
    return np.broadcast_to(eye, (*lead, arms, *eye.shape)).copy()


def normalise(weights: Array, receivers: slice) -> Array:
    """Scale every row to sum to one; a row of zeros becomes the receiver's row of the identity."""
    total = weights.sum(axis=-1, keepdims=True)
    eye = np.eye(weights.shape[-1])[receivers]
    return np.where(total > 0, weights / np.where(total > 0, total, 1.0), eye)


def realign(weights: Array, old_origins: tuple[str, ...], new_origins: tuple[str, ...]) -> Array:
    """One city's weights (..., K, 1, J) for a new list of senders, the city itself first. A new sender starts
    at zero; the weight of one that left is dropped."""
    aligned = np.zeros((*weights.shape[:-1], len(new_origins)))
    for place, origin in enumerate(new_origins):
        if origin in old_origins:
            aligned[..., place] = weights[..., old_origins.index(origin)]
    return normalise(aligned, slice(0, 1))
