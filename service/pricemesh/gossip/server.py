"""Answers a peer's message: bytes and a signature come in, the same go out.

It knows no HTTP: a refusal is an error of ours, and the HTTP layer makes it a status. Strangers, who have no
secret, are refused before their body is read; what they do counts for their machine and for no city.
"""

import logging
from collections.abc import Collection

import msgspec

from pricemesh.city.pricing import Pricing
from pricemesh.city.rate_limiter import RateLimiter
from pricemesh.errors import IncompatibleMesh, NotAllowed, OtherReceiver, OtherTerms, Unauthenticated
from pricemesh.gossip.conversation import reply_to
from pricemesh.gossip.digests import DigestMemory
from pricemesh.gossip.discovery import Discovery
from pricemesh.gossip.intake import Intake
from pricemesh.gossip.message import NO_STATE, Message
from pricemesh.gossip.node import Node
from pricemesh.gossip.peers import AddressBook, Counts, Peer, count_bytes
from pricemesh.gossip.publisher import Publisher
from pricemesh.gossip.signing import HEADER, Claims, Keyring

log = logging.getLogger("pricemesh.gossip")

STRANGERS_PER_MACHINE = 20  # that may call at full rate
MAX_MACHINES = 10_000  # whose rates are counted apart


class GossipServer:
    def __init__(
        self,
        pricing: Pricing,
        *,
        node: Node,
        book: AddressBook,
        memory: DigestMemory,
        publisher: Publisher,
        intake: Intake,
        discovery: Discovery,
        keyring: Keyring,
        counts: Counts,
    ) -> None:
        settings = pricing.settings
        self._settings = settings.gossip
        self._common = settings.common
        self._clock = pricing.runtime.clock
        self._is_open = not settings.gossip.secrets and settings.security.api_keys_file is None
        rate, monotonic = settings.gossip.rate_per_second, pricing.runtime.monotonic
        self._monotonic = monotonic
        # Apart, so that neither strangers nor failures take anything from the cities of the mesh.
        self._city_limiter = RateLimiter(rate, monotonic)
        self._stranger_limiter = RateLimiter(rate, monotonic, 4 * node.max_cities)
        self._machine_limiter = RateLimiter(STRANGERS_PER_MACHINE * rate, monotonic, MAX_MACHINES)
        self._failure_limiter = RateLimiter(STRANGERS_PER_MACHINE * rate, monotonic, MAX_MACHINES)
        self._node = node
        self._book = book
        self._memory = memory
        self._publisher = publisher
        self._intake = intake
        self._discovery = discovery
        self._keyring = keyring
        self._counts = counts

    def admit(self, signature: str, machine: str) -> Claims | None:
        """Check all that can be known before a body is read: whether this city takes gossip, and whether the
        signature is a member's, for this city, of this minute and not used before."""
        if not self._publisher.shares:
            raise IncompatibleMesh(f"{self._node.origin} has a policy that shares nothing")
        if not self._keyring.signs:
            if not self._is_open:
                raise NotAllowed("this city takes no gossip: it has API keys, but no gossip.secrets")
            return None
        try:
            return self._keyring.check(signature, self._clock())
        except (Unauthenticated, IncompatibleMesh):  # other refusals follow a MAC that holds
            self._failure_limiter.take(machine)
            raise

    async def receive(self, body: bytes, signature: str, machine: str) -> tuple[bytes | None, str]:
        """The answer to a peer's message (None: both have the same letters), and its signature."""
        claims = self.admit(signature, machine)
        message = self._read(body, claims, machine)
        peer: Peer | None = None
        reply: Message | None
        if claims is not None and not claims.receiver:
            reply = self._introduction(message)
        else:
            self._check_sender(message)
            peer = await self._contact(message)
            if self._is_publishing_due():
                await self._publisher.publish()
            reception = await self._intake.receive(message)
            reply = self._reply(peer, message, reception.unbuilt_origins)
        answer = None if reply is None else reply.to_bytes()
        count_bytes(self._counts, peer, len(body), len(answer or b""))
        reply_signature = self._keyring.sign_reply(signature, answer or b"") if claims is not None else ""
        return answer, reply_signature

    def _read(self, body: bytes, claims: Claims | None, machine: str) -> Message:
        """The message, if its sender's rate admits it. Only then is its nonce used up."""
        if claims is not None and not claims.covers(body):
            self._failure_limiter.take(machine)
            raise Unauthenticated(
                f"the {HEADER} header is not a signature of this body: sign the bytes that are sent"
            )
        message = Message.from_bytes(body, self._node.max_entries)
        is_known = self._node.is_known(message.sender)
        if is_known:
            self._city_limiter.take(message.sender)
        else:
            self._stranger_limiter.take(message.sender)
            self._machine_limiter.take(machine)
        if claims is not None:
            self._keyring.remember(claims, is_known=is_known)
        return message

    def _introduction(self, message: Message) -> Message:
        """This city's name, and nothing else, to a member that does not know it yet. It changes nothing here,
        because its signature would be good in any city."""
        if message.digest is not None or message.letters or message.differences or message.leave:
            raise OtherReceiver(
                f"a message with letters must be signed for the city that it is for; this one is "
                f"{self._node.origin}"
            )
        return Message(self._node.origin, state=NO_STATE)

    def _check_sender(self, message: Message) -> None:
        """Whether it may exchange letters with this city."""
        city, sender = self._node.origin, message.sender
        if sender == city:
            raise IncompatibleMesh(f"two cities are called {sender}: every city needs a name of its own")
        if sender in self._node.dropped_origins:
            raise NotAllowed(f"an operator of {city} has dropped {sender}")
        if message.digest is not None and message.fingerprint != self._node.fingerprint:
            fault = OtherTerms(
                f"{sender} and {city} differ in prices, shared features, policy or group; "
                f"{city} has {self._common}"
            )
            if self._node.is_known(sender):  # nobody else leaves a trace
                self._book.sender(sender, message.address).record_other_terms(self._clock(), str(fault))
            raise fault

    async def _contact(self, message: Message) -> Peer:
        """The peer that sent this message."""
        await self._discovery.learn([message.address] if message.address else [])
        peer = self._book.sender(message.sender, message.address)
        peer.record_contact(self._clock())
        is_leaving = self._node.is_leaving(message, self._clock())
        if is_leaving and not peer.has_left:
            log.info("a peer has left", extra={"peer": peer.origin})
        peer.has_left = is_leaving
        return peer

    def _is_publishing_due(self) -> bool:
        """Callers get news at most twice in an interval, however many they are."""
        age_seconds = self._monotonic() - self._publisher.published_at
        return self._settings.lockstep or age_seconds > self._settings.interval_seconds / 2

    def _reply(self, peer: Peer, message: Message, unbuilt_origins: Collection[str]) -> Message | None:
        node = self._node
        reply = reply_to(node, self._memory, peer, message, self._book.ticks, unbuilt_origins)
        if reply is None and self._publisher.has_left:
            reply = node.brief_message()
        if reply is None:
            return None
        addresses: tuple[str, ...] = ()
        if message.discovers and reply.digest is not None:
            addresses = self._discovery.sample(message.address)
        return msgspec.structs.replace(reply, leave=self._publisher.leave_notice(), addresses=addresses)
