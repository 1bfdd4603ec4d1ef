"""The weights of the paper's Algorithm 1, written out with loops."""

from typing import Any

import numpy as np


def target_by_loops(counts: Any, contexts: Any, combine: str, cosine: str) -> Any:
    """Omega_new[k, i, j] = omega_ji from counts (J, K) and contexts (J, c)."""
    cities, arms = counts.shape
    out = np.zeros((arms, cities, cities))
    for k in range(arms):
        total = sum(counts[q, k] for q in range(cities))
        for i in range(cities):
            for j in range(cities):
                by_count = counts[i, k] * counts[j, k] / total**2
                norm = np.linalg.norm(contexts[i]) * np.linalg.norm(contexts[j])
                cos = contexts[i] @ contexts[j] / norm if norm else 0.0
                by_context = (1 + cos) / 2 if cosine == "shift" else max(0.0, cos)
                out[k, i, j] = {
                    "product": by_count * by_context,
                    "sum": by_count + by_context,
                    "counts": by_count,
                }[combine]
            row = out[k, i].sum()
            out[k, i] = out[k, i] / row if row else np.eye(cities)[i]
    return out
