"""Named contexts become vectors, or an error that lists every fault."""

import numpy as np
import pytest

from pricemesh.core.features import Feature, FeatureSpace
from pricemesh.errors import InvalidContext, InvalidParameter

space = FeatureSpace((Feature("demand"), Feature("rain", 0, 1)), (Feature("tourists"),))


def test_names_become_a_vector_in_declared_order_and_back() -> None:
    context = {"shared": {"rain": 0.5, "demand": 2}, "local": {"tourists": -1.0}}
    x = space.vector(**context)
    np.testing.assert_array_equal(x, [2.0, 0.5, -1.0])
    assert space.named(x) == context


@pytest.mark.parametrize(
    ("shared", "message"),
    [
        ({"demand": 1}, "shared.rain: missing"),
        ({"demand": 1, "rain": 0, "snow": 1}, "shared.snow: unknown"),
        ({"demand": "1", "rain": 0}, "shared.demand: must be a number"),
        ({"demand": True, "rain": 0}, "shared.demand: must be a number"),
        ({"demand": float("nan"), "rain": 0}, "shared.demand: must be finite"),
        ({"demand": float("inf"), "rain": 0}, "shared.demand: must be finite"),
        ({"demand": 1, "rain": 1.5}, r"shared.rain: 1.5 is outside \[0, 1\]"),
    ],
)
def test_the_error_of_a_wrong_context_names_the_feature(shared: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidContext, match=message):
        space.vector(shared, {"tourists": 0.0})


def test_one_error_lists_all_faults() -> None:
    with pytest.raises(InvalidContext) as error:
        space.vector({"demand": "x"}, {})
    assert all(name in str(error.value) for name in ("demand", "rain", "tourists"))


def test_a_space_without_shared_features_or_with_one_twice_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="at least one shared"):
        FeatureSpace(())
    with pytest.raises(InvalidParameter, match="twice: a"):
        FeatureSpace((Feature("a"), Feature("a")))
    with pytest.raises(InvalidParameter, match="below max"):
        Feature("a", 1, 1)
