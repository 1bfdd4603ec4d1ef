"""What peers told, kept apart by peer: each one's part of an arm's estimate and of its radius.

A learner folds its peers into one vector and one matrix per arm, so that a score costs the same with any
number of them. For the arm that was chosen it can then say whose word made it what it was.
"""

from dataclasses import dataclass

import numpy as np

from pricemesh.core.arrays import Array, Ints

MAX_NAMED_PEERS = (
    64  # peers named one by one; what the others told is added up, so that the cost stays bounded
)
OTHER_PEERS = "others"


@dataclass(frozen=True)
class Attribution:
    """Of each of J peers and K arms: `pull`, the vector it adds to the estimate, (J, K, c), and `mass`, the
    matrix it adds to the squared radius or to the information, (J, K, c, c) or its diagonal (J, K, c)."""

    origins: tuple[str, ...] = ()
    pull: Array | None = None
    mass: Array | None = None

    @classmethod
    def by(cls, origins: tuple[str, ...], pull: Array, mass: Array, weight: Array) -> "Attribution":
        """`weight` (J, K) says who is named when there are too many."""
        if len(origins) > MAX_NAMED_PEERS:
            order = np.argsort(-weight.sum(axis=-1), kind="stable")
            named, rest = np.sort(order[: MAX_NAMED_PEERS - 1]), order[MAX_NAMED_PEERS - 1 :]
            pull = np.concatenate([pull[named], pull[rest].sum(axis=0, keepdims=True)])
            mass = np.concatenate([mass[named], mass[rest].sum(axis=0, keepdims=True)])
            origins = (*(origins[i] for i in named), OTHER_PEERS)
        return cls(origins, pull, mass)

    def parts(self, arm: int, left: Array, right: Array) -> tuple[Array, Array]:
        """left' pull and left' mass right of every peer, (m, J) each; left and right (m, c)."""
        assert self.pull is not None
        assert self.mass is not None
        pull, mass = self.pull[:, arm], self.mass[:, arm]
        if mass.ndim == 2:
            return left @ pull.T, (left * right) @ mass.T
        return left @ pull.T, np.vecdot(np.matmul(right, mass.swapaxes(-1, -2)), left).T


def by_arm(arms: Ints) -> list[tuple[int, Ints]]:
    """Which rows chose each arm."""
    return [(int(arm), np.flatnonzero(arms == arm)) for arm in np.unique(arms)]
