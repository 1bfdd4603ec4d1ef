"""The ladders and features that a simulated city has had, as its operator knows them, and what its rows mean
in the newest ones. Shares nothing with `core.terms`: features go by their names, one change at a time."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.lab.torture.rows import DecisionRow

Feature = Mapping[str, Any]  # as the configuration has it: name, min, max


class PastTerms(NamedTuple):
    prices: tuple[float, ...]
    shared: tuple[Feature, ...]
    local: tuple[Feature, ...]
    renamed: Mapping[str, str] = {}  # a feature's name here, and its name in the terms before
    filled: Mapping[str, float] = {}  # a feature that is new, and its value in older rows

    @classmethod
    def of(
        cls,
        sections: Mapping[str, Any],
        renamed: Mapping[str, str] | None = None,
        filled: Mapping[str, float] | None = None,
    ) -> "PastTerms":
        features = sections["features"]
        return cls(
            tuple(sections["arms"]["prices"]),
            tuple(features["shared"]),
            tuple(features["local"]),
            renamed or {},
            filled or {},
        )

    @property
    def features(self) -> tuple[Feature, ...]:
        return self.shared + self.local

    @property
    def names(self) -> list[str]:
        return [feature["name"] for feature in self.features]

    def inherit(self, older: Mapping[str, float]) -> dict[str, float]:
        """The features of a row by their names here, from those in the terms before."""
        return {
            name: self.filled[name] if name in self.filled else older[self.renamed.get(name, name)]
            for name in self.names
        }


class RowMeaning(NamedTuple):
    features: Mapping[str, float]  # by their present names
    arm: int | None  # of today; None where its price is not on the ladder
    is_within_bounds: bool

    @property
    def context(self) -> Array:
        return np.array(list(self.features.values()))


def meaning(row: DecisionRow, history: Sequence[PastTerms]) -> RowMeaning:
    """Of a decision that was made under one of these terms, in the last of them."""
    place = (row.terms or 1) - 1
    first, present = history[place], history[-1]
    numbers = np.frombuffer(row.vectors, count=len(first.features)).tolist()
    features = dict(zip(first.names, numbers, strict=True))
    for terms in history[place + 1 :]:
        features = terms.inherit(features)
    is_within = first is present or all(
        feature["min"] <= features[feature["name"]] <= feature["max"] for feature in present.features
    )
    prices = present.prices
    return RowMeaning(features, prices.index(row.price) if row.price in prices else None, is_within)
