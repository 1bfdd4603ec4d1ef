"""Whose word made an estimate what it is: each peer's part, checked by brute force, adding up."""

import numpy as np
import pytest

from pricemesh.core.attribution import MAX_NAMED_PEERS, OTHER_PEERS
from pricemesh.core.policies import Learner, Shape, dump, load, make_policy
from pricemesh.core.summary import Summary
from pricemesh.errors import BadSummary

POLICIES = ("netpool", "netlinucb", "netsgducb")
ARMS, SHARED, LOCAL = 3, 4, 2


def taught(name: str, seed: int, rounds: int = 60, **values: object) -> Learner:
    rng = np.random.default_rng(seed)
    learner = make_policy(name, **values).learner(Shape(ARMS, SHARED, LOCAL))
    for _ in range(rounds):
        learner.learn(rng.normal(size=SHARED + LOCAL) / 3, int(rng.integers(ARMS)), float(rng.normal()))
    return learner


def summaries(learners: dict[str, Learner]) -> dict[str, Summary]:
    return {
        origin: Summary.of(origin, 1, 1, bytes(16), learner.numbers()) for origin, learner in learners.items()
    }


@pytest.mark.parametrize("name", POLICIES)
def test_what_a_peer_told_is_what_is_missing_without_it(name: str) -> None:
    """With everything else as it was, an estimate without one peer's word is lower by that peer's part."""
    rng = np.random.default_rng(9)
    city = taught(name, 0)
    peers = {origin: taught(name, i) for i, origin in enumerate(("faro", "porto", "viseu"), 1)}
    city.absorb_summaries("lisbon", summaries(peers))
    city.learn(rng.normal(size=6) / 3, 1, 0.5)  # own learning after the tick belongs to the city
    x = rng.normal(size=(20, 6))
    score = city.score(x)
    arms = rng.integers(ARMS, size=20)
    estimate, radius = city.parts(x, arms)
    assert city.attribution.origins == ("faro", "porto", "viseu")
    assert estimate.shape == radius.shape == (20, 3)
    for row, arm in enumerate(arms):
        for j, origin in enumerate(city.attribution.origins):
            by_hand, mass = brute_force(city, peers[origin], j, int(arm), x[row])
            assert estimate[row, j] == pytest.approx(by_hand, abs=1e-12)
            squared = radius[row, j] * score.radius[row, arm] / city.policy.alpha**2  # type: ignore[attr-defined]
            assert squared == pytest.approx(mass, abs=1e-12)
        own = score.estimate[row, arm] - estimate[row].sum()
        assert own == pytest.approx(own_part(city, int(arm), x[row]), abs=1e-12)
        assert 0 <= radius[row].sum() <= score.radius[row, arm] + 1e-12


def brute_force(city: Learner, peer: Learner, j: int, arm: int, x: np.ndarray) -> tuple[float, float]:
    c = SHARED
    if isinstance(city.policy.name, str) and city.policy.name == "netpool":  # type: ignore[attr-defined]
        information, response = (peer.summarise()[key][arm] for key in ("information", "response"))
        t, trust = city.heterogeneity[arm], city.weights[arm]  # type: ignore[attr-defined]
        eye = np.eye(c)
        told = trust[j + 1] * np.linalg.inv(eye + t * information)
        z = np.linalg.inv(city.pooled.gram[arm]) @ x  # type: ignore[attr-defined]
        total = city._shrink[arm]  # type: ignore[attr-defined]
        return float(z[:c] @ total @ told @ response), float(z[:c] @ total @ told @ information @ z[:c])
    weight = city.weights[arm, 0, j + 1]
    parts = peer.summarise()
    variance = parts["covariance"][arm] if "covariance" in parts else np.diag(1 / parts["accumulator"][arm])
    return float(weight * x[:c] @ parts["theta"][arm]), float(weight**2 * x[:c] @ variance @ x[:c])


