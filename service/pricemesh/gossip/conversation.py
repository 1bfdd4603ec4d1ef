"""Both sides of an exchange between two cities, message by message. Pure: no socket, no clock.

The caller says what changed in its digest, with its own letter if the other city lacks it. The answer has the
letters that the caller lacks and the entries in which the digests differ, so the caller knows which letters
the other city lacks, and sends them if there are any. Nothing else is sent before it is known to be lacking:
in a large mesh most letters come to a city on several ways at once.
"""

from collections.abc import Collection
from functools import partial

from pricemesh.errors import OtherTerms
from pricemesh.gossip.digests import DigestMemory, with_entries
from pricemesh.gossip.letter import Letter
from pricemesh.gossip.message import Digest, Message
from pricemesh.gossip.node import Node
from pricemesh.gossip.peers import Peer

MAX_ROUND_TRIPS = 4  # of one exchange, until both cities have the same letters


class Call:
    """An exchange as its caller sees it: `request`, `read` the answer, take its letters, `goes_on`."""

    def __init__(self, node: Node, memory: DigestMemory, peer: Peer, tick: int) -> None:
        self._node = node
        self._memory = memory
        self._peer = peer
        self._tick = tick
        self._state, self._digest = node.state, node.digest  # as of the last request
        self._receiver = memory.newest(peer.origin)  # the peer's state and digest, as far as they are known
        self._is_answered = False
        self._whole: Collection[str] = ()  # letters that the peer could not build from a difference

    def request(self, unbuilt_origins: Collection[str] = (), *, may_be_brief: bool = True) -> Message:
        """Letters are recorded, so that those which the peer does not take are not sent at every tick."""
        node, peer = self._node, self._peer
        self._state, self._digest = node.state, node.digest
        _, digest = self._receiver or (b"", {})
        if self._is_answered:
            letters = self._letters(digest)
        elif may_be_brief and self._memory.find(peer.origin, node.state) is not None:
            return node.brief_message()
        else:
            letters = node.own_letter_missing_in(digest)
        if self._receiver is not None:
            peer.record_deliveries(letters, digest, self._tick)
        whole = {*self._whole, peer.origin}
        return node.full_message(letters, self._receiver, whole, unbuilt_origins)

    def read(self, answer: Message | None) -> bool:
        """Whether the answer says that the cities have different letters. None: they have the same."""
        if answer is None or answer.state == self._state:
            self._memory.remember(self._peer.origin, self._state, self._digest)
            return False
        digest: Digest | None = answer.digest
        if digest is not None and answer.base:
            digest = with_entries(self._digest, digest) if answer.base == self._state else None
        if digest is None or answer.fingerprint != self._node.fingerprint:
            raise OtherTerms(f"{answer.sender} has other prices, shared features, policy or group")
        self._is_answered, self._receiver = True, (answer.state, digest)
        self._whole = answer.whole
        self._peer.forget_deliveries(answer.whole)
        return True

    def goes_on(self, answer: Message, refused_origins: Collection[str] = ()) -> bool:
        """Once the letters of the answer are taken: whether another round trip brings either city further."""
        assert self._receiver is not None, "read() comes first"
        node, (_, digest) = self._node, self._receiver
        self._memory.remember(self._peer.origin, answer.state, digest)
        if answer.state == node.state:
            return False
        return bool(node.origins_newer_in(digest).difference(refused_origins) or self._letters(digest))

    def _letters(self, digest: Digest) -> list[Letter]:
        return self._node.letters_missing_in(digest, partial(self._peer.was_delivered, tick=self._tick))


def reply_to(
    node: Node,
    memory: DigestMemory,
    peer: Peer,
    message: Message,
    tick: int,
    unbuilt_origins: Collection[str] = (),
) -> Message | None:
    """The answer to a message whose letters have been taken. Where both have the same letters: None to a
    brief message, a brief message to a full one."""
    sender, digest = message.sender, memory.digest_in(message)
    memory.remember(sender, node.state, node.digest)
    if message.state == node.state:
        return None if message.digest is None else node.brief_message()
    if digest is None:
        return node.full_message(asks_whole=unbuilt_origins)
    peer.forget_deliveries(message.whole)
    letters = node.letters_missing_in(digest, partial(peer.was_delivered, tick=tick))
    peer.record_deliveries(letters, digest, tick)
    return node.full_message(letters, (message.state, digest), {*message.whole, sender}, unbuilt_origins)
