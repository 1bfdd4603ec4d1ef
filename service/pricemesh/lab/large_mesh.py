"""Meshes of many cities in one process: how fast they converge, and what a city pays for the others.

The nodes, messages, letters, seals, the choice of partners and both sides of an exchange are those of the
service; HTTP, databases and the folding of letters into learners are left out. Time is virtual: in a tick
every city learns, publishes its news and calls its partners, in an order drawn anew. A sample of the cities
reads every byte and checks every letter as the service does; the others believe what a city of the mesh has
sealed, because a thousand cities that check a thousand letters each would take hours. Bytes are those of the
messages, written in full, with what HTTP and signatures add to each round trip.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from sys import getsizeof
from time import process_time

import numpy as np

from pricemesh.city.gossip_settings import DEFAULT_FAN_OUT, DEFAULT_NEWS, DEFAULT_NEWS_SECONDS
from pricemesh.core.arrays import Array
from pricemesh.core.policies import Shape, make_policy
from pricemesh.core.summary import Summary
from pricemesh.errors import InvalidParameter
from pricemesh.gossip.conversation import MAX_ROUND_TRIPS, Call, reply_to
from pricemesh.gossip.difference import Difference
from pricemesh.gossip.digests import DigestMemory
from pricemesh.gossip.drafts import Drafts
from pricemesh.gossip.intake import check_summary
from pricemesh.gossip.letter import Letter, Seal
from pricemesh.gossip.mesh import MEMORIES_PER_PARTNER
from pricemesh.gossip.message import Edition, Message
from pricemesh.gossip.node import CheckedLetters, Node
from pricemesh.gossip.peers import AddressBook

FINGERPRINT = bytes(16)
MAX_SQUARE, MAX_REWARD = 100.0, 100.0  # of contexts and rewards, for the checks of letters
ROUND_TRIP_BYTES = 322  # of HTTP and signatures, beside the messages: docs/decisions/0007-gossip.md
SAMPLED_CITIES = 10
BYTES_PER_LETTER = 1_000  # of names, keys, editions and the entries of tables, beside its bytes
MAX_TICKS = 100  # until a mesh that does not converge is given up


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a mesh is made of, and how it lives."""

    policy: str = "netpool"
    arms: int = 5
    shared: int = 8
    local: int = 2
    rate: float = 1.0  # feedback a second in every city
    warm_up: int = 600  # lessons of every city before the measurement
    seconds: int = 30  # of the measurement
    fan_out: int = DEFAULT_FAN_OUT
    news: float = DEFAULT_NEWS
    news_seconds: float = DEFAULT_NEWS_SECONDS
    interval_seconds: float = 1.0

    def __post_init__(self) -> None:
        if self.rate < 0 or self.warm_up < 1 or self.seconds < 1 or self.fan_out < 1:
            raise InvalidParameter(
                "rate must be 0 or more; warm-up, seconds and fan-out count from 1: "
                f"not {self.rate}, {self.warm_up}, {self.seconds} and {self.fan_out}"
            )

    @property
    def ticks(self) -> int:
        return max(1, round(self.seconds / self.interval_seconds))


@dataclass
class Traffic:
    """Of one city, both directions counted."""

    letters: int = 0  # bytes
    entries: int = 0  # bytes of messages beside the letters: digests, names, states
    overhead: int = 0  # bytes of HTTP and signatures
    letters_taken: int = 0

    @property
    def bytes(self) -> int:
        return self.letters + self.entries + self.overhead


class Stopwatch:
    """Processor time of one city. Reading the clock takes time itself, which is not counted."""

    def __init__(self, *, is_running: bool) -> None:
        self.is_running = is_running
        self.seconds = 0.0
        started = process_time()
        self._reading_seconds = process_time() - started if is_running else 0.0
        self._started = 0.0

    def __enter__(self) -> None:
        if self.is_running:
            self._started = process_time()

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.seconds += process_time() - self._started - self._reading_seconds


class Registry:
    """All letters that cities of the mesh have sealed, so that cities share the objects."""

    def __init__(self) -> None:
        self._by_wire: dict[bytes, Letter] = {}
        self._by_edition: dict[tuple[str, Edition], Letter] = {}

    def add(self, letter: Letter) -> Letter:
        self._by_wire[letter.wire] = self._by_edition[letter.origin, letter.edition] = letter
        return letter

    def find(self, item: bytes | Difference) -> Letter:
        if isinstance(item, bytes):
            return self._by_wire[item]
        return self._by_edition[item.origin, item.edition]


