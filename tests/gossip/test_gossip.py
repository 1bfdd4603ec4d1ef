"""Cities that gossip over real HTTP, driven tick by tick."""

import http.server
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import ValidationError

from pricemesh.core.policies import Shape, make_policy
from pricemesh.core.summary import Summary
from pricemesh.errors import NotStarted, StorageUnavailable
from pricemesh.gossip.envelope import Message
from pricemesh.gossip.letters import Leave, Letter, Seal
from pricemesh.gossip.signing import HEADER, Keyring
from pricemesh.lab.demo import free_ports
from pricemesh.lab.mesh import Mesh
from pricemesh.lab.worlds import Linear
from pricemesh.serving.app import create_app
from tests.running import RunningCity, settings_for, start_mesh

SECRETS = ("k1:" + "s" * 40,)
NAMES = ("faro", "lisbon", "porto")

Start = Callable[..., list[RunningCity]]


@pytest.fixture
def start_cities(tmp_path: Path) -> Iterator[Start]:
    running: list[RunningCity] = []

    def start(*names: str, **sections: Any) -> list[RunningCity]:
        started = start_mesh(tmp_path, names or NAMES, **sections)
        running.extend(started)
        return started

    yield start
    for city in running:
        city.stop()


def context(rng: Random) -> dict[str, dict[str, float]]:
    return {
        "shared": {"demand": rng.random(), "rain": rng.random(), "event": rng.random()},
        "local": {"tourists": rng.random(), "strike": rng.random()},
    }


def teach(city: RunningCity, lessons: int, seed: int = 0) -> None:
    rng = Random(f"{city.pricing.settings.city}-{seed}")
    for start in range(0, lessons, 5):
        asked = {"requests": [context(rng) for _ in range(min(5, lessons - start))]}
        made = city.http.post("/price/batch", json=asked).json()["decisions"]
        items = [{"decision_id": each["decision_id"], "reward": rng.gauss(each["arm"], 0.3)} for each in made]
        assert city.http.post("/feedback/batch", json={"items": items}).status_code == 200


def tick(cities: list[RunningCity]) -> None:
    for phase in ("exchange", "absorb"):
        for city in cities:
            city.tick(phase)


def held(city: RunningCity) -> dict[str, bytes]:
    return {origin: letter.wire for origin, letter in city.app.gossip.node.held.items()}


# The system is the algorithm


@pytest.mark.parametrize("policy", ["netpool", "netlinucb", "netsgducb", "disjoint"])
@pytest.mark.parametrize(
    ("cities", "rounds"), [(3, 60), pytest.param(6, 300, marks=pytest.mark.slow)], ids=["short", "whole"]
)
def test_services_over_http_decide_as_the_mesh_in_one_process(
    start_cities: Start, policy: str, cities: int, rounds: int
) -> None:
    """Every decision of every city in every round, on the same seed; radii too."""
    world = Linear(cities=cities, arms=4, shared=5, local=2)
    names = [f"city{i}" for i in range(cities)]
    services = start_cities(
        *names,
        arms={"prices": [1.0, 2.0, 3.0, 4.0]},
        features={"shared": [f"c{i}" for i in range(5)], "local": ["s0", "s1"]},
        policy={"name": policy},
        gossip={"secrets": SECRETS},
    )
    mesh = Mesh(world, make_policy(policy), [11])
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
        for i, city in enumerate(services):
            given = city.feedback(f"round{step.round}", float(step.reward[0, i]))
            assert given.status_code == 200, given.text


# What is held


