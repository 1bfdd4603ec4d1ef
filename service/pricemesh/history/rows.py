"""Stored rows as columns of values. Knows the rows of `store` and no file format."""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from pricemesh.city.relearning import readings_of
from pricemesh.city.settings import Settings
from pricemesh.core.arrays import Array
from pricemesh.core.decision import NO_ARM
from pricemesh.core.terms import Reading
from pricemesh.history import columns as names
from pricemesh.store.reads import STORED_COLUMNS
from pricemesh.store.startup import Past

Values = Sequence[Any] | Array  # None or NaN where there is nothing
Readings = Mapping[int | None, Reading]  # of rows made under other terms than those in force
NAN_BYTE = b"\xff"  # eight of them are a NaN


class Kind(Enum):
    TEXT = "text"
    NUMBER = "number"
    WHOLE = "whole number"
    TIME = "time"  # Unix seconds
    FLAG = "true or false"


class Block:
    """Rows of decisions, m of them, read in the terms in force: d features and K arms."""

    def __init__(self, rows: Sequence[Any], width: tuple[int, int], readings: Readings) -> None:
        self.size = len(rows)
        columns = zip(*rows, strict=True) if rows else [()] * len(STORED_COLUMNS)
        self._stored: dict[str, tuple[Any, ...]] = dict(zip(STORED_COLUMNS, columns, strict=True))
        self._dim, self._arms = width
        self._readings = readings

    def stored(self, name: str) -> tuple[Any, ...]:
        return self._stored[name]

    @cached_property
    def arms(self) -> Sequence[int | None]:
        """Of the present ladder; None where the price is not on it."""
        choices = zip(self._stored["arm"], self._stored["price"], self._stored["terms"], strict=True)
        arms = [self._arm(*each) for each in choices]
        return [None if arm == NO_ARM else arm for arm in arms]

    def _arm(self, arm: int, price: float, terms: int | None) -> int:
        reading = self._readings.get(terms)
        return arm if reading is None else reading.arm(arm, price)

    @cached_property
    def _vectors(self) -> Array:
        """Contexts, estimates and radii (m, d + 2K), then the chosen arm's estimate and radius (m, 2). NaN
        where there is none: an imported decision was not estimated here, and a price may be new."""
        values = np.full((self.size, self._dim + 2 * self._arms + 2), np.nan)
        by_terms: dict[int | None, list[int]] = {}
        for row, terms in enumerate(self._stored["terms"]):
            by_terms.setdefault(terms, []).append(row)
        for terms, rows in by_terms.items():
            values[rows] = self._read(rows, self._readings.get(terms))
        imported = [row for row, import_id in enumerate(self._stored["import_id"]) if import_id is not None]
        values[imported, self._dim :] = np.nan
        return values

    def _read(self, rows: list[int], reading: Reading | None) -> Array:
        """Of rows that were made under the same terms; without a reading these are in force."""
        dim, arms = self._dim, self._arms
        if reading is not None:
            dim, arms = len(reading.first.features), len(reading.first.prices)
        width = 8 * (dim + 2 * arms)
        vectors, chosen = self._stored["vectors"], [self._stored["arm"][row] for row in rows]
        parts = [bytes(vectors[row][:width]).ljust(width, NAN_BYTE) for row in rows]
        numbers = np.frombuffer(b"".join(parts)).reshape(len(rows), -1)
        scores = numbers[:, dim:].reshape(len(rows), 2, arms)
        own = np.where(np.array(chosen)[:, None] == NO_ARM, np.nan, scores[np.arange(len(rows)), :, chosen])
        if reading is None:
            return np.concatenate([numbers, own], axis=1)
        places = [reading.arm(arm, 0.0) for arm in range(arms)]
        present = np.full((len(rows), 2, self._arms), np.nan)
        for arm, place in enumerate(places):
            if place != NO_ARM:
                present[:, :, place] = scores[:, :, arm]
        context = reading.contexts(numbers[:, :dim])
        return np.concatenate([context, present.reshape(len(rows), -1), own], axis=1)

    def place(self, place: int) -> Array:
        """A column of the vectors (m,); from the end where the place is negative."""
        values: Array = self._vectors[:, place]
        return values


class Column(NamedTuple):
    name: str
    kind: Kind
    values: Callable[[Block], Values]


_STORED = {
    names.DECISION_ID: ("id", Kind.TEXT),
    names.TIME: ("made_at", Kind.TIME),
    names.PRICE: ("price", Kind.NUMBER),
    names.SOLD: ("sold", Kind.NUMBER),
    names.REWARD: ("reward", Kind.NUMBER),
    names.FEEDBACK_TIME: ("received_at", Kind.TIME),
    names.FEEDBACK_VERSION: ("version", Kind.WHOLE),
    names.BY_DEFAULT: ("by_default", Kind.FLAG),
    names.POLICY: ("policy", Kind.TEXT),
    names.LEARNER_VERSION: ("learner_version", Kind.WHOLE),
    names.SUBJECT: ("subject", Kind.TEXT),
    names.CONTRIBUTED_BY: ("told_by", Kind.TEXT),
    names.CHANCE: ("chance", Kind.NUMBER),
    names.NUMBER: ("number", Kind.WHOLE),
    names.RETRACTED: ("is_retracted", Kind.FLAG),
    names.IMPORT: ("import_id", Kind.WHOLE),
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
        at |= {names.ESTIMATE: -2, names.RADIUS: -1}
        self._places = at
        self._readings: Readings = {}

    def use(self, past: Past) -> None:
        """The terms that the city has had, before the first block."""
        self._readings = readings_of(past)

    def block(self, rows: Sequence[Any]) -> Block:
        return Block(rows, (self._dim, self._arms), self._readings)

    def columns(self, chosen: Sequence[str]) -> list[Column]:
        """Of names that exist, groups spelled out."""
        return [self._column(name) for name in chosen]

    def _column(self, name: str) -> Column:
        if (place := self._places.get(name)) is not None:
            return Column(name, Kind.NUMBER, lambda block: block.place(place))
        if name == names.ARM:
            return Column(name, Kind.WHOLE, lambda block: block.arms)
        if name == names.LIMITED_BY:
            return Column(name, Kind.TEXT, lambda block: [_rules(text) for text in block.stored(name)])
        if name == names.PROPENSITY:
            return Column(name, Kind.NUMBER, lambda block: [each or None for each in block.stored(name)])
        stored, kind = _STORED[name]
        return Column(name, kind, lambda block: block.stored(stored))


@lru_cache(maxsize=1024)
def _rules(limited_by: str) -> str:
    """The names of the rules that were in force, by comma."""
    return ",".join(each["rule"] for each in json.loads(limited_by))
