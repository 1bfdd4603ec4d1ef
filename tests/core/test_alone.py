"""What a city's own data say without its peers, and how much of what it goes by is theirs."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.policies import Learner, Shape, make_policy
from tests.core.test_attribution import ARMS, LOCAL, POLICIES, SHARED, summaries, taught

PEERS = ("faro", "porto")


def in_a_mesh(name: str, **values: Any) -> tuple[Learner, Learner]:
    """A city that has heard two peers, and the same city that has not."""
    city, alone = taught(name, 0, **values), taught(name, 0, **values)
    city.absorb_summaries(
        "lisbon", summaries({origin: taught(name, i, 90) for i, origin in enumerate(PEERS, 1)})
    )
    return city, alone


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("disjoint", {}),
        ("netpool", {}),
        ("netpool", {"heterogeneity": 0.0, "trust": "equal", "ridge": 0.5}),
        ("netlinucb", {}),
        ("netlinucb", {"split": "block", "alpha": 1.1}),
    ],
)
def test_alone_is_the_score_of_the_same_city_that_never_heard_anyone(
    name: str, values: dict[str, Any]
) -> None:
    city, alone = taught(name, 0, **values), taught(name, 0, **values)
    if name != "disjoint":
        city, alone = in_a_mesh(name, **values)
    x = np.random.default_rng(3).normal(size=(7, SHARED + LOCAL))
    by_own, never_heard = city.score_alone(x), alone.score(x)
    np.testing.assert_allclose(by_own.estimate, never_heard.estimate, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(by_own.radius, never_heard.radius, rtol=1e-9, atol=1e-12)
    if name != "disjoint":
        assert not np.allclose(city.score(x).estimate, by_own.estimate)


def test_net_sgd_cannot_take_out_what_it_has_mixed_in_and_says_so() -> None:
    city, alone = in_a_mesh("netsgducb")
    x = np.random.default_rng(3).normal(size=SHARED + LOCAL)
    by_own, never_heard = city.score_alone(x), alone.score(x)
    assert city.mixes
    np.testing.assert_allclose(by_own.radius, never_heard.radius, rtol=1e-12)
    np.testing.assert_allclose(by_own.estimate, city.score(x).estimate, rtol=1e-12)
    assert not np.allclose(by_own.estimate, never_heard.estimate)


def test_asking_what_a_city_knows_alone_changes_nothing() -> None:
    for name in POLICIES:
        city, _ = in_a_mesh(name)
        x = np.random.default_rng(3).normal(size=SHARED + LOCAL)
        before = city.score(x)
        city.score_alone(x)
        city.shares()
        assert np.array_equal(city.score(x), before)


def test_shares_of_netpool_are_those_of_the_information_added() -> None:
    """L is what the peers add to the cc-block of W; with one's own Lambda it is all there is."""
    city, _ = in_a_mesh("netpool", heterogeneity=0.3)
    c = SHARED
    added = city.pooled.gram - city.own.gram  # type: ignore[attr-defined]
    whole = sum(np.trace(added[k, :c, :c]) for k in range(ARMS))
    own = sum(np.trace(city.summarise()["information"][k]) for k in range(ARMS))
    shares = city.shares()
    assert tuple(shares) == PEERS
    assert sum(shares.values()) == pytest.approx(whole / (whole + own), rel=1e-9)
    assert all(share > 0 for share in shares.values())


@pytest.mark.parametrize("name", ["netlinucb", "netsgducb"])
def test_shares_of_the_weighted_policies_are_their_weights(name: str) -> None:
    city, _ = in_a_mesh(name)
    shares = city.shares()
    for origin in PEERS:
        assert shares[origin] == pytest.approx(np.mean(city.weights_of(origin)))
    own = np.mean(city.weights[:, 0, 0])
    assert sum(shares.values()) + own == pytest.approx(1.0)


def test_a_city_that_has_heard_nobody_owes_nothing_to_anyone() -> None:
    for name in (*POLICIES, "disjoint"):
        assert make_policy(name).learner(Shape(ARMS, SHARED, LOCAL)).shares() == {}
