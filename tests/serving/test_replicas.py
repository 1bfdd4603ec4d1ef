"""Several processes serve one city from one Postgres."""

import asyncio
import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest
import sqlalchemy as sa

from pricemesh.city.following import Following
from pricemesh.city.settings import Settings
from pricemesh.lab.demo import free_ports
from tests.gossip.over_http import SECRETS, teach, tick
from tests.rewriting import assert_same_learner, learner_without
from tests.running import CONFIG, CONTEXT, CityProcess, RunningCity, settings_for, until

Replicas = Callable[[int], list[RunningCity]]


@pytest.fixture
def start(postgres_url: str) -> Iterator[Replicas]:
    started: list[RunningCity] = []

    def start(count: int) -> list[RunningCity]:
        cities = [RunningCity(settings_for(postgres_url, database={"replicas": True})) for _ in range(count)]
        started.extend(cities)
        return cities

    yield start
    for city in started:
        city.stop()


def in_step(cities: list[RunningCity]) -> bool:
    positions = [city.pricing.live.position for city in cities]
    versions = [city.pricing.version for city in cities]
    totals = cities[0].http.get("/state").json()
    return (
        len(set(positions)) == 1
        and len(set(versions)) == 1
        and all(city.pricing.live.is_whole for city in cities)
        and positions[0].decision == totals["decisions"]
        and positions[0].feedback == totals["feedback"]
    )


def test_replicas_learn_every_row_once_and_in_one_order(postgres_url: str, start: Replicas) -> None:
    cities = start(3)

    def work(place: int) -> list[int]:
        rng, statuses = Random(place), []
        for i in range(80):
            city = cities[rng.randrange(3)]
            body = CONTEXT | {"decision_id": f"d{rng.randrange(i + 5)}"}
            statuses.append(city.http.post("/price", json=body).status_code)
            told = {"decision_id": f"d{rng.randrange(i + 5)}", "reward": float(rng.randrange(2))}
            statuses.append(cities[rng.randrange(3)].http.post("/feedback", json=told).status_code)
        return statuses

    with ThreadPoolExecutor(6) as pool:
        statuses = {status for each in pool.map(work, range(6)) for status in each}
    assert statuses <= {200, 404, 409}
    until(lambda: in_step(cities))
    states = [city.pricing.learner.state() for city in cities]
    counts = [city.pricing.live.lesson_counts.tolist() for city in cities]
    assert counts[0] == counts[1] == counts[2]
    for city in cities:
        city.stop()
    single = RunningCity(settings_for(postgres_url))
    assert single.pricing.version == sum(counts[0])
    for state in states:
        for name, value in single.pricing.learner.state().items():
            np.testing.assert_allclose(state[name], value, rtol=1e-9, atol=1e-9)
    single.stop()


def test_a_pin_at_one_replica_is_in_force_at_all(start: Replicas) -> None:
    cities = start(2)
    assert cities[0].http.post("/admin/pin", json={"price": 11.0, "reason": "test"}).status_code == 200
    until(lambda: cities[1].price()["price"] == 11.0)
    assert cities[1].http.delete("/admin/pin").status_code in (200, 204)
    until(lambda: "pin" not in cities[0].state()["controls"])


