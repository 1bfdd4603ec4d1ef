"""The names of cities and their addresses: scheme, host and port. No connection is opened here."""

import ipaddress
import re
from urllib.parse import urlsplit

CITY_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
HOST = r"[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\]"  # an IPv6 address stands in brackets
CITY_NAME_RULE = "a letter or digit, then up to 99 letters, digits, dots, dashes or underscores"
MAX_ADDRESS_CHARACTERS = 300


def checked_address(address: str) -> str:
    """The address in the form in which it is stored: `scheme://host:port`. ValueError says what is wrong."""
    try:
        parts = urlsplit(address)
        _ = parts.port  # a ValueError where it is no port
    except ValueError:
        raise ValueError(f"{address!r:.100} is not http://host:port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or len(address) > MAX_ADDRESS_CHARACTERS:
        raise ValueError(f"{address!r:.100} is not http://host:port")
    if parts.username or parts.password or parts.query or parts.fragment or parts.path not in ("", "/"):
        raise ValueError(f"{address!r:.100} holds more than http://host:port")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def checked_host(host: str) -> str:
    """A host without scheme and port, in lower case. ValueError says what is wrong."""
    if not re.fullmatch(HOST, host.lower()):
        raise ValueError(f"{host!r:.100} is not a name or an address without scheme and port")
    return host.lower()


def host_of(url: str) -> str:
    """The host of a URL; empty where the text is no URL."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_be_called(host: str) -> bool:
    """Whether an address from a peer may be called: link-local hosts serve a machine's own credentials, and
    multicast, reserved and unspecified ones are no single city."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    no_single_host = address.is_unspecified or address.is_multicast or address.is_reserved
    return not (no_single_host or address.is_link_local)
