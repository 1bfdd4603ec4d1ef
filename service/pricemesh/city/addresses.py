"""The names of cities and their addresses: scheme, host and port. No connection is opened here."""

import ipaddress
import re
from urllib.parse import urlsplit

CITY_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
HOST = r"[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\]"  # an IPv6 address stands in brackets
CITY_NAME_RULE = "a letter or digit, then up to 99 letters, digits, dots, dashes or underscores"
MAX_ADDRESS_CHARACTERS = 300
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?")
_NUMBER = re.compile(r"0x[0-9a-f]{0,16}|[0-9]{1,16}")  # part of an IPv4 address, as resolvers take it

# Where clouds serve a machine's credentials and configuration, besides link-local addresses.
METADATA_ADDRESSES = frozenset(
    map(
        ipaddress.ip_address,
        ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"),
    )
)
METADATA_NAMES = frozenset(("metadata", "metadata.goog", "instance-data", "metadata.tencentyun.com"))
METADATA_DOMAINS = (".metadata.goog", "metadata.google.internal", "instance-data.ec2.internal")
THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
NAT64_NETWORKS = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


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


def learned_address(address: str) -> str:
    """An address that another city reported, with its host in canonical form, so that one host has one
    spelling. ValueError where it is no address, or one that may not be called."""
    parts = urlsplit(checked_address(address))
    host = (parts.hostname or "").removesuffix(".")
    number = numeric_host(host)
    if number is None and (not HOST_NAME.fullmatch(host) or _NUMBER.fullmatch(host.rpartition(".")[2])):
        raise ValueError(f"{address!r:.100} has a host that is neither a name nor an IP address")
    if not may_be_called(host):
        raise ValueError(f"{address!r:.100} is no address that a city may have")
    canonical = host if number is None else f"[{number}]" if number.version == 6 else str(number)
    return f"{parts.scheme}://{canonical}" + ("" if parts.port is None else f":{parts.port}")


def numeric_host(host: str) -> IpAddress | None:
    """The IP address that a host is, in any spelling that a resolver takes: decimal, hexadecimal, octal and
    short forms of IPv4, and IPv4 mapped into IPv6. None is a name."""
    host = host.strip("[]").removesuffix(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return _loose_ipv4(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _loose_ipv4(host: str) -> ipaddress.IPv4Address | None:
    """As `inet_aton` reads it: up to four numbers, of which the last fills the bytes that are left."""
    parts = host.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    try:
        *first, last = [_loose_number(part) for part in parts]
        if any(number > 255 for number in first) or last >= 256 ** (4 - len(first)):
            return None
    except ValueError:  # 09 is no octal number
        return None
    leading = sum(number << 8 * (3 - i) for i, number in enumerate(first))
    return ipaddress.IPv4Address(leading + last)


def _loose_number(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8 if text.startswith("0") else 10)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    address = numeric_host(host)
    return address is not None and address.is_loopback


def may_be_called(host: str) -> bool:
    """Whether an address from a peer may be called: metadata services and link-local hosts serve a machine's
    own credentials, and multicast, reserved and unspecified ones are no single city. Names are judged as they
    are written; what they resolve to is for the network's own rules."""
    address = numeric_host(host)
    if address is None:
        name = host.lower().removesuffix(".")
        return name not in METADATA_NAMES and not name.endswith(METADATA_DOMAINS)
    if isinstance(address, ipaddress.IPv6Address):
        embedded = _embedded_ipv4(address)
        if embedded is not None:  # by a translator, which has no business inside a network
            return embedded.is_global and may_be_called(str(embedded))
    if address.is_loopback:  # a mesh on one machine; ::1 counts as reserved, too
        return True
    no_single_host = address.is_unspecified or address.is_multicast or address.is_reserved
    is_local = address.is_link_local or address in THIS_NETWORK or address in METADATA_ADDRESSES
    return not (no_single_host or is_local)


def _embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address behind 6to4, Teredo, NAT64, ISATAP and IPv4-compatible forms."""
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    low = int(address) & 0xFFFFFFFF
    is_compatible = int(address) >> 32 == 0 and low > 0xFFFF  # not :: and ::1
    is_isatap = (int(address) >> 32) & 0xFCFFFFFF == 0x5EFE
    if is_compatible or is_isatap or any(address in network for network in NAT64_NETWORKS):
        return ipaddress.IPv4Address(low)
    return None
