"""From named features to vectors: owns the names, the order and the bounds of a context's features."""

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
    """A feature's name and the bounds of its values, both inclusive."""

    name: str
    min: float = -inf
    max: float = inf

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidParameter("a feature must have a name that is not empty")
        if not self.min < self.max:
            raise InvalidParameter(f"feature {self.name!r}: min {self.min} must be below max {self.max}")


@dataclass(frozen=True)
class FeatureSpace:
    """The features of a city: shared ones first, in the order they were declared."""

    shared: tuple[Feature, ...]
    local: tuple[Feature, ...] = ()

    def __post_init__(self) -> None:
        if not self.shared:
            raise InvalidParameter(
                "declare at least one shared feature: cities learn from each other through shared features"
            )
        for part, features in (("shared", self.shared), ("local", self.local)):
            names = [feature.name for feature in features]
            duplicates = sorted({name for name in names if names.count(name) > 1})
            if duplicates:
                raise InvalidParameter(f"{part} features declared twice: {', '.join(duplicates)}")

    @cached_property
    def _bounds(self) -> tuple[Array, Array]:
        features = (*self.shared, *self.local)
        # Finite bounds refuse infinite values, and a comparison with NaN is always false.
        max_float = np.finfo(np.float64).max
        low = np.array([max(feature.min, -max_float) for feature in features])
        high = np.array([min(feature.max, max_float) for feature in features])
        return low, high

    def vector(self, shared: Mapping[str, Any], local: Mapping[str, Any]) -> Array:
        """x = [x_c, x_s] (d,). One InvalidContext lists every fault of the context."""
        x: Array = self.vectors([(shared, local)])[0]
        return x

    def vectors(self, contexts: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Array:
        """The vectors of several contexts, (m, d)."""
        several = len(contexts) > 1
        return np.array(
            [self._read(*context, f"requests.{i}." if several else "") for i, context in enumerate(contexts)]
        )

    def rows(self, numbers: bytes) -> Array:
        """The vectors (m, d) in `numbers`: float64 values, row by row, features in the order declared."""
        low, high = self._bounds
        x: Array = np.frombuffer(numbers).reshape(-1, len(low))
        inside = (x >= low) & (x <= high)
        if not inside.all():
            first = int(inside.all(axis=1).argmin())
            self._read(**self.named(x[first]), where=f"requests.{first}." if len(x) > 1 else "")
        return x

    def _read(self, shared: Mapping[str, Any], local: Mapping[str, Any], where: str) -> list[float]:
        """Check feature by feature, so that the error lists every fault; field names start with `where`."""
        faults: list[tuple[str, str]] = []
        values = [
            *_values(f"{where}shared", self.shared, shared, faults),
            *_values(f"{where}local", self.local, local, faults),
        ]
        if faults:
            raise InvalidContext(faults)
        return values

    def named(self, x: Array) -> dict[str, dict[str, float]]:
        """The context whose vector is x."""
        values = x.tolist()
        return {
            "shared": dict(zip((f.name for f in self.shared), values, strict=False)),
            "local": dict(zip((f.name for f in self.local), values[len(self.shared) :], strict=True)),
        }


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _values(
    part: str, features: tuple[Feature, ...], context: Mapping[str, Any], faults: list[tuple[str, str]]
) -> list[float]:
    """The values of `features` in their order; every fault is appended to `faults`."""
    known = {feature.name for feature in features}
    faults += [(f"{part}.{name}", "unknown feature") for name in context if name not in known]
    values = []
    for feature in features:
        value = context.get(feature.name)
        field = f"{part}.{feature.name}"
        if feature.name not in context:
            faults.append((field, "missing"))
        elif isinstance(value, bool) or not isinstance(value, int | float):
            faults.append((field, f"must be a number, not {value!r}"))
        elif not _is_finite(value):
            faults.append((field, "must be finite"))
        elif not feature.min <= value <= feature.max:
            faults.append((field, f"{value!r} is outside [{feature.min:g}, {feature.max:g}]"))
        else:
            values.append(float(value))
    return values
