"""How much each peer contributes to an arm's estimate and radius.

For scoring, a learner folds all peers into one vector and one matrix per arm, so that a score costs the
same with any number of peers. An `Attribution` keeps the terms of that sum, one per peer, for the audit
record of a decision.
"""

from dataclasses import dataclass

import numpy as np

from pricemesh.core.arrays import Array, Ints

# Above this number the least weighty peers are added up as one, which bounds the cost per decision.
MAX_NAMED_PEERS = 64
OTHER_PEERS = "others"


@dataclass(frozen=True)
class Attribution:
    """Per peer (J) and arm (K): `vectors` (J, K, c), the peer's term of the vector that gives the estimate,
    and `matrices`, its term of the matrix that gives the squared radius or the information: (J, K, c, c), or
    (J, K, c) where the matrix is diagonal."""

    origins: tuple[str, ...] = ()
    vectors: Array | None = None
    matrices: Array | None = None

    @classmethod
    def of_peers(
        cls, origins: tuple[str, ...], vectors: Array, matrices: Array, weight: Array
    ) -> "Attribution":
        """Beyond MAX_NAMED_PEERS, the peers with the highest `weight` (J, K) keep their names."""
        if len(origins) > MAX_NAMED_PEERS:
            order = np.argsort(-weight.sum(axis=-1), kind="stable")
            top, rest = np.sort(order[: MAX_NAMED_PEERS - 1]), order[MAX_NAMED_PEERS - 1 :]
            vectors = np.concatenate([vectors[top], vectors[rest].sum(axis=0, keepdims=True)])
            matrices = np.concatenate([matrices[top], matrices[rest].sum(axis=0, keepdims=True)])
            origins = (*(origins[i] for i in top), OTHER_PEERS)
        return cls(origins, vectors, matrices)

    def contributions(self, arm: int, left: Array, right: Array) -> tuple[Array, Array]:
        """left' v_j and left' M_j right of every peer j, (m, J) each; left and right (m, c)."""
        assert self.vectors is not None
        assert self.matrices is not None
        vectors, matrices = self.vectors[:, arm], self.matrices[:, arm]
        if matrices.ndim == 2:
            return left @ vectors.T, (left * right) @ matrices.T
        return left @ vectors.T, np.vecdot(np.matmul(right, matrices.swapaxes(-1, -2)), left).T


def by_arm(arms: Ints) -> list[tuple[int, Ints]]:
    """Each arm that occurs in `arms`, with the rows that chose it."""
    return [(int(arm), np.flatnonzero(arms == arm)) for arm in np.unique(arms)]
