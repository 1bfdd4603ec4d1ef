"""Times as they are written in files. Expected seconds were computed from the calendar by hand."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from pricemesh.history.times import file_time, option_time

NOON = 1_772_366_400.0  # 1 March 2026, 12:00 UTC: 20,513 days and a half
LISBON, BERLIN = ZoneInfo("Europe/Lisbon"), ZoneInfo("Europe/Berlin")


def test_the_reference_time_is_noon_of_its_day() -> None:
    years = 56 * 365 + 14  # 1970 to 2025; 14 leap days
    assert (years + 31 + 28 + 0.5) * 86_400 == NOON


@pytest.mark.parametrize(
    "text",
    [
        "1772366400",
        "1772366400.0",
        "1772366400000",
        "2026-03-01T12:00:00Z",
        "2026-03-01T13:00:00+01:00",
        "2026-03-01T12:00:00",
        "2026-03-01 12:00:00",
        "01.03.2026 12:00",
        " 1.3.2026 12:00:00 ",
    ],
)
def test_five_formats_are_read(text: str) -> None:
    assert file_time(text) == NOON


def test_a_time_without_a_zone_is_one_of_the_zone_that_was_named() -> None:
    assert file_time("2026-03-01 13:00:00", BERLIN) == file_time("01.03.2026 12:00", LISBON) == NOON
    assert file_time("2026-03-01T12:00:00Z", BERLIN) == NOON


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("03/04/2026 12:00", "day or its month first"),
        ("20260301", "date without separators or a Unix time"),
        ("20260301120000", "date without separators or a Unix time"),
        ("17", "no Unix time"),
        ("1e300", "no Unix time"),
        ("-5", "no Unix time"),
        ("1772366400000000", "no Unix time"),
        ("32.01.2026 12:00", "is no time"),
        ("yesterday", "is no time: write Unix seconds"),
        ("", "is no time"),
        ("nan", "is no time"),
    ],
)
def test_what_is_ambiguous_or_no_time_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        file_time(text)


def test_an_hour_that_clocks_repeat_or_skip_needs_its_offset() -> None:
    with pytest.raises(ValueError, match="comes twice in Europe/Berlin"):
        file_time("2026-10-25 02:30:00", BERLIN)
    with pytest.raises(ValueError, match="does not exist in Europe/Berlin"):
        file_time("2026-03-29 02:30:00", BERLIN)
    assert file_time("2026-10-25 02:30:00+02:00", BERLIN) + 3600 == file_time("2026-10-25T02:30:00+01:00")
    assert file_time("2026-10-25 02:30:00", UTC) == file_time("2026-10-25T02:30:00Z")


def test_an_option_is_unix_seconds_or_iso() -> None:
    assert option_time("1772366400") == option_time("2026-03-01T12:00Z") == NOON
    assert option_time("0") == 0.0
    assert option_time("2026-03-01") == NOON - 12 * 3600
    for text in ("March", "1e999", "inf", "", "01.03.2026"):
        with pytest.raises(ValueError, match="must be Unix seconds or ISO 8601"):
            option_time(text)
