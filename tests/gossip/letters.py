"""Real letters for tests: of learners that have learned something."""

import numpy as np

from pricemesh.core.policies import Learner, Shape, make_policy
from pricemesh.core.summary import Summary
from pricemesh.errors import BadSummary
from pricemesh.gossip.letter import Letter, Seal
from pricemesh.gossip.message import Message
from pricemesh.gossip.node import Node

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


def exchange(one: Node, other: Node) -> None:
    """One conversation, as two cities have it over HTTP."""
    digest = None
    for _ in range(4):
        request = Message.from_bytes(one.full_message(one.letters_missing_in(digest)).to_bytes())
        other.take(other.check_letters(request.letters).fresh)
        reply = other.reply(request, other.letters_missing_in(request.digest))
        if reply is None:
            return
        answer = Message.from_bytes(reply.to_bytes())
        one.take(one.check_letters(answer.letters).fresh)
        digest = answer.digest
        if answer.state == one.state or not one.letters_missing_in(digest):
            return
