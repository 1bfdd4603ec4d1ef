"""The city that the reference describes: the one of docs/lisbon.toml, never started."""

from functools import cache
from pathlib import Path

from pricemesh.city.configuration import settings_from
from pricemesh.city.settings import Settings
from pricemesh.http.asgi import Application
from pricemesh.serving.app import create_app

EXAMPLE = Path(__file__).resolve().parents[1] / "docs/lisbon.toml"


@cache
def example_settings() -> Settings:
    """From the file alone: variables of the environment would change what is written into the docs."""
    import tomllib

    return settings_from(tomllib.loads(EXAMPLE.read_text(encoding="utf-8")))


@cache
def example_app() -> Application:
    return create_app(example_settings())
