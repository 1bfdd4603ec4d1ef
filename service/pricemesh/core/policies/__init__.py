"""The registry of policies: make one from its name and parameters; write and read a learner's state."""

from collections.abc import Mapping
from dataclasses import fields
from math import prod
from typing import Any, get_args, get_type_hints

import numpy as np

from pricemesh.core.policies.demand import Demand
from pricemesh.core.policies.disjoint import Disjoint
from pricemesh.core.policies.learner import Learner, Policy, Shape
from pricemesh.core.policies.netlinucb import NetLinUcb
from pricemesh.core.policies.netpool import NetPool
from pricemesh.core.policies.netsgducb import NetSgdUcb
from pricemesh.core.policies.shared import Shared
from pricemesh.errors import BadSummary, InvalidParameter

__all__ = [
    "POLICIES",
    "Learner",
    "Policy",
    "Shape",
    "dump",
    "learning_changes",
    "load",
    "make_policy",
    "parameters",
]

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Disjoint, Shared, NetLinUcb, NetSgdUcb, NetPool, Demand)
}

# By these a learner scores, and counts its peers. Its `state` does not depend on them, apart from peers.
SCORING_PARAMETERS = frozenset(
    (
        "exploration",
        "thompson_scale",
        "thompson_optimism",
        "heterogeneity",
        "trust",
        "combine",
        "cosine",
        "rho",
    )
)


def parameters(name: str) -> tuple[str, ...]:
    """The names of a policy's parameters."""
    return tuple(field.name for field in fields(_policy_type(name)))  # type: ignore[arg-type]


def make_policy(name: str, **values: Any) -> Policy:
    """A policy from its name and parameters; a parameter given as text is converted to its own type.

    >>> make_policy("netpool", heterogeneity="0.5").heterogeneity
    0.5
    """
    policy_type = _policy_type(name)
    hints = get_type_hints(policy_type)
    names = parameters(name)
    for key in values:
        if key not in names:
            raise InvalidParameter(f"{name} has no parameter {key!r}: choose from {', '.join(names)}")
    return policy_type(**{key: _convert(key, value, hints[key]) for key, value in values.items()})


def _policy_type(name: str) -> type[Policy]:
    if name not in POLICIES:
        raise InvalidParameter(f"unknown policy {name!r}: choose from {', '.join(POLICIES)}")
    return POLICIES[name]


def _convert(key: str, value: Any, hint: Any) -> Any:
    """Numbers and text that reads as a number become float where the type hint allows one."""
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


def learning_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Why a state that was learned with the parameters `before` is not what a policy with those of `now`
    would have learned, in words; empty where it is. Both have the policy's `name`.

    >>> disjoint = {"name": "disjoint", "ridge": 1.0, "alpha": 0.5}
    >>> learning_changes(disjoint, disjoint | {"ridge": 2.0, "alpha": 0.7})
    ['ridge was 1.0, is now 2.0']
    """
    if before["name"] != now["name"]:
        return [f"the policy was {before['name']}, is now {now['name']}"]
    policy_fields = fields(_policy_type(now["name"]))  # type: ignore[arg-type]
    # A parameter that is newer than the state began with a default that changed nothing.
    known = {field.name: field.default for field in policy_fields} | dict(before)
    return [
        f"{name} was {known[name]}, is now {value}"
        for name, value in now.items()
        if value != known[name]
        and name not in SCORING_PARAMETERS
        and not (name == "alpha" and "auto" not in (value, known[name]))
    ]


def dump(learner: Learner) -> bytes:
    """A learner's state as bytes: its arrays in the order of their names, float64 little-endian."""
    return b"".join(value.astype("<f8").tobytes() for _, value in sorted(learner.state().items()))


def load(learner: Learner, data: bytes) -> None:
    """Restore a fresh learner of the same policy and shape from the bytes that `dump` wrote."""
    numbers = np.frombuffer(data, dtype="<f8")
    shapes = {name: value.shape for name, value in sorted(learner.state().items())}
    if numbers.size != sum(prod(shape) for shape in shapes.values()):
        raise BadSummary(
            f"{len(data)} bytes are not the state of this learner: its policy, arms or features have changed"
        )
    state, start = {}, 0
    for name, shape in shapes.items():
        state[name] = numbers[start : start + prod(shape)].reshape(shape).copy()
        start += prod(shape)
    learner.restore(state)
