"""Calls other cities at every tick, through the runtime's transport.

Each peer is called in a task of its own, and every fault ends in a count and a reason on that peer, so a peer
that is slow, down or lying costs the others nothing.
"""

import asyncio
import json
import logging
from collections.abc import Collection, Iterable
from contextlib import suppress

import msgspec

from pricemesh.city.pricing import Pricing
from pricemesh.errors import (
    IncompatibleMesh,
    OtherReceiver,
    OtherTerms,
    PricemeshError,
    SignedTooEarly,
    StorageUnavailable,
)
from pricemesh.gossip.bounds import shortened
from pricemesh.gossip.conversation import MAX_ROUND_TRIPS, Call
from pricemesh.gossip.digests import DigestMemory
from pricemesh.gossip.intake import Intake
from pricemesh.gossip.message import NO_STATE, Message
from pricemesh.gossip.node import Node
from pricemesh.gossip.peers import AddressBook, Counts, Peer, count_bytes
from pricemesh.gossip.publisher import Publisher
from pricemesh.gossip.signing import HEADER, Keyring
from pricemesh.runtime import Reply, Transport

log = logging.getLogger("pricemesh.gossip")

PROBLEM_PREFIX = "urn:pricemesh:problem:"
MAX_DETAIL_LENGTH = 300  # characters of a peer's refusal that are shown
PEER_FAULTS = (PricemeshError, OSError)  # TimeoutError is an OSError; asyncio's has no text


