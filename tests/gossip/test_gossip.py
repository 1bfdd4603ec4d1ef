"""Cities that gossip over real HTTP, driven tick by tick."""

import shutil
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from pricemesh.core.policies import Shape, make_policy
from pricemesh.core.summary import Summary
from pricemesh.errors import NotStarted, StorageUnavailable
from pricemesh.gossip.letter import Letter, Seal
from pricemesh.gossip.message import Message
from pricemesh.lab.mesh import Conduct, Mesh
from pricemesh.lab.worlds import Linear
from pricemesh.serving.app import create_app
from pricemesh.store.backup import back_up
from tests.gossip.over_http import (
    NAMES,
    SECRETS,
    Start,
    context,
    letters_of,
    teach,
    tick,
)
from tests.running import RunningCity, settings_for

# The system is the algorithm


@pytest.mark.parametrize(
    "policy",
    [
        *({"name": name} for name in ("netpool", "netlinucb", "netsgducb", "disjoint")),
        *({"name": name, "exploration": "thompson"} for name in ("netpool", "netlinucb")),
    ],
    ids=lambda policy: "-".join(policy.values()),
)
@pytest.mark.parametrize("news", [1.0, 2.5], ids=["every change", "news"])
@pytest.mark.parametrize(
    ("cities", "rounds"), [(3, 60), pytest.param(6, 300, marks=pytest.mark.slow)], ids=["short", "whole"]
)
def test_services_over_http_decide_as_the_mesh_in_one_process(
    start_cities: Start, policy: dict[str, str], cities: int, rounds: int, news: float
) -> None:
    """Every decision of every city in every round, on the same seed; radii and propensities too."""
    world = Linear(cities=cities, arms=4, shared=5, local=2)
    names = [f"city{i}" for i in range(cities)]
    services = start_cities(
        *names,
        arms={"prices": [1.0, 2.0, 3.0, 4.0]},
        features={"shared": [f"c{i}" for i in range(5)], "local": ["s0", "s1"]},
        policy={**policy, "seed": 11},
        gossip={"secrets": SECRETS, "news": news},
    )
    mesh = Mesh(world, make_policy(**policy), [11], Conduct(news=news))
    for step, now in zip(mesh.play(rounds), world.instance([11]).rounds(), strict=False):
        tick(services)
        for i, city in enumerate(services):
            x = now.context[0, i].tolist()
            asked = {
                "shared": {f"c{j}": x[j] for j in range(5)},
                "local": {"s0": x[5], "s1": x[6]},
                "decision_id": f"round{step.round}",
            }
            answer = city.http.post("/price", json=asked).json()
            assert answer["arm"] == step.arm[0, i], (step.round, i)
            assert answer["radius"] == pytest.approx(step.radius[0, i], rel=1e-9)
            assert answer["propensity"] == pytest.approx(step.propensity[0, i], abs=1e-9)
        for i, city in enumerate(services):
            given = city.feedback(f"round{step.round}", float(step.reward[0, i]))
            assert given.status_code == 200, given.text


# What is held


def test_after_one_tick_of_each_all_cities_hold_the_same_bits(start_cities: Start) -> None:
    cities = start_cities(gossip={"secrets": SECRETS})
    for lessons, city in enumerate(cities, 1):
        teach(city, 10 * lessons)
    tick(cities)
    assert [set(letters_of(city)) for city in cities] == [set(NAMES)] * 3
    assert letters_of(cities[0]) == letters_of(cities[1]) == letters_of(cities[2])
    assert {peer["version"] for peer in cities[0].state()["peers"]} == {20, 30}
    for city in cities:
        assert {peer["status"] for peer in city.state()["peers"]} == {"fresh"}
    tick(cities)
    quiet = cities[0].app.gossip.counts.copy()
    cities[0].tick()
    spent = cities[0].app.gossip.counts - quiet
    assert spent["bytes", "out"] == 2 * (4 + 16 + 1 + 5)  # two peers; magic, state and an array with one name
    assert spent["bytes", "in"] == 0


