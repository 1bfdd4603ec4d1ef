"""The array types of the core, and the checks of every context, arm, reward and parameter.

A value is checked before it changes a learner, so that a refused call leaves the learner as it was.
"""

from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pricemesh.errors import InvalidContext, InvalidFeedback, InvalidParameter

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

# Beyond this length the squares of a context lose the ridge term to rounding.
MAX_CONTEXT_LENGTH = 3e5
MAX_REWARD = 1e12
_MAX_SQUARE = MAX_CONTEXT_LENGTH**2
_FLOAT64 = np.dtype(np.float64)


def _as_float64(value: Any) -> Array | None:
    """`value` as float64; None for text, complex numbers, ragged lists and integers too large for a float."""
    if type(value) is np.ndarray and value.dtype is _FLOAT64:
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    return array.astype(np.float64) if array.dtype.kind in "iuf" else None


def checked_context(x: Any, shape: tuple[int, ...]) -> Array:
    """`x` as float64 of `shape`. For one city also several contexts, (m, d). InvalidContext if a context is
    not finite or longer than MAX_CONTEXT_LENGTH."""
    if type(x) is np.ndarray and x.dtype is _FLOAT64 and x.shape == shape and np.vdot(x, x) <= _MAX_SQUARE:
        return x
    vector = _as_float64(x)
    if vector is None:
        raise InvalidContext("a context must consist of real numbers that fit into a float")
    if vector.shape != shape and not (len(shape) == 1 and vector.ndim == 2 and vector.shape[1:] == shape):
        raise InvalidContext(f"a context must have the shape {shape}, not {vector.shape}")
    # Fast path: if the sum of all squares is within the limit, so is each context.
    if not np.vdot(vector, vector) <= _MAX_SQUARE and not _each_within_limit(vector):
        raise InvalidContext(
            f"a context must be finite and its length at most {MAX_CONTEXT_LENGTH:g}: rescale its features"
        )
    return vector


def _each_within_limit(vectors: Array) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return vectors.ndim > 1 and bool((np.vecdot(vectors, vectors) <= _MAX_SQUARE).all())


def checked_reward(reward: Any, shape: tuple[int, ...]) -> Array:
    """`reward` as float64 of `shape`; InvalidFeedback if one is not finite or beyond MAX_REWARD."""
    if type(reward) is float and shape == () and -MAX_REWARD <= reward <= MAX_REWARD:
        return np.float64(reward)  # type: ignore[return-value]
    value = _as_float64(reward)
    if value is None:
        raise InvalidFeedback("a reward must be a real number that fits into a float")
    if value.shape != shape:
        raise InvalidFeedback(f"rewards must have the shape {shape}, not {value.shape}")
    if not np.abs(value).max(initial=0.0) <= MAX_REWARD:
        raise InvalidFeedback(f"a reward must be finite and its size at most {MAX_REWARD:g}")
    return value


def checked_arm(arm: Any, arms: int, shape: tuple[int, ...]) -> Ints | int:
    """`arm` as int64 of `shape`; InvalidFeedback if one is not a whole number in [0, arms)."""
    if type(arm) is int and shape == () and 0 <= arm < arms:
        return arm
    try:
        value = np.asarray(arm)
    except ValueError:
        raise InvalidFeedback(f"arms must be whole numbers, not {arm!r}") from None
    if value.dtype.kind not in "iu":
        raise InvalidFeedback(f"an arm must be a whole number, not {arm!r}")
    if value.shape != shape:
        raise InvalidFeedback(f"arms must have the shape {shape}, not {value.shape}")
    if value.min() < 0 or value.max() >= arms:
        raise InvalidFeedback(f"unknown arm {arm!r}: choose from 0 to {arms - 1}")
    return value.astype(np.int64, copy=False)


def positive(name: str, value: float) -> None:
    """Raise InvalidParameter unless the parameter `name` is finite and above zero."""
    if isinstance(value, bool) or not isfinite(value) or value <= 0:
        raise InvalidParameter(f"{name} must be a positive number, not {value!r}")


def not_negative(name: str, value: float) -> None:
    """Raise InvalidParameter unless the parameter `name` is finite and at least zero."""
    if isinstance(value, bool) or not isfinite(value) or value < 0:
        raise InvalidParameter(f"{name} must be zero or a positive number, not {value!r}")


def fraction(name: str, value: float) -> None:
    """Raise InvalidParameter unless the parameter `name` lies in [0, 1)."""
    if isinstance(value, bool) or not 0 <= value < 1:
        raise InvalidParameter(f"{name} must lie in [0, 1), not {value!r}")


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise InvalidParameter unless the parameter `name` is one of `choices`."""
    if value not in choices:
        raise InvalidParameter(f"{name} must be one of {', '.join(choices)}, not {value!r}")
