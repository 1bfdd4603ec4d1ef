"""The section [display]: in which money, things and days people read this city's figures. Prices do not
depend on it."""

from pydantic import Field, field_validator

from pricemesh.city.section import Section
from pricemesh.store.calendar import zone_of


class DisplaySettings(Section):
    currency: str | None = Field(
        default=None, description="An ISO 4217 code, such as EUR. Without it money has no unit."
    )
    unit: str = Field(
        default="sale", min_length=1, max_length=40, description="What is sold, in the singular: a ride."
    )
    time_zone: str = Field(
        default="UTC",
        description="An IANA name, such as Europe/Lisbon: days and weeks begin at its midnight.",
    )

    @field_validator("currency")
    @classmethod
    def _is_a_code(cls, currency: str | None) -> str | None:
        if currency is not None and not (len(currency) == 3 and currency.isascii() and currency.isupper()):
            raise ValueError(
                f'must be an ISO 4217 code of three capital letters, such as "EUR", not {currency!r:.40}'
            )
        return currency

    @field_validator("time_zone")
    @classmethod
    def _is_known(cls, time_zone: str) -> str:
        zone_of(time_zone)
        return time_zone
