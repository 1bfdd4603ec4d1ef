"""Checks of what other cities sent: numbers that no honest city could have are refused."""

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.errors import BadSummary


def refuse_if(faulty: object, reason: str) -> None:
    if faulty:
        raise BadSummary(reason)


def refuse_beyond(values: Array, limit: Array, reason: str) -> None:
    """Raise BadSummary if a value is above its limit, apart from rounding."""
    refuse_if(not (values <= limit * (1 + 1e-9) + 1e-9).all(), reason)


def refuse_infinite(*sums: Array) -> None:
    """Raise BadSummary if a sum over peers overflowed, although each term was within bounds."""
    refuse_if(not all(np.isfinite(values).all() for values in sums), "peers' numbers overflow when added up")


def max_abs(vectors: Array) -> Array:
    """The largest absolute value of each vector, (...,) of (..., c)."""
    sizes: Array = np.abs(vectors).max(axis=-1)
    return sizes


def log_determinants(matrices: Array) -> Array:
    """Of positive definite matrices, (...,) of (..., n, n)."""
    values: Array = np.linalg.slogdet(matrices).logabsdet
    return values


def eigenvalues(matrices: Array) -> Array:
    """The eigenvalues of symmetric matrices in ascending order."""
    values: Array = np.linalg.eigvalsh(matrices)  # type: ignore[assignment]
    return values


def refuse_impossible_information(information: Array, max_trace: Array) -> None:
    """Raise BadSummary unless each matrix is positive semi-definite, and its trace is within its limit."""
    values = eigenvalues(information)
    slack = 1e-9 * np.maximum(max_trace, 1.0)
    refuse_if((values[..., 0] < -slack).any(), "an information matrix is not positive semi-definite")
    refuse_if((values.sum(axis=-1) > max_trace + slack).any(), "more information than its counts allow")
