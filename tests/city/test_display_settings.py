"""The section [display]."""

import pytest

from pricemesh.city.configuration import settings_from
from pricemesh.errors import WrongConfiguration
from tests.running import CONFIG


def test_by_default_numbers_have_no_unit_and_days_are_those_of_utc() -> None:
    display = settings_from(CONFIG).display
    assert (display.currency, display.unit, display.time_zone) == (None, "sale", "UTC")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (
            {"currency": "euro"},
            'display.currency: must be an ISO 4217 code of three capital letters, such as "EUR"',
        ),
        ({"currency": "€"}, "not '€'"),
        ({"time_zone": "Lisbon"}, "display.time_zone: 'Lisbon' is not known: write a time zone such as"),
        ({"time_zone": "../../etc/passwd"}, "display.time_zone"),
        ({"unit": ""}, "display.unit"),
        ({"curency": "EUR"}, "did you mean display.currency?"),
    ],
)
def test_a_wrong_value_is_named_with_what_to_write(section: dict[str, str], words: str) -> None:
    with pytest.raises(WrongConfiguration) as refused:
        settings_from({**CONFIG, "display": section})
    assert words in str(refused.value)


def test_the_display_changes_nothing_that_prices_or_peers_depend_on() -> None:
    plain, shown = settings_from(CONFIG), settings_from({**CONFIG, "display": {"currency": "EUR"}})
    assert (plain.fingerprint, plain.schema_description) == (shown.fingerprint, shown.schema_description)
