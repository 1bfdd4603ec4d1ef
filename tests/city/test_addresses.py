"""Addresses that other cities report: seen through, whatever their spelling."""

import pytest

from pricemesh.city.addresses import is_loopback, learned_address

METADATA = (
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.16689662",
    "169.254.169.254.",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::169.254.169.254]",
    "[::ffff:0:169.254.169.254]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "[2001:0:a9fe:a9fe::5601:5601]",
    "[fe80::5efe:169.254.169.254]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "metadata.google.internal",
    "METADATA.Google.Internal.",
    "metadata",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
)
NOWHERE = ("0", "0.0.0.0", "0.1.2.3", "[::]", "224.0.0.1", "255.255.255.255", "[ff02::1]", "[64:ff9b::a00:1]")
NO_HOST = (
    "256.1.1.1",
    "1.2.3.4.5",
    "09.1.1.1",
    "4294967296",
    "a.1",
    "a.0x7f",
    "a%2eb",
    "a b",
    "\uff11\uff16\uff19.254.169.254",
)


@pytest.mark.parametrize("host", [*METADATA, *NOWHERE, *NO_HOST])
def test_an_address_that_may_not_be_called_is_seen_through(host: str) -> None:
    for address in (f"http://{host}", f"http://{host}:8000"):
        with pytest.raises(ValueError, match="http"):
            learned_address(address)


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("[::ffff:10.0.0.5]", "10.0.0.5"),
        ("[::1]", "[::1]"),
        ("[FD12:0::5]", "[fd12::5]"),
        ("10.0.0.5", "10.0.0.5"),
        ("Lisbon.example.", "lisbon.example"),
        ("lisbon_1", "lisbon_1"),
        ("1and1.example", "1and1.example"),
    ],
)
def test_one_host_has_one_spelling(host: str, canonical: str) -> None:
    assert learned_address(f"http://{host}:8000/") == f"http://{canonical}:8000"
    assert learned_address(f"https://{host}") == f"https://{canonical}"


def test_loopback_is_recognised_in_any_spelling() -> None:
    for host in ("localhost", "127.0.0.1", "127.1", "2130706433", "0x7f.1", "::1", "::ffff:127.0.0.1"):
        assert is_loopback(host)
    for host in ("localhost.example", "10.0.0.1", "64:ff9b::127.0.0.1", "128.1", "", "0"):
        assert not is_loopback(host)
