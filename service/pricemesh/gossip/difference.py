"""A letter as a difference: the blocks that changed since an older letter of the same origin. Pure.

Letters stay whole and cumulative wherever they are kept. A letter says for each block at which version it
last changed, and its seal covers that, so any city that has a letter can send what a city with an older one
lacks. The receiver takes the other blocks from its own letter; the seal of the whole holds, or it does not.
"""

from hashlib import sha256
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from pricemesh.core.arrays import Ints
from pricemesh.core.summary import Summary, bytes_of_lags, read_lags
from pricemesh.errors import BadSummary
from pricemesh.gossip.bounds import CityName, Count
from pricemesh.gossip.letter import SIGNATURE_BYTES, Letter

REST_BYTES = 16


class Difference(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    origin: CityName
    epoch: Count
    version: Count
    since: Count  # it builds on every letter of this epoch from this version on
    lags: bytes  # of all blocks, as in a summary
    numbers: bytes  # of the blocks that changed after `since`
    rest: Annotated[bytes, Meta(min_length=REST_BYTES, max_length=REST_BYTES)]  # the hash of what stays
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]

    @property
    def edition(self) -> tuple[int, int]:
        return (self.epoch, self.version)


class Unbuildable(Exception):
    """This city does not have the letter that a difference builds on. Nobody is to blame."""


def difference(letter: Letter, since: int, blocks: Ints) -> Difference | None:
    """What a city with this origin's letter of version `since` lacks; None where that is all of it. `blocks`
    has the block of every number."""
    summary = letter.summary
    changed = _changed(summary.lags, summary.version, since)
    if not summary.lags or changed.all():
        return None
    is_sent = changed[blocks]
    numbers = summary.numbers
    return Difference(
        letter.origin,
        summary.epoch,
        summary.version,
        since,
        bytes_of_lags(summary.lags),
        numbers[is_sent].tobytes(),
        _hash(letter.key, numbers[~is_sent].tobytes()),
        letter.signature,
    )


def rebuild(item: Difference, base: Letter | None, blocks: Ints) -> Letter:
    """The whole letter, still to be checked. Raises Unbuildable unless `base` has what its sender left out,
    bit for bit: so where the seal is broken then, its sender broke it. BadSummary: it makes no sense."""
    if base is None or base.summary.epoch != item.epoch or not item.since <= base.summary.version:
        raise Unbuildable
    lags = read_lags(item.lags, int(blocks.max(initial=-1)) + 1)
    if max(lags, default=0) > item.version:
        raise BadSummary("a block of it changed before the first version")
    is_sent = _changed(lags, item.version, item.since)[blocks]
    numbers = base.summary.numbers.copy()
    if numbers.size != blocks.size or _hash(base.key, numbers[~is_sent].tobytes()) != item.rest:
        raise Unbuildable
    if len(item.numbers) != 8 * int(is_sent.sum()):
        raise BadSummary("it has another number of numbers than its blocks")
    numbers[is_sent] = np.frombuffer(item.numbers, dtype="<f8")
    summary = Summary.of(item.origin, item.epoch, item.version, base.summary.fingerprint, numbers, lags)
    return Letter(summary, base.key, item.signature)


def _changed(lags: tuple[int, ...], version: int, since: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([version - lag > since for lag in lags], dtype=bool)


def _hash(key: bytes, numbers: bytes) -> bytes:
    return sha256(key + numbers).digest()[:REST_BYTES]
