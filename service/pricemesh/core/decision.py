"""A decision as it is recorded, and the byte layout of its vectors, known only here.

`vectors` are float64, little-endian: the context (d), every arm's estimate (K), every arm's radius (K); then
each peer's part of the chosen arm's estimate (J) and of its radius (J).
"""

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.policies import Shape
from pricemesh.core.ucb import Score

IMPORTED = "import"  # in place of the policy of a decision that an import brought: nothing was estimated
UNKNOWN_PROPENSITY = 0.0  # of an imported decision; no arm that is chosen has it
NO_ARM = -1  # of a decision at a price that is no arm's: it was imported, or the ladder has changed since
IDENTIFIER = r"[A-Za-z0-9._:@-]{1,128}"  # of a decision, as a pattern
IDENTIFIER_RULE = "1 to 128 letters, digits and . _ : @ -"
SUBJECT = r"[^\x00-\x1f\x7f]{1,200}"


class Occasion(NamedTuple):
    """What decisions made at once have in common."""

    made_at: float
    policy: str
    learner_version: int
    told_by: str = ""  # the peers whose parts end `vectors`, by comma
    terms: int | None = None  # the arms and features it was made under; None are the first ones


class Decision(NamedTuple):
    """Columns of its own, then those of its occasion."""

    id: str
    subject: str | None
    arm: int
    price: float
    limited_by: str  # which rules ruled out which arms, as JSON
    vectors: bytes
    propensity: float  # the probability with which the arm was chosen
    chance: float | None  # of a sale at this arm, as predicted then; None where the policy has no such model
    occasion: Occasion

    @classmethod
    def from_columns(cls, values: Sequence[Any]) -> "Decision":
        """Of the columns' values, in the order of `COLUMNS`."""
        own, common = values[: len(OWN_COLUMNS)], values[len(OWN_COLUMNS) :]
        return cls._make((*own, Occasion(*common)))


make_decision = partial(tuple.__new__, Decision)  # as `Decision._make`, without a Python call for each row
_NUMBER = struct.Struct("<d")
OWN_COLUMNS = Decision._fields[:-1]
COLUMNS = (*OWN_COLUMNS, *Occasion._fields)


class Margin(NamedTuple):
    """What a unit sold brings: the price less the cost, which is a number or a feature of the context."""

    cost: float = 0.0
    cost_feature: int | None = None  # its place in the context; then it stands for `cost`

    def reward(self, price: float, vectors: bytes, sold: float) -> float:
        """The money that `sold` units brought; never -0.0."""
        cost = self.cost
        if self.cost_feature is not None:
            cost = _NUMBER.unpack_from(vectors, _NUMBER.size * self.cost_feature)[0]
        return (price - cost) * sold + 0.0


class Vectors(NamedTuple):
    context: Array  # (d,)
    estimates: Array  # (K,)
    radii: Array  # (K,)
    peer_estimates: Array  # (J,)
    peer_radii: Array  # (J,)


class DecisionCodec:
    def __init__(self, shape: Shape) -> None:
        self._dim, self._arms = shape.dim, shape.arms
        between = 8 * (shape.arms - 1)
        self._chosen = [
            struct.Struct(f"<{8 * (shape.dim + arm)}xd{between}xd").unpack_from for arm in range(shape.arms)
        ]

    def pack(self, contexts: Array, score: Score, peer_parts: Sequence[Array] = ()) -> list[bytes]:
        """The vectors of m decisions: contexts (m, d), a score of (m, K) or (K,), and each peer's part of the
        estimates and of the radii, (m, J) each."""
        rows = np.concatenate([contexts, *map(np.atleast_2d, score), *peer_parts], axis=1)
        packed: list[bytes] = rows.view(f"V{rows.shape[1] * rows.itemsize}")[:, 0].tolist()
        return packed

    def context(self, vectors: bytes) -> Array:
        return np.frombuffer(vectors, count=self._dim)

    def contexts(self, vectors: Sequence[bytes]) -> Array:
        """(m, d)."""
        size = 8 * self._dim
        return np.frombuffer(b"".join([each[:size] for each in vectors])).reshape(-1, self._dim)

    def chosen(self, arm: int, vectors: bytes) -> tuple[float, float]:
        """The estimate and the radius of the arm that was chosen."""
        return self._chosen[arm](vectors)

    def unpack(self, vectors: bytes) -> Vectors:
        values = np.frombuffer(vectors)
        ends = np.cumsum((self._dim, self._arms, self._arms))
        context, estimates, radii, parts = np.split(values, ends)
        return Vectors(context, estimates, radii, *np.split(parts, 2))
