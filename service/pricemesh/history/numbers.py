"""Cells of a file as numbers, with the reason where one is none."""

import re
from collections.abc import Sequence
from datetime import date
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from pricemesh.core.arrays import Array

SHOWN_CHARACTERS = 60  # of a cell, in a reason
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


class NumberColumn(NamedTuple):
    values: Array  # (m,); NaN where a cell is no finite number
    reasons: dict[int, str]  # by row, why it is none


def number(cell: Any) -> float:
    """A finite number. A ValueError says what is wrong with the cell."""
    if cell is None:
        raise ValueError("is empty")
    if isinstance(cell, date):  # or a time
        raise ValueError(f"must be a number, not {cell}")
    try:
        value = float(cell)
    except (TypeError, ValueError):
        text = str(cell)
        if len(text) < SHOWN_CHARACTERS and _DECIMAL_COMMA.fullmatch(text):
            other = text.replace(",", ".")
            raise ValueError(f"{text} has a comma: write {other}, or leave the comma out") from None
        raise ValueError(f"must be a number, not {text[:SHOWN_CHARACTERS]!r}") from None
    except OverflowError:
        raise ValueError("has too many digits") from None
    if not isfinite(value):
        raise ValueError(f"must be finite, not {value}")
    if isinstance(cell, str) and "_" in cell:  # which Python reads as a number
        raise ValueError(f"must be a number, not {cell[:SHOWN_CHARACTERS]!r}")
    return value


def numbers(cells: Sequence[Any]) -> NumberColumn:
    try:
        return NumberColumn(np.array([number(cell) for cell in cells], dtype=np.float64), {})
    except ValueError:
        pass
    values, reasons = np.full(len(cells), np.nan), dict[int, str]()
    for row, cell in enumerate(cells):
        try:
            values[row] = number(cell)
        except ValueError as fault:
            reasons[row] = str(fault)
    return NumberColumn(values, reasons)
