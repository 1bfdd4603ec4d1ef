from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricemesh.core.weights import Weighting, identity, realigned
from pricemesh.errors import InvalidParameter

EVERYONE = slice(None)


def by_loops(counts: Any, contexts: Any, combine: str, cosine: str) -> Any:
    """Omega_new[k][i][j] = omega_ji, written out."""
    cities, arms = counts.shape
    out = np.zeros((arms, cities, cities))
    for k in range(arms):
        total = sum(counts[q, k] for q in range(cities))
        for i in range(cities):
            for j in range(cities):
                by_count = counts[i, k] * counts[j, k] / total**2
                norm = np.linalg.norm(contexts[i]) * np.linalg.norm(contexts[j])
                cos = contexts[i] @ contexts[j] / norm if norm else 0.0
                alike = (1 + cos) / 2 if cosine == "shift" else max(0.0, cos)
                out[k, i, j] = {
                    "product": by_count * alike,
                    "sum": by_count + alike,
                    "counts": by_count,
                }[combine]
            row = out[k, i].sum()
            out[k, i] = out[k, i] / row if row else np.eye(cities)[i]
    return out


@pytest.mark.parametrize("combine", ["product", "sum", "counts"])
@pytest.mark.parametrize("cosine", ["shift", "clip"])
def test_target_is_algorithm_1_by_loops(combine: Any, cosine: Any) -> None:
    rng = np.random.default_rng(5)
    counts = rng.integers(1, 50, size=(4, 3)).astype(float)
    contexts = rng.normal(size=(4, 6))
    contexts[2] = 0.0
    expected = by_loops(counts, contexts, combine, cosine)
    weighting = Weighting(combine=combine, cosine=cosine)
    np.testing.assert_allclose(weighting.target(counts, contexts, EVERYONE), expected, atol=1e-15)
    alone = weighting.target(counts, contexts, slice(0, 1))
    np.testing.assert_allclose(alone, expected[:, :1], atol=1e-15)


@given(
    rho=st.floats(0, 0.999),
    seed=st.integers(0, 2**32 - 1),
    cosine=st.sampled_from(["shift", "clip"]),
    combine=st.sampled_from(["product", "sum", "counts"]),
)
def test_weights_stay_a_distribution_over_the_senders(
    rho: float, seed: int, cosine: Any, combine: Any
) -> None:
    rng = np.random.default_rng(seed)
    weighting = Weighting(rho=rho, cosine=cosine, combine=combine)
    weights = identity((2,), 3, 5, EVERYONE)
    for _ in range(4):
        counts, contexts = rng.integers(1, 9, size=(2, 5, 3)).astype(float), rng.normal(size=(2, 5, 4))
        weights = weighting.step(weights, counts, contexts, EVERYONE)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    "bad", [{"rho": 1.0}, {"rho": -0.1}, {"rho": float("nan")}, {"combine": "max"}, {"cosine": "abs"}]
)
def test_impossible_settings_are_named(bad: Any) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(bad))):
        Weighting(**bad)


def test_weights_follow_their_origins_when_peers_come_and_go() -> None:
    before = np.array([[[0.5, 0.3, 0.2]]])
    joined = realigned(before, ("me", "b", "c"), ("me", "a", "b", "c"))
    np.testing.assert_allclose(joined, [[[0.5, 0.0, 0.3, 0.2]]])
    left = realigned(before, ("me", "b", "c"), ("me", "c"))
    np.testing.assert_allclose(left, [[[5 / 7, 2 / 7]]])
