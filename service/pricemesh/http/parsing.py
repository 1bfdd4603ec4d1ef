"""Bytes to requests: the HTTP parser, how it is set up, and the limits of what comes before a body.

Tells a connection when a request begins, when its body grows and when it is complete; knows no answers.
"""

from typing import Protocol

import httptools

MAX_HEADER_BYTES = 65_536  # of headers, trailers and chunk lines: they arrive before authentication
_RARE_HEADERS = frozenset((b"connection", b"proxy-connection", b"expect", b"transfer-encoding"))


class RequestReceiver(Protocol):
    """What a parser tells its connection."""

    def begin_request(self, parser: "RequestParser") -> None:
        """The headers are complete; the parser still has them."""
        ...

    def feed_request(self, chunk: bytes) -> None: ...

    def end_request(self) -> None: ...


class Unparsable(Exception):
    """Bytes that are no request, and the problem document that answers them."""

    def __init__(self, status: int, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = status, kind, detail


class RequestParser:
    def __init__(self, receiver: RequestReceiver) -> None:
        self._receiver = receiver
        self.on_message_complete = receiver.end_request  # httptools calls it directly
        # The request whose headers were read last.
        self.method = self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []  # names are in lower case
        self.length: int | None = 0  # of the body, as announced; None is not known before its end
        self.keep_alive = True
        self.expects_continue = False
        self._has_rare_header = False
        self.in_headers = False  # of a request that has begun
        self._made_progress = False  # since bytes were last parsed, a request began or its body grew
        self._overhead_bytes = 0  # since then
        self._parser = self._new_parser()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # The first of several pipelined requests is answered although it asks to close the connection.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def close(self) -> None:
        """Leave no cycle of references."""
        self._parser = self._receiver = None  # type: ignore[assignment]
        del self.on_message_complete

    def parse(self, data: bytes | memoryview) -> bytes:
        """What is still to be parsed after this; `Unparsable` where nothing is."""
        self._made_progress = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            return self._head_without_upgrade() + data[offer.args[0] :]
        except httptools.HttpParserError:
            raise Unparsable(400, "malformed-request", "these bytes are not an HTTP/1.1 request") from None
        self._overhead_bytes = 0 if self._made_progress else self._overhead_bytes + len(data)
        if self._overhead_bytes > MAX_HEADER_BYTES:
            limit = f"the headers of a request have at most {MAX_HEADER_BYTES} bytes"
            raise Unparsable(431, "headers-too-large", limit)
        return b""

    def _head_without_upgrade(self) -> bytes:
        """An offered upgrade is not taken up: the request is parsed again without the offer, and then its
        body, which the parser leaves out of a request that it takes for an upgrade."""
        method: bytes = self._parser.get_method()
        if method == b"CONNECT":
            raise Unparsable(405, "method-not-allowed", "this is a city, not a proxy")
        lines = [b"%b: %b\r\n" % pair for pair in self.headers if pair[0] != b"upgrade"]
        version = self.http_version.encode()
        self._parser = self._new_parser()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(lines))

    @property
    def http_version(self) -> str:
        version: str = self._parser.get_http_version()
        return version

    # What httptools calls

    def on_message_begin(self) -> None:
        self.in_headers = self._made_progress = True
        self.url = b""
        self.headers = []
        self.length = 0
        self.expects_continue = self._has_rare_header = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_headers:  # a trailer: read, and not believed
            return
        name = name.lower()
        if name == b"content-length":
            self.length = int(value)
        elif name in _RARE_HEADERS:
            self._read_rare_header(name, value)
        self.headers.append((name, value))

    def _read_rare_header(self, name: bytes, value: bytes) -> None:
        self._has_rare_header = True
        if name == b"transfer-encoding":
            if value.lower() != b"chunked":  # the parser reports a bad request
                raise ValueError("a transfer encoding that is not known here")
            self.length = None
        elif name == b"expect":
            self.expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        self.in_headers = False
        parser = self._parser
        if parser.should_upgrade():
            return
        self.method = parser.get_method()
        self.keep_alive = parser.should_keep_alive()
        # Without a rare header, HTTP/1.0 keeps no connection and expects nothing.
        if self._has_rare_header and self.http_version == "1.0":
            self.keep_alive = self.expects_continue = False
        self._receiver.begin_request(self)

    def on_body(self, body: bytes) -> None:
        self._made_progress = True
        self._receiver.feed_request(body)
