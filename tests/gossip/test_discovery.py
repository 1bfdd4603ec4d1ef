"""Addresses from other cities: taken from members only, checked, forgotten when nobody answers there."""

import asyncio
from pathlib import Path

from pricemesh.gossip.discovery import MAX_ADDRESSES
from pricemesh.gossip.peers import MISSES_UNTIL_FORGOTTEN
from tests.gossip.memory_network import SECRETS, FakeClock, MemoryCity, MemoryNetwork, address_of, memory_mesh
from tests.running import settings_for


def test_one_address_is_enough_to_find_all_cities_and_a_restart_remembers_them(tmp_path: Path) -> None:
    async def story() -> None:
        network, clock = MemoryNetwork(), FakeClock()
        names = [f"city{i}" for i in range(4)]
        cities = []
        for name in names:
            gossip = {
                "lockstep": True,
                "secrets": SECRETS,
                "discover": True,
                "address": address_of(name),
                "peers": [] if name == "city0" else [address_of("city0")],
            }
            settings = settings_for(f"sqlite:///{tmp_path}/{name}.db", city=name, gossip=gossip)
            cities.append(MemoryCity(settings, network, clock))
            await cities[-1].start()
        for _ in range(3):
            for city in cities:
                await city.tick()
        addresses = {address_of(name) for name in names}
        for city in cities:
            assert set(city.gossip.book.peers) == addresses - {city.address}
            assert city.wires == cities[0].wires
        again = await cities[3].restart()
        assert set(again.gossip.book.peers) == addresses - {again.address}
        for city in (*cities[:3], again):
            await city.stop()

    asyncio.run(story())


def test_addresses_are_checked_and_limited(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = {"discover": True, "peers": [], "most_cities": 3}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            learn, book = faro.gossip.discovery.learn, faro.gossip.book
            await learn(
                ["ftp://x", "http://u@h", "http://169.254.169.254", "http://0.0.0.0", "http://224.0.0.1"]
            )
            assert book.peers == {}
            await learn(["http://a", "http://A/", "http://b", "http://c", "http://d"])
            assert len(book.peers) == 2  # the second is the first written otherwise
            await learn(["http://c", "http://d"])
            assert set(book.peers) == {"http://a", "http://b", "http://c"}

    asyncio.run(story())


def test_without_secrets_only_addresses_of_this_machine_are_taken(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = {"discover": True, "peers": [], "secrets": []}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            await faro.gossip.discovery.learn(["http://10.0.0.1", "http://127.0.0.1:9", "http://lisbon"])
            assert set(faro.gossip.book.peers) == {"http://127.0.0.1:9"}

    asyncio.run(story())


def test_a_city_that_does_not_discover_takes_no_addresses(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.gossip.discovery.learn(["http://127.0.0.1:9"])
            assert faro.gossip.book.peers == {}

    asyncio.run(story())


def test_an_address_where_nobody_ever_answers_is_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = {"discover": True, "peers": ["http://configured"]}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            await faro.gossip.discovery.learn(["http://nobody"])
            for _ in range(MISSES_UNTIL_FORGOTTEN):
                for peer in faro.gossip.book.peers.values():
                    peer.wait_ticks = 0
                await faro.gossip.exchange()
            assert set(faro.gossip.book.peers) == {"http://configured"}
            again = await faro.restart()
            assert set(again.gossip.book.peers) == {"http://configured"}

    asyncio.run(story())


def test_addresses_from_before_are_checked_again_at_the_start(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"], gossip={"discover": True, "peers": []}) as (faro,):
            await faro.gossip.discovery.learn(
                ["http://10.0.0.1", "http://2130706433:81", "http://0xa9fea9fe"]
            )
            assert set(faro.gossip.book.peers) == {"http://10.0.0.1", "http://127.0.0.1:81"}
            again = await faro.restart(secrets=())
            assert set(again.gossip.book.peers) == {"http://127.0.0.1:81"}

    asyncio.run(story())


def test_of_many_addresses_each_caller_gets_others(tmp_path: Path) -> None:
    """If all got the same few, all cities would call the same few."""

    async def story() -> None:
        gossip = {"discover": True, "peers": []}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            addresses = [f"http://10.0.0.{i}" for i in range(1, 201)]
            faro.gossip.book.add(addresses[:MAX_ADDRESSES], is_configured=True)
            assert set(faro.gossip.discovery.sample("")) == set(addresses[:MAX_ADDRESSES])
            faro.gossip.book.add(addresses, is_configured=True)
            samples = [faro.gossip.discovery.sample("http://10.0.0.7") for _ in range(20)]
            assert {len(set(sample)) for sample in samples} == {MAX_ADDRESSES}
            told = {address for sample in samples for address in sample}
            assert len(told) > 190  # each is left out of 20 samples with a chance of 4e-4
            assert "http://10.0.0.7" not in told

    asyncio.run(story())
