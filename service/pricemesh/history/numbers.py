"""Cells of a file as numbers, with the reason where one is none."""

import re
from collections.abc import Sequence
from datetime import date
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from pricemesh.core.arrays import Array

EMPTY = "is empty"
SHOWN_CHARACTERS = 60  # of a cell, in a reason
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


class NumberColumn(NamedTuple):
    values: Array  # (m,); NaN where a cell is no finite number
    reasons: dict[int, str]  # by row, why it is none
    empty: Sequence[int] = ()  # rows without a cell, which have no reason


def number(cell: Any) -> float:
    """A finite number. A ValueError says what is wrong with the cell."""
    if isinstance(cell, date):  # or a time
        raise ValueError(f"must be a number, not {cell}")
    try:
        value = float(cell)
    except (TypeError, ValueError):
        text = str(cell).strip()
        if len(text) < SHOWN_CHARACTERS and _DECIMAL_COMMA.fullmatch(text):
            other = text.replace(",", ".")
            raise ValueError(f"{text} has a comma: write {other}, or leave the comma out") from None
        raise ValueError(f"must be a number, not {text[:SHOWN_CHARACTERS]!r}") from None
    except OverflowError:
        raise ValueError("has too many digits") from None
    if not isfinite(value):
        raise ValueError(f"must be finite, not {value}")
    if isinstance(cell, str) and "_" in cell:  # which Python reads as a number
        raise ValueError(f"must be a number, not {cell.strip()[:SHOWN_CHARACTERS]!r}")
    return value


def numbers(cells: Sequence[Any]) -> NumberColumn:
    """Of cells that are None where they are empty; text may also be blank."""
    if (values := _all_numbers(cells)) is not None:
        return NumberColumn(values, {})
    values, reasons = np.full(len(cells), np.nan), dict[int, str]()
    empty = [row for row, cell in enumerate(cells) if _is_empty(cell)]
    blank = set(empty)
    filled = [row for row in range(len(cells)) if row not in blank]
    if (known := _all_numbers([cells[row] for row in filled])) is not None:
        values[filled] = known
        return NumberColumn(values, {}, empty)
    for row in filled:
        try:
            values[row] = number(cells[row])
        except ValueError as fault:
            reasons[row] = str(fault)
    return NumberColumn(values, reasons, empty)


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _all_numbers(cells: Sequence[Any]) -> Array | None:
    """As `number` of each, in a fraction of the time; None where one is none. The cells of a column that are
    not empty have one type."""
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except (TypeError, ValueError, OverflowError):
        return None
    if not np.isfinite(values).all() or (cells and isinstance(cells[0], str) and "_" in "".join(cells)):
        return None
    return values
