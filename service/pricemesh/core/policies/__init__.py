"""The policies by name, and how parameters written as text become one of them."""

from dataclasses import fields
from math import prod
from typing import Any, get_args, get_type_hints

import numpy as np

from pricemesh.core.policies.disjoint import Disjoint
from pricemesh.core.policies.learner import Learner, Policy, Shape
from pricemesh.core.policies.netlinucb import NetLinUcb
from pricemesh.core.policies.netpool import NetPool
from pricemesh.core.policies.netsgducb import NetSgdUcb
from pricemesh.core.policies.shared import Shared
from pricemesh.errors import BadSummary, InvalidParameter

__all__ = ["POLICIES", "Learner", "Policy", "Shape", "dump", "load", "make_policy", "parameters"]

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Disjoint, Shared, NetLinUcb, NetSgdUcb, NetPool)
}


def parameters(name: str) -> tuple[str, ...]:
    """The names of a policy's parameters."""
    return tuple(field.name for field in fields(_policy_type(name)))  # type: ignore[arg-type]


def make_policy(name: str, **values: Any) -> Policy:
    """A policy from its name and parameters; text is read as the parameter's own type.

    >>> make_policy("netpool", heterogeneity="0.5").heterogeneity
    0.5
    """
    kind = _policy_type(name)
    hints = get_type_hints(kind)
    known = parameters(name)
    for key in values:
        if key not in known:
            raise InvalidParameter(f"{name} has no parameter {key!r}; it has {', '.join(known)}")
    return kind(**{key: _read(key, value, hints[key]) for key, value in values.items()})


def _policy_type(name: str) -> type[Policy]:
    if name not in POLICIES:
        raise InvalidParameter(f"unknown policy {name!r}: choose from {', '.join(POLICIES)}")
    return POLICIES[name]


def _read(key: str, value: Any, hint: Any) -> Any:
    if not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidParameter(f"{key} must be a number or a word, not {value!r}")
        return float(value)
    accepts_number = hint is float or float in get_args(hint)
    try:
        return float(value) if accepts_number else value
    except ValueError:
        if hint is float:
            raise InvalidParameter(f"{key} must be a number, not {value!r}") from None
        return value


def dump(learner: Learner) -> bytes:
    """A learner's state as bytes: its arrays one after another, float64 little-endian."""
    return b"".join(value.astype("<f8").tobytes() for _, value in sorted(learner.state().items()))


def load(learner: Learner, data: bytes) -> None:
    """Bring a fresh learner of the same policy and shape to the state that `dump` wrote."""
    numbers = np.frombuffer(data, dtype="<f8")
    expected = {name: value.shape for name, value in sorted(learner.state().items())}
    if numbers.size != sum(prod(shape) for shape in expected.values()):
        raise BadSummary(f"{len(data)} bytes are not the state of this learner")
    state, start = {}, 0
    for name, shape in expected.items():
        state[name] = numbers[start : start + prod(shape)].reshape(shape).copy()
        start += prod(shape)
    learner.restore(state)
