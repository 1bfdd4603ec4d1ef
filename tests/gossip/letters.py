"""Real letters for tests: of learners that have learned something."""

import numpy as np

from pricemesh.core.policies import Learner, Shape, make_policy
from pricemesh.core.summary import Summary
from pricemesh.errors import BadSummary
from pricemesh.gossip.conversation import MAX_ROUND_TRIPS, Call, reply_to
from pricemesh.gossip.digests import DigestMemory
from pricemesh.gossip.letter import Letter, Seal
from pricemesh.gossip.message import Message
from pricemesh.gossip.node import Node
from pricemesh.gossip.peers import Peer

SHAPE = Shape(2, 3, 1)
PRINT = bytes(range(16))


def seed_of(origin: str) -> bytes:
    return origin.encode().ljust(32, b".")


def learner(origin: str, lessons: int, policy: str = "netpool") -> Learner:
    rng = np.random.default_rng(list(origin.encode()))
    student = make_policy(policy).learner(SHAPE)
    for _ in range(lessons):
        student.learn(rng.uniform(-1, 1, size=SHAPE.dim), int(rng.integers(2)), float(rng.normal()))
    return student


def letter(origin: str, lessons: int, epoch: int = 1, *, lie: str = "", by: str = "") -> Letter:
    """`origin` at version `lessons`; a `lie` spoils its numbers, `by` lets another city seal it."""
    numbers = learner(origin, lessons).numbers().copy()
    if lie == "nan":
        numbers[0] = np.nan
    elif lie == "not positive":
        numbers[: 2 * 6] *= -1
    elif lie == "more information":
        numbers[: 2 * 6] *= 1000
    elif lie == "short":
        numbers = numbers[:-1]
    elif lie == "counts":
        numbers[-4:-2] *= 1000
    return Seal(seed_of(by or origin)).close(Summary.of(origin, epoch, lessons, PRINT, numbers))


def check(summary: Summary) -> None:
    """As a city does."""
    reader = make_policy("netpool").learner(SHAPE)
    if summary.numbers.size != reader.layout.size or not np.isfinite(summary.numbers).all():
        raise BadSummary("numbers")
    reader.check(reader.layout.unpack(summary.numbers), summary.version, 3.0, 100.0)


def node(origin: str, lessons: int = 0) -> Node:
    city = Node(origin, PRINT, check)
    city.take([letter(origin, lessons)])
    return city


def memory() -> DigestMemory:
    return DigestMemory(64, lambda _: True)


def exchange(
    one: Node,
    other: Node,
    memories: tuple[DigestMemory, DigestMemory] | None = None,
    peers: tuple[Peer, Peer] | None = None,
    tick: int = 0,
) -> int:
    """One conversation, as two cities have it over HTTP; returns its bytes. `memories` and `peers` are what
    each of the two knows of the other."""
    memories, peers = memories or (memory(), memory()), peers or (Peer(""), Peer(""))
    peers[0].origin, peers[1].origin = other.origin, one.origin
    call = Call(one, memories[0], peers[0], tick)
    size = 0
    unbuilt: frozenset[str] = frozenset()
    for _ in range(MAX_ROUND_TRIPS):
        request = call.request(unbuilt).to_bytes()
        size += len(request)
        message = Message.from_bytes(request)
        checked = other.check_letters(message.letters, message.differences)
        other.take(checked.fresh)
        reply = reply_to(other, memories[1], peers[1], message, tick, checked.unbuilt_origins)
        answer = None if reply is None else Message.from_bytes(reply.to_bytes())
        size += 0 if reply is None else len(reply.to_bytes())
        if not call.read(answer) or answer is None:
            break
        checked = one.check_letters(answer.letters, answer.differences)
        one.take(checked.fresh)
        unbuilt = checked.unbuilt_origins
        if not call.goes_on(answer, {refusal.origin for refusal in checked.refusals}):
            break
    return size