def own_part(city: Learner, arm: int, x: np.ndarray) -> float:
    policy = city.policy.name  # type: ignore[attr-defined]
    if policy == "netpool":
        inverse = np.linalg.inv(city.pooled.gram[arm])  # type: ignore[attr-defined]
        return float(x @ inverse @ city.own.response[arm])  # type: ignore[attr-defined]
    if policy == "netlinucb":
        weighted = city.own[0].theta[arm].copy()  # type: ignore[attr-defined]
        weighted[:SHARED] *= city.weights[arm, 0, 0]
        return float(x @ weighted)
    told = city.attribution.pull[:, arm].sum(axis=0)  # type: ignore[index]
    return float(x @ city.own.theta[arm] - x[:SHARED] @ told)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", POLICIES)
def test_beyond_so_many_peers_the_rest_is_told_as_one(name: str) -> None:
    city = taught(name, 0)
    peers = {f"city{i:03}": taught(name, i, rounds=8) for i in range(1, MAX_NAMED_PEERS + 20)}
    city.absorb_summaries("lisbon", summaries(peers))
    x = np.random.default_rng(1).normal(size=(5, 6))
    estimate, radius = city.parts(x, np.zeros(5, dtype=np.int64))
    assert len(city.attribution.origins) == MAX_NAMED_PEERS
    assert city.attribution.origins[-1] == OTHER_PEERS
    own = [own_part(city, 0, row) for row in x]
    np.testing.assert_allclose(estimate.sum(axis=1) + own, city.score(x).estimate[:, 0], atol=1e-9)
    assert (radius >= -1e-12).all()


@pytest.mark.parametrize("name", POLICIES)
def test_after_a_restart_peers_count_as_they_did(name: str) -> None:
    city = taught(name, 0)
    held = summaries({origin: taught(name, i) for i, origin in enumerate(("faro", "porto"), 1)})
    for _ in range(3):
        city.absorb_summaries("lisbon", held)
    again = make_policy(name).learner(Shape(ARMS, SHARED, LOCAL))
    load(again, dump(city))
    if city.memory():
        assert city.origins is not None
        again.recall(city.origins, {key: value.copy() for key, value in city.memory().items()})
    again.absorb_summaries("lisbon", held, again=True)
    x = np.random.default_rng(3).normal(size=(7, 6))
    np.testing.assert_allclose(again.score(x).estimate, city.score(x).estimate, atol=1e-10)
    np.testing.assert_allclose(again.score(x).radius, city.score(x).radius, atol=1e-10)
    np.testing.assert_allclose(again.numbers(), city.numbers(), atol=1e-12)


@pytest.mark.parametrize("name", POLICIES)
def test_a_peer_that_leaves_takes_along_all_it_told(name: str) -> None:
    """Dropping is exact for NetPool: the city is as if it had never heard of the peer."""
    held = summaries({origin: taught(name, i) for i, origin in enumerate(("faro", "porto"), 1)})
    city, spared = taught(name, 0), taught(name, 0)
    for _ in range(2):
        city.absorb_summaries("lisbon", held)
        spared.absorb_summaries("lisbon", {"faro": held["faro"]})
    city.absorb_summaries("lisbon", {"faro": held["faro"]})
    assert city.attribution.origins == ("faro",)
    if name == "netpool":
        spared.absorb_summaries("lisbon", {"faro": held["faro"]})
        np.testing.assert_array_equal(city.pooled.gram, spared.pooled.gram)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(city.pooled.theta, spared.pooled.theta)  # type: ignore[attr-defined]


LONGEST = 9.0  # squared length of the contexts below


@pytest.mark.parametrize("name", POLICIES)
def test_an_honest_summary_passes_its_checks(name: str) -> None:
    for seed in range(5):
        learner = taught(name, seed, rounds=40 * seed)
        learner.check(learner.layout.unpack(learner.numbers()), 40 * seed, LONGEST, 100.0)


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
def test_a_summary_that_no_honest_city_could_have_made_is_refused(name: str, field: str, lie) -> None:  # type: ignore[no-untyped-def]
    learner = taught(name, 1)
    parts = learner.layout.unpack(learner.numbers())
    learner.check(parts, 60, LONGEST, 100.0)
    with pytest.raises(BadSummary):
        learner.check(parts | {field: lie(parts[field])}, 60, LONGEST, 100.0)
