"""Each peer's contribution to an estimate and a radius, against brute force; checks of peers' summaries."""

import numpy as np
import pytest

from pricemesh.core.attribution import MAX_NAMED_PEERS, OTHER_PEERS
from pricemesh.core.policies import Learner, Shape, dump, load, make_policy
from pricemesh.errors import BadSummary
from tests.core.trained import ARMS, DIM, LOCAL, PEER_POLICIES, SHARED, summaries_of, trained_learner


@pytest.mark.parametrize("name", PEER_POLICIES)
def test_a_contribution_is_what_the_estimate_and_the_squared_radius_lose_without_the_peer(name: str) -> None:
    rng = np.random.default_rng(9)
    city = trained_learner(name, 0, alpha=0.7)
    peers = {origin: trained_learner(name, i) for i, origin in enumerate(("faro", "porto", "viseu"), 1)}
    city.absorb_summaries("lisbon", summaries_of(peers))
    city.learn(rng.normal(size=DIM) / 3, 1, 0.5)  # learned after the absorb: part of the city's own share
    x = rng.normal(size=(20, DIM))
    score = city.score(x)
    arms = rng.integers(ARMS, size=20)
    estimate, radius = city.contributions(x, arms)
    assert city.attribution.origins == ("faro", "porto", "viseu")
    assert estimate.shape == radius.shape == (20, 3)
    for row, arm in enumerate(arms):
        for j, origin in enumerate(city.attribution.origins):
            expected, expected_square = contribution_by_hand(city, peers[origin], j, int(arm), x[row])
            assert estimate[row, j] == pytest.approx(expected, abs=1e-12)
            squared = radius[row, j] * score.radius[row, arm] / city.policy.alpha**2  # type: ignore[attr-defined]
            assert squared == pytest.approx(expected_square, abs=1e-12)
        own = score.estimate[row, arm] - estimate[row].sum()
        assert own == pytest.approx(own_share_by_hand(city, int(arm), x[row]), abs=1e-12)
        assert 0 <= radius[row].sum() <= score.radius[row, arm] + 1e-12


def contribution_by_hand(
    city: Learner, peer: Learner, j: int, arm: int, x: np.ndarray
) -> tuple[float, float]:
    """The terms of peer j in the estimate and in radius^2 / alpha^2."""
    c = SHARED
    if city.policy.name == "netpool":  # type: ignore[attr-defined]
        information, response = (peer.summarise()[key][arm] for key in ("information", "response"))
        t, trust = city.heterogeneity[arm], city.weights[arm]  # type: ignore[attr-defined]
        eye = np.eye(c)
        factor = trust[j + 1] * np.linalg.inv(eye + t * information)
        z = np.linalg.inv(city.pooled.gram[arm]) @ x  # type: ignore[attr-defined]
        shrink = city._shrink[arm]  # type: ignore[attr-defined]
        left = z[:c] @ shrink @ factor
        return float(left @ response), float(left @ information @ z[:c])
    weight = city.weights[arm, 0, j + 1]
    parts = peer.summarise()
    variance = parts["covariance"][arm] if "covariance" in parts else np.diag(1 / parts["accumulator"][arm])
    return float(weight * x[:c] @ parts["theta"][arm]), float(weight**2 * x[:c] @ variance @ x[:c])


def own_share_by_hand(city: Learner, arm: int, x: np.ndarray) -> float:
    """The city's own term in the estimate."""
    policy = city.policy.name  # type: ignore[attr-defined]
    if policy == "netpool":
        inverse = np.linalg.inv(city.pooled.gram[arm])  # type: ignore[attr-defined]
        return float(x @ inverse @ city.own.response[arm])  # type: ignore[attr-defined]
    if policy == "netlinucb":
        weighted = city.own[0].theta[arm].copy()  # type: ignore[attr-defined]
        weighted[:SHARED] *= city.weights[arm, 0, 0]
        return float(x @ weighted)
    peers = city.attribution.vectors[:, arm].sum(axis=0)  # type: ignore[index]
    return float(x @ city.own.theta[arm] - x[:SHARED] @ peers)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PEER_POLICIES)
