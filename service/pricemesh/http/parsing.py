"""How the HTTP parser is set up, and a request written again for it without an offered upgrade."""

from typing import Any

import httptools


def new_parser(receiver: Any) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(receiver)
    # The first of several pipelined requests is answered although it asks to close the connection.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def head_without_upgrade(
    parser: httptools.HttpRequestParser, url: bytes, headers: list[tuple[bytes, bytes]]
) -> bytes:
    """The request line and the headers that `parser` has read, without `Upgrade`."""
    lines = [b"%b: %b\r\n" % pair for pair in headers if pair[0] != b"upgrade"]
    version = parser.get_http_version().encode()
    return b"%b %b HTTP/%b\r\n%b\r\n" % (parser.get_method(), url, version, b"".join(lines))
