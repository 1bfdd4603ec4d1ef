"""Properties of all learners: a batch equals its cities one by one, and a refused value changes nothing."""

import copy
from typing import Any

import numpy as np
import pytest

from pricemesh.core.demand.basis import Basis
from pricemesh.core.ladder import Ladder
from pricemesh.core.policies import POLICIES, Learner, Shape, make_policy, parameters
from pricemesh.core.summary import Summary, merge
from pricemesh.errors import BadSummary, InvalidContext, InvalidFeedback, InvalidParameter

CITY_POLICIES = [name for name in POLICIES if name != "shared"]


def priced(arms: int, shared: int, local: int, batch: tuple[int, ...] = ()) -> Shape:
    """A shape for all policies: the arms cost 1, 2, 3 …"""
    prices = np.linspace(1.0, arms, arms)
    return Shape(arms, shared, local, batch, Ladder(prices, low=1.0, high=float(arms)))


VARIANTS = [
    *((name, {}) for name in CITY_POLICIES),
    ("netlinucb", {"split": "block"}),
    ("netsgducb", {"accumulator": "ema"}),
    ("netpool", {"heterogeneity": 0.2, "trust": "equal"}),
    ("netpool", {"heterogeneity": 0.2}),
]


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_a_batch_scores_as_each_of_its_cities_alone(name: str, settings: dict[str, Any]) -> None:
    """2 seeds x 3 cities, the same random rewards, an exchange of summaries at every third round."""
    rng = np.random.default_rng(2)
    policy = make_policy(name, **settings)
    batch = policy.learner(priced(3, 4, 2, (2, 3)))
    alone = [[policy.learner(priced(3, 4, 2)) for _ in range(3)] for _ in range(2)]
    for version in range(60):
        if version % 3 == 0 and batch.fields:
            batch.absorb(batch.summarise())
            for cities in alone:
                summaries = [
                    Summary.of(str(i), 0, version, bytes(16), city.numbers()) for i, city in enumerate(cities)
                ]
                for i, city in enumerate(cities):
                    city.absorb_summaries(str(i), merge({}, summaries))
        x, arm, reward = (
            rng.normal(size=(2, 3, 6)),
            rng.integers(3, size=(2, 3)),
            rng.random(size=(2, 3)),
        )
        together = batch.score(x)
        for s in range(2):
            for i in range(3):
                one = alone[s][i].score(x[s, i])
                np.testing.assert_allclose(one.estimate, together.estimate[s, i], rtol=1e-9, atol=1e-11)
                np.testing.assert_allclose(one.radius, together.radius[s, i], rtol=1e-9)
                alone[s][i].learn(x[s, i], arm[s, i], reward[s, i])
        batch.learn(x, arm, reward)


def snapshot(learner: Learner) -> dict[str, Any]:
    return copy.deepcopy(vars(learner))


def assert_unchanged(learner: Learner, before: dict[str, Any]) -> None:
    np.testing.assert_equal(_plain(vars(learner)), _plain(before))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Shape | Ladder | Basis):
        return None  # frozen
    if hasattr(value, "gram") or hasattr(value, "momentum") or hasattr(value, "logits"):
        return _plain(vars(value))
    return value


X = np.array([0.1, 0.2, 0.3])


