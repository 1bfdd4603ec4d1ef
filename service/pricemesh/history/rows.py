"""Stored rows as columns of values. Knows the rows of `store` and no file format."""

import json
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from pricemesh.city.settings import Settings
from pricemesh.core.arrays import Array
from pricemesh.history import columns as names
from pricemesh.store.reads import STORED_COLUMNS

Values = Sequence[Any] | Array  # None where there is nothing


class Kind(Enum):
    TEXT = "text"
    NUMBER = "number"
    WHOLE = "whole number"
    TIME = "time"  # Unix seconds
    FLAG = "true or false"


class Block:
    """Rows of decisions, m of them."""

    def __init__(self, rows: Sequence[Any], dim: int, arms: int) -> None:
        self.size = len(rows)
        columns = zip(*rows, strict=True) if rows else [()] * len(STORED_COLUMNS)
        self._stored: dict[str, tuple[Any, ...]] = dict(zip(STORED_COLUMNS, columns, strict=True))
        self._dim, self._arms = dim, arms

    def stored(self, name: str) -> tuple[Any, ...]:
        return self._stored[name]

    @cached_property
    def vectors(self) -> Array:
        """Contexts, estimates and radii (m, d + 2K)."""
        width = self._dim + 2 * self._arms
        parts = [bytes(each[: 8 * width]) for each in self._stored["vectors"]]
        return np.frombuffer(b"".join(parts)).reshape(self.size, width)

    def chosen(self, offset: int) -> Array:
        """The value of the chosen arm, of those that start at this place of the vectors (m,)."""
        arms = np.array(self._stored["arm"], dtype=np.intp)
        values: Array = self.vectors[np.arange(self.size), offset + arms]
        return values

    def place(self, place: int) -> Array:
        values: Array = self.vectors[:, place]
        return values


class Column(NamedTuple):
    name: str
    kind: Kind
    values: Callable[[Block], Values]


_STORED = {
    names.DECISION_ID: ("id", Kind.TEXT),
    names.TIME: ("made_at", Kind.TIME),
    names.PRICE: ("price", Kind.NUMBER),
    names.ARM: ("arm", Kind.WHOLE),
    names.PROPENSITY: ("propensity", Kind.NUMBER),
    names.SOLD: ("sold", Kind.NUMBER),
    names.REWARD: ("reward", Kind.NUMBER),
    names.FEEDBACK_TIME: ("received_at", Kind.TIME),
    names.BY_DEFAULT: ("by_default", Kind.FLAG),
    names.POLICY: ("policy", Kind.TEXT),
    names.LEARNER_VERSION: ("learner_version", Kind.WHOLE),
    names.SUBJECT: ("subject", Kind.TEXT),
    names.CONTRIBUTED_BY: ("told_by", Kind.TEXT),
    names.CHANCE: ("chance", Kind.NUMBER),
    names.NUMBER: ("number", Kind.WHOLE),
}


class RowReader:
    """Makes blocks of a city's rows, and knows how each column is read from them."""

    def __init__(self, settings: Settings) -> None:
        shape = settings.shape
        self._dim, self._arms = shape.dim, shape.arms
        self.names = names.ColumnNames(
            settings.features.space, shape.arms, is_purchase=settings.reward.is_purchase
        )
        at = {name: place for place, name in enumerate(self.names.features)}
        at |= {name: shape.dim + arm for arm, name in enumerate(self.names.estimates)}
        at |= {name: shape.dim + shape.arms + arm for arm, name in enumerate(self.names.radii)}
        self._places = at

    def block(self, rows: Sequence[Any]) -> Block:
        return Block(rows, self._dim, self._arms)

    def columns(self, chosen: Sequence[str]) -> list[Column]:
        """Of names that exist, groups spelled out."""
        return [self._column(name) for name in chosen]

    def _column(self, name: str) -> Column:
        if (place := self._places.get(name)) is not None:
            return Column(name, Kind.NUMBER, lambda block: block.place(place))
        if name == names.ESTIMATE:
            return Column(name, Kind.NUMBER, lambda block: block.chosen(self._dim))
        if name == names.RADIUS:
            return Column(name, Kind.NUMBER, lambda block: block.chosen(self._dim + self._arms))
        if name == names.LIMITED_BY:
            return Column(name, Kind.TEXT, lambda block: [_rules(text) for text in block.stored(name)])
        stored, kind = _STORED[name]
        return Column(name, kind, lambda block: block.stored(stored))


@lru_cache(maxsize=1024)
def _rules(limited_by: str) -> str:
    """The names of the rules that were in force, by comma."""
    return ",".join(each["rule"] for each in json.loads(limited_by))