def test_after_one_tick_of_each_all_cities_hold_the_same_bits(start_cities: Start) -> None:
    cities = start_cities(gossip={"secrets": SECRETS})
    for lessons, city in enumerate(cities, 1):
        teach(city, 10 * lessons)
    tick(cities)
    assert [set(held(city)) for city in cities] == [set(NAMES)] * 3
    assert held(cities[0]) == held(cities[1]) == held(cities[2])
    assert {peer["version"] for peer in cities[0].state()["peers"]} == {20, 30}
    for city in cities:
        assert {peer["status"] for peer in city.state()["peers"]} == {"fresh"}
    tick(cities)
    quiet = cities[0].app.gossip.counts.copy()
    cities[0].tick()
    spent = cities[0].app.gossip.counts - quiet
    assert spent["bytes", "out"] == 2 * (4 + 1 + 5 + 16)  # two peers, a state each
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
    for made in faro.http.post("/price/batch", json=asked).json()["decisions"]:
        record = faro.http.get(f"/decisions/{made['decision_id']}").json()
        told = record["contributions"]
        assert [each["origin"] for each in told] == list(NAMES)
        assert sum(each["estimate"] for each in told) == pytest.approx(made["estimate"], abs=1e-9)
        assert sum(each["radius"] for each in told) == pytest.approx(made["radius"], abs=1e-9)
        x = np.array([*record["context"]["shared"].values(), *record["context"]["local"].values()])
        estimate, radius = faro.pricing.learner.contributions(x[None], np.array([made["arm"]]))
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
    spared.absorb_summaries("faro", {"lisbon": lisbon.app.gossip.node.held["lisbon"].summary})
    x = np.ones(5)
    assert faro.pricing.learner.score(x).radius.tolist() != spared.score(x).radius.tolist()
    answer = faro.http.delete("/peers/porto")
    assert answer.status_code == 200, answer.text
    assert {peer["origin"]: peer["status"] for peer in answer.json()["peers"]}["porto"] == "dropped"
    np.testing.assert_array_equal(faro.pricing.learner.score(x), spared.score(x))
    tick(cities)  # lisbon would relay it, porto itself calls
    assert "porto" not in faro.app.gossip.node.held
    np.testing.assert_array_equal(faro.pricing.learner.score(x), spared.score(x))
    assert faro.http.delete("/peers/faro").status_code == 404
    assert faro.http.delete("/peers/liar").status_code == 200  # before it was ever heard
    assert faro.peers()["liar"]["status"] == "dropped"
    assert faro.http.post("/peers/porto/readmit").status_code == 200
    tick(cities)
    assert faro.app.gossip.node.held["porto"].edition == (1, 30)
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
    before, known = faro.pricing.learner.score(x), held(faro)
    faro.stop()
    again = RunningCity(faro.pricing.settings)
    try:
        np.testing.assert_allclose(again.pricing.learner.score(x), before, atol=1e-9)
        now = held(again)
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
    with sqlite3.connect(tmp_path / "faro.db") as source, sqlite3.connect(tmp_path / "backup.db") as copy:
        source.backup(copy)
    teach(faro, 30, seed=1)
    tick(cities)
    assert lisbon.app.gossip.node.held["faro"].edition == (1, 50)
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
            assert city.app.gossip.node.held["faro"].edition == (2, 20)
        teach(restored, 1, seed=2)
        tick([restored, lisbon, porto])
        assert porto.app.gossip.node.held["faro"].edition == (2, 21)
        assert porto.peers()["faro"]["status"] == "fresh"
    finally:
        restored.stop()


def test_another_policy_is_told_under_a_new_epoch(start_cities: Start) -> None:
    (faro,) = start_cities("faro")
    teach(faro, 10)
    faro.app.gossip.book.add(["http://127.0.0.1:9"], configured=True)
    faro.tick()
    faro.stop()
    settings = faro.pricing.settings.model_copy(
        update={"policy": type(faro.pricing.settings.policy)(name="netlinucb")}
    )
    again = RunningCity(settings)
    try:
        assert again.app.gossip.node.held["faro"].edition == (2, 10)
    finally:
        again.stop()


# Who is there


def test_one_address_is_enough_to_find_everyone(tmp_path: Path) -> None:
    ports = free_ports(4)
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    cities = []
    for i, (port, own) in enumerate(zip(ports, addresses, strict=True)):
        gossip = {
            "lockstep": True,
            "discover": True,
            "address": own,
            "peers": addresses[:1] if i else [],
            "secrets": SECRETS,
        }
        settings = settings_for(f"sqlite:///{tmp_path}/city{i}.db", city=f"city{i}", gossip=gossip)
        cities.append(RunningCity(settings, port))
    try:
        for _ in range(3):
            tick(cities)
        for city, own in zip(cities, addresses, strict=True):
            assert set(city.app.gossip.book.peers) == set(addresses) - {own}
            assert {peer["status"] for peer in city.state()["peers"]} == {"fresh"}
        cities[3].stop()
        again = RunningCity(cities[3].pricing.settings, ports[3])
        assert set(again.app.gossip.book.peers) == set(addresses[:3])
        again.stop()
    finally:
        for city in cities:
            city.stop()


