"""Cities in one event loop, without sockets: a network in memory, a clock that tests set, seeded randomness.

Each city is a real `Pricing` on a SQLite file of its own with a real `Gossip`. The network delivers a post
straight to the receiver's server and makes the faults that the test asks for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from sqlalchemy.exc import OperationalError

from pricemesh.city.deciding import Quote
from pricemesh.city.loop import FutureTicket
from pricemesh.city.pricing import Pricing
from pricemesh.city.settings import Settings
from pricemesh.core.summary import Summary
from pricemesh.errors import PricemeshError
from pricemesh.gossip.letter import Letter, Seal
from pricemesh.gossip.mesh import Gossip
from pricemesh.gossip.peers import Peer
from pricemesh.gossip.signing import HEADER
from pricemesh.gossip.view import peers_of
from pricemesh.http.problems import refusal
from pricemesh.runtime import Disk, Reply, ReplyTooLarge, Runtime
from tests.running import settings_for

NOON = 1_700_000_000.0
SECRETS = ("k1:" + "s" * 40,)


@dataclass
class FakeClock:
    now: float = NOON

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class Request:
    sender: str  # addresses
    receiver: str
    body: bytes
    signature: str


@dataclass
class MemoryNetwork:
    """Probabilities of faults for each request, and links that are cut."""

    seed: int = 0
    loss: float = 0.0  # the request does not arrive
    answer_loss: float = 0.0  # the request arrives, the answer does not
    duplication: float = 0.0  # the request arrives twice
    delay: float = 0.0  # the request arrives only with `deliver_delayed`, its sender gets no answer
    tamper: Callable[[Reply], Reply] = lambda reply: reply  # what a sender receives instead of an answer
    servers: dict[str, Gossip] = field(default_factory=dict)  # by address
    requests: list[Request] = field(default_factory=list)  # that arrived, in order
    delayed: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = Random(self.seed)
        self._cut_links: set[frozenset[str]] = set()

    def cut(self, one: str, other: str) -> None:
        self._cut_links.add(frozenset((one, other)))

    def mend(self) -> None:
        """End all faults."""
        self._cut_links.clear()
        self.loss = self.answer_loss = self.duplication = self.delay = 0.0

    async def post(self, request: Request) -> Reply:
        if frozenset((request.sender, request.receiver)) in self._cut_links:
            raise ConnectionError(f"no route to {request.receiver}")
        if request.receiver not in self.servers:
            raise ConnectionError(f"nobody listens at {request.receiver}")
        if self._rng.random() < self.loss:
            raise TimeoutError("the request was lost")
        if self._rng.random() < self.delay:
            self.delayed.append(request)
            raise TimeoutError("the request is late")
        reply = await self.deliver(request)
        if self._rng.random() < self.duplication:
            await self.deliver(request)
        if self._rng.random() < self.answer_loss:
            raise TimeoutError("the answer was lost")
        return self.tamper(reply)

    async def deliver_delayed(self) -> None:
        """All late requests arrive, in another order than they were sent in."""
        late, self.delayed = self.delayed, []
        for request in self._rng.sample(late, len(late)):
            if request.receiver in self.servers:
                await self.deliver(request)

    async def deliver(self, request: Request) -> Reply:
        """As the HTTP layer does: a refusal is a problem document."""
        self.requests.append(request)
        machine = request.sender
        try:
            server = self.servers[request.receiver]
            answer, signature = await server.receive(request.body, request.signature, machine)
        except PricemeshError as fault:
            response = refusal(fault, None)
            return Reply(response.status_code, {}, bytes(response.body))
        return Reply(204 if answer is None else 200, {HEADER: signature}, answer or b"")


@dataclass(frozen=True)
class MemoryTransport:
    network: MemoryNetwork
    address: str

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_seconds: float, max_bytes: int
    ) -> Reply:
        assert timeout_seconds > 0
        receiver = url.removesuffix("/gossip")
        reply = await self.network.post(Request(self.address, receiver, body, headers.get(HEADER, "")))
        if len(reply.body) > max_bytes:
            raise ReplyTooLarge(f"{url} answers with more than {max_bytes} bytes")
        return reply

    async def close(self) -> None:
        pass


class FragileDisk(Disk):
    is_full = False
    loses_answers = False  # of commits that do happen

    def before_commit(self) -> None:
        if self.is_full:
            raise OperationalError("commit", {}, OSError("the disk is full"))

    def after_commit(self) -> None:
        if self.loses_answers:
            raise OperationalError("commit", {}, OSError("the answer is lost"))


async def inline(job: Callable[..., Any], *arguments: Any) -> Any:
    return job(*arguments)


class InlineWorker:
    """Runs jobs at once in the event loop: without threads, equal seeds give equal histories."""

    def __init__(self, _name: str) -> None:
        pass

    def run(self, job: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(job(*arguments))
        except Exception as fault:
            future.set_exception(fault)
        return future

    async def close(self) -> None:
        pass


class MemoryCity:
    def __init__(self, settings: Settings, network: MemoryNetwork, clock: FakeClock) -> None:
        self.settings = settings
        self.network = network
        self.clock = clock
        self.name = settings.city
        self.address = address_of(self.name)
        self.disk = FragileDisk()
        runtime = Runtime(
            clock=clock,
            monotonic=clock,
            rng=Random(f"{self.name} jitter"),
            random_bytes=Random(f"{self.name} {clock.now}").randbytes,
            in_thread=inline,
            worker=InlineWorker,
            transport=lambda: MemoryTransport(network, self.address),
            disk=self.disk,
        )
        self.pricing = Pricing(settings, runtime)
        self.gossip = Gossip(self.pricing)

    async def start(self) -> None:
        await self.pricing.start()
        await self.gossip.start()
        self.network.servers[self.address] = self.gossip

    async def stop(self) -> None:
        """Once more does no harm."""
        if self.network.servers.get(self.address) is self.gossip:
            del self.network.servers[self.address]
            await self.gossip.stop()
            await self.pricing.stop()

    async def restart(self, **changes: Any) -> "MemoryCity":
        """The same database in a new process, with these gossip settings changed."""
        await self.stop()
        gossip = self.settings.gossip.model_copy(update=changes)
        city = MemoryCity(self.settings.model_copy(update={"gossip": gossip}), self.network, self.clock)
        await city.start()
        return city

    async def teach(self, lessons: int, seed: int = 0) -> None:
        """Decide so many prices and learn their rewards."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        ids = [f"{seed}-{i}" for i in range(lessons)]
        contexts = rng.random((lessons, self.settings.shape.dim)).tobytes()
        prices, feedback = FutureTicket(), FutureTicket()
        self.pricing.quote(Quote([(id_, None) for id_ in ids], contexts), prices)
        await prices.future
        self.pricing.feedback([(id_, float(rng.normal())) for id_ in ids], feedback)
        await feedback.future

    async def tick(self) -> None:
        await self.gossip.exchange()
        await self.gossip.absorb(always=True)

    @property
    def wires(self) -> dict[str, bytes]:
        """The bits of all letters that it has."""
        return {origin: letter.wire for origin, letter in self.gossip.node.letters.items()}

    @property
    def editions(self) -> dict[str, tuple[int, int]]:
        return {origin: letter.edition for origin, letter in self.gossip.node.letters.items()}

    def peer(self, name: str) -> Peer:
        return self.gossip.book.peers[address_of(name)]

    def status(self, name: str) -> str:
        (row,) = [row for row in peers_of(self.gossip) if row["origin"] == name]
        return str(row["status"])

    def stored_editions(self) -> dict[str, tuple[int, int]]:
        """Of the letters in the database, while the city is stopped."""
        pricing = Pricing(self.settings, self.pricing.runtime)
        pricing.open()
        pricing.database.close()
        letters = [Letter.read(wire) for wire, _ in pricing.mesh_record.letters]
        return {letter.origin: letter.edition for letter in letters}

    def letter_of(
        self, origin: str, version: int, *, epoch: int = 1, sealed_by: str = "", factor: float = 1.0
    ) -> Letter:
        """A letter of another city with this city's numbers; any other `factor` than 1 makes it a lie."""
        numbers = self.pricing.learner.numbers() * factor
        seal = Seal((sealed_by or origin).encode().ljust(32, b"."))
        return seal.close(Summary.of(origin, epoch, version, self.settings.fingerprint, numbers))


def address_of(name: str) -> str:
    return f"http://{name}"


@asynccontextmanager
async def memory_mesh(
    folder: Path,
    names: Sequence[str] = ("faro", "lisbon"),
    network: MemoryNetwork | None = None,
    *,
    gossip: Mapping[str, Any] | None = None,
    **sections: Any,
) -> AsyncIterator[list[MemoryCity]]:
    """Cities that know each other's address, in lockstep and with signatures unless `gossip` differs."""
    network, clock = network or MemoryNetwork(), FakeClock()
    cities = []
    for name in names:
        peers = [address_of(other) for other in names if other != name]
        section = {"lockstep": True, "secrets": SECRETS, "peers": peers, **(gossip or {})}
        url = f"sqlite:///{folder}/{name}.db"
        settings = settings_for(url, city=name, gossip=section, **sections)
        cities.append(MemoryCity(settings, network, clock))
    try:
        for city in cities:
            await city.start()
        yield cities
    finally:
        for server in list(network.servers.values()):
            await server.stop()
            await server.pricing.stop()
