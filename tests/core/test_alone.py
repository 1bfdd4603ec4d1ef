"""The score from a city's own data only, and the shares of its peers in what it uses."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.policies import Learner, Shape, make_policy
from tests.core.trained import ARMS, DIM, LOCAL, PEER_POLICIES, SHARED, summaries_of, trained_learner

PEERS = ("faro", "porto")


def with_and_without_peers(name: str, **values: Any) -> tuple[Learner, Learner]:
    """A city that has absorbed two peers, and the same city that has not."""
    city, alone = trained_learner(name, 0, **values), trained_learner(name, 0, **values)
    peers = {origin: trained_learner(name, i, 90) for i, origin in enumerate(PEERS, 1)}
    city.absorb_summaries("lisbon", summaries_of(peers))
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
def test_score_alone_is_the_score_of_the_same_city_without_peers(name: str, values: dict[str, Any]) -> None:
    city, alone = trained_learner(name, 0, **values), trained_learner(name, 0, **values)
    if name != "disjoint":
        city, alone = with_and_without_peers(name, **values)
    x = np.random.default_rng(3).normal(size=(7, DIM))
    own_score, expected = city.score_alone(x), alone.score(x)
    np.testing.assert_allclose(own_score.estimate, expected.estimate, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(own_score.radius, expected.radius, rtol=1e-9, atol=1e-12)
    if name != "disjoint":
        assert not np.allclose(city.score(x).estimate, own_score.estimate)


def test_net_sgd_mixes_its_peers_so_that_only_its_radius_is_without_them() -> None:
    city, alone = with_and_without_peers("netsgducb")
    x = np.random.default_rng(3).normal(size=DIM)
    own_score, expected = city.score_alone(x), alone.score(x)
    assert city.mixes_peers
    np.testing.assert_allclose(own_score.radius, expected.radius, rtol=1e-12)
    np.testing.assert_allclose(own_score.estimate, city.score(x).estimate, rtol=1e-12)
    assert not np.allclose(own_score.estimate, expected.estimate)


def test_score_alone_and_shares_do_not_change_the_learner() -> None:
    for name in PEER_POLICIES:
        city, _ = with_and_without_peers(name)
        x = np.random.default_rng(3).normal(size=DIM)
        before = city.score(x)
        city.score_alone(x)
        city.shares()
        assert np.array_equal(city.score(x), before)


def test_shares_of_netpool_are_shares_of_the_information() -> None:
    """The peers add L to the cc-block of W; L and the city's own Lambda are all the information it uses."""
    city, _ = with_and_without_peers("netpool", heterogeneity=0.3, ridge=1.0)
    c = SHARED
    gain = city.pooled.gram - city.own.gram  # type: ignore[attr-defined]
    peers = sum(np.trace(gain[k, :c, :c]) for k in range(ARMS))
    own = sum(np.trace(city.summarise()["information"][k]) for k in range(ARMS))
    shares = city.shares()
    assert tuple(shares) == PEERS
    assert sum(shares.values()) == pytest.approx(peers / (peers + own), rel=1e-9)
    assert all(share > 0 for share in shares.values())


@pytest.mark.parametrize("name", ["netlinucb", "netsgducb"])
def test_shares_of_the_weighted_policies_are_their_weights(name: str) -> None:
    city, _ = with_and_without_peers(name)
    shares = city.shares()
    for origin in PEERS:
        assert shares[origin] == pytest.approx(np.mean(city.weights_of(origin)))
    own = np.mean(city.weights[:, 0, 0])
    assert sum(shares.values()) + own == pytest.approx(1.0)


def test_a_city_that_has_absorbed_no_peer_has_no_shares() -> None:
    for name in (*PEER_POLICIES, "disjoint"):
        assert make_policy(name).learner(Shape(ARMS, SHARED, LOCAL)).shares() == {}
