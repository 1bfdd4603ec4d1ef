"""What answers: bytes and a signature in, bytes and a signature out, or a refusal that changes nothing."""

import asyncio
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pricemesh.city.deciding import Quote
from pricemesh.city.loop import FutureTicket
from pricemesh.city.pricing import Pricing
from pricemesh.errors import (
    IncompatibleMesh,
    NotAllowed,
    PricemeshError,
    TooFast,
    Unauthenticated,
    UnreadableBody,
)
from pricemesh.gossip.mesh import Gossip
from pricemesh.gossip.message import Message
from pricemesh.gossip.signing import Keyring
from pricemesh.http.keys import write_keys
from tests.gossip.memory_network import NOON, SECRETS, FakeClock, MemoryCity, memory_mesh

UNSIGNED: dict[str, Any] = {"secrets": (), "peers": ()}


def keyring(secrets: tuple[str, ...] = SECRETS) -> Keyring:
    """Of a member that only signs; every nonce is the same."""
    return Keyring("porto", secrets, lambda count: bytes(count), lambda: 0.0)


ring = keyring()


def full_message(city: MemoryCity, sender: str = "porto", **fields: Any) -> Message:
    return Message(sender, city.settings.fingerprint, {}, **fields, state=bytes(16))


@pytest.mark.parametrize(
    ("body", "fault", "reason"),
    [
        (
            b"PMG1" + bytes(40),
            IncompatibleMesh,
            "format 4 and the sender format 1: upgrade the sender",
        ),
        (b'{"digest": []}', UnreadableBody, "this is not gossip"),
        (b"", UnreadableBody, "this is not gossip"),
        (Message("no name", state=bytes(16)).to_bytes(), UnreadableBody, "sender must be a city's name"),
        (Message("faro", state=bytes(16)).to_bytes(), IncompatibleMesh, "two cities are called faro"),
        (Message("liar", state=bytes(16)).to_bytes(), NotAllowed, "an operator of faro has dropped liar"),
        (Message("porto", bytes(16), {}, state=bytes(16)).to_bytes(), IncompatibleMesh, "differ in prices"),
    ],
)
def test_a_message_that_cannot_be_taken_is_refused_and_changes_nothing(
    tmp_path: Path, body: bytes, fault: type[PricemeshError], reason: str
) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"], gossip=UNSIGNED) as (faro,):
            await faro.gossip.operators.drop("liar")
            wires, callers = faro.wires, dict(faro.gossip.book.callers)
            with pytest.raises(fault, match=reason):
                await faro.gossip.server.receive(body, "", "machine")
            assert faro.wires == wires
            assert faro.gossip.book.callers == callers
            assert faro.gossip.counts["bytes", "in"] == 0

    asyncio.run(story())


def test_only_a_fresh_signature_of_a_member_is_taken_and_only_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            body = full_message(faro).to_bytes()
            stranger = keyring(("k1:" + "t" * 40,))
            for signature, reason in (
                ("", "not a signature"),
                ("k1.1.2.3", "not a signature"),
                (stranger.sign(body, NOON, "faro"), "not a signature"),
                (ring.sign(b"another body", NOON, "faro"), "not a signature"),
                (ring.sign(body, NOON - 61, "faro"), "set the clocks"),
                (ring.sign(body, NOON + 61, "faro"), "set the clocks"),
            ):
                with pytest.raises(Unauthenticated, match=reason):
                    await faro.gossip.server.receive(body, signature, "machine")
            signature = ring.sign(body, NOON, "faro")
            answer, reply_signature = await faro.gossip.server.receive(body, signature, "machine")
            assert answer is not None
            ring.verify_reply(signature, reply_signature, answer)
            with pytest.raises(Unauthenticated, match="received before"):
                await faro.gossip.server.receive(body, signature, "machine")

    asyncio.run(story())


def test_a_city_with_api_keys_and_without_gossip_secrets_takes_no_gossip(tmp_path: Path) -> None:
    async def story() -> None:
        write_keys(tmp_path / "keys.toml", {})
        security = {"api_keys_file": tmp_path / "keys.toml"}
        async with memory_mesh(tmp_path, ["faro"], gossip=UNSIGNED, security=security) as (faro,):
            with pytest.raises(NotAllowed, match=r"no gossip\.secrets"):
                await faro.gossip.server.receive(full_message(faro).to_bytes(), "", "machine")

    asyncio.run(story())


