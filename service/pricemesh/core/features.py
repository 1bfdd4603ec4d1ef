"""Named features to vectors: the one place where a context's names, order and bounds are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite
from typing import Any

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.errors import InvalidContext, InvalidParameter


@dataclass(frozen=True)
class Feature:
    name: str
    min: float = -inf
    max: float = inf

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidParameter("a feature needs a name")
        if not self.min < self.max:
            raise InvalidParameter(f"feature {self.name!r}: min {self.min} must be below max {self.max}")


@dataclass(frozen=True)
class FeatureSpace:
    """The features of a city: shared ones first, in the order they were declared."""

    shared: tuple[Feature, ...]
    local: tuple[Feature, ...] = ()

    def __post_init__(self) -> None:
        if not self.shared:
            raise InvalidParameter("declare at least one shared feature: cities learn together by it")
        for part, features in (("shared", self.shared), ("local", self.local)):
            names = [feature.name for feature in features]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise InvalidParameter(f"{part} features declared twice: {', '.join(twice)}")

    @cached_property
    def _bounds(self) -> tuple[Array, Array]:
        features = (*self.shared, *self.local)
        largest = np.finfo(np.float64).max  # within these bounds nothing is infinite, and NaN is within none
        low = np.array([max(feature.min, -largest) for feature in features])
        high = np.array([min(feature.max, largest) for feature in features])
        return low, high

    def vector(self, shared: Mapping[str, Any], local: Mapping[str, Any]) -> Array:
        """x = [x_c, x_s]; every fault of the context is named in one error."""
        x: Array = self.vectors([(shared, local)])[0]
        return x

    def vectors(self, contexts: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Array:
        """Several at once, (m, d)."""
        several = len(contexts) > 1
        return np.array(
            [self._read(*context, f"requests.{i}." if several else "") for i, context in enumerate(contexts)]
        )

    def rows(self, numbers: bytes) -> Array:
        """Several that are float64 already, one after the other, in the order declared; (m, d)."""
        low, high = self._bounds
        x: Array = np.frombuffer(numbers).reshape(-1, len(low))
        inside = (x >= low) & (x <= high)
        if not inside.all():
            first = int(inside.all(axis=1).argmin())
            self._read(**self.named(x[first]), where=f"requests.{first}." if len(x) > 1 else "")
        return x

    def _read(self, shared: Mapping[str, Any], local: Mapping[str, Any], where: str) -> list[float]:
        """One feature at a time, to say all that is wrong."""
        faults: list[tuple[str, str]] = []
        values = [
            *_values(f"{where}shared", self.shared, shared, faults),
            *_values(f"{where}local", self.local, local, faults),
        ]
        if faults:
            raise InvalidContext(faults)
        return values

    def named(self, x: Array) -> dict[str, dict[str, float]]:
        """The context that `vector` made x from."""
        values = x.tolist()
        return {
            "shared": dict(zip((f.name for f in self.shared), values, strict=False)),
            "local": dict(zip((f.name for f in self.local), values[len(self.shared) :], strict=True)),
        }


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond floating point
        return False


def _values(
    part: str, features: tuple[Feature, ...], given: Mapping[str, Any], faults: list[tuple[str, str]]
) -> list[float]:
    known = {feature.name for feature in features}
    faults += [(f"{part}.{name}", "unknown feature") for name in given if name not in known]
    values = []
    for feature in features:
        value = given.get(feature.name)
        at = f"{part}.{feature.name}"
        if feature.name not in given:
            faults.append((at, "missing"))
        elif isinstance(value, bool) or not isinstance(value, int | float):
            faults.append((at, f"must be a number, not {value!r}"))
        elif not _is_finite(value):
            faults.append((at, "must be finite"))
        elif not feature.min <= value <= feature.max:
            faults.append((at, f"{value!r} is outside [{feature.min:g}, {feature.max:g}]"))
        else:
            values.append(float(value))
    return values
