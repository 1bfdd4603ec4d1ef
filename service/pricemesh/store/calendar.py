"""Hours, days and weeks of a time zone, as Unix seconds of their starts. Weeks begin on Monday.

The length of a day depends on the zone: 23 or 25 hours where clocks change. Every moment is in exactly one.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

HOUR_SECONDS = 3600
LONGEST_SECONDS = {"hour": 2 * HOUR_SECONDS, "day": 26 * HOUR_SECONDS, "week": 8 * 24 * HOUR_SECONDS}


class Per(StrEnum):
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"


def zone_of(name: str) -> tzinfo:
    """A zone by its IANA name. UTC needs no database of zones."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"{name!r:.60} is not known: write a time zone such as Europe/Lisbon (if that is "
            "unknown, too, the machine has no time zones: install the package tzdata)"
        ) from None


class Calendar:
    """
    >>> lisbon = Calendar("Europe/Lisbon", Per.DAY)
    >>> lisbon.start_of(1_774_800_000), lisbon.after(1_774_742_400)  # the day on which summer time began
    (1774742400, 1774825200)
    """

    def __init__(self, time_zone: str, per: Per) -> None:
        self._zone = zone_of(time_zone)
        self.per = per
        self.start_of = lru_cache(maxsize=100_000)(self._start_of)

    def _start_of(self, seconds: float) -> int:
        """Of the hour, day or week that a moment is in."""
        local = datetime.fromtimestamp(seconds, self._zone)
        if self.per is Per.HOUR:
            return int(seconds // 1) - 60 * local.minute - local.second
        day = local.date()
        if self.per is Per.WEEK:
            day -= timedelta(days=day.weekday())
        return self._midnight(day)

    def after(self, start: int) -> int:
        """Where the next one begins."""
        if self.per is Per.HOUR:
            return start + HOUR_SECONDS
        day = datetime.fromtimestamp(start, self._zone).date()
        return self._midnight(day + timedelta(days=1 if self.per is Per.DAY else 7))

    def starts(self, since: float, until: float) -> Iterator[int]:
        """Of all that have a moment from `since` on and before `until`."""
        start = self.start_of(since)
        while start < until:
            yield start
            start = self.after(start)

    def _midnight(self, day: date) -> int:
        """The first moment of a day, also where clocks skip midnight or show it twice."""
        return int(datetime(day.year, day.month, day.day, tzinfo=self._zone).timestamp())