def test_an_address_comes_only_from_configuration_or_a_signed_peer(start_cities: Start) -> None:
    """Nobody can make a city call an address of their choice."""
    (faro,) = start_cities("faro", gossip={"discover": True, "secrets": SECRETS})
    elsewhere = ("http://10.0.0.1:80", ("http://10.0.0.2", "ftp://x", "http://u@127.0.0.1"))

    def message(city: RunningCity) -> bytes:
        return Message("evil", bytes(16), city.app.gossip.node.fingerprint, {}, *elsewhere).to_bytes()

    forged = Keyring(["k1:" + "t" * 40]).sign(message(faro), faro.app.gossip._clock())
    for headers in ({}, {HEADER: "k1.1.2.3"}, {HEADER: forged}):
        assert faro.http.post("/gossip", content=message(faro), headers=headers).status_code == 401
    assert faro.app.gossip.book.peers == {}
    (lonely,) = start_cities("lonely", gossip={"discover": True})  # unsigned: this machine only
    assert lonely.http.post("/gossip", content=message(lonely)).status_code == 200
    assert lonely.app.gossip.book.peers == {}
    (settled,) = start_cities("settled", gossip={"secrets": SECRETS})  # does not discover
    signed = {HEADER: Keyring(SECRETS).sign(message(settled), settled.app.gossip._clock())}
    assert settled.http.post("/gossip", content=message(settled), headers=signed).status_code == 200
    assert settled.app.gossip.book.peers == {}
    again = settled.http.post("/gossip", content=message(settled), headers=signed)
    assert (again.status_code, "heard before" in again.text) == (401, True)


def test_a_city_that_leaves_is_not_called_and_keeps_counting(start_cities: Start) -> None:
    cities = start_cities()
    faro, lisbon, porto = cities
    teach(faro, 20)
    tick(cities)
    teach(faro, 5, seed=1)
    assert faro.http.post("/admin/leave").json() == {"told": 2}
    assert [city.peers()["faro"]["status"] for city in (lisbon, porto)] == ["left", "left"]
    assert lisbon.peers()["faro"]["version"] == 25  # its last word is heard
    faro.stop()
    for _ in range(4):
        tick([lisbon, porto])
    assert lisbon.peers()["faro"]["status"] == "left"
    assert "faro" in lisbon.pricing.learner.attribution.origins


def test_a_silent_city_is_marked_after_three_missed_ticks_and_keeps_counting(start_cities: Start) -> None:
    cities = start_cities()
    faro, lisbon, porto = cities
    teach(faro, 20)
    tick(cities)
    faro.stop()
    seen = []
    for _ in range(5):
        tick([lisbon, porto])
        seen.append(lisbon.peers()["faro"]["status"])
    assert seen == ["fresh", "fresh", "silent", "silent", "silent"]
    assert lisbon.peers()["faro"]["reason"]
    assert lisbon.pricing.learner.attribution.origins == ("faro", "porto")
    again = RunningCity(faro.pricing.settings, port=int(faro.url.rpartition(":")[2]))
    tick([lisbon, porto])
    tick([lisbon, porto])
    assert lisbon.peers()["faro"]["status"] == "fresh"
    again.stop()


def test_cities_of_different_groups_or_arms_do_not_mix(start_cities: Start) -> None:
    (faro,) = start_cities("faro")
    for other in (
        {"gossip": {"group": "iberia"}},
        {"arms": {"prices": [1.0, 2.0, 3.0, 4.0, 5.0]}},
        {"policy": {"name": "netlinucb"}},
        {"policy": {"name": "netpool", "ridge": 2.0}},
        {"features": {"shared": ["demand", "rain", "event"], "local": ["tourists", "strike"]}},
    ):
        sections = {**other, "gossip": {"peers": [faro.url], **other.get("gossip", {})}}
        (city,) = start_cities(f"other{len(str(other))}", **sections)
        teach(city, 5)
        city.tick()
        assert set(faro.app.gossip.node.held) == {"faro"}
        (peer,) = city.state()["peers"]
        assert "409" in peer["reason"]
        assert "yours differs" in peer["reason"]


def test_two_cities_of_one_name_notice(start_cities: Start, tmp_path: Path) -> None:
    (faro,) = start_cities("faro")
    (tmp_path / "other").mkdir()
    (twin,) = start_mesh(tmp_path / "other", ["faro"], gossip={"peers": [faro.url]})
    twin.tick()
    assert "two cities are called faro" in twin.state()["peers"][0]["reason"]
    twin.stop()


# Lies


def liar_letter(city: RunningCity, origin: str, version: int, numbers: Any, *, epoch: int = 1) -> bytes:
    summary = Summary.of(origin, epoch, version, city.app.gossip.node.fingerprint, numbers)
    return Seal(b"liar".ljust(32, b".")).close(summary).wire


