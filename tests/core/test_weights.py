"""The weights Omega against Algorithm 1 of the paper, and their invariants."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricemesh.core.weights import Weighting, identity, realign
from pricemesh.errors import InvalidParameter
from tests.core.algorithm_1 import target_by_loops

ALL_CITIES = slice(None)


@pytest.mark.parametrize("combine", ["product", "sum", "counts"])
@pytest.mark.parametrize("cosine", ["shift", "clip"])
def test_the_target_is_that_of_algorithm_1(combine: Any, cosine: Any) -> None:
    rng = np.random.default_rng(5)
    counts = rng.integers(1, 50, size=(4, 3)).astype(float)
    contexts = rng.normal(size=(4, 6))
    contexts[2] = 0.0
    expected = target_by_loops(counts, contexts, combine, cosine)
    weighting = Weighting(combine=combine, cosine=cosine)
    np.testing.assert_allclose(weighting.target(counts, contexts, ALL_CITIES), expected, atol=1e-15)
    one_receiver = weighting.target(counts, contexts, slice(0, 1))
    np.testing.assert_allclose(one_receiver, expected[:, :1], atol=1e-15)


@given(
    rho=st.floats(0, 0.999),
    seed=st.integers(0, 2**32 - 1),
    cosine=st.sampled_from(["shift", "clip"]),
    combine=st.sampled_from(["product", "sum", "counts"]),
)
def test_the_weights_of_a_receiver_stay_a_distribution_over_the_senders(
    rho: float, seed: int, cosine: Any, combine: Any
) -> None:
    rng = np.random.default_rng(seed)
    weighting = Weighting(rho=rho, cosine=cosine, combine=combine)
    weights = identity((2,), 3, 5, ALL_CITIES)
    for _ in range(4):
        counts, contexts = rng.integers(1, 9, size=(2, 5, 3)).astype(float), rng.normal(size=(2, 5, 4))
        weights = weighting.step(weights, counts, contexts, ALL_CITIES)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    "values", [{"rho": 1.0}, {"rho": -0.1}, {"rho": float("nan")}, {"combine": "max"}, {"cosine": "abs"}]
)
def test_an_impossible_parameter_is_named_in_the_error(values: Any) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(values))):
        Weighting(**values)


def test_weights_follow_their_origins_when_peers_join_and_leave() -> None:
    before = np.array([[[0.5, 0.3, 0.2]]])
    with_newcomer = realign(before, ("me", "b", "c"), ("me", "a", "b", "c"))
    np.testing.assert_allclose(with_newcomer, [[[0.5, 0.0, 0.3, 0.2]]])
    without_b = realign(before, ("me", "b", "c"), ("me", "c"))
    np.testing.assert_allclose(without_b, [[[5 / 7, 2 / 7]]])
