"""Cells of a file as numbers, with the reason where one is none."""

import re
from collections.abc import Sequence
from datetime import date, datetime
from math import isfinite
from typing import Any

SHOWN_CHARACTERS = 60  # of a cell, in a reason
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


def number(cell: Any) -> float:
    """A finite number. A ValueError says what is wrong with the cell."""
    if cell is None:
        raise ValueError("is empty")
    if isinstance(cell, datetime | date):
        raise ValueError(f"must be a number, not the time {cell}")
    try:
        value = float(cell)
    except (TypeError, ValueError):
        text = str(cell)
        if _DECIMAL_COMMA.fullmatch(text):
            raise ValueError(f"{text:.60} has a decimal comma: write {text.replace(',', '.'):.60}") from None
        raise ValueError(f"must be a number, not {text[:SHOWN_CHARACTERS]!r}") from None
    except OverflowError:
        raise ValueError("has too many digits") from None
    if not isfinite(value):
        raise ValueError(f"must be finite, not {value}")
    if isinstance(cell, str) and "_" in cell:  # Python reads 1_000 as a number
        raise ValueError(f"must be a number, not {cell[:SHOWN_CHARACTERS]!r}")
    return value


def numbers(cells: Sequence[Any]) -> list[float | None]:
    """Of each cell; None where it is no number."""
    try:
        values = list(map(number, cells))
    except ValueError:
        return [_or_none(cell) for cell in cells]
    return list(values)


def _or_none(cell: Any) -> float | None:
    try:
        return number(cell)
    except ValueError:
        return None
