"""Times in files and options: text to Unix seconds. What can be read in two ways is refused."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from math import isfinite
from typing import Any

import numpy as np

from pricemesh.core.arrays import Array

MIN_TIME, MAX_TIME = -62_135_596_800.0, 253_402_300_799.0  # Unix seconds; the years 1 to 9999
# Numbers in files. Smaller and larger ones are taken for something else than a time.
MIN_SECONDS, MIN_MILLISECONDS, MAX_MILLISECONDS = 1e8, 1e11, 1e14  # from 1973; from 1973; to 5138
FORMATS = (
    "Unix seconds, Unix milliseconds, ISO 8601 such as 2026-03-01T12:00:00Z, YYYY-MM-DD HH:MM:SS, or "
    "DD.MM.YYYY HH:MM"
)
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_GERMAN = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2}))?)?")
_SLASHES = re.compile(r"\d{1,4}/\d{1,2}/\d{1,4}\b.*")
_DIGITS_OF_A_DATE = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(\d{4}|\d{6})?")


def option_time(text: str) -> float:
    """Unix seconds of an option, which is Unix seconds or ISO 8601; without a zone, UTC. A ValueError says
    what it must be."""
    if _NUMBER.fullmatch(text.strip()):
        seconds = float(text)
        if isfinite(seconds):
            return seconds
    try:
        return zoned_seconds(datetime.fromisoformat(text.strip()), UTC)
    except ValueError:
        raise ValueError(
            f"must be Unix seconds or ISO 8601, such as 2026-03-01 or 2026-03-01T12:00:00Z, not {text!r:.60}"
        ) from None


def iso_times(cells: Sequence[Any]) -> Array | None:
    """Unix seconds of cells that all are ISO 8601 with a zone; None where one is something else. As
    `file_time` of each, in a fraction of the time."""
    try:
        moments = list(map(datetime.fromisoformat, cells))
    except (TypeError, ValueError):
        return None
    if any(moment.tzinfo is None for moment in moments):
        return None
    return np.fromiter((moment.timestamp() for moment in moments), np.float64, len(moments))


def file_time(text: str, zone: tzinfo = UTC) -> float:
    """Unix seconds of a time in a file. A time without a zone is one of `zone`. A ValueError says what is
    wrong with it."""
    text = text.strip()
    if _DIGITS_OF_A_DATE.fullmatch(text):
        raise ValueError(
            f"{text} may be a date without separators or a Unix time: write {FORMATS.partition(', or')[0]}"
        )
    if _NUMBER.fullmatch(text):
        return number_time(float(text))
    if _SLASHES.fullmatch(text):
        raise ValueError(
            f"{text!r:.60} may have its day or its month first: write YYYY-MM-DD HH:MM:SS or DD.MM.YYYY HH:MM"
        )
    return zoned_seconds(_moment(text), zone)


def number_time(value: float) -> float:
    """Unix seconds of a number in a file: seconds, or milliseconds from MIN_MILLISECONDS on."""
    if MIN_SECONDS <= value < MIN_MILLISECONDS:
        return value
    if MIN_MILLISECONDS <= value < MAX_MILLISECONDS:
        return value / 1e3
    raise ValueError(f"{value:g} is no Unix time in seconds or milliseconds after 1973: write {FORMATS}")


def _moment(text: str) -> datetime:
    try:
        if match := _GERMAN.fullmatch(text):
            day, month, year, hour, minute, second = (int(part or 0) for part in match.groups())
            return datetime(year, month, day, hour, minute, second)
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r:.60} is no time: write {FORMATS}") from None


def zoned_seconds(moment: datetime, zone: tzinfo) -> float:
    """Unix seconds of a time, which is one of `zone` if it has none of its own. A clock that is set back
    shows an hour twice, one that is set forward leaves one out: a time in such an hour needs its offset."""
    if moment.tzinfo is not None:
        return moment.timestamp()
    local = moment.replace(tzinfo=zone)
    first, second = local.replace(fold=0), local.replace(fold=1)
    if first.utcoffset() != second.utcoffset():
        is_twice = (first.utcoffset() or timedelta()) > (second.utcoffset() or timedelta())
        why = "comes twice" if is_twice else "does not exist"
        raise ValueError(f"{moment} {why} in {zone}, where clocks change: add its offset, such as +02:00")
    return local.timestamp()
