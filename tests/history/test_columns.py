"""Names of columns: unique whatever the features are called, and the same for an export and an import."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricemesh.core.features import Feature, FeatureSpace
from pricemesh.errors import InvalidParameter
from pricemesh.history.columns import ColumnNames, feature_columns


def space(shared: list[str], local: list[str]) -> FeatureSpace:
    return FeatureSpace(tuple(map(Feature, shared)), tuple(map(Feature, local)))


def test_a_feature_has_its_own_name_unless_that_is_taken() -> None:
    features = space(["rain", "price", "Time", "event", "estimate:0"], ["tourists", "event", "all"])
    assert feature_columns(features) == [
        "rain",
        "shared:price",
        "shared:Time",
        "shared:event",
        "shared:estimate:0",
        "tourists",
        "local:event",
        "local:all",
    ]


NAMES = st.lists(
    st.sampled_from(["rain", "Rain", "price", "sold", "shared:price", "local:rain", "shared:shared:price"])
    | st.text(min_size=1, max_size=3),
    max_size=6,
    unique=True,
)


@given(shared=NAMES.filter(bool), local=NAMES)
def test_no_two_columns_have_one_name(shared: list[str], local: list[str]) -> None:
    names = ColumnNames(space(shared, local), 3, is_purchase=True)
    assert len(set(names.all)) == len(names.all)
    assert len(names.features) == len(shared) + len(local)


def test_groups_stand_for_their_columns_and_each_column_comes_once() -> None:
    names = ColumnNames(space(["rain"], ["strike"]), 2, is_purchase=False)
    assert "sold" not in names.default
    assert names.choose([]) == names.default
    assert names.choose(["price", "features", "price", "estimates", "radii"]) == [
        "price",
        "rain",
        "strike",
        "estimate:0",
        "estimate:1",
        "radius:0",
        "radius:1",
    ]
    assert names.choose(["all"]) == names.all


def test_an_unknown_column_is_refused_with_the_names_there_are() -> None:
    names = ColumnNames(space(["rain"], []), 2, is_purchase=True)
    with pytest.raises(InvalidParameter, match=r"there is no column 'snow': the columns are .*rain"):
        names.choose(["price", "snow"])
