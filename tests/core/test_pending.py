"""Decisions that wait for feedback, against sums over raw histories."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.arrays import Array
from pricemesh.core.policies import Learner, Shape, dump, load, make_policy
from pricemesh.core.ridge import REFRESH_INTERVAL_UPDATES
from pricemesh.core.summary import Summary, merge
from tests.core.histories import History

ARMS, SHARED, LOCAL, CITIES = 3, 3, 2, 3
DIM = SHARED + LOCAL
RIDGE, ALPHA = 0.6, 0.9
POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("disjoint", {"pending": "on"}),
    ("netpool", {"heterogeneity": 0.0, "trust": "equal"}),
    ("netlinucb", {"pending": "on", "rho": 0.5}),
    ("netlinucb", {"pending": "on", "split": "block"}),
]


class Group:
    """Three cities that decide, learn, give up and exchange in random order: as a batch, as learners of one
    city, and as raw histories."""

    def __init__(self, name: str, values: dict[str, Any], seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.policy = make_policy(name, alpha=ALPHA, ridge=RIDGE, **values)
        self.batch = self.policy.learner(Shape(ARMS, SHARED, LOCAL, (CITIES,)))
        self.cities = [self.policy.learner(Shape(ARMS, SHARED, LOCAL)) for _ in range(CITIES)]
        self.answered = [History(ARMS, SHARED, LOCAL) for _ in range(CITIES)]
        self.published = [0] * CITIES  # rows of each history in its newest summary
        self.waiting: list[tuple[Array, Any]] = []  # contexts and arms of all cities

    def step(self) -> None:
        action = self.rng.choice(
            ["pend", "answer", "unseen", "release", "exchange"], p=(0.4, 0.2, 0.1, 0.2, 0.1)
        )
        if action in ("answer", "release") and self.waiting:
            x, arms = self.waiting.pop(int(self.rng.integers(len(self.waiting))))
            if action == "answer":
                self._learn(x, arms, waited=True)
            else:
                self.batch.release(x, arms)
                for i, city in enumerate(self.cities):
                    city.release(x[i : i + 1], arms[i : i + 1])
        elif action == "exchange":
            self._exchange()
        else:
            x = self.rng.normal(size=(CITIES, DIM)) * self.rng.choice([0.3, 1.0, 30.0])
            arms = self.rng.integers(ARMS, size=CITIES)
            if action == "unseen":
                self._learn(x, arms, waited=False)
            else:
                self.waiting.append((x, arms))
                self.batch.pend(x, arms)
                for i, city in enumerate(self.cities):
                    city.pend(x[i : i + 1], arms[i : i + 1])

    def _learn(self, x: Array, arms: Any, *, waited: bool) -> None:
        rewards = self.rng.normal(size=CITIES)
        self.batch.learn(x, arms, rewards, pending=waited)
        for i, city in enumerate(self.cities):
            city.learn(x[i], int(arms[i]), float(rewards[i]), pending=waited)
            self.answered[i].add(x[i], int(arms[i]), float(rewards[i]))

    def _exchange(self) -> None:
        if not self.batch.fields:
            return
        self.batch.absorb(self.batch.summarise())
        self.published = [len(history.rows) for history in self.answered]
        summaries = [
            Summary.of(str(i), 1, sum(self.published), bytes(16), city.numbers())
            for i, city in enumerate(self.cities)
        ]
        for i, city in enumerate(self.cities):
            city.absorb_summaries(str(i), merge({}, summaries))

    # From raw histories

    def published_equations(self, j: int, arm: int) -> tuple[Array, Array]:
        history = History(ARMS, SHARED, LOCAL, self.answered[j].rows[: self.published[j]])
        return history.normal_equations(arm, RIDGE)

    def squares_waiting(self, i: int, arm: int) -> Array:
        total = np.zeros((DIM, DIM))
        for x, arms in self.waiting:
            if arms[i] == arm:
                total += np.outer(x[i], x[i])
        return total

    def expected(self, i: int, arm: int, x: Array) -> tuple[float, float]:
        w, b = self.answered[i].normal_equations(arm, RIDGE)
        if self.policy.name == "netlinucb":
            return self._expected_netlinucb(i, arm, x, w, b)
        if self.policy.name == "netpool":
            c = SHARED
            for j in {0, 1, 2} - {i}:
                peer, response = self.published_equations(j, arm)
                q, r = peer[:c, c:], peer[c:, c:]
                w[:c, :c] += peer[:c, :c] - RIDGE * np.eye(c) - q @ np.linalg.solve(r, q.T)
                b[:c] += response[:c] - q @ np.linalg.solve(r, response[c:])
        v = w + self.squares_waiting(i, arm)
        return float(x @ np.linalg.solve(w, b)), ALPHA * float(np.sqrt(x @ np.linalg.solve(v, x)))

    def _expected_netlinucb(self, i: int, arm: int, x: Array, w: Array, b: Array) -> tuple[float, float]:
        c = SHARED
        mask = np.ones((DIM, DIM))
        if self.policy.split == "block":  # type: ignore[attr-defined]
            mask[:c, c:] = mask[c:, :c] = 0.0
        omega = self.cities[i].weights[arm, 0]
        names = self.cities[i].origins or (str(i),)
        weight = dict(zip(names, omega.tolist(), strict=True))
        own = np.linalg.inv((w + self.squares_waiting(i, arm)) * mask)
        theta = np.linalg.solve(w * mask, b)
        estimate = weight[str(i)] * x[:c] @ theta[:c] + x[c:] @ theta[c:]
        square = weight[str(i)] ** 2 * x[:c] @ own[:c, :c] @ x[:c] + x[c:] @ own[c:, c:] @ x[c:]
        for j in {0, 1, 2} - {i}:
            if str(j) in weight:
                peer, response = self.published_equations(j, arm)
                estimate += weight[str(j)] * x[:c] @ np.linalg.solve(peer * mask, response)[:c]
                square += weight[str(j)] ** 2 * x[:c] @ np.linalg.inv(peer * mask)[:c, :c] @ x[:c]
        return float(estimate), ALPHA * float(np.sqrt(square))

    def check(self) -> None:
        x = self.rng.normal(size=(CITIES, DIM))
        together = self.batch.score(x)
        for i, city in enumerate(self.cities):
            alone = city.score(x[i])
            for arm in range(ARMS):
                estimate, radius = self.expected(i, arm, x[i])
                for score in (alone, (together.estimate[i], together.radius[i])):
                    assert score[0][arm] == pytest.approx(estimate, rel=1e-9, abs=1e-9)
                    assert score[1][arm] == pytest.approx(radius, rel=1e-9)


@pytest.mark.parametrize(("name", "values"), POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_the_radius_counts_decisions_that_wait_and_the_estimate_does_not(
    name: str, values: dict[str, Any], seed: int
) -> None:
    group = Group(name, values, seed)
    for step in range(300):
        group.step()
        if step % 10 == 0:
            group.check()
    group.check()


def learner(name: str = "netpool", **values: Any) -> Learner:
    return make_policy(name, **values).learner(Shape(ARMS, SHARED, LOCAL))


def test_many_decisions_at_once_count_as_one_after_the_other() -> None:
    """Groups smaller than the number of features, and larger."""
    rng = np.random.default_rng(1)
    together, one_by_one = learner(), learner()
    for size in (1, 2, 3, 40, 2, 300, *([12] * 60)):
        x, arms = rng.normal(size=(size, DIM)), rng.integers(ARMS, size=size)
        together.pend(x, arms)
        for row, arm in zip(x, arms, strict=True):
            one_by_one.pend(row[None], np.array([arm]))
        probe = rng.normal(size=DIM)
        np.testing.assert_allclose(together.score(probe), one_by_one.score(probe), rtol=1e-9)


def test_decisions_that_come_and_go_leave_no_trace() -> None:
    """Long contexts, so that every removal is a badly conditioned downdate; more than a refresh interval."""
    rng = np.random.default_rng(2)
    city, fresh = learner(ridge=1.0), learner(ridge=1.0)
    x, arms = 1e4 * rng.normal(size=(500, DIM)), rng.integers(ARMS, size=500)
    assert len(x) > ARMS * REFRESH_INTERVAL_UPDATES
    for row, arm in zip(x, arms, strict=True):
        city.pend(row[None], np.array([arm]))
    for row, arm in zip(x, arms, strict=True):
        city.release(row[None], np.array([arm]))
    probe = rng.normal(size=DIM)
    np.testing.assert_allclose(city.score(probe).radius, fresh.score(probe).radius, rtol=1e-12)
    np.testing.assert_array_equal(city.state()["pending"], 0.0)


@pytest.mark.parametrize(("name", "values"), POLICIES)
def test_what_waits_is_part_of_the_stored_state(name: str, values: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    city, restored = learner(name, **values), learner(name, **values)
    city.learn(rng.normal(size=DIM), 1, 0.7)
    city.pend(rng.normal(size=(5, DIM)), rng.integers(ARMS, size=5))
    load(restored, dump(city))
    x = rng.normal(size=DIM)
    np.testing.assert_allclose(restored.score(x), city.score(x), rtol=1e-12)


@pytest.mark.parametrize("name", ["disjoint", "netpool", "netlinucb"])
def test_with_pending_off_decisions_do_not_count(name: str) -> None:
    rng = np.random.default_rng(4)
    city, other = learner(name, pending="off"), learner(name, pending="off")
    city.pend(rng.normal(size=(5, DIM)), rng.integers(ARMS, size=5))
    city.release(rng.normal(size=(1, DIM)), np.array([0]))
    x = rng.normal(size=DIM)
    assert not city.counts_pending
    np.testing.assert_array_equal(city.score(x), other.score(x))


def test_what_waits_is_the_citys_own_part_of_a_radius() -> None:
    """Each peer's part is z'L_j z / radius with z = V^-1 x."""
    rng = np.random.default_rng(5)
    values: dict[str, Any] = {"heterogeneity": 0.0, "trust": "equal", "ridge": 1.0, "alpha": 0.7}
    city, peer = learner(**values), learner(**values)
    for _ in range(20):
        peer.learn(rng.normal(size=DIM), int(rng.integers(ARMS)), float(rng.normal()))
    city.absorb_summaries("lisbon", {"porto": Summary.of("porto", 1, 20, bytes(16), peer.numbers())})
    waiting = rng.normal(size=(4, DIM))
    city.pend(waiting, np.ones(4, dtype=np.int64))
    x = rng.normal(size=(1, DIM))
    _, radius = city.contributions(x, np.array([1]))
    information = np.zeros((DIM, DIM))
    information[:SHARED, :SHARED] = peer.summarise()["information"][1]
    z = np.linalg.solve(np.eye(DIM) + information + waiting.T @ waiting, x[0])
    whole = float(city.score(x[0]).radius[1])
    assert radius[0, 0] == pytest.approx(0.7**2 * z @ information @ z / whole, rel=1e-9)