def test_a_retraction_at_one_replica_is_in_force_at_all(
    postgres_url: str, start: Replicas, tmp_path: Path
) -> None:
    cities = start(3)
    rng = Random(1)
    ids = []
    for i in range(60):
        city = cities[i % 3]
        ids.append(city.price(shared={**CONTEXT["shared"], "demand": rng.random()})["decision_id"])
        city.feedback(ids[-1], 1000.0 if i % 6 == 1 else rng.gauss(0, 1))
    until(lambda: in_step(cities))
    absurd = ids[1::6]
    body = {"decisions": absurd, "reason": "a broken till"}
    answer = cities[1].http.post("/admin/retract", json=body)  # not the publisher
    assert (answer.status_code, answer.json()["relearned"]) == (200, True)
    until(lambda: all(city.pricing.live.counts.retracted == 10 for city in cities))
    never_had = learner_without(postgres_url, settings_for(f"sqlite:///{tmp_path}/never.db"), absurd)
    for city in cities:
        assert_same_learner(city.pricing.live, never_had)
        assert [each["reason"] for each in city.state()["retractions"]] == ["a broken till"]
    until(lambda: all(city.app.gossip.publisher.epoch == 2 for city in cities))
    first = cities[0].app.gossip.publisher
    assert cities[0].pricing.role.is_publisher
    cities[0].tick("exchange")
    later = [city.price()["decision_id"] for city in cities]
    for city, id_ in zip(cities, later, strict=True):
        assert city.feedback(id_, 0.5).json()["learned"]
    until(lambda: in_step(cities))
    assert first.edition == (2, 63)
    cities[2].http.post("/admin/retractions/1/lift", json={"reason": "right"}).raise_for_status()
    until(lambda: all(city.pricing.live.lesson_counts.sum() == 63 for city in cities))


def test_one_replica_is_the_publisher_and_another_takes_over(start: Replicas) -> None:
    cities = start(3)
    publishers = [city.pricing.role.is_publisher for city in cities]
    assert publishers == [True, False, False]
    cities[0].stop()
    until(lambda: sum(city.pricing.role.is_publisher for city in cities[1:]) == 1)


def test_a_replica_that_joins_knows_what_the_others_learned(start: Replicas) -> None:
    (first,) = start(1)
    for i in range(30):
        first.feedback(first.price()["decision_id"], float(i % 2))
    (second,) = start(1)
    assert second.pricing.version == 30
    until(lambda: in_step([first, second]))


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"database": {"url": "sqlite:///city.db", "replicas": True}}, "need Postgres"),
        ({"policy": {"name": "netsgducb"}}, "changes its own state"),
    ],
)
def test_what_replicas_cannot_have_is_refused(sections: dict[str, Any], words: str) -> None:
    postgres = {"url": "postgresql+psycopg://nobody@nowhere/city", "replicas": True}
    with pytest.raises(ValueError, match=words):
        Settings.model_validate({**CONFIG, "database": postgres, **sections})


def test_a_publisher_that_is_killed_is_replaced_and_nothing_acknowledged_is_lost(
    postgres_url: str, tmp_path: Path
) -> None:
    cities = [CityProcess(tmp_path / str(i), postgres_url, database={"replicas": True}) for i in range(2)]

    def is_publisher(city: CityProcess) -> bool:
        return bool(httpx.get(f"{city.url}/state").json()["replica"]["publisher"])

    assert is_publisher(cities[0])
    ids = []
    for _ in range(10):
        answer = httpx.post(f"{cities[0].url}/price", json=CONTEXT)
        ids.append(answer.json()["decision_id"])
        told = httpx.post(f"{cities[0].url}/feedback", json={"decision_id": ids[-1], "reward": 1.0})
        assert told.status_code == 200
    cities[0].kill()
    until(lambda: is_publisher(cities[1]))
    for id_ in ids:
        assert httpx.get(f"{cities[1].url}/decisions/{id_}").json()["feedback"]["reward"] == 1.0
    until(lambda: httpx.get(f"{cities[1].url}/state").json()["version"] == 10)
    assert cities[1].stop() == 0


