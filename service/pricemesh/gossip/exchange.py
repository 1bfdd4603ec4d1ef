"""The exchange of letters with other cities: at every tick with some of them, and whenever one calls.

Lives on the event loop beside the prices and never in their way: what takes long is done in threads, a
peer that is slow, down or lying costs nobody but itself. What is taken has been committed.
"""

import asyncio
import json
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import httpx

from pricemesh.city.pricing import Pricing
from pricemesh.city.rate_limiter import RateLimiter
from pricemesh.errors import (
    BadSummary,
    NotAllowed,
    OtherMesh,
    PricemeshError,
    StorageUnavailable,
    UnknownCity,
    UnreadableBody,
)
from pricemesh.gossip.author import Author
from pricemesh.gossip.discovery import MOST_LEARNED, Discovery
from pricemesh.gossip.envelope import Message
from pricemesh.gossip.intake import Intake
from pricemesh.gossip.letters import Leave, Letter
from pricemesh.gossip.node import NAME
from pricemesh.gossip.peers import Book, Peer
from pricemesh.gossip.signing import HEADER, Keyring
from pricemesh.store.commands import DropOrigin, TrustKey

log = logging.getLogger("pricemesh.gossip")

MOST_TURNS = 4  # request and answer, until both hold the same
CALLS_FROM_A_MACHINE = 20  # times the rate of one city
PEER_FAULTS = (httpx.HTTPError, httpx.InvalidURL, PricemeshError, OSError, TimeoutError)


