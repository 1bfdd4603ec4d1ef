"""Named features to vectors: the one place where a context's names, order and bounds are known."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite
from operator import itemgetter
from typing import Any

import numpy as np

from service.core.arrays import Array
from service.errors import InvalidContext, InvalidParameter

Values = Callable[[Mapping[str, Any]], Iterable[Any]]
_PLAIN = {int, float}


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
    def _order(self) -> tuple[Values, Values, Array, Array]:
        features = (*self.shared, *self.local)
        largest = np.finfo(np.float64).max  # within these bounds nothing is infinite, and NaN is within none
        low = np.array([max(feature.min, -largest) for feature in features])
        high = np.array([min(feature.max, largest) for feature in features])
        return _values_of(self.shared), _values_of(self.local), low, high

    def vector(self, shared: Mapping[str, Any], local: Mapping[str, Any]) -> Array:
        """x = [x_c, x_s]; every fault of the context is named in one error."""
        x: Array = self.vectors([(shared, local)])[0]
        return x

    def vectors(self, contexts: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Array:
        """Several at once, (m, d)."""
        of_shared, of_local, low, high = self._order
        c, s = len(self.shared), len(self.local)
        values: list[Any] = []
        for shared, local in contexts:
            if len(shared) != c or len(local) != s:
                break
            try:
                values += of_shared(shared)
                values += of_local(local)
            except KeyError:
                break
        if len(values) == len(contexts) * len(low) and set(map(type, values)) <= _PLAIN:
            x = np.array(values).reshape(len(contexts), -1)
            if x.dtype.kind in "if" and ((x >= low) & (x <= high)).all():
                return x.astype(np.float64, copy=False)
        several = len(contexts) > 1
        return np.stack(
            [
                self._vector_or_faults(shared, local, f"requests.{i}." if several else "")
                for i, (shared, local) in enumerate(contexts)
            ]
        )

    def _vector_or_faults(self, shared: Mapping[str, Any], local: Mapping[str, Any], where: str) -> Array:
        """The same, one feature at a time, to say what is wrong."""
        faults: list[tuple[str, str]] = []
        values = [
            *_read(f"{where}shared", self.shared, shared, faults),
            *_read(f"{where}local", self.local, local, faults),
        ]
        if faults:
            raise InvalidContext(faults)
        return np.array(values)

    def named(self, x: Array) -> dict[str, dict[str, float]]:
        """The context that `vector` made x from."""
        values = x.tolist()
        return {
            "shared": dict(zip((f.name for f in self.shared), values, strict=False)),
            "local": dict(zip((f.name for f in self.local), values[len(self.shared) :], strict=True)),
        }


def _values_of(features: tuple[Feature, ...]) -> Values:
    """What gives all values of a part, in order, or a KeyError."""
    names = [feature.name for feature in features]
    if len(names) > 1:
        return itemgetter(*names)
    return lambda given: [given[name] for name in names]


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond floating point
        return False


def _read(
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
