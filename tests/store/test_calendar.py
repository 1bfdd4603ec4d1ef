"""Hours, days and weeks of time zones."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from pricemesh.store.calendar import Calendar, Per, zone_of

CHANGES = {  # local noons around which clocks change, or midnight is left out or comes twice
    "Europe/Lisbon": (datetime(2026, 3, 28, 12), datetime(2026, 10, 24, 12)),
    "Asia/Kolkata": (datetime(2026, 3, 28, 12),),
    "Africa/Cairo": (datetime(2026, 4, 23, 12), datetime(2026, 10, 29, 12)),
    "America/Havana": (datetime(2026, 3, 7, 12), datetime(2026, 10, 31, 12)),
}


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize("per", Per)
def test_every_moment_is_in_exactly_one(zone: str, per: Per) -> None:
    calendar = Calendar(zone, per)
    for noon in CHANGES[zone]:
        first = int(noon.replace(tzinfo=ZoneInfo(zone)).timestamp())
        starts = list(calendar.starts(first, first + 3 * 86_400))
        assert starts == sorted(set(starts))
        assert starts[0] <= first
        ends = [*starts[1:], calendar.after(starts[-1])]
        for seconds in range(first, first + 3 * 86_400, 450):
            (start,) = (one for one, end in zip(starts, ends, strict=True) if one <= seconds < end)
            assert calendar.start_of(seconds) == start


@pytest.mark.parametrize("zone", CHANGES)
def test_days_begin_with_their_date_and_weeks_on_monday(zone: str) -> None:
    for noon in CHANGES[zone]:
        first = noon.replace(tzinfo=ZoneInfo(zone)).timestamp()
        for start in Calendar(zone, Per.DAY).starts(first, first + 5 * 86_400):
            local = datetime.fromtimestamp(start, ZoneInfo(zone))
            before = datetime.fromtimestamp(start - 1, ZoneInfo(zone))
            assert before.date() + timedelta(days=1) == local.date()
        for start in Calendar(zone, Per.WEEK).starts(first, first + 21 * 86_400):
            assert datetime.fromtimestamp(start, ZoneInfo(zone)).weekday() == 0


def test_a_day_may_have_23_or_25_hours() -> None:
    calendar = Calendar("Europe/Lisbon", Per.DAY)
    starts = [
        int(datetime(2026, month, day, tzinfo=ZoneInfo("Europe/Lisbon")).timestamp())
        for month, day in ((3, 29), (10, 25))
    ]
    assert [(calendar.after(start) - start) // 3600 for start in starts] == [23, 25]


def test_an_unknown_zone_says_what_to_write() -> None:
    with pytest.raises(ValueError, match="'Lisbon' is not known: write a time zone such as Europe/Lisbon"):
        zone_of("Lisbon")