def test_every_replica_answers_peers_and_counts_their_letters(postgres_url: str, tmp_path: Path) -> None:
    """Porto knows the address of the second replica only, and lisbon's publisher calls porto."""
    ports = free_ports(3)
    second_address, porto_address = (f"http://127.0.0.1:{port}" for port in ports[1:])
    gossip = {"secrets": SECRETS, "lockstep": True}
    lisbon = {"database": {"replicas": True}, "gossip": {"peers": [porto_address], **gossip}}
    first = RunningCity(settings_for(postgres_url, **copy.deepcopy(lisbon)), ports[0])
    second = RunningCity(settings_for(postgres_url, **copy.deepcopy(lisbon)), ports[1])
    porto_gossip = {"peers": [second_address], **gossip}
    porto = RunningCity(
        settings_for(f"sqlite:///{tmp_path}/porto.db", city="porto", gossip=porto_gossip), ports[2]
    )
    cities = [first, second, porto]
    try:
        for city in cities:
            teach(city, 20)
        until(lambda: in_step([first, second]))

        def porto_knows_all() -> bool:
            """After one more tick: for a moment there may be no publisher."""
            tick(cities)
            return bool(porto.peers()["lisbon"]["version"] == 40)

        until(porto_knows_all)
        until(lambda: second.peers().get("porto", {}).get("version") == 20)
        teach(porto, 20, seed=1)
        porto.tick("exchange")  # pushes its letter to the second replica
        until(lambda: first.peers()["porto"]["version"] == 40)
        for city in (first, second):
            city.tick("absorb")
        states = [city.pricing.learner.attribution.origins for city in (first, second)]
        assert states == [("porto",), ("porto",)]
        scores = [city.pricing.learner.score(np.ones(5)).estimate for city in (first, second)]
        np.testing.assert_allclose(scores[0], scores[1], rtol=1e-9)
        epochs = [city.http.get("/state").json()["gossip"]["epoch"] for city in (first, second)]
        assert epochs == [1, 1]
    finally:
        for city in cities:
            city.stop()


def test_a_replica_that_calls_no_peers_says_so_until_it_is_the_publisher(
    postgres_url: str, tmp_path: Path
) -> None:
    gossip = {"secrets": SECRETS, "interval_seconds": 0.1}
    porto = RunningCity(settings_for(f"sqlite:///{tmp_path}/porto.db", city="porto", gossip={**gossip}))
    lisbon = {"database": {"replicas": True}, "gossip": {"peers": [porto.url], **gossip}}
    first, second = (RunningCity(settings_for(postgres_url, **copy.deepcopy(lisbon))) for _ in range(2))

    def statuses(city: RunningCity) -> dict[str, str]:
        return {peer["origin"] or peer["address"]: peer["status"] for peer in city.state()["peers"]}

    try:
        teach(porto, 5)
        until(lambda: statuses(first) == {"porto": "fresh"})
        until(lambda: "porto" in statuses(second))
        assert statuses(second) | {"porto": ""} == {"porto": "", porto.url: "not called"}
        assert statuses(second)["porto"] in ("fresh", "relayed")
        assert f'peer="{porto.url}",status="not called"}} 1.0' in second.http.get("/metrics").text
        first.stop()
        until(lambda: statuses(second) == {"porto": "fresh"})
        porto.stop()
        until(lambda: statuses(second) == {"porto": "silent"})
    finally:
        for city in (first, second, porto):
            city.stop()


def test_a_database_that_hangs_during_a_look_refuses_callers_only_meanwhile(postgres_url: str) -> None:
    """Another program locks the row that every look reads; callers wait less long than a look may take."""
    sections = {"database": {"timeout_seconds": 1.0, "replicas": True}, "limits": {"max_wait_seconds": 0.2}}
    city = RunningCity(settings_for(postgres_url, **sections))
    engine = sa.create_engine(postgres_url)
    try:
        with engine.begin() as connection:
            connection.execute(sa.text("LOCK TABLE shared_log IN ACCESS EXCLUSIVE MODE"))
            until(lambda: city.http.post("/price", json=CONTEXT).status_code == 503)
        until(lambda: city.http.post("/price", json=CONTEXT).status_code == 200)
    finally:
        engine.dispose()
        city.stop()


def test_waiting_for_a_look_starts_no_second_round_of_looks() -> None:
    async def count_looks() -> int:
        following = Following(lambda: None, lambda: None)
        for _ in range(5):
            waiter = asyncio.ensure_future(following.wait())
            await asyncio.sleep(0)
            following.finish(following.take(), None)
            await waiter
        return sum(not handle.cancelled() for handle in asyncio.get_running_loop()._scheduled)  # type: ignore[attr-defined]

    assert asyncio.run(count_looks()) == 1
