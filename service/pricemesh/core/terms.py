"""The arms and features that decisions were made under, and how their rows are read in later terms.

Terms follow one another: each says how the features of the terms before it became its own. A row keeps the
meaning it was made under; a `Reading` takes it through all changes since.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.decision import NO_ARM, Margin
from pricemesh.errors import InvalidParameter

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Terms:
    prices: tuple[float, ...]
    shared: tuple[str, ...]
    local: tuple[str, ...]
    bounds: tuple[Bounds, ...] | None = None  # of all features, shared ones first; None: not recorded
    # How rows of the terms before are read in these:
    renamed: Mapping[str, str] = field(default_factory=dict)  # a feature's name here -> its name there
    filled: Mapping[str, float] = field(default_factory=dict)  # a new feature -> its value in older rows

    @classmethod
    def of(cls, description: Mapping[str, Any], change: Mapping[str, Any]) -> "Terms":
        """As they are stored."""
        bounds = description.get("bounds")
        return cls(
            tuple(description["prices"]),
            tuple(description["shared"]),
            tuple(description["local"]),
            None if bounds is None else tuple((low, high) for low, high in bounds),
            change.get("renamed", {}),
            change.get("filled", {}),
        )

    @property
    def features(self) -> tuple[str, ...]:
        return self.shared + self.local

    @property
    def change(self) -> dict[str, Any]:
        return {"renamed": dict(self.renamed), "filled": dict(self.filled)}


class Reading:
    """Of rows that were made under the first of these terms, in the last of them."""

    def __init__(self, terms: Sequence[Terms]) -> None:
        self.first, self._present = first, present = terms[0], terms[-1]
        origins = [_origin(name, terms) for name in present.features]
        places = {name: place for place, name in enumerate(first.features)}
        self._fills = np.array([0.0 if isinstance(origin, str) else origin for origin in origins])
        self._targets = [i for i, origin in enumerate(origins) if isinstance(origin, str)]
        self._sources = [places[origin] for origin in origins if isinstance(origin, str)]
        arms = {price: arm for arm, price in enumerate(present.prices)}
        self._arms = [arms.get(price, NO_ARM) for price in first.prices]
        self._arm_of_price = arms

    def arm(self, arm: int, price: float) -> int:
        """Of the present ladder; NO_ARM where the price is not on it."""
        return self._arm_of_price.get(price, NO_ARM) if arm == NO_ARM else self._arms[arm]

    def price(self, arm: int, price: float) -> float:
        """Of a decision that was made for `arm`; `price` where that was no arm."""
        return price if arm == NO_ARM else self.first.prices[arm]

    def context(self, vectors: bytes) -> Array:
        """(d,) in the present features."""
        numbers = np.frombuffer(vectors, count=len(self.first.features))
        values: Array = self.contexts(numbers[None])[0]
        return values

    def contexts(self, contexts: Array) -> Array:
        """(m, d) in the present features, of contexts in the first ones."""
        values = np.tile(self._fills, (len(contexts), 1))
        values[:, self._targets] = contexts[:, self._sources]
        return values

    def margin(self, margin: Margin) -> Margin:
        """What a unit brings by today's configuration, for the vectors of these rows."""
        if margin.cost_feature is None:
            return margin
        if margin.cost_feature in self._targets:
            return Margin(0.0, self._sources[self._targets.index(margin.cost_feature)])
        return Margin(float(self._fills[margin.cost_feature]))

    def is_within_bounds(self, context: Array) -> bool:
        """Outside them peers would refuse what is learned from it."""
        low, high = self._bounds
        return bool(((low <= context) & (context <= high)).all())

    @cached_property
    def _bounds(self) -> tuple[Array, Array]:
        bounds = self._present.bounds or [(-np.inf, np.inf)] * len(self._present.features)
        low, high = np.array(bounds, dtype=np.float64).reshape(-1, 2).T
        return low, high


def _origin(name: str, terms: Sequence[Terms]) -> str | float:
    """The name that a feature of the last terms has in the first ones, or the value that stands for it."""
    for before, after in zip(reversed(terms[:-1]), reversed(terms[1:]), strict=True):
        if name in after.filled:
            return float(after.filled[name])
        name = after.renamed.get(name, name)
        if name not in before.features:
            raise InvalidParameter(
                f"the feature {name!r} is new, and older rows have no value for it: name one, "
                f"as in --fill {name}=0.0"
            )
    return name
