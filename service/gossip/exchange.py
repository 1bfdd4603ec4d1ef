"""The exchange of letters with other cities: at every tick with some of them, and whenever one calls.

Lives on the event loop beside the prices and never in their way: what takes long is done in threads, a
peer that is slow, down or lying costs nobody but itself. What is taken has been committed.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from service.addresses import checked_address, is_loopback
from service.core.summary import Summary
from service.errors import (
    BadSummary,
    NotAllowed,
    OtherMesh,
    PricemeshError,
    StorageUnavailable,
    UnknownCity,
)
from service.gossip.envelope import Message
from service.gossip.letters import Letter, Seal
from service.gossip.node import Node, Refusal
from service.gossip.peers import MISSES_UNTIL_SILENT, Book, Peer
from service.keys import Pace
from service.pricing import Pricing
from service.signing import HEADER, Keyring
from service.store.operations import DropOrigin, KeepLetters, KeepMesh, KeepPeers

log = logging.getLogger("pricemesh.gossip")

MOST_TURNS = 4  # request and answer, until both hold the same
PEER_FAULTS = (httpx.HTTPError, httpx.InvalidURL, PricemeshError, OSError)


@dataclass
class Quarantine:
    reason: str
    since: float
    via: str  # who brought it


class Gossip:
    def __init__(
        self,
        pricing: Pricing,
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        settings = pricing.settings
        self.pricing = pricing
        self.settings = settings.gossip
        self.city = settings.city
        self._clock = clock
        self._rng = rng or random.Random()
        self._transport = transport
        self._keyring = Keyring(self.settings.secrets)
        self._unsigned = not self.settings.secrets and settings.security.api_keys_file is None
        self._timeout = self.settings.timeout_seconds or max(0.1, self.settings.interval_seconds)
        self._pace = Pace(self.settings.rate_per_second)
        self._most_bytes = settings.limits.body_bytes
        self.shares = bool(pricing.learner.fields)
        self.node = Node(
            settings.city,
            settings.fingerprint,
            self._check,
            cities=self.settings.cities,
            most_cities=self.settings.most_cities,
            most_bytes=self._most_bytes - 100_000,
        )
        self.book = Book(self.settings.address or "", self.settings.fan_out)
        self._callers: dict[str, Peer] = {}  # cities that call and whose address is not known here
        self.quarantined: dict[str, Quarantine] = {}
        self.counts: Counter[tuple[str, str]] = Counter()  # (what, which): for the metrics
        self.ticks = 0
        self._received_at: dict[str, float] = {}
        self._absorbed: dict[str, float] = {}  # by origin, how much it had learned when last absorbed
        self._published_at = 0.0
        self._epoch = 1
        self._seal: Seal | None = None
        self._http: httpx.AsyncClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._publishing = asyncio.Lock()
        self._absorbing = asyncio.Lock()
        self.left = False

    # Start and end

    def open(self) -> None:
        """Go on with what the database holds; `Pricing.open` comes first."""
        place = self.pricing.place
        self._epoch, self._seal = place.epoch, Seal(place.seed)
        self.node.dropped = set(place.dropped)
        self.book.add(self.settings.peers, configured=True)
        if self.settings.discover:
            self.book.add(place.peers, configured=False)
        for wire, received_at in place.letters:
            try:
                letter = Letter.read(wire)
                if letter.origin == self.city:
                    self._go_on_from(letter)
                    continue
                if letter.summary.fingerprint != self.node.fingerprint:
                    raise BadSummary("it was made for other arms, shared features, policy or group")
                self._check(letter.summary)
            except BadSummary as fault:
                log.warning("a letter kept here does not count any more", extra={"fault": str(fault)})
                continue
            self.node.take([letter])
            self._received_at[letter.origin] = received_at
        if self.shares:
            self.pricing.rejoin(self.node.summaries)
            self._absorbed = self._learned()
            if self.city not in self.node.held:
                self.node.take([self._own_letter()])

    def _go_on_from(self, letter: Letter) -> None:
        """With the letter last published, if it still says what this city knows; else under a new epoch,
        for a version names one content."""
        if not self.shares:
            return
        numbers = self.pricing.learner.numbers()
        old = letter.summary
        same = old.fingerprint == self.node.fingerprint and letter.key == self._seal_.key
        if same and letter.edition == (self._epoch, self._version):
            same = old.numbers.shape == numbers.shape and np.allclose(old.numbers, numbers, rtol=1e-6)
            if same:
                self.node.take([letter])
        if not same or letter.edition > (self._epoch, self._version):
            self._epoch = max(self._epoch, old.epoch) + 1
            log.warning("what this city tells has changed: it goes on under epoch %d", self._epoch)

    async def start(self) -> None:
        if self._seal is None:
            await asyncio.to_thread(self.open)
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=32)
        self._http = httpx.AsyncClient(
            timeout=self._timeout,
            limits=limits,
            transport=self._transport,
            follow_redirects=False,
            trust_env=False,
        )
        self._http.headers.clear()
        if self.shares:
            await self._keep_place()
            if not self.settings.lockstep:
                self._task = asyncio.create_task(self._run(), name="gossip")
        elif self.settings.peers:
            log.warning("the policy shares nothing: peers are not called")

    async def _keep_place(self) -> None:
        """The epoch, and the letter it is published under."""
        own = self.node.held[self.city]
        try:
            await self.pricing.writer.submit(KeepMesh(epoch=self._epoch))
            await self.pricing.writer.submit(KeepLetters([(self.city, own.wire)], self._clock()))
        except StorageUnavailable as fault:
            log.warning("the place in the mesh is not kept yet", extra={"fault": str(fault)})

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
            if self.left:
                continue
            try:
                await self.tick()
            except StorageUnavailable as fault:
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
        if self.book.peers:
            await self._publish()
        asking = {asyncio.create_task(self._ask(peer)) for peer in self.book.turn(self._rng)}
        self._asking |= asking
        for task in asking:
            task.add_done_callback(self._asking.discard)
        if asking:
            patience = None if self.settings.lockstep else self.settings.interval_seconds
            await asyncio.wait(asking, timeout=patience)

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

    def _learned(self) -> dict[str, float]:
        layout = self.pricing.learner.layout
        return {
            origin: float(layout.part("count", letter.summary.numbers).sum())
            for origin, letter in self.node.held.items()
            if origin != self.city
        }

    # Own letter

    @property
    def _version(self) -> int:
        return self.pricing.version + self.pricing.mixes

    @property
    def _seal_(self) -> Seal:
        assert self._seal is not None, "Gossip.open() comes first"
        return self._seal

    def _own_letter(self) -> Letter:
        numbers = self.pricing.learner.numbers()
        summary = Summary.of(self.city, self._epoch, self._version, self.node.fingerprint, numbers)
        return self._seal_.close(summary)

    async def _publish(self) -> None:
        """Tell all that is known now. Committed before it is told: after a crash the same version must not
        name another content."""
        async with self._publishing:
            own = self.node.held.get(self.city)
            if not self.shares or not self.pricing.settled:
                return
            if own is not None and own.edition == (self._epoch, self._version):
                return
            letter = self._own_letter()
            await self.pricing.writer.submit(KeepLetters([(self.city, letter.wire)], self._clock()))
            self.node.take([letter])
            self._published_at = self._clock()

    async def _renew(self, met: Letter) -> None:
        """A letter of one's own, newer than all one remembers: this database is an older one than was
        served before. What it knows goes on under a new epoch, in which it counts again."""
        if met.summary.epoch < self._epoch:
            return  # another peer has said so already
        self._epoch = met.summary.epoch + 1
        log.warning(
            "other cities know a later state of this one: was it restored from a backup? "
            "It goes on under epoch %d",
            self._epoch,
        )
        await self.pricing.writer.submit(KeepMesh(epoch=self._epoch))
        await self._publish()

    # Asking

    async def _ask(self, peer: Peer) -> None:
        peer.busy = True
        try:
            async with asyncio.timeout(2 * self._timeout):
                await self._converse(peer)
        except (*PEER_FAULTS, TimeoutError) as fault:
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
        briefly = peer.agreed == self.node.state
        for _ in range(MOST_TURNS):
            message = self._addressed(self.node.message(peer.known, briefly=briefly), briefly=briefly)
            answer = await self._post(peer, message)
            if answer is not None and answer.sender == self.city:
                raise OtherMesh(f"{peer.address} is this city itself, or another of its name")
            if answer is not None:
                peer.origin = answer.sender
            if answer is None or answer.state == self.node.state:
                peer.agreed, peer.known = self.node.state, self.node.digest
                return
            briefly = False
            if answer.fingerprint != self.node.fingerprint:
                raise OtherMesh(f"{answer.sender} has other arms, shared features, policy or group")
            before = self.node.state
            await self._take(answer)
            peer.known = answer.digest
            if answer.state == self.node.state:
                peer.agreed = self.node.state
                return
            if self.node.state == before and not self.node.lacking(peer.known):
                return

    def _addressed(self, message: Message, *, briefly: bool) -> Message:
        if briefly:
            return message
        return Message(
            message.sender,
            message.state,
            message.fingerprint,
            message.digest,
            address=self.settings.address or "",
            leaving=self.left,
            discovers=self.settings.discover,
            letters=message.letters,
        )

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
        peer.bytes_out += len(body)
        peer.bytes_in += len(answer)
        self.counts["bytes", "out"] += len(body)
        self.counts["bytes", "in"] += len(answer)
        if got.status_code not in (200, 204):
            said = bytes(answer[:300]).decode(errors="replace")
            raise OtherMesh(f"{peer.address} answers {got.status_code}: {said}")
        if self._keyring.signs:
            self._keyring.verify_reply(headers[HEADER], got.headers.get(HEADER, ""), bytes(answer))
        return None if got.status_code == 204 else Message.from_bytes(bytes(answer))

    # Being asked

    async def receive(self, body: bytes, signature: str) -> tuple[bytes | None, str]:
        """A peer's message; the answer (None: both hold the same) and its signature."""
        if not self.shares:
            raise OtherMesh(f"{self.city} runs a policy that shares nothing")
        if not self._keyring.signs and not self._unsigned:
            raise NotAllowed("this city takes no gossip: it has API keys, but no gossip.secrets")
        self._keyring.verify(signature, body, self._clock())
        message = Message.from_bytes(body)
        sender = message.sender
        self._pace.take(sender)
        self.counts["bytes", "in"] += len(body)
        if sender == self.city:
            raise OtherMesh(f"two cities are called {sender}: every city needs a name of its own")
        if sender in self.node.dropped:
            raise NotAllowed(f"an operator has dropped {sender} here")
        if message.digest is not None and message.fingerprint != self.node.fingerprint:
            raise OtherMesh(f"{self.city} has {self.pricing.settings.common}: yours differs")
        peer = await self._meet(message)
        if self.settings.lockstep or self._clock() - self._published_at > self.settings.interval_seconds / 2:
            await self._publish()
        await self._take(message)
        reply = self.node.reply(message)
        if message.state == self.node.state:
            peer.agreed, peer.known = self.node.state, self.node.digest
        elif message.digest is not None:
            peer.known = {**message.digest, **self.node.digest}  # once it has taken what it lacks
        if reply is not None and message.discovers and message.digest is not None:
            reply = Message(
                reply.sender,
                reply.state,
                reply.fingerprint,
                reply.digest,
                address=self.settings.address or "",
                book=tuple(sorted(set(self.book.peers) - {message.address})),
                letters=reply.letters,
            )
        answer = None if reply is None else reply.to_bytes()
        self.counts["bytes", "out"] += len(answer or b"")
        peer.bytes_in += len(body)
        peer.bytes_out += len(answer or b"")
        signed = self._keyring.sign_reply(signature, answer or b"") if self._keyring.signs else ""
        return answer, signed

    async def _meet(self, message: Message) -> Peer:
        """The peer that this message comes from."""
        await self._learn_addresses([message.address] if message.address else [])
        peer = self.book.of(message.sender) or self.book.peers.get(message.address)
        if peer is None:
            if len(self._callers) >= 2 * self.settings.most_cities:
                self._callers.clear()
            peer = self._callers.setdefault(message.sender, Peer(""))
        peer.origin = peer.origin or message.sender
        peer.reached(self._clock())
        if message.leaving:
            peer.left = True
            log.info("a peer has left", extra={"peer": peer.origin})
        return peer

    # Taking in

    async def _take(self, message: Message) -> None:
        """Check, keep, then count."""
        if message.book:
            await self._learn_addresses(message.book)
        if not message.letters:
            return
        sifted = await asyncio.to_thread(self.node.sift, message.letters)
        for refusal in sifted.refused:
            self._refused(refusal, message.sender)
        if sifted.fresh:
            now = self._clock()
            kept = [(letter.origin, letter.wire) for letter in sifted.fresh]
            await self.pricing.writer.submit(KeepLetters(kept, now))
            self.node.take(sifted.fresh)
            self.counts["letters", "taken"] += len(kept)
            for letter in sifted.fresh:
                self._received_at[letter.origin] = now
                if self.quarantined.pop(letter.origin, None):
                    log.info("no longer quarantined", extra={"peer": letter.origin})
        if sifted.own is not None:
            await self._renew(sifted.own)

    def _refused(self, refusal: Refusal, sender: str) -> None:
        origin = refusal.origin or sender
        self.counts["letters", "refused"] += 1
        known = self.quarantined.get(origin)
        if known is None or known.reason != refusal.reason:
            if origin == self.city:
                log.error("letters in this city's name are not its own", extra={"fault": refusal.reason})
            else:
                log.warning("quarantined", extra={"peer": origin, "reason": refusal.reason, "via": sender})
            if len(self.quarantined) < 2 * self.settings.most_cities:
                self.quarantined[origin] = Quarantine(refusal.reason, self._clock(), sender)

    def _check(self, summary: Summary) -> None:
        """Whether an honest city could have made it."""
        learner = self.pricing.learner
        numbers = summary.numbers
        if numbers.size != learner.layout.size:
            raise BadSummary(f"it has {numbers.size} numbers, a summary here has {learner.layout.size}")
        if not np.isfinite(numbers).all():
            raise BadSummary("it has numbers that are not finite")
        learner.check(learner.layout.unpack(numbers), summary.version, self.pricing.settings.longest_square)

    async def _learn_addresses(self, addresses: Any) -> None:
        """From a signed peer, where this city discovers; among unsigned ones only on this machine."""
        if not self.settings.discover:
            return
        good = []
        for address in addresses:
            with suppress(ValueError):
                checked = checked_address(address)
                if self._keyring.signs or is_loopback(urlsplit(checked).hostname or ""):
                    good.append(checked)
        room = self.settings.most_cities - len(self.book.peers)
        fresh = [address for address in good if address not in self.book.peers][: max(0, room)]
        fresh = [peer.address for peer in self.book.add(fresh, configured=False)]
        if fresh:
            log.info("addresses learned", extra={"addresses": fresh})
            await self.pricing.writer.submit(KeepPeers(fresh, self._clock()))

    # Operators

    async def drop(self, origin: str) -> None:
        """What this city told is subtracted, and nothing is heard of it any more."""
        if origin == self.city or (origin not in self.node.held and self.book.of(origin) is None):
            raise UnknownCity(f"no city {origin!r} is known here")
        await self.pricing.writer.submit(DropOrigin(origin, self._clock()))
        self.node.drop(origin)
        self.quarantined.pop(origin, None)
        await self.absorb()

    async def readmit(self, origin: str) -> None:
        if origin not in self.node.dropped:
            raise UnknownCity(f"{origin!r} has not been dropped here")
        await self.pricing.writer.submit(DropOrigin(origin, self._clock(), readmitted=True))
        self.node.readmit(origin)

    async def leave(self) -> int:
        """Tell the peers that this city goes, and call nobody any more; how many have heard it."""
        await self._publish()
        self.left = True
        peers = [peer for peer in self.book.peers.values() if not peer.left]
        for peer in peers:
            peer.agreed = b""  # so that the message is no brief one
        await asyncio.gather(*(self._ask(peer) for peer in peers))
        return sum(not peer.misses for peer in peers)

    def join(self) -> None:
        self.left = False

    # Reading

    def peers(self) -> list[dict[str, Any]]:
        """Every city known, whether heard, relayed, refused or dropped."""
        now, rows = self._clock(), []
        by_origin = self._callers | {peer.origin: peer for peer in self.book.peers.values() if peer.origin}
        names = set(self.node.held) | set(by_origin) | set(self.quarantined) | self.node.dropped
        for origin in sorted(names - {self.city}):
            letter, peer = self.node.held.get(origin), by_origin.get(origin)
            heard = max(self._received_at.get(origin, 0.0), (peer.heard_at if peer else None) or 0.0)
            rows.append(
                {
                    "origin": origin,
                    "address": (peer.address or None) if peer else None,
                    "epoch": letter.summary.epoch if letter else None,
                    "version": letter.summary.version if letter else None,
                    "age_seconds": round(now - heard, 3) if heard else None,
                    "status": self._status(origin, peer),
                    "reason": self._reason(origin, peer),
                    "weights": self.pricing.learner.weights_of(origin) if letter else [],
                    "bytes_in": peer.bytes_in if peer else 0,
                    "bytes_out": peer.bytes_out if peer else 0,
                }
            )
        for peer in self.book.peers.values():
            if not peer.origin:
                status = "silent" if peer.silent else "not reached"
                rows.append(
                    {
                        **dict.fromkeys(("epoch", "version", "age_seconds")),
                        "origin": None,
                        "address": peer.address,
                        "status": status,
                        "reason": peer.fault or None,
                        "weights": [],
                        "bytes_in": peer.bytes_in,
                        "bytes_out": peer.bytes_out,
                    }
                )
        return rows

    def _status(self, origin: str, peer: Peer | None) -> str:
        if origin in self.node.dropped:
            return "dropped"
        if origin in self.quarantined:
            return "quarantined"
        if peer is None:
            return "relayed"
        missed = (
            not peer.address
            and not self.settings.lockstep
            and self._clock() - (peer.heard_at or 0)
            > ((MISSES_UNTIL_SILENT + 1) * self.settings.interval_seconds)
        )
        return "left" if peer.left else "silent" if peer.silent or missed else "fresh"

    def _reason(self, origin: str, peer: Peer | None) -> str | None:
        if origin in self.quarantined:
            return self.quarantined[origin].reason
        return (peer.fault or None) if peer else None
