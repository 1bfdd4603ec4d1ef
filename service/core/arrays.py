"""The array types of the core and the checks every value passes before it may change a learner."""

from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidContext, InvalidFeedback, InvalidParameter

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

# Squares of larger numbers drown the ridge term in rounding: such a feature wants another unit.
LARGEST = 1e12
LARGEST_SQUARE = LARGEST**2


def checked_context(x: Any, shape: tuple[int, ...]) -> Array:
    """`x` as float64 of exactly `shape`, finite and of usable size."""
    try:
        vector: Array = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError) as fault:
        raise InvalidContext(f"a context must be numbers: {fault}") from None
    if vector.shape != shape:
        raise InvalidContext(f"a context here has shape {shape}, not {vector.shape}")
    if not np.vdot(vector, vector) <= LARGEST_SQUARE:
        raise InvalidContext(
            f"a context must be finite and of length below {LARGEST:g}: rescale its features"
        )
    return vector


def checked_reward(reward: Any, shape: tuple[int, ...]) -> Array:
    try:
        value: Array = np.asarray(reward, dtype=np.float64)
    except (TypeError, ValueError) as fault:
        raise InvalidFeedback(f"a reward must be a number: {fault}") from None
    if value.shape != shape:
        raise InvalidFeedback(f"rewards here have shape {shape}, not {value.shape}")
    if not np.vdot(value, value) <= LARGEST_SQUARE:
        raise InvalidFeedback(f"a reward must be finite and below {LARGEST:g}")
    return value


def checked_arm(arm: Any, arms: int, shape: tuple[int, ...]) -> Ints:
    value = np.asarray(arm)
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