def tell(city: RunningCity, *letters: bytes, secrets: tuple[str, ...] = SECRETS) -> httpx.Response:
    message = Message("liar", bytes(16), city.app.gossip.node.fingerprint, {}, letters=letters)
    body = message.to_bytes()
    signed = {HEADER: Keyring(secrets).sign(body, city.app.gossip._clock())}
    return city.http.post("/gossip", content=body, headers=signed)


def test_lies_are_refused_named_and_cost_nothing(start_cities: Start) -> None:
    """What one lying city of the mesh can send, in turn."""
    cities = start_cities("faro", "porto", gossip={"secrets": SECRETS})
    faro, porto = cities
    for city in cities:
        teach(city, 20)
    tick(cities)
    x = np.linspace(0, 1, 5)
    before = faro.pricing.learner.score(x)
    true = porto.app.gossip.node.held["porto"].summary.numbers
    arms, c = 5, 3
    half = arms * c * (c + 1) // 2

    def spoiled(start: int, end: int, factor: float) -> np.ndarray:
        numbers = true.copy()
        numbers[start:end] *= factor
        return numbers

    lies = {
        "not finite": spoiled(0, 1, np.nan),
        "not positive semi-definite": spoiled(0, half, -1.0),
        "counts add up": spoiled(true.size - 2 * arms, true.size - arms, 1000.0),
        "more information": spoiled(0, half, 1e12),
        "numbers": true[:-1],
    }
    for reason, numbers in lies.items():
        assert tell(faro, liar_letter(faro, "liar", 20, numbers)).status_code == 200
        assert reason in faro.peers()["liar"]["reason"], faro.peers()["liar"]
        assert faro.peers()["liar"]["status"] == "quarantined"
    # Another city's origin, newer than any it has told itself: the seal is not that city's.
    assert tell(faro, liar_letter(faro, "porto", 20, true, epoch=9)).status_code == 200
    assert "another key" in faro.peers()["liar"]["reason"]  # who brought it is to blame
    assert faro.peers()["porto"]["status"] == "fresh"
    assert faro.app.gossip.node.held["porto"].edition == (1, 20)
    # An old version of another city, faithfully relayed, changes nothing.
    assert tell(faro, porto.app.gossip.node.held["porto"].wire).status_code == 200
    assert tell(faro, liar_letter(faro, "faro", 99, true)).status_code == 200  # in this city's own name
    # Not even a letter.
    assert tell(faro, b'{"json": "of the wrong shape"}').status_code == 200
    for body, status in ((b'{"digest": []}', 422), (b"", 422), (bytes(50_000_000), 413)):
        signed = {HEADER: Keyring(SECRETS).sign(body, faro.app.gossip._clock())}
        assert faro.http.post("/gossip", content=body, headers=signed).status_code == status
    assert tell(faro, secrets=("k1:" + "x" * 40,)).status_code == 401
    faro.tick("absorb")
    np.testing.assert_array_equal(faro.pricing.learner.score(x), before)
    text = faro.http.get("/metrics").text
    assert 'pricemesh_peer_status{city="faro",peer="liar",status="quarantined"} 1.0' in text
    assert 'pricemesh_gossip_letters_total{city="faro",outcome="refused"}' in text
    # Honest again: out of quarantine at once.
    assert tell(faro, liar_letter(faro, "liar", 20, true)).status_code == 200
    assert faro.peers()["liar"]["status"] == "fresh"


def test_a_city_that_talks_too_fast_is_told_to_slow_down(start_cities: Start) -> None:
    (faro,) = start_cities("faro", gossip={"secrets": SECRETS, "rate_per_second": 5})
    statuses = [tell(faro).status_code for _ in range(12)]
    assert statuses[:5] == [200] * 5
    assert 429 in statuses


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense", b"x" * 50_000_000], ids=["empty", "nonsense", "endless"]
)
def test_a_peer_that_answers_nonsense_costs_nobody_else(
    start_cities: Start, answer: bytes, serve_bytes: Callable[[bytes], str]
) -> None:
    cities = start_cities(gossip={"timeout_seconds": 1.0})
    liar = serve_bytes(answer)
    for city in cities:
        city.app.gossip.book.add([liar], configured=True)
        teach(city, 10)
    tick(cities)
    for city in cities:
        assert set(held(city)) == set(NAMES)
        assert city.price()["price"] > 0
        (bad,) = [peer for peer in city.state()["peers"] if peer["address"] == liar]
        assert bad["reason"]
        assert city.app.gossip.book.peers[liar].misses == 1


