"""The section [gossip]: whom a city exchanges letters with, how often, and whom it believes."""

import re
from typing import Any

from pydantic import Field, field_validator

from pricemesh.city.addresses import CITY_NAME, CITY_NAME_RULE, checked_address
from pricemesh.city.gossip_secrets import parse_city_key, parse_secret
from pricemesh.city.section import Section, split_by_comma

DEFAULT_FAN_OUT = 8
DEFAULT_NEWS = 2.5
DEFAULT_NEWS_SECONDS = 60.0


class GossipSettings(Section):
    peers: tuple[str, ...] = Field(default=(), description="Addresses of other cities.")
    interval_seconds: float = Field(default=1.0, gt=0, description="Between two ticks.")
    group: str = Field(
        default="default", min_length=1, max_length=100, description="Letters stay within a group."
    )
    secrets: tuple[str, ...] = Field(
        default=(),
        description="`id:secret` each, the same in all cities: the first signs, all verify. Made by "
        "`pricemesh keys gossip`.",
    )
    discover: bool = Field(default=False, description="Learn addresses from other cities.")
    address: str | None = Field(
        default=None, description="Where other cities reach this one; sent to cities that discover."
    )
    cities: tuple[str, ...] | dict[str, str] = Field(
        default=(),
        description="Letters of other cities are refused; empty: whoever has the secret is heard. A table "
        'names keys: `{ lisbon = "4f2a..." }`, printed by `pricemesh keys city`.',
    )
    most_cities: int = Field(default=256, ge=2, le=10_000, description="Known here, at most.")
    fan_out: int = Field(
        default=DEFAULT_FAN_OUT, ge=1, description="Peers called at a tick, of many mostly the same ones."
    )
    news: float = Field(
        default=DEFAULT_NEWS,
        ge=1,
        description="An arm is published again when its information has grown by this factor; 1: at every "
        "change.",
    )
    news_seconds: float = Field(
        default=DEFAULT_NEWS_SECONDS, gt=0, description="By then all that was learned is published."
    )
    timeout_seconds: float | None = Field(
        default=None, gt=0, description="For a peer's answer; one interval by default."
    )
    rate_per_second: float = Field(default=50.0, gt=0, description="Requests accepted from one city.")
    lockstep: bool = Field(
        default=False, description="Ticks come from `POST /admin/tick` instead of the clock."
    )

    @field_validator("cities", mode="before")
    @classmethod
    def _names_or_keys(cls, value: Any) -> Any:
        """A variable may write `lisbon=KEY,porto`."""
        if isinstance(value, str):
            value = [item.strip() for item in value.split(",") if item.strip()]
            if any("=" in item for item in value):
                value = {
                    name.strip(): key.strip() for name, _, key in (item.partition("=") for item in value)
                }
        texts = [*value, *value.values()] if isinstance(value, dict) else value
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise ValueError('must be a list of names, or a table { lisbon = "its key", porto = "" }')
        for name in value:
            if not re.fullmatch(CITY_NAME, name):
                raise ValueError(f"a city's name is {CITY_NAME_RULE}, not {name!r:.100}")
        return value

    @field_validator("cities")
    @classmethod
    def _keys(cls, cities: tuple[str, ...] | dict[str, str]) -> tuple[str, ...] | dict[str, str]:
        if isinstance(cities, dict):
            return {name: parse_city_key(key).hex() if key else "" for name, key in cities.items()}
        return cities

    @property
    def city_keys(self) -> dict[str, bytes]:
        """The keys that `cities` names."""
        if not isinstance(self.cities, dict):
            return {}
        return {name: bytes.fromhex(key) for name, key in self.cities.items() if key}

    @field_validator("peers", "secrets", mode="before")
    @classmethod
    def _by_comma(cls, value: Any) -> Any:
        return split_by_comma(value)

    @field_validator("peers")
    @classmethod
    def _addresses(cls, peers: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(checked_address, peers))

    @field_validator("address")
    @classmethod
    def _own_address(cls, address: str | None) -> str | None:
        return None if address is None else checked_address(address)

    @field_validator("secrets")
    @classmethod
    def _secret(cls, secrets: tuple[str, ...]) -> tuple[str, ...]:
        ids = [parse_secret(text)[0] for text in secrets]
        if len(set(ids)) < len(ids):
            raise ValueError("two secrets have the same id: give each its own")
        return secrets
