"""Who takes part in a mesh of cities over real HTTP: found, silent, gone, set up anew."""

import time
from pathlib import Path

from pricemesh.gossip.letter import Leave, Seal
from pricemesh.gossip.message import Message
from pricemesh.gossip.signing import HEADER
from pricemesh.lab.demo import free_ports
from tests.gossip.over_http import (
    SECRETS,
    Start,
    letters_of,
    signature_of,
    teach,
    tick,
)
from tests.running import RunningCity, settings_for, start_mesh


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

    def message(city: RunningCity) -> bytes:
        return Message(
            "evil",
            city.app.gossip.node.fingerprint,
            {},
            address="http://10.0.0.1:80",
            addresses=("http://10.0.0.2", "ftp://x", "http://u@127.0.0.1"),
            state=bytes(16),
        ).to_bytes()

    forged = signature_of(message(faro), "faro", ["k1:" + "t" * 40])
    for headers in ({}, {HEADER: "k1.1.2.3"}, forged):
        assert faro.http.post("/gossip", content=message(faro), headers=headers).status_code == 401
    assert faro.app.gossip.book.peers == {}
    (lonely,) = start_cities("lonely", gossip={"discover": True})  # unsigned: this machine only
    assert lonely.http.post("/gossip", content=message(lonely)).status_code == 200
    assert lonely.app.gossip.book.peers == {}
    (settled,) = start_cities("settled", gossip={"secrets": SECRETS})  # does not discover
    signature = signature_of(message(settled), "settled")
    assert settled.http.post("/gossip", content=message(settled), headers=signature).status_code == 200
    assert settled.app.gossip.book.peers == {}
    again = settled.http.post("/gossip", content=message(settled), headers=signature)
    assert (again.status_code, "received before" in again.text) == (401, True)


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
        assert set(faro.app.gossip.node.letters) == {"faro"}
        (peer,) = city.state()["peers"]
        assert "409" in peer["reason"]
        assert "differ in prices" in peer["reason"]


def test_two_cities_of_one_name_notice(start_cities: Start, tmp_path: Path) -> None:
    (faro,) = start_cities("faro")
    (tmp_path / "other").mkdir()
    (twin,) = start_mesh(tmp_path / "other", ["faro"], gossip={"peers": [faro.url]})
    twin.tick()
    assert "two cities are called faro" in twin.state()["peers"][0]["reason"]
    twin.stop()


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
        assert spokes[1].app.gossip.node.letters["left"].edition == (1, 10)
        assert spokes[1].app.gossip.node.letters["hub"].edition == (1, 5)
        assert letters_of(hub) == letters_of(spokes[0]) == letters_of(spokes[1])
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
    assert set(letters_of(again)) == {"faro", "lisbon"}
    assert again.pricing.learner.attribution.origins == ("lisbon",)
    again.stop()


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
        assert faro.app.gossip.node.letters["porto"].edition == (1, 10)
        key = anew.http.get("/state").json()["gossip"]["key"]
        for city in (faro, lisbon):
            assert city.http.post("/peers/porto/trust", json={"key": key}).status_code == 200
        assert faro.http.post("/peers/porto/trust", json={"key": "short"}).status_code == 422
        for _ in range(2):
            tick([faro, lisbon, anew])
        assert faro.app.gossip.node.letters["porto"].edition == (1, 3)
        assert letters_of(faro) == letters_of(lisbon) == letters_of(anew)
    finally:
        anew.stop()


def test_nobody_can_send_another_city_away(start_cities: Start) -> None:
    faro, lisbon, _ = cities = start_cities(gossip={"secrets": SECRETS})
    tick(cities)
    seal = Seal(b"liar".ljust(32, b"."))
    leave = Leave.sign(seal, "lisbon", time.time())
    message = Message("lisbon", faro.app.gossip.node.fingerprint, {}, leave=leave, state=bytes(16)).to_bytes()
    signature = signature_of(message, "faro")
    assert faro.http.post("/gossip", content=message, headers=signature).status_code == 200
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


def test_a_peer_cannot_send_a_city_to_where_machines_keep_their_secrets(start_cities: Start) -> None:
    (faro,) = start_cities("faro", gossip={"discover": True, "secrets": SECRETS})
    book = ("http://169.254.169.254", "http://0.0.0.0:80", "http://224.0.0.1", "http://10.1.2.3:8000")
    message = Message(
        "porto",
        faro.app.gossip.node.fingerprint,
        {},
        address="http://127.0.0.1:9",
        addresses=book,
        state=bytes(16),
    )
    signature = signature_of(message.to_bytes(), "faro")
    assert faro.http.post("/gossip", content=message.to_bytes(), headers=signature).status_code == 200
    assert set(faro.app.gossip.book.peers) == {"http://127.0.0.1:9", "http://10.1.2.3:8000"}
    faro.app.gossip.book.peers["http://10.1.2.3:8000"].misses = 6
    faro.app.gossip.book.peers["http://10.1.2.3:8000"].wait_ticks = 10
    faro.tick()
    assert set(faro.app.gossip.book.peers) == {"http://127.0.0.1:9"}