class TrustingNode(Node):
    """Takes the letters of the registry without checking them, if it could have built them."""

    registry: Registry

    def check_letters(self, wires: Iterable[bytes], differences: Iterable[Difference] = ()) -> CheckedLetters:
        fresh, unbuilt = [self.registry.find(wire) for wire in wires], set()
        for item in differences:
            base = self.letters.get(item.origin)
            if base is None or base.summary.epoch != item.epoch or base.summary.version < item.since:
                unbuilt.add(item.origin)
            else:
                fresh.append(self.registry.find(item))
        return CheckedLetters(fresh, [], None, frozenset(unbuilt))


@dataclass
class SimulatedNode:
    """One city: what the service has of gossip, without its database."""

    node: Node
    seal: Seal
    book: AddressBook
    memory: DigestMemory
    drafts: Drafts
    stopwatch: Stopwatch
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def is_sampled(self) -> bool:
        return self.stopwatch.is_running

    def memory_bytes(self) -> int:
        """Of the letters and digests that it holds, as if no other city shared them."""
        letters = self.node.letters.values()
        numbers = sum(getsizeof(letter.wire) + getsizeof(letter.summary.payload) for letter in letters)
        objects = BYTES_PER_LETTER * len(letters)
        return numbers + objects + sum(map(getsizeof, self.memory.all()))


