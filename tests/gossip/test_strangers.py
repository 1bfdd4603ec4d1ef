"""What a stranger, a captured request or a member with invented names can do to a city."""

import asyncio
from pathlib import Path
from secrets import token_bytes
from typing import Any

import pytest

from pricemesh.errors import NotAllowed, OtherReceiver, TooFast, Unauthenticated
from pricemesh.gossip.message import Message
from pricemesh.gossip.peers import TICKS_UNTIL_SENT_AGAIN, AddressBook
from pricemesh.gossip.quarantine import CLEAN_EXCHANGES
from pricemesh.gossip.signing import HEADER, Keyring
from tests.gossip.letters import letter
from tests.gossip.memory_network import SECRETS, FakeClock, MemoryCity, MemoryNetwork, memory_mesh
from tests.running import settings_for

NAMES = ("faro", "lisbon", "porto")
MEMBER = Keyring("member", SECRETS, token_bytes, lambda: 0.0)


async def send(city: MemoryCity, sender: str, machine: str = "nat", **fields: Any) -> Message:
    """A signed message of a member under any name, and the answer to it."""
    fields = {"fingerprint": city.settings.fingerprint, "digest": {}, "state": bytes(16)} | fields
    body = Message(sender, **fields).to_bytes()
    signature = MEMBER.sign(body, city.clock.now, city.name)
    answer, _ = await city.gossip.receive(body, signature, machine)
    return Message.from_bytes(answer or b"")


# A signature names its receiver