def test_peers_beyond_the_limit_are_added_up_as_one(name: str) -> None:
    city = trained_learner(name, 0)
    peers = {f"city{i:03}": trained_learner(name, i, rounds=8) for i in range(1, MAX_NAMED_PEERS + 20)}
    city.absorb_summaries("lisbon", summaries_of(peers))
    x = np.random.default_rng(1).normal(size=(5, DIM))
    estimate, radius = city.contributions(x, np.zeros(5, dtype=np.int64))
    assert len(city.attribution.origins) == MAX_NAMED_PEERS
    assert city.attribution.origins[-1] == OTHER_PEERS
    own = [own_share_by_hand(city, 0, row) for row in x]
    np.testing.assert_allclose(estimate.sum(axis=1) + own, city.score(x).estimate[:, 0], atol=1e-9)
    assert (radius >= -1e-12).all()


@pytest.mark.parametrize("name", PEER_POLICIES)
def test_after_a_restart_peers_count_as_before(name: str) -> None:
    city = trained_learner(name, 0)
    summaries = summaries_of(
        {origin: trained_learner(name, i) for i, origin in enumerate(("faro", "porto"), 1)}
    )
    for _ in range(3):
        city.absorb_summaries("lisbon", summaries)
    restarted = make_policy(name).learner(Shape(ARMS, SHARED, LOCAL))
    load(restarted, dump(city))
    if city.memory():
        assert city.origins is not None
        restarted.recall(city.origins, {key: value.copy() for key, value in city.memory().items()})
    restarted.absorb_summaries("lisbon", summaries, again=True)
    x = np.random.default_rng(3).normal(size=(7, DIM))
    np.testing.assert_allclose(restarted.score(x).estimate, city.score(x).estimate, atol=1e-10)
    np.testing.assert_allclose(restarted.score(x).radius, city.score(x).radius, atol=1e-10)
    np.testing.assert_allclose(restarted.numbers(), city.numbers(), atol=1e-12)


@pytest.mark.parametrize("name", PEER_POLICIES)
def test_a_peer_that_leaves_contributes_no_more(name: str) -> None:
    """For NetPool this is exact: the city equals one that never absorbed the peer."""
    summaries = summaries_of(
        {origin: trained_learner(name, i) for i, origin in enumerate(("faro", "porto"), 1)}
    )
    city, without_porto = trained_learner(name, 0), trained_learner(name, 0)
    for _ in range(2):
        city.absorb_summaries("lisbon", summaries)
        without_porto.absorb_summaries("lisbon", {"faro": summaries["faro"]})
    city.absorb_summaries("lisbon", {"faro": summaries["faro"]})
    assert city.attribution.origins == ("faro",)
    if name == "netpool":
        without_porto.absorb_summaries("lisbon", {"faro": summaries["faro"]})
        np.testing.assert_array_equal(city.pooled.gram, without_porto.pooled.gram)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(city.pooled.theta, without_porto.pooled.theta)  # type: ignore[attr-defined]


MAX_SQUARE = 9.0  # no squared length of a shared context in `trained_learner` is above this


@pytest.mark.parametrize("name", PEER_POLICIES)
def test_an_honest_summary_passes_its_checks(name: str) -> None:
    for seed in range(5):
        learner = trained_learner(name, seed, rounds=40 * seed)
        learner.check(learner.layout.unpack(learner.numbers()), 40 * seed, MAX_SQUARE, 100.0)


@pytest.mark.parametrize(
    ("name", "field", "lie"),
    [
        ("netpool", "information", lambda m: -m),
        ("netpool", "information", lambda m: m * 1000.0),
        ("netpool", "count", lambda n: n * 1000.0),
        ("netpool", "count", lambda n: n + 0.5),
        ("netpool", "count", lambda n: -n),
        ("netpool", "noise", lambda v: -v),
        ("netlinucb", "covariance", lambda m: -m),
        ("netlinucb", "covariance", lambda m: m * 1e-6),
        ("netlinucb", "covariance", lambda m: m * 1e6),
        ("netlinucb", "count", lambda n: n * 1000.0),
        ("netlinucb", "context", lambda x: x + 100.0),
        ("netsgducb", "accumulator", lambda g: -g),
        ("netsgducb", "count", lambda n: n * 1000.0),
    ],
)
def test_a_summary_that_no_honest_city_could_have_sent_is_refused(name: str, field: str, lie) -> None:  # type: ignore[no-untyped-def]
    learner = trained_learner(name, 1)
    parts = learner.layout.unpack(learner.numbers())
    learner.check(parts, 60, MAX_SQUARE, 100.0)
    with pytest.raises(BadSummary):
        learner.check(parts | {field: lie(parts[field])}, 60, MAX_SQUARE, 100.0)