class LargeMesh:
    def __init__(self, cities: int, conditions: Conditions, seed: int = 0) -> None:
        if cities < 2:
            raise InvalidParameter(f"a mesh has at least two cities, not {cities}")
        self._conditions = conditions
        self._rng = Random(seed)
        self._np_rng = np.random.default_rng(seed)
        self._registry = Registry()
        self.ticks = 0
        self._clock = 0.0
        policy, c = make_policy(conditions.policy), conditions
        self._reader = policy.learner(Shape(c.arms, c.shared, c.local))
        self._learner = policy.learner(Shape(c.arms, c.shared, c.local, (cities,)))
        self._version = 0  # lessons of every city
        step = max(1, cities // SAMPLED_CITIES)
        self.cities = {
            f"http://city{i:05}": self._city(f"city{i:05}", is_sampled=i % step == 0) for i in range(cities)
        }
        for city in self.cities.values():
            city.book.add(self.cities, is_configured=True)

    def warm_up(self, on_lesson: Callable[[], None] = lambda: None) -> None:
        """Every city learns alone and publishes as it would. Cities begin to publish at different times,
        because those of a real mesh are not started together."""
        lessons, rate = self._conditions.warm_up, max(self._conditions.rate, 1.0)
        wait = self._conditions.news_seconds * rate  # in lessons
        begins = [lessons - round(self._rng.uniform(1.0, 2.0) * wait) for _ in self.cities]
        for lesson in range(1, lessons + 1):
            self._learn()
            self._clock += 1.0 / rate
            if lesson >= min(begins) or lesson == lessons:
                self._publish([begin <= lesson or lesson == lessons for begin in begins])
            on_lesson()

    def _city(self, name: str, *, is_sampled: bool) -> SimulatedNode:
        conditions, cities = self._conditions, 10_000
        kind = Node if is_sampled else TrustingNode
        node = kind(
            name,
            FINGERPRINT,
            partial(check_summary, self._reader, MAX_SQUARE, MAX_REWARD),
            max_cities=cities,
            blocks=self._reader.layout.blocks,
        )
        if isinstance(node, TrustingNode):
            node.registry = self._registry
        return SimulatedNode(
            node,
            Seal(name.encode().ljust(32, b".")),
            AddressBook(f"http://{name}", conditions.fan_out, is_known=node.is_known, city=name),
            DigestMemory(MEMORIES_PER_PARTNER * conditions.fan_out, node.is_known),
            Drafts(conditions.news, conditions.news_seconds),
            Stopwatch(is_running=is_sampled),
        )

    # Time

    def converge(self, on_tick: Callable[[], None] = lambda: None) -> int:
        """Ticks until all cities have the letters of all, with nothing learned meanwhile."""
        start = self.ticks
        while len({city.node.state for city in self.cities.values()}) > 1:
            if self.ticks - start >= MAX_TICKS:
                raise InvalidParameter(f"this mesh does not converge within {MAX_TICKS} ticks")
            self._exchange()
            on_tick()
        return self.ticks - start

    def live(self, ticks: int, on_tick: Callable[[], None] = lambda: None) -> None:
        """Learn, publish and exchange for so many ticks."""
        due = 0.0
        for _ in range(ticks):
            due += self._conditions.rate * self._conditions.interval_seconds
            for _ in range(int(due)):
                self._learn()
            due -= int(due)
            self._clock += self._conditions.interval_seconds
            self._publish()
            self._exchange()
            on_tick()

    def _learn(self) -> None:
        """One lesson in every city, on an arm drawn at random."""
        (cities,), dim, rng = self._learner.shape.batch, self._learner.shape.dim, self._np_rng
        arms = rng.integers(self._learner.shape.arms, size=cities)
        self._learner.learn(rng.uniform(-1, 1, (cities, dim)), arms, rng.normal(size=cities))
        self._version += 1

    def _publish(self, are_publishing: Iterable[bool] | None = None) -> None:
        rows, chosen = self._learner.numbers(), are_publishing or [True] * len(self.cities)
        for city, row, is_publishing in zip(self.cities.values(), rows, chosen, strict=True):
            if is_publishing:
                with city.stopwatch:
                    self._publish_city(city, row)

    def _publish_city(self, city: SimulatedNode, row: Array) -> None:
        origin, last = city.node.origin, city.node.letters.get(city.node.origin)
        summary: Summary | None = Summary.of(origin, 1, self._version, FINGERPRINT, row)
        if last is not None:
            summary = city.drafts.next(self._reader, last.summary, row, self._version, self._clock)
        if summary is not None:
            city.node.take([self._registry.add(city.seal.close(summary))])

    def _exchange(self) -> None:
        self.ticks += 1
        for city in self._rng.sample(list(self.cities.values()), len(self.cities)):
            city.book.ticks = self.ticks
            for peer in city.book.choose(self._rng):
                self._call(city, self.cities[peer.address], peer.address)

    # One exchange

    def _call(self, caller: SimulatedNode, server: SimulatedNode, address: str) -> None:
        peer = caller.book.peers[address]
        peer.origin = server.node.origin
        with caller.stopwatch:
            call = Call(caller.node, caller.memory, peer, self.ticks)
            request = self._carry(call.request(), caller, server)
        for _ in range(MAX_ROUND_TRIPS):
            with server.stopwatch:
                answer = self._answer(caller, server, request)
            for side in (caller, server):
                side.traffic.overhead += ROUND_TRIP_BYTES
            with caller.stopwatch:
                if not call.read(answer) or answer is None:
                    return
                unbuilt = _take(caller, answer)
                if not call.goes_on(answer):
                    return
                request = self._carry(call.request(unbuilt), caller, server)

    def _answer(self, caller: SimulatedNode, server: SimulatedNode, request: Message) -> Message | None:
        unbuilt = _take(server, request)
        peer = server.book.sender(caller.node.origin, caller.book.own_address)
        reply = reply_to(server.node, server.memory, peer, request, self.ticks, unbuilt)
        return None if reply is None else self._carry(reply, server, caller)

    @staticmethod
    def _carry(message: Message, sender: SimulatedNode, receiver: SimulatedNode) -> Message:
        """The message as the receiver reads it; its bytes are counted on both sides."""
        wire = message.to_bytes()
        letters = sum(map(len, message.letters)) + sum(map(_size, message.differences))
        for side in (sender, receiver):
            side.traffic.letters += letters
            side.traffic.entries += len(wire) - letters
        return Message.from_bytes(wire) if receiver.is_sampled else message


def _take(city: SimulatedNode, message: Message) -> frozenset[str]:
    """Take the letters of a message; returns the origins of differences that could not be built."""
    checked = city.node.check_letters(message.letters, message.differences)
    if checked.refusals:
        raise AssertionError(f"an honest city was refused: {checked.refusals[0]}")
    city.node.take(checked.fresh)
    city.traffic.letters_taken += len(checked.fresh)
    return checked.unbuilt_origins


def _size(item: Difference) -> int:
    """Its bytes in a message, but for the few of msgpack's own."""
    return len(item.origin) + len(item.lags) + len(item.numbers) + len(item.rest) + len(item.signature)
