"""The array types of the core and the checks every value passes before it may change a learner."""

from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pricemesh.errors import InvalidContext, InvalidFeedback, InvalidParameter

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

# Squares of longer contexts drown the ridge term in rounding: such features want another unit.
LONGEST_CONTEXT = 3e5
LARGEST_REWARD = 1e12
_LONGEST_SQUARE = LONGEST_CONTEXT**2
_FLOAT64 = np.dtype(np.float64)


def _numbers(given: Any) -> Array | None:
    """`given` as float64; None for text, complex or ragged values and integers beyond floating point."""
    if type(given) is np.ndarray and given.dtype is _FLOAT64:
        return given
    try:
        values = np.asarray(given)
    except ValueError:
        return None
    return values.astype(np.float64) if values.dtype.kind in "iuf" else None


def checked_context(x: Any, shape: tuple[int, ...]) -> Array:
    """`x` as float64 of `shape`, or several of one city in rows, finite and of usable size."""
    if (
        type(x) is np.ndarray
        and x.dtype is _FLOAT64
        and x.shape == shape
        and np.vdot(x, x) <= _LONGEST_SQUARE
    ):
        return x
    vector = _numbers(x)
    if vector is None:
        raise InvalidContext("a context must be real numbers of floating-point size")
    if vector.shape != shape and not (len(shape) == 1 and vector.ndim == 2 and vector.shape[1:] == shape):
        raise InvalidContext(f"a context here has shape {shape}, not {vector.shape}")
    # All of them together are seldom too long for one.
    if not np.vdot(vector, vector) <= _LONGEST_SQUARE and not _each_usable(vector):
        raise InvalidContext(
            f"a context must be finite and of length below {LONGEST_CONTEXT:g}: rescale its features"
        )
    return vector


def _each_usable(vectors: Array) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return vectors.ndim > 1 and bool((np.vecdot(vectors, vectors) <= _LONGEST_SQUARE).all())


def checked_reward(reward: Any, shape: tuple[int, ...]) -> Array:
    if type(reward) is float and shape == () and -LARGEST_REWARD <= reward <= LARGEST_REWARD:
        return np.float64(reward)  # type: ignore[return-value]
    value = _numbers(reward)
    if value is None:
        raise InvalidFeedback("a reward must be a real number of floating-point size")
    if value.shape != shape:
        raise InvalidFeedback(f"rewards here have shape {shape}, not {value.shape}")
    if not np.abs(value).max(initial=0.0) <= LARGEST_REWARD:
        raise InvalidFeedback(f"a reward must be finite and below {LARGEST_REWARD:g}")
    return value


def checked_arm(arm: Any, arms: int, shape: tuple[int, ...]) -> Ints | int:
    if type(arm) is int and shape == () and 0 <= arm < arms:
        return arm
    try:
        value = np.asarray(arm)
    except ValueError:
        raise InvalidFeedback(f"arms are whole numbers, not {arm!r}") from None
    if value.dtype.kind not in "iu":
        raise InvalidFeedback(f"an arm is a whole number, not {arm!r}")
    if value.shape != shape:
        raise InvalidFeedback(f"arms here have shape {shape}, not {value.shape}")
    if value.min() < 0 or value.max() >= arms:
        raise InvalidFeedback(f"unknown arm {arm!r}: there are {arms}, numbered from 0")
    return value.astype(np.int64, copy=False)


def positive(name: str, value: float) -> None:
    if isinstance(value, bool) or not isfinite(value) or value <= 0:
        raise InvalidParameter(f"{name} must be a positive number, not {value!r}")


def not_negative(name: str, value: float) -> None:
    if isinstance(value, bool) or not isfinite(value) or value < 0:
        raise InvalidParameter(f"{name} must be zero or a positive number, not {value!r}")


def fraction(name: str, value: float) -> None:
    if isinstance(value, bool) or not 0 <= value < 1:
        raise InvalidParameter(f"{name} must lie in [0, 1), not {value!r}")


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidParameter(f"{name} must be one of {', '.join(choices)}, not {value!r}")
