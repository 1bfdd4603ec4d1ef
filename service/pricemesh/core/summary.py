"""A city's summary for its peers: a versioned, cumulative vector of numbers, its wire form and its merge.

Merging, storing and relaying treat the numbers as opaque; only a learner's `Layout` reads them.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from pricemesh.core.arrays import Array, Ints
from pricemesh.errors import BadSummary

Parts = dict[str, Array]
Order = tuple[int, int, bytes, bytes, tuple[int, ...]]

MAGIC, MAGIC_WITH_LAGS = b"PMS1", b"PMS2"
_HEADER = struct.Struct("<4sQQ16sHI")  # magic, epoch, version, fingerprint, origin bytes, numbers
_LAGS_HEADER = struct.Struct("<HB")  # blocks, bytes of each lag
HEADER_BYTES = _HEADER.size
_MAX_NUMBERS = 1 << 24


class Field(NamedTuple):
    """One part of a summary: a number (order 0), a vector (1) or a symmetric matrix (2) over the shared
    features, one per arm unless `per_arm` is false."""

    name: str
    order: int
    per_arm: bool = True


@dataclass(frozen=True)
class Layout:
    """The order of the parts in the vector; of a symmetric matrix only the upper half is sent."""

    arms: int
    shared: int
    fields: tuple[Field, ...]

    @cached_property
    def _upper(self) -> tuple[Any, Any]:
        return np.triu_indices(self.shared)

    def _length(self, field: Field) -> int:
        per_arm = (1, self.shared, self.shared * (self.shared + 1) // 2)[field.order]
        return per_arm * (self.arms if field.per_arm else 1)

    @cached_property
    def size(self) -> int:
        return sum(self._length(field) for field in self.fields)

    @cached_property
    def blocks(self) -> Ints:
        """The block of every number, (size,). The numbers of one arm are a block, and those that belong to no
        arm are the last one. A block travels, or stays as it was, as a whole."""
        rows = [
            np.repeat(np.arange(self.arms), self._length(field) // self.arms)
            if field.per_arm
            else np.full(self._length(field), self.arms)
            for field in self.fields
        ]
        return np.concatenate(rows)

    @cached_property
    def block_count(self) -> int:
        return self.arms + any(not field.per_arm for field in self.fields)

    def pack(self, parts: Parts) -> Array:
        """(..., size) from parts whose arrays start with the same batch axes."""
        pieces = []
        for field in self.fields:
            part = parts[field.name]
            if field.order == 2:
                part = part[..., self._upper[0], self._upper[1]]
            own_axes = (field.order > 0) + field.per_arm
            pieces.append(part.reshape(*part.shape[: part.ndim - own_axes], -1))
        return np.concatenate(pieces, axis=-1)

    def part(self, name: str, numbers: Array) -> Array:
        """The slice of one part in packed numbers (..., size)."""
        start = 0
        for field in self.fields:
            if field.name == name:
                return numbers[..., start : start + self._length(field)]
            start += self._length(field)
        raise KeyError(name)

    def unpack(self, numbers: Array) -> Parts:
        """The parts in packed numbers (..., size), matrices in full; the inverse of `pack`."""
        if numbers.shape[-1] != self.size:
            raise BadSummary(f"a summary must have {self.size} numbers, not {numbers.shape[-1]}")
        parts: Parts = {}
        start = 0
        for field in self.fields:
            piece = numbers[..., start : start + self._length(field)]
            start += self._length(field)
            lead = (*numbers.shape[:-1], *((self.arms,) if field.per_arm else ()))
            if field.order == 0:
                parts[field.name] = piece.reshape(lead)
            elif field.order == 1:
                parts[field.name] = piece.reshape(*lead, self.shared)
            else:
                matrix = np.zeros((*lead, self.shared, self.shared))
                upper = piece.reshape(*lead, -1)
                matrix[..., self._upper[0], self._upper[1]] = upper
                matrix[..., self._upper[1], self._upper[0]] = upper
                parts[field.name] = matrix
        return parts


def fingerprint(description: Mapping[str, Any]) -> bytes:
    """Sixteen bytes that identify a schema: cities exchange summaries only if theirs are equal."""
    canonical = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).digest()[:16]


@dataclass(frozen=True)
class Summary:
    """All that `origin` had learned at `version`. Cumulative: a later summary replaces an earlier one."""

    origin: str
    epoch: int
    version: int
    fingerprint: bytes
    payload: bytes  # float64, little-endian
    # For each block, how many versions ago it last changed; empty where all have changed at this version.
    lags: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.epoch < 1 << 64 or not 0 <= self.version < 1 << 64:
            raise BadSummary(f"epoch and version must be 64-bit counts, not {self.epoch} and {self.version}")
        if len(self.fingerprint) != 16 or len(self.payload) % 8 or len(self.origin.encode()) > 65_535:
            raise BadSummary(
                "a fingerprint must have 16 bytes, a payload 8 per number, an origin at most 65535"
            )
        if self.lags and (not any(self.lags) or not 0 <= min(self.lags) <= max(self.lags) <= self.version):
            raise BadSummary("no block can have changed after this version, or before the first one")

    @classmethod
    def of(
        cls,
        origin: str,
        epoch: int,
        version: int,
        fingerprint: bytes,
        numbers: Array,
        lags: tuple[int, ...] = (),
    ) -> "Summary":
        payload = numbers.astype("<f8").tobytes()
        return cls(origin, epoch, version, fingerprint, payload, lags if any(lags) else ())

    @property
    def numbers(self) -> Array:
        return np.frombuffer(self.payload, dtype="<f8")

    @property
    def order(self) -> Order:
        """The highest order wins a merge. If a faulty origin sends two contents under one version, their
        bytes decide, so that all cities still agree."""
        return (self.epoch, self.version, self.fingerprint, self.payload, self.lags)

    def to_bytes(self) -> bytes:
        """The wire form: a header of 42 bytes, the lags if there are any, the origin's name, the numbers."""
        origin = self.origin.encode()
        header = _HEADER.pack(
            MAGIC_WITH_LAGS if self.lags else MAGIC,
            self.epoch,
            self.version,
            self.fingerprint,
            len(origin),
            len(self.payload) // 8,
        )
        if self.lags:
            lags = bytes_of_lags(self.lags)
            header += _LAGS_HEADER.pack(len(self.lags), len(lags) // len(self.lags)) + lags
        return header + origin + self.payload

    @classmethod
    def from_bytes(cls, data: bytes) -> "Summary":
        """Read the wire form; BadSummary if the bytes are damaged."""
        if len(data) < _HEADER.size:
            raise BadSummary(f"a summary must be at least {_HEADER.size} bytes long, not {len(data)}")
        magic, epoch, version, schema, origin_bytes, numbers = _HEADER.unpack_from(data)
        if magic not in (MAGIC, MAGIC_WITH_LAGS):
            raise BadSummary(f"not a summary of the format {MAGIC!r}: it starts with {magic!r}")
        if numbers > _MAX_NUMBERS:
            raise BadSummary(f"a summary of {numbers} numbers is beyond the limit of {_MAX_NUMBERS}")
        lags: tuple[int, ...] = ()
        start = _HEADER.size
        if magic == MAGIC_WITH_LAGS:
            lags, start = _read_lags_at(data, start)
        expected = start + origin_bytes + 8 * numbers
        if len(data) != expected:
            raise BadSummary(f"the header announces {expected} bytes, but there are {len(data)}")
        try:
            origin = data[start : start + origin_bytes].decode()
        except UnicodeDecodeError:
            raise BadSummary("the origin's name is not valid UTF-8") from None
        return cls(origin, epoch, version, schema, data[start + origin_bytes :], lags)


def _read_lags_at(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The lags, of which there must be some, and where they end."""
    begin = start + _LAGS_HEADER.size
    blocks, width = _LAGS_HEADER.unpack(data[start:begin].ljust(_LAGS_HEADER.size, b"\0"))
    lags = read_lags(data[begin : begin + blocks * width], blocks)
    if not lags:
        raise BadSummary("the versions of its blocks cannot be read")
    return lags, begin + blocks * width


def bytes_of_lags(lags: tuple[int, ...]) -> bytes:
    """All with as many bytes as the largest needs: 1, 2, 4 or 8."""
    return np.array(lags, dtype=_lag_type(max(lags, default=0))).tobytes()


def read_lags(data: bytes, blocks: int) -> tuple[int, ...]:
    """The inverse of `bytes_of_lags`. What it would not have written is refused, because a seal covers the
    bytes that a city would write."""
    width = len(data) // max(1, blocks)
    if blocks == 0 and not data:
        return ()
    if blocks == 0 or width not in (1, 2, 4, 8) or len(data) != blocks * width:
        raise BadSummary("the versions of its blocks cannot be read")
    lags = tuple(np.frombuffer(data, dtype=f"<u{width}").tolist())
    if bytes_of_lags(lags) != data:
        raise BadSummary("the versions of its blocks take more bytes than they need")
    return lags


def _lag_type(largest: int) -> str:
    return next(f"<u{width}" for width in (1, 2, 4, 8) if largest < 1 << 8 * width)


Summaries = dict[str, Summary]


class Ordered(Protocol):
    """A summary, or an object that wraps one."""

    @property
    def origin(self) -> str: ...

    @property
    def order(self) -> Order: ...


Item = TypeVar("Item", bound=Ordered)


def merge(stored: Mapping[str, Item], incoming: Iterable[Item]) -> dict[str, Item]:
    """The newest summary of every origin: idempotent, commutative and associative."""
    newest = dict(stored)
    for item in incoming:
        current = newest.get(item.origin)
        if current is None or item.order > current.order:
            newest[item.origin] = item
    return newest
