"""What asks: exchanges over a network in memory that loses, repeats, delays and spoils."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pricemesh.gossip.client import problem_of
from pricemesh.gossip.message import Message
from pricemesh.gossip.peers import MISSES_UNTIL_SILENT, TICKS_UNTIL_SENT_AGAIN
from pricemesh.gossip.signing import HEADER
from pricemesh.runtime import Reply
from tests.gossip.memory_network import MemoryNetwork, address_of, memory_mesh


def test_one_exchange_gives_both_cities_the_same_bits(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path) as (faro, lisbon):
            await faro.teach(3)
            await lisbon.teach(5)
            await faro.gossip.exchange()
            assert faro.editions == {"faro": (1, 3), "lisbon": (1, 5)}
            assert faro.wires == lisbon.wires
            assert faro.gossip.counts["exchanges", "done"] == 1
            for here, there in (("in", "out"), ("out", "in")):
                assert faro.gossip.counts["bytes", here] == lisbon.gossip.counts["bytes", there] > 0
            assert faro.peer("lisbon").heard_at == faro.clock.now

    asyncio.run(story())


def test_cities_with_the_same_letters_exchange_one_brief_message(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork()
        async with memory_mesh(tmp_path, network=network) as (faro, _):
            await faro.gossip.exchange()
            network.requests.clear()
            bytes_in = faro.gossip.counts["bytes", "in"]
            await faro.gossip.exchange()
            (request,) = network.requests
            assert Message.from_bytes(request.body) == faro.gossip.node.brief_message()
            assert faro.gossip.counts["bytes", "in"] == bytes_in

    asyncio.run(story())


def test_a_lost_request_costs_that_peer_a_miss_and_the_others_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork()
        async with memory_mesh(tmp_path, ("faro", "lisbon", "porto"), network) as (faro, lisbon, porto):
            network.cut(faro.address, porto.address)
            await porto.teach(2)
            await faro.gossip.exchange()
            assert faro.peer("porto").misses == 1
            assert "no route" in faro.peer("porto").fault
            assert faro.peer("lisbon").misses == 0
            await lisbon.gossip.exchange()
            await faro.gossip.exchange()  # lisbon relays
            assert faro.editions == porto.editions

    asyncio.run(story())


def test_letters_in_a_lost_answer_are_sent_again_after_a_few_ticks(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork(answer_loss=1.0)
        gossip = {"secrets": ()}  # signed messages wait until the peer has said its name
        async with memory_mesh(tmp_path, network=network, gossip=gossip) as (faro, lisbon):
            await faro.teach(3)
            await lisbon.teach(4)
            await faro.gossip.exchange()
            assert lisbon.editions["faro"] == (1, 3)
            assert set(faro.editions) == {"faro"}
            assert faro.peer("lisbon").misses == 1
            network.mend()
            for _ in range(TICKS_UNTIL_SENT_AGAIN):
                await lisbon.gossip.exchange()
            await faro.gossip.exchange()
            assert faro.wires == lisbon.wires
            assert faro.peer("lisbon").misses == 0

    asyncio.run(story())


def test_a_peer_that_is_cut_off_is_silent_and_noticed_as_soon_as_the_cut_ends(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork()
        async with memory_mesh(tmp_path, network=network) as (faro, lisbon):
            network.cut(faro.address, lisbon.address)
            for misses in range(1, 12):
                assert faro.peer("lisbon").silent is (misses > MISSES_UNTIL_SILENT)
                await faro.gossip.exchange()
                assert faro.peer("lisbon").misses == misses  # it is called at every tick: there is no other
            network.mend()
            await lisbon.teach(2)
            await faro.gossip.exchange()
            assert not faro.peer("lisbon").silent
            assert faro.editions["lisbon"] == (1, 2)

    asyncio.run(story())


def problem(detail: str, kind: str = "urn:pricemesh:problem:other-mesh") -> bytes:
    return json.dumps({"type": kind, "detail": detail}).encode()


def from_a_namesake(reply: Reply) -> Reply:
    """The same answer from a city of the asker's own name, with its signature made for another body."""
    body = Message("faro", state=Message.from_bytes(reply.body).state).to_bytes()
    return reply._replace(body=body)