def test_a_captured_request_is_worth_nothing_in_another_city(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork()
        async with memory_mesh(tmp_path, NAMES, network) as (faro, lisbon, porto):
            await faro.teach(2)
            network.cut(faro.address, porto.address)
            await faro.gossip.exchange()
            (request,) = [each for each in network.requests if Message.from_bytes(each.body).letters]
            with pytest.raises(OtherReceiver, match="signed for 'lisbon' and this city is porto"):
                await porto.gossip.receive(request.body, request.signature, "thief")
            assert set(porto.editions) == {"porto"}
            assert porto.gossip.book.callers == {}
            assert faro.wires == lisbon.wires

    asyncio.run(story())


def test_an_introduction_changes_nothing_and_brings_a_name_only(tmp_path: Path) -> None:
    """Its signature would be good in any city."""

    async def story() -> None:
        gossip = {"discover": True, "peers": []}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            brief = Message("porto", state=bytes(16), address="http://10.0.0.1").to_bytes()
            signature = MEMBER.sign(brief, faro.clock.now, "")
            answer, reply_signature = await faro.gossip.receive(brief, signature, "machine")
            assert Message.from_bytes(answer or b"") == Message("faro", state=bytes(16))
            MEMBER.verify_reply(signature, reply_signature, answer or b"")
            assert (faro.gossip.book.callers, faro.gossip.book.peers) == ({}, {})
            full = Message(
                "porto", faro.settings.fingerprint, {}, (letter("porto", 1).wire,), state=bytes(16)
            )
            body = full.to_bytes()
            signature = MEMBER.sign(body, faro.clock.now, "")
            with pytest.raises(OtherReceiver, match="must be signed for the city"):
                await faro.gossip.receive(body, signature, "machine")
            assert set(faro.editions) == {"faro"}

    asyncio.run(story())


def test_a_peer_introduces_itself_once_and_again_when_another_city_has_its_address(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork()
        async with memory_mesh(tmp_path, NAMES, network, gossip={"peers": []}) as (faro, lisbon, porto):
            faro.gossip.book.add(["http://proxy"], is_configured=True)
            peer = faro.gossip.book.peers["http://proxy"]
            for city, requests in ((lisbon, 2), (lisbon, 1), (porto, 4), (porto, 1)):
                network.servers["http://proxy"] = city.gossip
                await faro.teach(1, seed=len(network.requests))
                network.requests.clear()
                await faro.gossip.exchange()
                assert len(network.requests) == requests
                assert (peer.receiver, peer.misses) == (city.name, 0)
                assert city.editions["faro"] == faro.editions["faro"]
            del network.servers["http://proxy"]

    asyncio.run(story())


# Signed before the start


def test_a_peer_that_has_just_started_is_called_again_at_the_next_tick(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork()
        async with memory_mesh(tmp_path, ["lisbon"], network) as (lisbon,):
            gossip = {"lockstep": True, "secrets": SECRETS, "peers": [lisbon.address]}
            settings = settings_for(f"sqlite:///{tmp_path}/faro.db", city="faro", gossip=gossip)
            faro = MemoryCity(settings, network, FakeClock(lisbon.clock.now - 30))  # its clock is behind
            await faro.start()
            await faro.teach(1)
            peer = faro.peer("lisbon")
            for _ in range(5):
                await faro.gossip.exchange()
                assert "signed before this city started; try again" in peer.fault
                assert (peer.misses, peer.wait_ticks, peer.silent) == (0, 0, False)
            assert faro.gossip.counts["exchanges", "postponed"] == 5
            assert faro.gossip.counts["exchanges", "failed"] == 0
            for city in (faro, lisbon):
                city.clock.advance(30)
            await faro.gossip.exchange()
            assert lisbon.editions["faro"] == (1, 1)
            assert peer.fault == ""
            again = await lisbon.restart()
            await faro.teach(1, seed=1)
            await faro.gossip.exchange()
            assert again.editions["faro"] == (1, 1)
            for city in (faro, again):
                city.clock.advance(15)
            await faro.gossip.exchange()
            for city in (faro, again):
                city.clock.advance(15)
            await faro.gossip.exchange()
            assert again.editions["faro"] == (1, 2)  # with the letter that was refused at first

    asyncio.run(story())


def test_a_request_that_the_process_before_has_taken_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork()
        async with memory_mesh(tmp_path, network=network) as (faro, lisbon):
            await faro.gossip.exchange()
            lisbon.clock.advance(5)
            await lisbon.restart()
            for request in tuple(network.requests):
                again = await network.deliver(request)
                assert (again.status, HEADER in again.headers) == (425, False)

    asyncio.run(story())


# Tables


def test_invented_callers_push_out_each_other_and_no_city_of_the_mesh(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = {"most_cities": 4, "rate_per_second": 1000, "peers": []}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            await faro.teach(4)
            await send(faro, "porto", letters=(faro.letter_of("porto", 4).wire,))
            porto = faro.gossip.book.callers["porto"]
            for i in range(50):
                await send(faro, f"stranger{i}", digest={f"{i}-{j}": (1, 1) for j in range(20)})
            callers = faro.gossip.book.callers
            assert callers["porto"] is porto
            assert list(callers)[-1] == "stranger49"
            assert len(callers) == 8
            assert len(faro.gossip.memory) == 1  # porto's; digests of strangers are not remembered

    asyncio.run(story())


def test_a_city_of_the_mesh_is_marked_and_stays_so_whatever_strangers_send(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = {"most_cities": 4, "rate_per_second": 1000, "peers": []}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            await faro.teach(4)
            await send(faro, "porto", letters=(faro.letter_of("porto", 4).wire,))
            strangers = [f"stranger{i}" for i in range(60)]
            for name in (*strangers[:30], "porto", *strangers[30:]):
                await send(faro, name, letters=(b"junk",))
            assert faro.status("porto") == "quarantined"

    asyncio.run(story())


def test_a_book_full_of_real_cities_keeps_no_stranger() -> None:
    book = AddressBook("", 8, 2, is_known=lambda name: name.startswith("real"))
    for name in ("real1", "real2", "stranger", "real3"):
        book.sender(name, "")
    assert list(book.callers) == ["real1", "real2", "real3"]


def test_deliveries_are_remembered_once_for_each_origin(tmp_path: Path) -> None:
    """A caller that names another edition in every message makes its record no longer."""

    async def story() -> None:
        gossip = {"rate_per_second": 1000, "peers": []}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            await faro.teach(1)
            for i in range(100):
                answer = await send(faro, "porto", digest={"faro": (0, i + 1)})
                assert len(answer.letters) == 1
            peer = faro.gossip.book.callers["porto"]
            remembered = [peer.was_delivered(("faro", (1, 1), (0, i + 1)), 0) for i in range(100)]
            assert remembered == [False] * 99 + [True]
            assert (await send(faro, "porto", digest={"faro": (0, 100)})).letters == ()
            assert not peer.was_delivered(("faro", (1, 1), (0, 100)), TICKS_UNTIL_SENT_AGAIN)

    asyncio.run(story())


def test_a_fault_is_short_and_printable_wherever_it_comes_from(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork()
        async with memory_mesh(tmp_path, network=network) as (faro, _):

            async def fail(_: object) -> None:
                raise ConnectionError("illegal status line\x1b[2J\n" + "x" * 100_000)

            network.deliver = fail  # type: ignore[method-assign, assignment]
            await faro.gossip.exchange()
            fault = faro.peer("lisbon").fault
            assert fault.startswith("illegal status line?[2J?xxx")
            assert len(fault) == 500

    asyncio.run(story())


# Rates


def test_a_flood_without_a_secret_does_not_shut_out_a_member_behind_the_same_address(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = {"rate_per_second": 2, "peers": []}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            refusals = []
            for i in range(200):
                with pytest.raises((Unauthenticated, TooFast)) as refused:
                    await faro.gossip.receive(b"x" * i, "k1.1.2.3", "nat")
                refusals.append(type(refused.value))
            assert refusals == [Unauthenticated] * 40 + [TooFast] * 160
            await send(faro, "porto")
            await send(faro, "lisbon")
            with pytest.raises(OtherReceiver):  # a member is told what to do
                await faro.gossip.receive(b"", MEMBER.sign(b"", faro.clock.now, "porto"), "nat")
            with pytest.raises(TooFast):  # a signature that does not cover its body counts as well
                await faro.gossip.receive(b"other", MEMBER.sign(b"body", faro.clock.now, "faro"), "nat")

    asyncio.run(story())


def test_invented_names_do_not_use_up_the_rate_of_a_city_of_the_mesh(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = {"rate_per_second": 2, "peers": []}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            await faro.teach(4)
            await send(faro, "porto", letters=(faro.letter_of("porto", 4).wire,))
            admitted = 0
            for i in range(60):
                try:
                    await send(faro, f"stranger{i}")
                    admitted += 1
                except TooFast:
                    pass
            assert admitted == 39  # the first message of porto was a stranger's
            for _ in range(2):
                await send(faro, "porto")
            with pytest.raises(TooFast):
                await send(faro, "porto")

    asyncio.run(story())


# Blame


def test_honest_cities_that_relay_a_city_set_up_anew_are_not_quarantined(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork()
        async with memory_mesh(tmp_path, NAMES, network) as (faro, lisbon, porto):
            await porto.teach(2)
            await faro.gossip.exchange()  # faro knows porto by its first key, lisbon has never heard it
            lisbon.gossip.node.drop("porto")
            lisbon.gossip.node.readmit("porto")
            await porto.stop()
            for end in ("", "-wal", "-shm"):
                (tmp_path / f"porto.db{end}").unlink(missing_ok=True)
            porto.clock.advance(1)  # another moment, another key
            anew = await porto.restart()
            network.cut(anew.address, faro.address)
            await anew.teach(5)
            await anew.gossip.exchange()
            assert lisbon.editions["porto"] == (1, 5)
            await lisbon.gossip.exchange()  # it relays
            assert faro.status("lisbon") == "fresh"
            assert faro.status("porto") == "quarantined"
            assert faro.gossip.intake.quarantine.marks["porto"].via == "lisbon"
            await faro.gossip.operators.trust("porto", anew.gossip.publisher.seal.key)
            assert faro.gossip.intake.quarantine.marks == {}

    asyncio.run(story())


def test_a_mark_for_damaged_letters_ends_after_clean_exchanges_with_anybody(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = {"rate_per_second": 1000, "peers": []}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            await send(faro, "porto", letters=(b"junk",))
            assert faro.status("porto") == "quarantined"
            for _ in range(CLEAN_EXCHANGES):
                await send(faro, "porto")
            assert faro.status("porto") == "fresh"

    asyncio.run(story())


# Names and keys in the configuration


def test_nobody_can_take_a_name_whose_key_is_configured(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"], gossip={"peers": []}) as (faro,):
            await faro.teach(4)
            thief = faro.letter_of("porto", 4, sealed_by="thief")
            await send(faro, "porto", letters=(thief.wire,))
            assert faro.editions["porto"] == (1, 4)  # the first key wins
            true = faro.letter_of("porto", 4)
            again = await faro.restart(cities={"porto": true.key.hex(), "lisbon": ""})
            assert "porto" not in again.editions  # not the letter of the thief
            await send(again, "porto", letters=(thief.wire,))
            assert "porto" not in again.editions
            with pytest.raises(NotAllowed, match=r"gossip\.cities names another key for porto"):
                await again.gossip.operators.trust("porto", thief.key)
            await send(again, "porto", letters=(true.wire, again.letter_of("lisbon", 4).wire))
            assert set(again.editions) == {"faro", "lisbon", "porto"}

    asyncio.run(story())


def test_another_key_for_the_own_city_is_reported_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        gossip = {"peers": [], "cities": {"faro": "00" * 32}}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            assert "gossip.cities names another key for this city" in caplog.text
            assert "faro" in faro.editions

    asyncio.run(story())
