"""pricemesh: prices in many cities, learned together without a central server."""

from typing import TYPE_CHECKING, Any

from pricemesh.version import __version__

if TYPE_CHECKING:
    from pricemesh.client import AsyncCity, City

__all__ = ["AsyncCity", "City", "__version__"]


def __getattr__(name: str) -> Any:
    """The client is loaded when it is asked for: a city and the command line start without it."""
    if name in ("AsyncCity", "City"):
        from pricemesh import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