@pytest.mark.parametrize("policy", ["netpool", "netlinucb", "netsgducb"])
def test_what_each_peer_told_adds_up_to_the_decision(start_cities: Start, policy: str) -> None:
    cities = start_cities(policy={"name": policy})
    for city in cities:
        teach(city, 40)
    for _ in range(3):
        tick(cities)
    faro = cities[0]
    rng = Random(5)
    asked = {"requests": [context(rng) for _ in range(20)]}
    then = deepcopy(faro.pricing.learner)  # the decisions narrow the radius of later ones
    for made in faro.http.post("/price/batch", json=asked).json()["decisions"]:
        record = faro.http.get(f"/decisions/{made['decision_id']}").json()
        told = record["contributions"]
        assert [each["origin"] for each in told] == list(NAMES)
        assert sum(each["estimate"] for each in told) == pytest.approx(made["estimate"], abs=1e-9)
        assert sum(each["radius"] for each in told) == pytest.approx(made["radius"], abs=1e-9)
        x = np.array([*record["context"]["shared"].values(), *record["context"]["local"].values()])
        estimate, radius = then.contributions(x[None], np.array([made["arm"]]))
        np.testing.assert_allclose([each["estimate"] for each in told[1:]], estimate[0], atol=1e-9)
        np.testing.assert_allclose([each["radius"] for each in told[1:]], radius[0], atol=1e-9)
        assert abs(told[1]["estimate"]) > 0
    listed = faro.http.get("/decisions").json()["decisions"][0]
    assert [each["origin"] for each in listed["contributions"]] == list(NAMES)
    weights = faro.peers()["porto"]["weights"]
    assert len(weights) == 5
    assert all(0 < weight <= 1 for weight in weights)


def test_a_dropped_city_is_subtracted_exactly_and_not_heard_again(start_cities: Start) -> None:
    cities = start_cities()
    faro, lisbon, _ = cities
    for city in cities:
        teach(city, 30)
    tick([faro, lisbon])
    spared = make_policy("netpool").learner(Shape(5, 3, 2))
    for lessons in faro.pricing.database.lessons(0):
        for lesson in lessons:
            spared.learn(np.frombuffer(lesson.vectors, count=5), lesson.arm, lesson.reward)
    letters = faro.app.gossip.node.letters
    spared.absorb_summaries("faro", {name: letters[name].summary for name in ("faro", "lisbon")})
    x = np.ones(5)
    assert faro.pricing.learner.score(x).radius.tolist() != spared.score(x).radius.tolist()
    answer = faro.http.delete("/peers/porto")
    assert answer.status_code == 200, answer.text
    assert {peer["origin"]: peer["status"] for peer in answer.json()["peers"]}["porto"] == "dropped"
    np.testing.assert_array_equal(faro.pricing.learner.score(x), spared.score(x))
    tick(cities)  # lisbon would relay it, porto itself calls
    assert "porto" not in faro.app.gossip.node.letters
    np.testing.assert_array_equal(faro.pricing.learner.score(x), spared.score(x))
    assert faro.http.delete("/peers/faro").status_code == 404
    assert faro.http.delete("/peers/liar").status_code == 200  # before it was ever heard
    assert faro.peers()["liar"]["status"] == "dropped"
    assert faro.http.post("/peers/porto/readmit").status_code == 200
    tick(cities)
    assert faro.app.gossip.node.letters["porto"].edition == (1, 30)
    assert faro.http.post("/peers/porto/readmit").status_code == 404


@pytest.mark.parametrize("policy", ["netpool", "netlinucb", "netsgducb"])
def test_a_restart_goes_on_as_if_nothing_had_happened(start_cities: Start, policy: str) -> None:
    cities = start_cities(policy={"name": policy})
    for round_ in range(3):
        for city in cities:
            teach(city, 15, seed=round_)
        tick(cities)
    faro = cities[0]
    teach(faro, 5, seed=9)  # learned after the tick
    if policy == "netpool":
        faro.tick("absorb")  # a restart judges peers by all that is known now
    x = np.linspace(0.1, 0.9, 5)
    before, known = faro.pricing.learner.score(x), letters_of(faro)
    faro.stop()
    again = RunningCity(faro.pricing.settings)
    try:
        np.testing.assert_allclose(again.pricing.learner.score(x), before, atol=1e-9)
        now = letters_of(again)
        own, told = Letter.read(now.pop("faro")), Letter.read(known.pop("faro"))
        assert now == known
        assert own.edition >= told.edition
        assert own.summary.epoch == 1
    finally:
        again.stop()


