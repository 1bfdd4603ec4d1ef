"""The contract of /price and /feedback, over HTTP, on both databases."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import pytest

from pricemesh.core.policies import Shape, make_policy
from pricemesh.runtime import Runtime
from tests.running import CONTEXT, RunningCity

Start = Callable[..., RunningCity]


def test_a_price_is_one_of_the_arms_and_the_audit_record_tells_how(city: RunningCity) -> None:
    decision = city.price()
    assert decision["price"] == [8.0, 9.0, 10.0, 11.0, 12.0][decision["arm"]]
    assert decision["city"] == "lisbon"
    assert decision["policy"] == "netpool"
    record = city.http.get(f"/decisions/{decision['decision_id']}").json()
    assert record["context"] == CONTEXT
    assert record["arms"][decision["arm"]]["estimate"] == decision["estimate"]
    assert record["feedback"] is None
    assert sum(part["estimate"] for part in record["contributions"]) == pytest.approx(decision["estimate"])


def test_the_same_decision_id_gets_the_same_answer_even_after_learning(city: RunningCity) -> None:
    first = city.price(decision_id="order-7")
    for _ in range(5):
        city.feedback(city.price()["decision_id"], 3.0)
    assert city.price(decision_id="order-7") == first
    assert city.state()["decisions"] == 6


def test_feedback_is_learned_once_and_conflicts_are_told(city: RunningCity) -> None:
    id_ = city.price()["decision_id"]
    first = city.feedback(id_, 0.5)
    assert first.status_code == 200
    assert first.json() == {"decision_id": id_, "reward": 0.5, "learned": True, "version": 1}
    assert city.feedback(id_, 0.5).json() == first.json()
    conflict = city.feedback(id_, 0.6)
    assert conflict.status_code == 409
    assert conflict.headers["content-type"] == "application/problem+json"
    assert conflict.json()["type"] == "urn:pricemesh:problem:other-reward"
    assert city.feedback("nobody", 1.0).status_code == 404
    assert city.state()["version"] == 1


def test_learning_shows_in_the_next_price(city: RunningCity) -> None:
    before = city.price()
    city.feedback(before["decision_id"], 5.0)
    after = city.http.get(f"/decisions/{city.price()['decision_id']}").json()
    assert after["arms"][before["arm"]]["estimate"] > 1.0
    assert after["learner_version"] == 1


def test_late_feedback_is_gone_but_a_repeated_one_is_not(start: Start) -> None:
    now = 1_700_000_000.0
    city = start(Runtime(clock=lambda: now, monotonic=lambda: now))
    early, late = city.price()["decision_id"], city.price()["decision_id"]
    city.feedback(early, 1.0)
    now += 604_801
    assert city.feedback(late, 1.0).status_code == 410
    assert city.feedback(early, 1.0).status_code == 200


def test_unanswered_decisions_learn_the_default_reward_when_their_window_closes(start: Start) -> None:
    city = start(feedback={"window_seconds": 0.4, "default_reward": -1.0})
    answered = city.price()["decision_id"]
    city.feedback(answered, 1.0)
    silent = [city.price()["decision_id"] for _ in range(3)]
    for _ in range(100):
        if city.state()["version"] == 4:
            break
        time.sleep(0.05)
    records = [city.http.get(f"/decisions/{id_}").json()["feedback"] for id_ in silent]
    assert [(record["reward"], record["by_default"]) for record in records] == [(-1.0, True)] * 3
    assert city.http.get(f"/decisions/{answered}").json()["feedback"]["by_default"] is False


def test_batches_decide_and_learn_like_single_calls(city: RunningCity) -> None:
    requests = [CONTEXT | {"decision_id": f"b{i}"} for i in range(100)]
    answer = city.http.post("/price/batch", json={"requests": requests})
    assert [d["decision_id"] for d in answer.json()["decisions"]] == [f"b{i}" for i in range(100)]
    items = [{"decision_id": f"b{i}", "reward": 0.1 * i} for i in range(100)]
    items += [{"decision_id": "b3", "reward": 0.1 * 3}, {"decision_id": "b3", "reward": 9.0}]
    items += [{"decision_id": "b999", "reward": 1.0}]
    outcomes = city.http.post("/feedback/batch", json={"items": items}).json()["outcomes"]
    assert [o["status"] for o in outcomes] == [200] * 101 + [409, 404]
    assert city.state()["version"] == 100


def test_a_batch_beyond_the_limit_or_with_one_bad_request_changes_nothing(city: RunningCity) -> None:
    too_many = city.http.post("/price/batch", json={"requests": [CONTEXT] * 1001})
    assert too_many.status_code == 422
    one_bad = city.http.post("/price/batch", json={"requests": [CONTEXT, {"shared": {}, "local": {}}]})
    assert one_bad.status_code == 422
    assert "shared.demand" in one_bad.text
    assert city.state()["decisions"] == 0


@pytest.mark.parametrize("decision_count", [400, pytest.param(2000, marks=pytest.mark.slow)])
def test_calls_with_duplicates_conflicts_and_reordering_learn_each_decision_once(
    city: RunningCity, decision_count: int
) -> None:
    """Five calls for each decision."""
    rng = Random(1)
    ids: list[str] = []
    contexts: dict[str, tuple[dict[str, Any], int]] = {}
    for start in range(0, decision_count, 200):
        requests = []
        for i in range(start, start + 200):
            context: dict[str, Any] = {
                "shared": {"demand": rng.random(), "rain": rng.random(), "event": float(rng.random() < 0.2)},
                "local": {"tourists": rng.random(), "strike": 0.0},
            }
            requests.append(context | {"decision_id": f"d{i}"})
        decisions = city.http.post("/price/batch", json={"requests": requests}).json()["decisions"]
        for request, decision in zip(requests, decisions, strict=True):
            ids.append(decision["decision_id"])
            contexts[decision["decision_id"]] = (request, decision["arm"])
    rewards = {id_: rng.gauss(0, 1) for id_ in ids}
    calls = [(id_, rewards[id_]) for id_ in ids for _ in range(4)]
    calls += [(id_, rewards[id_] + 1.0) for id_ in rng.sample(ids, decision_count)]
    rng.shuffle(calls)
    # A conflicting reward may arrive first: then that one is learned, and the other is the conflict.
    learned: dict[str, float] = {}
    statuses: dict[int, int] = {}

    def post(chunk: list[tuple[str, float]]) -> list[tuple[str, float, int, int | None]]:
        answers = []
        for id_, reward in chunk:
            response = city.feedback(id_, reward)
            version = response.json().get("version") if response.status_code == 200 else None
            answers.append((id_, reward, response.status_code, version))
        return answers

    versions: dict[str, int] = {}
    with ThreadPoolExecutor(8) as pool:
        for answers in pool.map(post, [calls[i::8] for i in range(8)]):
            for id_, reward, status, version in answers:
                statuses[status] = statuses.get(status, 0) + 1
                if status == 200:
                    assert learned.setdefault(id_, reward) == reward
                    assert version is not None
                    assert versions.setdefault(id_, version) == version
    assert set(statuses) == {200, 409}
    assert len(learned) == decision_count
    assert city.state()["version"] == decision_count
    assert sorted(versions.values()) == list(range(1, decision_count + 1))
    mirror = make_policy("netpool").learner(Shape(5, 3, 2))
    for id_ in sorted(learned, key=versions.__getitem__):
        request, arm = contexts[id_]
        x = [*request["shared"].values(), *request["local"].values()]
        mirror.learn(x, arm, learned[id_])
    probe = np.array([0.3, 0.7, 0.0, 0.2, 0.0])
    np.testing.assert_allclose(
        city.pricing.learner.score(probe).estimate, mirror.score(probe).estimate, rtol=1e-9
    )


@pytest.mark.parametrize("policy", ["disjoint", "netlinucb", "netsgducb", "netpool"])
def test_a_restart_goes_on_with_what_was_learned(start: Start, policy: str) -> None:
    city = start(policy={"name": policy})
    for i in range(30):
        city.feedback(city.price()["decision_id"], 0.1 * i)
    before = city.pricing.learner.score([0.1, 0.2, 0.3, 0.4, 0.5])
    state = city.state()
    again = start(policy={"name": policy})
    after = again.pricing.learner.score([0.1, 0.2, 0.3, 0.4, 0.5])
    np.testing.assert_allclose(after.estimate, before.estimate, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(after.radius, before.radius, rtol=1e-9)
    assert again.state() == state


def test_decisions_are_listed_newest_first_in_pages_and_by_arm_and_time(city: RunningCity) -> None:
    ids = [city.price(decision_id=f"p{i}")["decision_id"] for i in range(7)]
    pages: list[str] = []
    before: Any = None
    while True:
        query = {"limit": 3} | ({} if before is None else {"before": before})
        page = city.http.get("/decisions", params=query).json()
        pages += [decision["decision_id"] for decision in page["decisions"]]
        before = page["next_before"]
        if before is None:
            break
    assert pages == ids[::-1]
    arm = city.http.get("/decisions/p3").json()["arm"]
    chosen = city.http.get("/decisions", params={"arm": arm}).json()["decisions"]
    assert {decision["arm"] for decision in chosen} == {arm}
    made_at = city.http.get("/decisions/p4").json()["made_at"]
    since = city.http.get("/decisions", params={"since": made_at}).json()["decisions"]
    assert [decision["decision_id"] for decision in since] == ["p6", "p5", "p4"]
    until = city.http.get("/decisions", params={"until": made_at}).json()["decisions"]
    assert [decision["decision_id"] for decision in until] == ["p3", "p2", "p1", "p0"]


def test_one_id_twice_in_a_batch_is_one_decision(start: Callable[..., RunningCity]) -> None:
    city = start(guardrails={"max_step": 1.0})
    twice = [CONTEXT | {"decision_id": "u", "subject": "ann"}, CONTEXT | {"decision_id": "u"}]
    for requests in (twice, [*reversed(twice)], [twice[0], CONTEXT, twice[0]]):
        answer = city.http.post("/price/batch", json={"requests": requests})
        assert answer.status_code == 200, answer.text
        given = [decision for decision in answer.json()["decisions"] if decision["decision_id"] == "u"]
        assert given[0] == given[1]
    assert city.state()["decisions"] == 2
    assert sum(city.pricing.live.decision_counts) == 2


def test_a_reward_beyond_what_the_city_allows_is_refused(start: Callable[..., RunningCity]) -> None:
    city = start(reward={"kind": "value", "largest": 2.0})
    made = city.price()["decision_id"]
    assert city.feedback(made, 2.5).status_code == 422
    items = [{"decision_id": made, "reward": 1.0}, {"decision_id": made, "reward": -3.0}]
    refused = city.http.post("/feedback/batch", json={"items": items})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "items.1.reward")
    assert city.state()["version"] == 0
    assert city.feedback(made, -2.0).json()["learned"] is True
