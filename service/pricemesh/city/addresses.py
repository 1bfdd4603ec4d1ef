"""What cities are called, and where they are: scheme, host and port."""

import ipaddress
from urllib.parse import urlsplit

CITY_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


def checked_address(address: str) -> str:
    """An address as it is kept: scheme, host and port, nothing else. ValueError says what is wrong."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or len(address) > 300:
        raise ValueError(f"{address!r:.100} is not http://host:port")
    if parts.username or parts.password or parts.query or parts.fragment or parts.path not in ("", "/"):
        raise ValueError(f"{address!r:.100} holds more than http://host:port")
    _ = parts.port  # a ValueError where it is none
    return f"{parts.scheme}://{parts.netloc.lower()}"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_be_called(host: str) -> bool:
    """Whether a peer may send us there: not to where a machine keeps its own secrets, nor to everyone."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    nowhere = address.is_unspecified or address.is_multicast or address.is_reserved
    return not (nowhere or address.is_link_local)