def test_a_city_restored_from_a_backup_comes_back_under_a_new_epoch(
    start_cities: Start, tmp_path: Path
) -> None:
    cities = start_cities()
    faro, lisbon, porto = cities
    teach(faro, 20)
    tick(cities)
    back_up(f"sqlite:///{tmp_path}/faro.db", "faro", tmp_path / "backup.db")
    teach(faro, 30, seed=1)
    tick(cities)
    assert lisbon.app.gossip.node.letters["faro"].edition == (1, 50)
    faro.stop()
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"faro.db{end}").unlink(missing_ok=True)
    shutil.move(tmp_path / "backup.db", tmp_path / "faro.db")
    restored = RunningCity(faro.pricing.settings, port=int(faro.url.rpartition(":")[2]))
    try:
        assert restored.state()["version"] == 20
        tick([restored, lisbon, porto])
        tick([restored, lisbon, porto])
        for city in (restored, lisbon, porto):
            assert city.app.gossip.node.letters["faro"].edition == (2, 20)
        teach(restored, 1, seed=2)
        tick([restored, lisbon, porto])
        assert porto.app.gossip.node.letters["faro"].edition == (2, 21)
        assert porto.peers()["faro"]["status"] == "fresh"
    finally:
        restored.stop()


def test_another_policy_is_told_under_a_new_epoch(start_cities: Start) -> None:
    (faro,) = start_cities("faro")
    teach(faro, 10)
    faro.app.gossip.book.add(["http://127.0.0.1:9"], is_configured=True)
    faro.tick()
    faro.stop()
    settings = faro.pricing.settings.model_copy(
        update={"policy": type(faro.pricing.settings.policy)(name="netlinucb")}
    )
    again = RunningCity(settings)
    try:
        assert again.app.gossip.node.letters["faro"].edition == (2, 10)
    finally:
        again.stop()


def test_ones_own_full_disk_is_not_the_peers_fault(
    start_cities: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cities = faro, lisbon = start_cities("faro", "lisbon")
    tick(cities)
    teach(lisbon, 5)

    def full(*_: Any) -> Any:
        raise StorageUnavailable("disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(faro.pricing.database, "commit", full)
        faro.tick("exchange")
    assert faro.peers()["lisbon"]["status"] == "fresh"
    assert faro.app.gossip.book.peers[lisbon.url].misses == 0
    for _ in range(9):
        tick([faro, lisbon])
    assert faro.app.gossip.node.letters["lisbon"].edition == (1, 5)


def test_what_was_learned_under_a_new_epoch_counts_though_it_is_as_much(start_cities: Start) -> None:
    (faro,) = start_cities("faro", gossip={"lockstep": False, "interval_seconds": 1000.0})
    gossip = faro.app.gossip
    seal = Seal(b"porto".ljust(32, b"."))
    for epoch in (1, 2):
        other = make_policy("netpool").learner(Shape(5, 3, 2))
        other.learn(np.full(5, 0.1 * epoch), 0, 1.0)
        summary = Summary.of("porto", epoch, 1, gossip.node.fingerprint, other.numbers())
        letters = (seal.close(summary).wire,)
        message = Message("porto", gossip.node.fingerprint, {}, letters=letters, state=bytes(16))
        assert faro.http.post("/gossip", content=message.to_bytes()).status_code == 200
        assert faro.http.post("/admin/tick", json={"phase": "absorb"}).json()["absorbed"] is True


def test_settings_that_cannot_work_are_refused_at_the_start(tmp_path: Path) -> None:
    big = settings_for(
        f"sqlite:///{tmp_path}/big.db",
        arms={"prices": [float(k) for k in range(1, 51)]},
        features={"shared": [f"c{i}" for i in range(150)], "local": []},
    )
    app = create_app(big)
    app.pricing.open()
    with pytest.raises(NotStarted, match=r"limits\.body_bytes"):
        app.gossip.open()
    app.pricing.database.close()
    with pytest.raises(ValidationError, match="same id"):
        settings_for("sqlite:///x.db", gossip={"secrets": ["k1:" + "a" * 40, "k1:" + "b" * 40]})
