"""Limits on what other cities can make this one keep: the length of a text, the entries of a table, and
the types of what a message may name."""

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta

from pricemesh.city.addresses import CITY_NAME

LAST_VERSION = 1 << 62  # no city reaches it
CityName = Annotated[str, Meta(pattern=rf"^{CITY_NAME}\Z")]
Count = Annotated[int, Meta(ge=0, lt=LAST_VERSION)]

MAX_TEXT_CHARACTERS = 500  # of a reason or a fault that is shown or logged


def shortened(text: str, max_characters: int = MAX_TEXT_CHARACTERS) -> str:
    """One line of printable text: another city may have written any part of it."""
    text = text[:max_characters]
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


def make_room(table: dict[str, Any], max_entries: int, is_known: Callable[[str], bool]) -> bool:
    """Room for one entry more. The oldest entry under a name that is no known city makes room; names are
    free, and known cities are few, so inventing names never removes what is known of a real city."""
    if len(table) < max_entries:
        return True
    stranger = next((name for name in table if not is_known(name)), None)
    if stranger is None:
        return False
    del table[stranger]
    return True
