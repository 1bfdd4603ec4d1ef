"""Requests for prices, read from their bodies into names and vectors in one step.

The decoder is made for the features of one city. A body that it refuses is read again by the models in
`schemas`, which report every fault; a property test holds both to the same rules.
"""

import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import astuple

from pricemesh.city.deciding import UNNAMED, Name, Quote
from pricemesh.core.decision import IDENTIFIER, SUBJECT
from pricemesh.core.features import Feature, FeatureSpace
from pricemesh.errors import UnreadableBody
from pricemesh.http import schemas
from pricemesh.http.problems import parsed

_DECODE_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError)
_identifier = re.compile(IDENTIFIER).fullmatch
_subject = re.compile(SUBJECT).fullmatch


class PriceReader:
    def __init__(self, space: FeatureSpace, max_items: int) -> None:
        self._space = space
        self._max_items = max_items
        self._pack = struct.Struct(f"{len(space.shared) + len(space.local)}d").pack
        self._one = self._many = None
        with suppress(ValueError):  # msgspec takes no name that JSON escapes: read such bodies by the models
            request = _request(space)
            batch = msgspec.defstruct("Batch", [("requests", list[request])], forbid_unknown_fields=True)  # type: ignore[valid-type]
            self._one, self._many = msgspec.json.Decoder(request), msgspec.json.Decoder(batch)

    def one(self, body: bytes) -> Quote:
        request = _decode(self._one, body)
        if request is not None:
            name = (request.decision_id, request.subject)
            if name == UNNAMED or _is_well_formed(name):
                return Quote([name], self._pack(*astuple(request.shared), *astuple(request.local)))
        return self._quote_by_models([parsed(schemas.PriceRequest, body)])

    def many(self, body: bytes) -> Quote:
        batch = _decode(self._many, body)
        quote = self._quote(batch.requests) if batch is not None and batch.requests else None
        if quote is None:
            requests = parsed(schemas.PriceBatch, body).requests
            refuse_too_many(self._max_items, len(requests), "requests")
            return self._quote_by_models(requests)
        refuse_too_many(self._max_items, quote.size, "requests")
        return quote

    def _quote(self, requests: Sequence[Any]) -> Quote | None:
        names = _names(requests)
        if not all(map(_is_well_formed, set(names))):
            return None
        numbers: list[float] = []
        for request in requests:
            numbers += astuple(request.shared)
            numbers += astuple(request.local)
        return Quote(names, struct.pack(f"{len(numbers)}d", *numbers))

    def _quote_by_models(self, requests: Sequence[schemas.PriceRequest]) -> Quote:
        vectors = self._space.vectors([(request.shared, request.local) for request in requests])
        return Quote(_names(requests), vectors.tobytes())


def refuse_too_many(maximum: int, size: int, field: str) -> None:
    if size > maximum:
        raise UnreadableBody([(field, f"at most {maximum} in one call, not {size}")])


def _names(requests: Sequence[Any]) -> list[Name]:
    return [(request.decision_id, request.subject) for request in requests]


def _decode(decoder: Any, body: bytes) -> Any:
    try:
        return decoder.decode(body) if decoder is not None else None
    except _DECODE_FAULTS:
        return None


def _is_well_formed(name: Name) -> bool:
    id_, subject = name
    if id_ is not None and not _identifier(id_):
        return False
    return subject is None or _subject(subject) is not None


def _request(space: FeatureSpace) -> type[msgspec.Struct]:
    """As `schemas.PriceRequest`, with the features' names as fields."""
    shared, local = _part("Shared", space.shared), _part("Local", space.local)
    fields: list[Any] = [
        ("shared", shared),
        ("local", local) if space.local else ("local", local, local()),
        ("decision_id", str | None, None),
        ("subject", str | None, None),
    ]
    return msgspec.defstruct("Request", fields, forbid_unknown_fields=True, gc=False)


def _part(name: str, features: tuple[Feature, ...]) -> type[msgspec.Struct]:
    fields = [(f"f{i}", float, msgspec.field(name=feature.name)) for i, feature in enumerate(features)]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True, frozen=True, gc=False)