@pytest.mark.parametrize("name", CITY_POLICIES)
@pytest.mark.parametrize(
    ("x", "arm", "reward", "error"),
    [
        (np.array([0.1, np.nan, 0.3]), 0, 1.0, InvalidContext),
        (np.array([0.1, np.inf, 0.3]), 0, 1.0, InvalidContext),
        (np.array([0.1, 1e200, 0.3]), 0, 1.0, InvalidContext),
        (np.array([0.1, 0.2]), 0, 1.0, InvalidContext),
        (np.array([[[0.1, 0.2, 0.3]]]), 0, 1.0, InvalidContext),
        ("abc", 0, 1.0, InvalidContext),
        (["0.1", "0.2", "0.3"], 0, 1.0, InvalidContext),
        (np.array([0.1 + 1j, 0.2, 0.3]), 0, 1.0, InvalidContext),
        ([10**400, 0, 0], 0, 1.0, InvalidContext),
        ([[1], [1, 2]], 0, 1.0, InvalidContext),
        (X, [[1], [1, 2]], 1.0, InvalidFeedback),
        (X, 0, 10**400, InvalidFeedback),
        (X, 0, 1e13, InvalidFeedback),
        (X, 2, 1.0, InvalidFeedback),
        (X, -1, 1.0, InvalidFeedback),
        (X, 0.0, 1.0, InvalidFeedback),
        (X, True, 1.0, InvalidFeedback),
        (X, [0], 1.0, InvalidFeedback),
        (X, 0, float("nan"), InvalidFeedback),
        (X, 0, float("-inf"), InvalidFeedback),
        (X, 0, "high", InvalidFeedback),
        (X, 0, None, InvalidFeedback),
    ],
)
def test_bad_values_are_refused_and_change_nothing(
    name: str, x: Any, arm: Any, reward: Any, error: type[Exception]
) -> None:
    learner = make_policy(name).learner(priced(2, 2, 1))
    learner.learn(X, 1, 0.5)
    before = snapshot(learner)
    with pytest.raises(error):
        learner.learn(x, arm, reward)
    if error is InvalidContext:
        with pytest.raises(InvalidContext):
            learner.score(x)
    assert_unchanged(learner, before)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("disjoint", {"ridge": -1}, "ridge must be a positive"),
        ("disjoint", {"alpha": 0}, "alpha must be a positive"),
        ("disjoint", {"alpha": "high"}, "alpha must be a number"),
        ("disjoint", {"alpha": True}, "alpha must be a number"),
        ("disjoint", {"rho": 0.5}, "no parameter 'rho'"),
        ("netlinucb", {"rho": 1}, r"rho must lie in \[0, 1\)"),
        ("netlinucb", {"ridge": 0}, "ridge must be"),
        ("netlinucb", {"split": "half"}, "split must be one of"),
        ("netlinucb", {"context_memory": -0.1}, "context_memory"),
        ("netsgducb", {"eta": 0}, "eta must be"),
        ("netsgducb", {"accumulator": "max"}, "accumulator must be one of"),
        ("netpool", {"heterogeneity": -1}, "heterogeneity must be zero or"),
        ("netpool", {"heterogeneity": "some"}, "heterogeneity must be one of auto"),
        ("netpool", {"trust": "blind"}, "trust must be one of"),
        ("thompson", {}, "unknown policy"),
    ],
)
def test_an_impossible_parameter_is_named_in_the_error(
    name: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        make_policy(name, **values)


def test_text_is_converted_to_the_type_of_the_parameter() -> None:
    assert make_policy("netpool", heterogeneity="0.5", trust="equal") == make_policy(
        "netpool", heterogeneity=0.5, trust="equal"
    )
    assert make_policy("netpool", heterogeneity="auto") == make_policy("netpool")
    assert "rho" in parameters("netsgducb")


def test_shared_is_refused_outside_the_simulator() -> None:
    with pytest.raises(InvalidParameter, match="simulator only"):
        make_policy("shared").learner(Shape(2, 2, 1))


@pytest.mark.parametrize("shape", [(0, 1, 1), (2, 0, 1), (2, 1, -1)])
def test_a_learner_needs_arms_and_shared_features(shape: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidParameter, match="at least one arm"):
        Shape(*shape)


@pytest.mark.parametrize("name", ["netlinucb", "netsgducb", "netpool"])
def test_peers_can_join_and_leave(name: str) -> None:
    rng = np.random.default_rng(4)
    policy = make_policy(name)
    a, b, c = (policy.learner(Shape(2, 3, 1)) for _ in range(3))
    for learner in (a, b, c):
        for _ in range(30):
            learner.learn(rng.normal(size=4), int(rng.integers(2)), float(rng.normal()))
    summaries = {
        city: Summary.of(city, 0, 1, bytes(16), learner.numbers()) for city, learner in (("b", b), ("c", c))
    }
    receiver = copy.deepcopy(a)
    receiver.absorb_summaries("a", summaries)
    assert list(receiver.origins or ()) == ["a", "b", "c"]
    assert receiver.weights.shape[-1] == 3
    receiver.absorb_summaries("a", {"c": summaries["c"]})
    assert list(receiver.origins or ()) == ["a", "c"]
    assert receiver.weights.shape[-1] == 2
    receiver.absorb_summaries("a", {})
    if name == "netpool":  # has no memory of earlier weights, so it equals the city before any exchange
        x = rng.normal(size=4)
        np.testing.assert_allclose(receiver.score(x).estimate, a.score(x).estimate, rtol=1e-12)
        np.testing.assert_allclose(receiver.score(x).radius, a.score(x).radius, rtol=1e-12)
    else:
        np.testing.assert_array_equal(receiver.weights, np.ones_like(receiver.weights))


def test_a_city_that_flips_its_signs_is_discounted() -> None:
    rng = np.random.default_rng(9)
    theta = rng.normal(size=6)
    policy = make_policy("netpool")
    cities = [policy.learner(Shape(1, 5, 1)) for _ in range(6)]
    for city in cities:
        for _ in range(150):
            x = rng.normal(size=6)
            city.learn(x, 0, float(x @ theta + 0.3 * rng.normal()))
    summaries = {str(i): Summary.of(str(i), 0, 1, bytes(16), city.numbers()) for i, city in enumerate(cities)}
    parts = cities[5].summarise()
    parts["response"] = -parts["response"]
    summaries["5"] = Summary.of("5", 0, 1, bytes(16), cities[5].layout.pack(parts))
    cities[0].absorb_summaries("0", summaries)
    trust = cities[0].weights[0]
    assert trust[5] < 0.05
    assert trust[:5].min() > 0.5


@pytest.mark.parametrize("name", ["netlinucb", "netsgducb", "netpool"])
def test_a_summary_of_wrong_length_or_not_finite_is_refused_and_changes_nothing(name: str) -> None:
    learner = make_policy(name).learner(Shape(2, 2, 1))
    learner.learn(X, 1, 0.5)
    good = learner.numbers()
    before = snapshot(learner)
    for numbers in (good[:-1], np.where(np.arange(good.size) == 3, np.nan, good)):
        with pytest.raises(BadSummary, match="porto sent"):
            learner.absorb_summaries("lisbon", {"porto": Summary.of("porto", 0, 1, bytes(16), numbers)})
    assert_unchanged(learner, before)


def test_gradient_steps_do_not_overshoot_on_long_contexts() -> None:
    rng = np.random.default_rng(0)
    learner = make_policy("netsgducb").learner(Shape(1, 3, 0))
    theta = np.array([1.0, -2.0, 0.5])
    for _ in range(3000):
        x = 10 * rng.normal(size=3)
        learner.learn(x, 0, float(x @ theta + 0.1 * rng.normal()))
    np.testing.assert_allclose(learner.score(np.eye(3)[0]).estimate, [1.0], atol=0.1)


@pytest.mark.parametrize(
    "lie",
    [
        {"noise": 1e9},
        {"noise": -1e9},
        {"response": 1e3, "information": 0.0},
        {"response": -100.0, "information": 100.0},
    ],
)
def test_one_lying_city_in_six_does_not_worsen_the_estimate_of_another(lie: dict[str, float]) -> None:
    """The liar flips the signs of its response and scales parts of its summary by the factors in `lie`."""
    rng = np.random.default_rng(9)
    theta = rng.normal(size=6)
    cities = [make_policy("netpool").learner(Shape(1, 5, 1)) for _ in range(6)]
    for city in cities:
        for _ in range(150):
            x = rng.normal(size=6)
            city.learn(x, 0, float(x @ theta + 0.3 * rng.normal()))
    summaries = {str(i): Summary.of(str(i), 0, 1, bytes(16), city.numbers()) for i, city in enumerate(cities)}
    parts = cities[5].summarise()
    parts["response"] = -parts["response"]
    for name, factor in lie.items():
        parts[name] = parts[name] * factor
    summaries["5"] = Summary.of("5", 0, 1, bytes(16), cities[5].layout.pack(parts))
    own = cities[0].own  # type: ignore[attr-defined]
    error_alone = np.abs(np.linalg.solve(own.gram[0], own.response[0])[:5] - theta[:5]).max()
    cities[0].absorb_summaries("0", summaries)
    error = np.abs(np.eye(6)[:5] @ cities[0].pooled.theta[0] - theta[:5]).max()  # type: ignore[attr-defined]
    assert error <= error_alone


@pytest.mark.parametrize("name", CITY_POLICIES)
def test_several_contexts_of_one_city_are_scored_at_once_and_learned_one_at_a_time(name: str) -> None:
    rng = np.random.default_rng(6)
    learner = make_policy(name).learner(priced(3, 2, 1))
    for _ in range(20):
        learner.learn(rng.normal(size=3), int(rng.integers(3)), float(rng.random()))
    several = rng.normal(size=(7, 3))
    together = learner.score(several)
    for i, x in enumerate(several):
        np.testing.assert_allclose(together.estimate[i], learner.score(x).estimate, rtol=1e-12)
        np.testing.assert_allclose(together.radius[i], learner.score(x).radius, rtol=1e-12)
    with pytest.raises(InvalidContext, match="one context"):
        learner.learn(several[:1], 0, 1.0)