class GossipClient:
    def __init__(
        self,
        pricing: Pricing,
        *,
        node: Node,
        book: AddressBook,
        memory: DigestMemory,
        publisher: Publisher,
        intake: Intake,
        keyring: Keyring,
        counts: Counts,
    ) -> None:
        self._runtime = pricing.runtime
        self._health = pricing.health
        self._settings = pricing.settings.gossip
        self._timeout_seconds = self._settings.timeout_seconds or max(0.1, self._settings.interval_seconds)
        self._max_bytes = pricing.settings.limits.body_bytes
        self._node = node
        self._book = book
        self._memory = memory
        self._publisher = publisher
        self._intake = intake
        self._keyring = keyring
        self._counts = counts
        self._transport: Transport | None = None
        self._calls: set[asyncio.Task[None]] = set()

    def open(self) -> Transport:
        """The transport, built at the first use. A city with peers does so before its first price, because
        importing an HTTP client takes long."""
        if self._transport is None:
            self._transport = self._runtime.transport()
        return self._transport

    async def close(self) -> None:
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        for call in calls:
            with suppress(asyncio.CancelledError):
                await call
        if self._transport is not None:
            await self._transport.close()

    async def exchange(self, peers: Iterable[Peer]) -> None:
        """Exchange letters with these peers. Those that take longer than a tick finish in the background,
        except in lockstep."""
        calls = {asyncio.create_task(self.call(peer)) for peer in peers}
        self._calls |= calls
        for call in calls:
            call.add_done_callback(self._calls.discard)
        if calls:
            patience = None if self._settings.lockstep else self._settings.interval_seconds
            await asyncio.wait(calls, timeout=patience)

    async def call(self, peer: Peer) -> None:
        """One exchange. It never raises; the outcome is on the peer and in the counts."""
        peer.is_busy = True
        try:
            async with asyncio.timeout(2 * self._timeout_seconds):
                await self._converse(peer)
        except StorageUnavailable as fault:  # this city's own trouble, not the peer's
            if not self._health.is_lost:  # whose line in the log says all
                log.warning("letters could not be saved", extra={"peer": peer.origin, "fault": str(fault)})
        except SignedTooEarly as fault:  # it has just started and will take what is signed from now on
            peer.record_postponement(str(fault))
            self._counts["exchanges", "postponed"] += 1
        except OtherTerms as fault:
            if not peer.has_other_terms:
                log.info("a peer has other terms", extra={"peer": peer.origin, "fault": str(fault)})
            peer.record_other_terms(self._runtime.clock(), str(fault))
            self._counts["exchanges", "other terms"] += 1
        except PEER_FAULTS as fault:
            reason = shortened(str(fault)) or f"no complete answer within {2 * self._timeout_seconds:g} s"
            was_silent = peer.silent
            peer.record_miss(reason)
            self._counts["exchanges", "failed"] += 1
            if peer.silent and not was_silent:
                log.warning("a peer is silent", extra={"peer": peer.origin or peer.address, "fault": reason})
        else:
            if peer.silent:
                log.info("a peer answers again", extra={"peer": peer.origin})
            peer.record_contact(self._runtime.clock())
            self._counts["exchanges", "done"] += 1
        finally:
            peer.is_busy = False

    async def _converse(self, peer: Peer) -> None:
        if self._keyring.signs and not peer.receiver:
            await self._introduce(peer)
        try:
            await self._exchange_letters(peer)
        except OtherReceiver:  # another city is at this address now
            await self._introduce(peer)
            await self._exchange_letters(peer)

    async def _exchange_letters(self, peer: Peer) -> None:
        """Round trips until both have the same letters, or neither can bring the other further."""
        call = Call(self._node, self._memory, peer, self._book.ticks)
        unbuilt: Collection[str] = ()
        for _ in range(MAX_ROUND_TRIPS):
            request = call.request(unbuilt, may_be_brief=not self._publisher.has_left)
            answer = await self._send(peer, self._signed_off(request), peer.receiver)
            if answer is not None:
                self._identify(peer, answer)
            if not call.read(answer) or answer is None:
                return
            reception = await self._intake.receive(answer)
            unbuilt = reception.unbuilt_origins
            if not call.goes_on(answer, reception.refused_origins):
                return

    def _identify(self, peer: Peer, answer: Message) -> None:
        if answer.sender == self._node.origin:
            raise IncompatibleMesh(f"{peer.address} is this city itself, or another city of the same name")
        peer.origin = answer.sender
        peer.has_left = self._node.is_leaving(answer, self._runtime.clock())

    def _signed_off(self, request: Message) -> Message:
        """With what a full message also says: where this city is reached, and whether it leaves."""
        if request.digest is None:
            return request
        return msgspec.structs.replace(
            request,
            address=self._settings.address or "",
            leave=self._publisher.leave_notice(),
            discovers=self._settings.discover,
        )

    async def _introduce(self, peer: Peer) -> None:
        """Ask the city at this address for its name, so that messages can be signed for it alone."""
        answer = await self._send(peer, Message(self._node.origin, state=NO_STATE), receiver="")
        if answer is None:
            raise IncompatibleMesh(f"{peer.address} does not say its name")
        self._identify(peer, answer)
        peer.receiver = answer.sender

    async def _send(self, peer: Peer, message: Message, receiver: str) -> Message | None:
        """One request and its answer; None when both have the same letters."""
        body = message.to_bytes()
        signature = self._keyring.sign(body, self._runtime.clock(), receiver) if self._keyring.signs else ""
        reply = await self.open().post(
            f"{peer.address}/gossip",
            body,
            {HEADER: signature} if signature else {},
            timeout_seconds=self._timeout_seconds,
            max_bytes=self._max_bytes,
        )
        count_bytes(self._counts, peer, len(reply.body), len(body))
        if reply.status not in (200, 204):
            raise refusal_of(peer.address, reply)
        self._keyring.verify_reply(signature, reply.headers.get(HEADER, ""), reply.body)
        return None if reply.status == 204 else Message.from_bytes(reply.body, self._node.max_entries)


def refusal_of(address: str, reply: Reply) -> PricemeshError:
    """What a peer's refusal means here. The text of a server that is no city is not repeated in our log."""
    kind, detail = problem_of(reply.body)
    refusals = {refusal.kind: refusal for refusal in (SignedTooEarly, OtherReceiver, OtherTerms)}
    return refusals.get(kind, IncompatibleMesh)(f"{address} answers {reply.status}{detail}")


def problem_of(body: bytes) -> tuple[str, str]:
    """The kind of error in a city's refusal, and its detail; both empty where no city wrote the body."""
    try:
        problem = json.loads(body)
        is_ours = problem["type"].startswith(PROBLEM_PREFIX)
        detail = f": {shortened(problem['detail'], MAX_DETAIL_LENGTH)}"
        return (problem["type"].removeprefix(PROBLEM_PREFIX), detail) if is_ours else ("", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""
