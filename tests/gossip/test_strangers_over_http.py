"""Strangers at `POST /gossip` over real HTTP: refused before their body is read."""

import asyncio
import socket

import pytest

from pricemesh.core.summary import Summary
from pricemesh.errors import TooFast
from pricemesh.gossip.letter import Seal
from pricemesh.gossip.message import Message
from pricemesh.gossip.signing import HEADER
from pricemesh.http.body import BodyBudget
from tests.gossip.over_http import SECRETS, Start, keyring, signature_of, tell
from tests.running import RunningCity

LENGTH = 60_000


def answer_before_the_body(city: RunningCity, signature: str) -> bytes:
    """What a city says to a request that announces a body and does not send it."""
    host, port = city.url.removeprefix("http://").split(":")
    lines = ("POST /gossip HTTP/1.1", f"host: {host}", f"content-length: {LENGTH}", f"{HEADER}: {signature}")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall("\r\n".join((*lines, "", "")).encode())
        return connection.recv(65_536)


def test_a_body_is_not_read_before_its_signature_holds(start_cities: Start) -> None:
    (faro,) = start_cities("faro", gossip={"secrets": SECRETS})
    body = Message("porto", state=bytes(16)).to_bytes()
    used = signature_of(body, "faro")[HEADER]
    assert faro.http.post("/gossip", content=body, headers={HEADER: used}).status_code == 200
    stale = keyring(SECRETS).sign(body, 1_700_000_000.0, "faro")
    for signature, status in (
        ("", b"401"),
        ("k1.1.2.3", b"401"),
        (signature_of(body, "faro", ["k9:" + "s" * 40])[HEADER], b"401"),
        (signature_of(body, "faro", ["k1:" + "t" * 40])[HEADER], b"401"),
        (signature_of(body, "porto")[HEADER], b"421"),
        (stale, b"401"),
        (used, b"401"),
        (f"k1.1700000000.abcdefghijkl.{'m' * 43}", b"409"),
    ):
        assert answer_before_the_body(faro, signature).split()[1] == status, signature


def test_bodies_in_memory_are_limited_and_one_machine_gets_half() -> None:
    budget = BodyBudget(100_000)
    with budget.reserve("one", 30_000), budget.reserve("one", 20_000):
        with pytest.raises(TooFast), budget.reserve("one", 0):  # even the shortest takes some room
            pass
        with budget.reserve("two", 30_000), pytest.raises(TooFast), budget.reserve("three", 30_000):
            pass
        with budget.reserve("three", 30_000):
            assert budget.used_bytes == 80_000
    assert budget.used_bytes == 0


def test_a_body_in_transit_counts_until_it_is_answered(start_cities: Start) -> None:
    (faro,) = start_cities("faro", gossip={"secrets": SECRETS}, limits={"body_bytes": 400_000})
    budget = faro.app.gossip_budget
    host, port = faro.url.removeprefix("http://").split(":")

    async def story() -> None:
        body = bytes(399_000)
        half = 16 * 400_000 // 2
        writers = []
        answers = []
        for _ in range(half // len(body)):
            signature = signature_of(body, "faro")[HEADER]
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /gossip HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n"
            writer.write(f"{head}{HEADER}: {signature}\r\n\r\n".encode())
            writers.append(writer)
            answers.append(reader)
        while budget.used_bytes < len(writers) * len(body):
            await asyncio.sleep(0.001)
        refused = await asyncio.to_thread(tell_large, faro)
        assert refused == 429
        assert await asyncio.to_thread(lambda: tell(faro).status_code) == 200  # a usual message finds room
        for writer, reader in zip(writers, answers, strict=True):
            writer.write(body)
            assert b" 422 " in await reader.readline()
            writer.close()

    asyncio.run(story())
    assert budget.used_bytes == 0


def tell_large(city: RunningCity) -> int:
    body = bytes(300_000)
    return city.http.post("/gossip", content=body, headers=signature_of(body, "faro")).status_code


def test_long_names_do_not_grow_the_state_or_the_metrics(start_cities: Start) -> None:
    (faro,) = start_cities("faro", gossip={"secrets": SECRETS, "rate_per_second": 1000})
    node = faro.app.gossip.node
    for i in range(40):
        name = f"{i}" + "x" * 60_000
        letter = Seal(bytes(32)).close(Summary(name, 1, 1, node.fingerprint, bytes(8)))
        assert tell(faro, letter.wire).status_code == 200
    for path in ("/state", "/metrics"):
        assert len(faro.http.get(path).content) < 20_000
    liar = faro.peers()["liar"]
    assert "is not a city's name" in liar["reason"]
    assert "exchanges without a damaged letter" in liar["quarantine_ends"]


def test_a_letter_in_this_citys_name_under_another_key_is_shown(start_cities: Start) -> None:
    (faro,) = start_cities("faro", gossip={"secrets": SECRETS})
    assert faro.http.get("/state").json()["gossip"]["impostor"] is None
    summary = Summary("faro", 9, 9, faro.app.gossip.node.fingerprint, bytes(8))
    assert tell(faro, Seal(bytes(32)).close(summary).wire).status_code == 200
    assert "liar brought a letter" in faro.http.get("/state").json()["gossip"]["impostor"]
    assert faro.peers()["liar"]["status"] == "fresh"