@pytest.fixture
def serve_bytes() -> Iterator[Callable[[bytes], str]]:
    """A server that answers everything with the same bytes."""
    servers = []

    def serve(answer: bytes) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


POISON = {
    "netpool": {"response": 1e160, "noise": 1e300},
    "netlinucb": {"theta": 1e308},
    "netsgducb": {"theta": 1e308, "accumulator": 5e-324},
}


@pytest.mark.parametrize(("policy", "field"), [(name, field) for name in POISON for field in POISON[name]])
def test_no_letter_can_make_a_price_fail(start_cities: Start, policy: str, field: str) -> None:
    """Numbers that are finite, and would not be once they are squared or added up."""
    cities = start_cities("faro", "porto", policy={"name": policy}, gossip={"secrets": SECRETS})
    faro, porto = cities
    for city in cities:
        teach(city, 20)
    tick(cities)
    layout = faro.pricing.learner.layout
    parts = layout.unpack(porto.app.gossip.node.held["porto"].summary.numbers.copy())
    parts[field] = np.full_like(parts[field], POISON[policy][field])
    assert tell(faro, liar_letter(faro, "liar", 20, layout.pack(parts))).status_code == 200
    assert faro.peers()["liar"]["status"] == "quarantined"
    tick(cities)
    assert np.isfinite(faro.price()["radius"])


def test_a_quiet_city_that_nobody_calls_still_hears_all(tmp_path: Path) -> None:
    """A hub that calls nobody, and two that call it: what one learns reaches the other."""
    port = free_ports(1)[0]
    hub, *spokes = cities = [
        RunningCity(
            settings_for(
                f"sqlite:///{tmp_path}/{name}.db",
                city=name,
                gossip={"lockstep": True, "peers": [] if name == "hub" else [f"http://127.0.0.1:{port}"]},
            ),
            port if name == "hub" else 0,
        )
        for name in ("hub", "left", "right")
    ]
    try:
        for _ in range(3):
            tick(cities)
        teach(spokes[0], 10)
        teach(hub, 5)
        for _ in range(2):
            tick(cities)
        assert spokes[1].app.gossip.node.held["left"].edition == (1, 10)
        assert spokes[1].app.gossip.node.held["hub"].edition == (1, 5)
        assert held(hub) == held(spokes[0]) == held(spokes[1])
    finally:
        for city in cities:
            city.stop()


def test_cities_that_are_not_admitted_any_more_are_forgotten_at_the_start(start_cities: Start) -> None:
    cities = start_cities()
    for city in cities:
        teach(city, 5)
    tick(cities)
    faro = cities[0]
    faro.stop()
    gossip = faro.pricing.settings.gossip.model_copy(update={"cities": ("faro", "lisbon")})
    again = RunningCity(faro.pricing.settings.model_copy(update={"gossip": gossip}))
    assert set(held(again)) == {"faro", "lisbon"}
    assert again.pricing.learner.attribution.origins == ("lisbon",)
    again.stop()


def test_a_letter_that_is_not_taken_is_not_sent_again_and_again(start_cities: Start) -> None:
    lisbon, porto = start_cities("lisbon", "porto")
    (faro,) = start_cities("faro", gossip={"peers": [lisbon.url], "cities": ["lisbon"]})
    for city in (lisbon, porto, faro):
        teach(city, 5)
    for _ in range(4):
        tick([lisbon, porto, faro])
    assert "porto" in lisbon.app.gossip.node.held
    assert "porto" not in faro.app.gossip.node.held
    assert faro.app.gossip.counts["letters", "refused"] == 1


def test_a_city_set_up_anew_is_heard_once_its_key_is_trusted(start_cities: Start, tmp_path: Path) -> None:
    cities = start_cities()
    faro, lisbon, porto = cities
    for city in cities:
        teach(city, 10)
    tick(cities)
    port = int(porto.url.rpartition(":")[2])
    porto.stop()
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"porto.db{end}").unlink(missing_ok=True)
    anew = RunningCity(porto.pricing.settings, port)
    try:
        teach(anew, 3)
        tick([faro, lisbon, anew])
        assert faro.peers()["porto"]["status"] == "quarantined"
        assert "/peers/porto/trust" in faro.peers()["porto"]["reason"]
        assert faro.app.gossip.node.held["porto"].edition == (1, 10)
        key = anew.http.get("/state").json()["gossip"]["key"]
        for city in (faro, lisbon):
            assert city.http.post("/peers/porto/trust", json={"key": key}).status_code == 200
        assert faro.http.post("/peers/porto/trust", json={"key": "short"}).status_code == 422
        for _ in range(2):
            tick([faro, lisbon, anew])
        assert faro.app.gossip.node.held["porto"].edition == (1, 3)
        assert held(faro) == held(lisbon) == held(anew)
    finally:
        anew.stop()