@pytest.mark.parametrize(
    ("tamper", "secrets", "reason"),
    [
        (lambda _: Reply(500, {}, b"<html>Internal Server Error"), (), "answers 500$"),
        (lambda _: Reply(409, {}, problem("two cities")), (), "answers 409: two cities"),
        (lambda _: Reply(422, {}, problem("secret", "about:blank")), (), "answers 422$"),
        (lambda _: Reply(302, {"location": "http://elsewhere"}, b""), (), "answers 302$"),
        (lambda _: Reply(200, {}, b"<html>"), (), "this is not gossip"),
        (lambda _: Reply(200, {}, b""), (), "this is not gossip"),
        (lambda _: Reply(200, {}, b"PMG1" + bytes(30)), (), "upgrade the sender"),
        (lambda _: Reply(200, {}, bytes(5000)), (), "more than 4096 bytes"),
        (from_a_namesake, (), "this city itself"),
        (lambda reply: reply._replace(headers={}), ("k1:" + "s" * 40,), "answer is not signed"),
        (from_a_namesake, ("k1:" + "s" * 40,), "answer is not signed"),
    ],
)
def test_a_bad_answer_is_a_miss_with_its_reason_and_changes_no_letter(
    tmp_path: Path, tamper: Callable[[Reply], Reply], secrets: tuple[str, ...], reason: str
) -> None:
    async def story() -> None:
        network = MemoryNetwork(tamper=tamper)
        gossip, limits = {"secrets": secrets}, {"body_bytes": 4096}
        async with memory_mesh(tmp_path, network=network, gossip=gossip, limits=limits) as (faro, lisbon):
            await lisbon.teach(2)
            await faro.gossip.exchange()
            assert set(faro.editions) == {"faro"}
            assert faro.gossip.counts["exchanges", "failed"] == 1
            assert re.search(reason, faro.peer("lisbon").fault)

    asyncio.run(story())


def test_the_own_full_disk_is_not_the_peers_fault(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path) as (faro, lisbon):
            await lisbon.teach(2)
            faro.disk.is_full = True
            await faro.gossip.exchange()
            assert faro.peer("lisbon").misses == 0
            assert set(faro.editions) == {"faro"}
            faro.disk.is_full = False
            for _ in range(TICKS_UNTIL_SENT_AGAIN):
                await lisbon.gossip.exchange()
            await faro.gossip.exchange()
            assert faro.editions["lisbon"] == (1, 2)

    asyncio.run(story())


def test_a_call_that_outlasts_the_tick_ends_in_the_background_and_is_not_repeated(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = {"lockstep": False, "interval_seconds": 0.01, "timeout_seconds": 60.0}
        async with memory_mesh(tmp_path, gossip=gossip) as (faro, lisbon):
            await faro.gossip.stop()  # this test ticks by hand
            await lisbon.gossip.stop()
            gate = asyncio.Event()
            deliver = faro.network.deliver

            async def slowly(request: object) -> Reply:
                await gate.wait()
                return await deliver(request)  # type: ignore[arg-type]

            faro.network.deliver = slowly  # type: ignore[method-assign]
            await faro.gossip.exchange()
            assert faro.peer("lisbon").is_busy
            assert faro.gossip.book.choose(faro.pricing.runtime.rng) == []
            gate.set()
            while faro.peer("lisbon").is_busy:
                await asyncio.sleep(0)
            assert faro.wires == lisbon.wires

    asyncio.run(story())


def test_only_a_citys_own_words_are_repeated() -> None:
    assert problem_of(problem("x" * 1000)) == ("other-mesh", ": " + "x" * 300)
    assert problem_of(problem("a\x1b[2Jb\n"))[1] == ": a?[2Jb?"  # nothing that acts on a terminal
    for body in (b"", b"<html>", b"[]", b"7", b'{"type": 1}', b'{"type": "urn:pricemesh:x"}', b"\xff"):
        assert problem_of(body) == ("", "")


def test_requests_are_signed_and_a_repeated_one_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork(duplication=1.0)
        async with memory_mesh(tmp_path, network=network) as (faro, lisbon):
            await faro.teach(2)
            await faro.gossip.exchange()
            assert faro.wires == lisbon.wires
            assert len(network.requests) == 4  # an introduction and a message, each of them twice
            for request in network.requests[:4]:
                again = await network.deliver(request)
                assert again.status == 401
                assert b"received before" in again.body
                assert HEADER not in again.headers
            assert faro.peer("lisbon").address == address_of("lisbon")

    asyncio.run(story())