def test_a_policy_that_shares_nothing_refuses_gossip_and_calls_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, policy={"name": "disjoint"}) as (faro, lisbon):
            with pytest.raises(IncompatibleMesh, match="shares nothing"):
                await faro.gossip.server.receive(full_message(faro).to_bytes(), "", "machine")
            await faro.tick()
            assert faro.network.requests == []
            assert await lisbon.gossip.operators.leave() == 0

    asyncio.run(story())


def test_a_city_may_call_so_often_and_a_machine_twenty_times_as_often(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        gossip = UNSIGNED | {"rate_per_second": 2}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):

            async def call(sender: str, machine: str) -> None:
                await faro.gossip.server.receive(full_message(faro, sender).to_bytes(), "", machine)

            for _ in range(2):
                await call("porto", "one")
            with pytest.raises(TooFast) as refused:
                await call("porto", "one")
            assert refused.value.retry_after_seconds == 0.5
            faro.clock.advance(0.5)
            await call("porto", "one")
            faro.clock.advance(100)
            for i in range(40):
                await call(f"city{i}", "two")
            with pytest.raises(TooFast):
                await call("another", "two")
            await call("another", "three")

    asyncio.run(story())


def test_news_is_published_for_callers_at_most_twice_in_an_interval(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = UNSIGNED | {"lockstep": False, "interval_seconds": 1000.0}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):

            async def version_told() -> tuple[int, int]:
                await faro.gossip.server.receive(full_message(faro).to_bytes(), "", "machine")
                return faro.editions["faro"]

            await faro.teach(1)
            assert await version_told() == (1, 1)
            await faro.teach(1, seed=1)
            faro.clock.advance(500)
            assert await version_told() == (1, 1)
            faro.clock.advance(1)
            assert await version_told() == (1, 2)

    asyncio.run(story())


def test_the_answer_has_what_the_sender_lacks_and_nothing_when_both_have_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"], gossip=UNSIGNED) as (faro,):
            receive, node = faro.gossip.server.receive, faro.gossip.node
            await faro.teach(2)
            answer, signature = await receive(full_message(faro).to_bytes(), "", "machine")
            assert signature == ""
            read = Message.from_bytes(answer or b"")
            assert read.letters == (faro.wires["faro"],)
            assert read.digest == {"faro": (1, 2)}
            same = replace(full_message(faro), digest=node.digest, state=node.state)
            answer, _ = await receive(same.to_bytes(), "", "machine")
            assert answer == node.brief_message().to_bytes()
            answer, _ = await receive(Message("porto", state=node.state).to_bytes(), "", "machine")
            assert answer is None
            answer, _ = await receive(Message("porto", state=bytes(16)).to_bytes(), "", "machine")
            assert Message.from_bytes(answer or b"").letters == ()  # it asks for them in its next message

    asyncio.run(story())


def test_addresses_are_told_to_a_city_that_discovers_and_to_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        peers = [f"http://10.0.0.{i}:80" for i in range(1, 100)]
        async with memory_mesh(tmp_path, ["faro"], gossip=UNSIGNED | {"peers": peers}) as (faro,):
            for discovers, addresses in ((False, 0), (True, 64)):
                message = full_message(faro, discovers=discovers, address=peers[0])
                answer, _ = await faro.gossip.server.receive(message.to_bytes(), "", "machine")
                read = Message.from_bytes(answer or b"")
                assert len(read.addresses) == addresses
                assert peers[0] not in read.addresses

    asyncio.run(story())


def test_callers_get_news_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """A city without peers of its own publishes only when it is called."""

    async def story() -> None:
        clock, monotonic = FakeClock(), FakeClock(0.0)
        async with memory_mesh(tmp_path, ["faro"], gossip=UNSIGNED | {"lockstep": False}) as (faro,):
            runtime = replace_fields(faro.pricing.runtime, clock=clock, monotonic=monotonic)
            await faro.stop()
            pricing = Pricing(faro.settings, runtime)
            gossip = Gossip(pricing)
            await pricing.start()
            await gossip.start()
            for seed in range(2):
                await teach(pricing, seed)
                await gossip.server.receive(full_message(faro).to_bytes(), "", "machine")
                assert gossip.node.letters["faro"].summary.version == seed + 1
                monotonic.advance(10.0)
                clock.advance(-7200.0)
            await gossip.stop()
            await pricing.stop()

    async def teach(pricing: Pricing, seed: int) -> None:
        ticket, feedback = FutureTicket(), FutureTicket()
        pricing.quote(Quote([(f"d{seed}", None)], bytes(8 * 5)), ticket)
        await ticket.future
        pricing.feedback([(f"d{seed}", 1.0)], feedback)
        await feedback.future

    asyncio.run(story())