class Gossip:
    def __init__(
        self,
        pricing: Pricing,
    ) -> None:
        settings = pricing.settings
        self.pricing = pricing
        self.settings = settings.gossip
        self.city = settings.city
        clock = self._clock = pricing.runtime.clock
        self._rng = pricing.runtime.rng
        self._keyring = Keyring(self.settings.secrets)
        self._unsigned = not self.settings.secrets and settings.security.api_keys_file is None
        self._timeout = self.settings.timeout_seconds or max(0.1, self.settings.interval_seconds)
        self._pace = RateLimiter(self.settings.rate_per_second, pricing.runtime.monotonic)
        self._machine_pace = RateLimiter(
            CALLS_FROM_A_MACHINE * self.settings.rate_per_second, pricing.runtime.monotonic
        )
        self._most_bytes = settings.limits.body_bytes
        self._most_entries = 2 * self.settings.most_cities + 16  # of a digest, a book, a bundle of letters
        self.shares = bool(pricing.learner.fields)
        self.counts: Counter[tuple[str, str]] = Counter()  # (what, which): for the metrics
        self.intake = Intake(pricing, self.counts, clock)
        self.node = self.intake.node
        self.book = Book(self.settings.address or "", self.settings.fan_out)
        self._discovery = Discovery(pricing, self.book, clock)
        self.callers: dict[str, Peer] = {}  # cities that call and whose address is not known here
        self.ticks = 0
        self._absorbed: dict[str, tuple[int, float]] = {}  # by origin, what it had learned when last absorbed
        self._author: Author | None = None
        self._http: httpx.AsyncClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._absorbing = asyncio.Lock()

    # Start and end

    def open(self) -> None:
        """Go on with what the database holds; `Pricing.open` comes first."""
        place = self.pricing.mesh_record
        self._author = Author(self.pricing, self.node, self._clock)
        self.node.dropped, self.node.trusted = set(place.dropped), dict(place.trusted)
        self.book.add(self.settings.peers, configured=True)
        if self.settings.discover:
            self.book.add(place.peers, configured=False)
        if not self.shares:
            return
        own = None
        for wire, received_at in place.letters:
            try:
                letter = Letter.read(wire)
                if letter.origin == self.city:
                    own = letter
                    continue
                self.node.admit(letter, self.node.held.get(letter.origin))
                self.intake.check(letter.summary)
            except BadSummary as fault:
                log.warning("a letter kept here does not count any more", extra={"fault": str(fault)})
                continue
            self.node.take([letter])
            self.intake.received_at[letter.origin] = received_at
        if self.pricing.rejoin(self.node.summaries):
            self._absorbed = self._learned()
        self._author.go_on_from(own)

    @property
    def author(self) -> Author:
        assert self._author is not None, "Gossip.open() comes first"
        return self._author

    @property
    def left(self) -> bool:
        return "left" in self.pricing.controls

    async def start(self) -> None:
        if self._author is None:
            await asyncio.to_thread(self.open)
        self._http = httpx.AsyncClient(
            timeout=self._timeout,
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=32),
            follow_redirects=False,
            trust_env=False,
        )
        self._http.headers.clear()
        if self.shares:
            await self.author.keep()
            if not self.settings.lockstep:
                self._task = asyncio.create_task(self._run(), name="gossip")
        elif self.settings.peers:
            log.warning("the policy shares nothing: peers are not called")

    async def stop(self) -> None:
        tasks = [*self._asking, *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        if self._http is not None:
            await self._http.aclose()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.settings.interval_seconds * self._rng.uniform(0.9, 1.1))
            try:
                await self.tick()
            except (StorageUnavailable, BadSummary) as fault:
                log.warning("tick put off", extra={"fault": str(fault)})
            except Exception:
                log.exception("unforeseen, in a tick")

    # A tick

    async def tick(self) -> None:
        await self.exchange()
        await self.absorb()

    async def exchange(self) -> None:
        """With the peers whose turn it is; those that take longer than a tick finish by themselves."""
        self.ticks += 1
        if self.left or not self.shares or not self.book.peers:
            return
        await self.author.publish()
        asking = {asyncio.create_task(self._ask(peer)) for peer in self.book.turn(self._rng)}
        self._asking |= asking
        for task in asking:
            task.add_done_callback(self._asking.discard)
        if asking:
            patience = None if self.settings.lockstep else self.settings.interval_seconds
            await asyncio.wait(asking, timeout=patience)
        await self._discovery.forget_unreached()

    async def absorb(self, *, always: bool = False) -> bool:
        """Let what was heard count, if anyone has learned anything since."""
        async with self._absorbing:
            learned = self._learned()
            if not self.shares or (learned == self._absorbed and not always):
                return False
            await self.pricing.absorb(self.node.summaries)
            self._absorbed = learned
            self.counts["absorbed", ""] += 1
            return True

    def _learned(self) -> dict[str, tuple[int, float]]:
        layout = self.pricing.learner.layout
        return {
            origin: (letter.summary.epoch, float(layout.part("count", letter.summary.numbers).sum()))
            for origin, letter in self.node.held.items()
            if origin != self.city
        }

    # Asking

    async def _ask(self, peer: Peer) -> None:
        peer.busy = True
        try:
            async with asyncio.timeout(2 * self._timeout):
                await self._converse(peer)
        except StorageUnavailable as fault:
            log.warning("an exchange could not be kept", extra={"peer": peer.origin, "fault": str(fault)})
        except PEER_FAULTS as fault:
            said = str(fault) or type(fault).__name__
            silent = peer.silent
            peer.missed(said)
            self.counts["exchanges", "failed"] += 1
            if peer.silent and not silent:
                log.warning("a peer is silent", extra={"peer": peer.origin or peer.address, "fault": said})
        else:
            if peer.silent:
                log.info("a peer is back", extra={"peer": peer.origin})
            peer.reached(self._clock())
            self.counts["exchanges", "done"] += 1
        finally:
            peer.busy = False

    async def _converse(self, peer: Peer) -> None:
        """Until both hold the same, or nothing more can be told."""
        briefly = peer.agreed == self.node.state and not self.left
        for _ in range(MOST_TURNS):
            state = self.node.state
            answer = await self._post(peer, self._composed(peer, briefly=briefly))
            if answer is None or answer.state == state:
                if answer is not None:
                    self._recognise(peer, answer)
                peer.agreed, peer.known = self.node.state, self.node.digest
                return
            peer.agreed = b""
            self._recognise(peer, answer)
            if answer.fingerprint != self.node.fingerprint or answer.digest is None:
                raise OtherMesh(f"{answer.sender} has other arms, shared features, policy or group")
            refused = await self._take(answer)
            peer.known = answer.digest
            if answer.state == self.node.state:
                peer.agreed = self.node.state
                return
            wanted = self.node.lacked(answer.digest) - refused
            if not wanted and not self.node.lacking(peer.known, peer.sent_lately(self.ticks)):
                return
            briefly = False

    def _recognise(self, peer: Peer, answer: Message) -> None:
        if answer.sender == self.city:
            raise OtherMesh(f"{peer.address} is this city itself, or another of its name")
        peer.origin = answer.sender
        peer.left = self._is_leaving(answer)

    def _composed(self, peer: Peer, *, briefly: bool) -> Message:
        """What to tell a peer; the letters in it are remembered, so that one it does not take is not sent
        to it again and again."""
        if briefly:
            return self.node.brief()
        letters = self.node.lacking(peer.known, peer.sent_lately(self.ticks))
        peer.remember(letters, peer.known, self.ticks)
        return replace(
            self.node.full(letters),
            address=self.settings.address or "",
            leave=self._leave(),
            discovers=self.settings.discover,
        )

    def _leave(self) -> bytes:
        return Leave.sign(self.author.seal, self.city, self._clock()) if self.left else b""

    def _is_leaving(self, message: Message) -> bool:
        letter = self.node.held.get(message.sender)
        if not message.leave or letter is None:
            return False
        return Leave.holds(message.leave, letter, self._clock())

    async def _post(self, peer: Peer, message: Message) -> Message | None:
        """One request and its answer; None when both hold the same."""
        assert self._http is not None
        body = message.to_bytes()
        headers = {}
        if self._keyring.signs:
            headers[HEADER] = self._keyring.sign(body, self._clock())
        async with self._http.stream("POST", f"{peer.address}/gossip", content=body, headers=headers) as got:
            answer = bytearray()
            async for chunk in got.aiter_raw():
                answer += chunk
                if len(answer) > self._most_bytes:
                    raise OtherMesh(f"{peer.address} answers without end")
        self._count(peer, len(answer), len(body))
        if got.status_code not in (200, 204):
            raise OtherMesh(f"{peer.address} answers {got.status_code}{_told(bytes(answer))}")
        if self._keyring.signs:
            self._keyring.verify_reply(headers[HEADER], got.headers.get(HEADER, ""), bytes(answer))
        return None if got.status_code == 204 else Message.from_bytes(bytes(answer), self._most_entries)

    def _count(self, peer: Peer, received: int, sent: int) -> None:
        peer.bytes_in += received
        peer.bytes_out += sent
        self.counts["bytes", "in"] += received
        self.counts["bytes", "out"] += sent

    # Being asked

    async def receive(self, body: bytes, signature: str, machine: str) -> tuple[bytes | None, str]:
        """A peer's message; the answer (None: both hold the same) and its signature."""
        if not self.shares:
            raise OtherMesh(f"{self.city} runs a policy that shares nothing")
        if not self._keyring.signs and not self._unsigned:
            raise NotAllowed("this city takes no gossip: it has API keys, but no gossip.secrets")
        self._machine_pace.take(machine)
        self._keyring.verify(signature, body, self._clock())
        message = Message.from_bytes(body, self._most_entries)
        sender = message.sender
        if not NAME.fullmatch(sender):
            raise UnreadableBody([("", "its sender has no city's name")])
        self._pace.take(sender)
        if sender == self.city:
            raise OtherMesh(f"two cities are called {sender}: every city needs a name of its own")
        if sender in self.node.dropped:
            raise NotAllowed(f"an operator has dropped {sender} here")
        if message.digest is not None and message.fingerprint != self.node.fingerprint:
            raise OtherMesh(f"{self.city} has {self.pricing.settings.common}: yours differs")
        peer = await self._meet(message)
        due = self._clock() - self.author.published_at > self.settings.interval_seconds / 2
        if self.settings.lockstep or due:
            await self.author.publish()
        await self._take(message)
        answer = self._answer(peer, message)
        self._count(peer, len(body), len(answer or b""))
        signed = self._keyring.sign_reply(signature, answer or b"") if self._keyring.signs else ""
        return answer, signed

    def _answer(self, peer: Peer, message: Message) -> bytes | None:
        letters: list[Letter] = []
        if message.digest is not None:
            letters = self.node.lacking(message.digest, peer.sent_lately(self.ticks))
            peer.remember(letters, message.digest, self.ticks)
        reply = self.node.reply(message, letters)
        if message.state == self.node.state:
            peer.agreed, peer.known = self.node.state, self.node.digest
        elif message.digest is not None:
            peer.known = {**message.digest, **self.node.digest}  # once it has taken what it lacks
        if self.left and reply is None:
            reply = self.node.brief()
        if reply is None:
            return None
        book: tuple[str, ...] = ()
        if message.discovers and reply.digest is not None:
            book = tuple(sorted(set(self.book.peers) - {message.address}))[:MOST_LEARNED]
        return replace(reply, leave=self._leave(), book=book).to_bytes()

    async def _meet(self, message: Message) -> Peer:
        """The peer that this message comes from."""
        await self._discovery.learn([message.address] if message.address else [])
        peer = self.book.of(message.sender) or self.book.peers.get(message.address)
        if peer is None:
            if len(self.callers) >= 2 * self.settings.most_cities:
                self.callers.clear()
            peer = self.callers.setdefault(message.sender, Peer(""))
        peer.origin = peer.origin or message.sender
        peer.reached(self._clock())
        leaving = self._is_leaving(message)
        if leaving and not peer.left:
            log.info("a peer has left", extra={"peer": peer.origin})
        peer.left = leaving
        return peer

    async def _take(self, message: Message) -> set[str]:
        """Everything that a message brings; whose letters were refused."""
        await self._discovery.learn(message.book)
        if not message.letters:
            return set()
        sifted = await self.intake.take(message.letters, message.sender)
        if sifted.own is not None:
            await self.author.renew(sifted.own)
        return {refusal.origin for refusal in sifted.refused}

    # Operators

    async def drop(self, origin: str) -> None:
        """What this city told is subtracted, and nothing is heard of it any more."""
        if origin == self.city:
            raise UnknownCity("a city cannot drop itself: POST /admin/leave lets it leave the mesh")
        await self.pricing.commit(DropOrigin(origin, self._clock()))
        self.node.drop(origin)
        self.intake.quarantined.pop(origin, None)
        await self.absorb()

    async def readmit(self, origin: str) -> None:
        if origin not in self.node.dropped:
            raise UnknownCity(f"{origin!r} has not been dropped here")
        await self.pricing.commit(DropOrigin(origin, self._clock(), readmitted=True))
        self.node.readmit(origin)

    async def trust(self, origin: str, key: bytes) -> None:
        """Know this city by this key from now on: it was set up anew."""
        if origin == self.city:
            raise UnknownCity("a city's own key is in its database")
        await self.pricing.commit(TrustKey(origin, key))
        self.node.trust(origin, key)
        self.intake.quarantined.pop(origin, None)
        await self.absorb()

    async def leave(self) -> int:
        """Tell the peers that this city goes, and call nobody any more; how many have heard it."""
        await self.pricing.control("left", {})
        if not self.shares:
            return 0
        await self.author.publish()
        peers = [peer for peer in self.book.peers.values() if not peer.left]
        await asyncio.gather(*(self._ask(peer) for peer in peers))
        return sum(not peer.misses for peer in peers)

    async def join(self) -> None:
        await self.pricing.lift("left")
        for peer in self.book.peers.values():
            peer.agreed = b""


def _told(answer: bytes) -> str:
    """What a city says of its refusal; other servers' words are nobody's business."""
    try:
        problem = json.loads(answer)
        ours = problem["type"].startswith("urn:pricemesh:")
        return f": {problem['detail'][:300]}" if ours else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