def test_nobody_can_send_another_city_away(start_cities: Start) -> None:
    faro, lisbon, _ = cities = start_cities(gossip={"secrets": SECRETS})
    tick(cities)
    seal = Seal(b"liar".ljust(32, b"."))
    leave = Leave.sign(seal, "lisbon", time.time())
    message = Message("lisbon", bytes(16), faro.app.gossip.node.fingerprint, {}, leave=leave).to_bytes()
    signed = {HEADER: Keyring(SECRETS).sign(message, time.time())}
    assert faro.http.post("/gossip", content=message, headers=signed).status_code == 200
    assert faro.peers()["lisbon"]["status"] == "fresh"
    assert lisbon.http.post("/admin/leave").json() == {"told": 2}
    faro.tick()  # asks nobody who has left
    assert faro.peers()["lisbon"]["status"] == "left"
    lisbon.stop()
    again = RunningCity(lisbon.pricing.settings, int(lisbon.url.rpartition(":")[2]))
    try:
        assert again.http.get("/state").json()["gossip"]["left"] is True  # across a restart
        tick([again])
        assert faro.peers()["lisbon"]["status"] == "left"
        assert again.http.delete("/admin/leave").status_code == 200
        tick([again])
        assert faro.peers()["lisbon"]["status"] == "fresh"
    finally:
        again.stop()


@pytest.mark.parametrize("kind", ["digest", "letters", "book"])
def test_a_message_without_end_is_not_heard_to_the_end(start_cities: Start, kind: str) -> None:
    (faro,) = start_cities("faro")
    message = Message("liar", bytes(16), faro.app.gossip.node.fingerprint, {})
    if kind == "digest":
        message = replace(message, digest={f"c{i}": (1, 1) for i in range(2000)})
    elif kind == "letters":
        message = replace(message, letters=(b"",) * 2000)
    else:
        message = replace(message, book=("http://x",) * 2000)
    answer = faro.http.post("/gossip", content=message.to_bytes())
    assert answer.status_code == 422
    assert "528" in answer.text
    few = replace(message, digest={}, book=(), letters=(b"",) * 500)
    assert faro.http.post("/gossip", content=few.to_bytes()).status_code == 200
    assert faro.app.gossip.counts["letters", "refused"] == 8


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
    assert faro.app.gossip.node.held["lisbon"].edition == (1, 5)


def test_what_was_learned_under_a_new_epoch_counts_though_it_is_as_much(start_cities: Start) -> None:
    (faro,) = start_cities("faro", gossip={"lockstep": False, "interval_seconds": 1000.0})
    gossip = faro.app.gossip
    seal = Seal(b"porto".ljust(32, b"."))
    for epoch in (1, 2):
        other = make_policy("netpool").learner(Shape(5, 3, 2))
        other.learn(np.full(5, 0.1 * epoch), 0, 1.0)
        summary = Summary.of("porto", epoch, 1, gossip.node.fingerprint, other.numbers())
        letters = (seal.close(summary).wire,)
        message = Message("porto", bytes(16), gossip.node.fingerprint, {}, letters=letters)
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


def test_a_peer_cannot_send_a_city_to_where_machines_keep_their_secrets(start_cities: Start) -> None:
    (faro,) = start_cities("faro", gossip={"discover": True, "secrets": SECRETS})
    book = ("http://169.254.169.254", "http://0.0.0.0:80", "http://224.0.0.1", "http://10.1.2.3:8000")
    message = Message("porto", bytes(16), faro.app.gossip.node.fingerprint, {}, "http://127.0.0.1:9", book)
    signed = {HEADER: Keyring(SECRETS).sign(message.to_bytes(), time.time())}
    assert faro.http.post("/gossip", content=message.to_bytes(), headers=signed).status_code == 200
    assert set(faro.app.gossip.book.peers) == {"http://127.0.0.1:9", "http://10.1.2.3:8000"}
    faro.app.gossip.book.peers["http://10.1.2.3:8000"].misses = 6
    faro.app.gossip.book.peers["http://10.1.2.3:8000"].wait_ticks = 10
    faro.tick()
    assert set(faro.app.gossip.book.peers) == {"http://127.0.0.1:9"}
