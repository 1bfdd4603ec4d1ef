"""Traffic over a raw socket, by the fast path and by ASGI: framing, order, limits, callers who misbehave."""

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httptools
import pytest

from pricemesh.http.fast_path import FastExchange
from tests.running import CONTEXT, RunningCity, settings_for


class Answer:
    """One HTTP answer, read to its end and not further."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = b""
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True

    @property
    def json(self) -> dict[str, Any]:
        """Without what differs from request to request."""
        read: dict[str, Any] = json.loads(self.body)
        return {name: value for name, value in read.items() if name not in ("request_id", "decision_id")}


class Wire:
    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[int, Answer]:
        read = Answer()
        parser = httptools.HttpResponseParser(read)
        while not read.complete:
            byte = self.socket.recv(1)
            assert byte, "the connection was closed before the answer was complete"
            parser.feed_data(byte)
        return parser.get_status_code(), read

    def is_closed(self) -> bool:
        return self.socket.recv(1) == b""


@pytest.fixture(scope="module", params=["fast path", "ASGI"])
def city(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCity]:
    folder: Path = tmp_path_factory.mktemp("ways")
    running = RunningCity(
        settings_for(
            f"sqlite:///{folder}/city.db",
            limits={"body_bytes": 5000},
            server={"fast_path": request.param == "fast path"},
        )
    )
    yield running
    running.stop()


@pytest.fixture
def wire(city: RunningCity) -> Iterator[Wire]:
    connection = Wire(city.url)
    yield connection
    connection.socket.close()


def plain(body: Any, path: str = "/price", head: str = "", version: str = "1.1") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = f"POST {path} HTTP/{version}\r\nhost: localhost\r\n{head}content-length: {len(content)}\r\n\r\n"
    return lines.encode() + content


def chunked(body: Any, path: str = "/price", head: str = "") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{head}transfer-encoding: chunked\r\n\r\n".encode()
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (content[:7], content[7:]) if part)
    return lines + pieces + b"0\r\n\r\n"


def count(city: RunningCity, path: str, status: int) -> float:
    """Requests of a route that had this status."""
    lines = city.http.get("/metrics").text.splitlines()
    name = f'pricemesh_requests_total{{route="{path}",status="{status}"}}'
    return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)


def test_traffic_takes_the_way_that_is_configured(
    city: RunningCity, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []
    start = FastExchange.start

    def note(self: FastExchange) -> None:
        paths.append(self.context.path)
        start(self)

    monkeypatch.setattr(FastExchange, "start", note)
    for request in (plain(CONTEXT), chunked(CONTEXT)):
        wire.send(request)
        assert wire.answer()[0] == 200
    assert paths == (["/price", "/price"] if city.app.fast_calls else [])


@pytest.mark.parametrize("frame", [plain, chunked])
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/price", CONTEXT, 200),
        ("/price", {"shared": {}, "local": {}}, 422),
        ("/price", {**CONTEXT, "shared": {**CONTEXT["shared"], "rain": 2.0}}, 422),
        ("/price", {**CONTEXT, "more": 1}, 422),
        ("/price", b"{not json", 422),
        ("/price", b'{"shared": {"demand": NaN}}', 422),
        ("/price/batch", {"requests": [CONTEXT, CONTEXT]}, 200),
        ("/price/batch", {"requests": [CONTEXT, {"shared": {}}]}, 422),
        ("/feedback", {"decision_id": "nobody", "reward": 1.0}, 404),
        ("/feedback", {"decision_id": "nobody", "reward": "much"}, 422),
        ("/feedback/batch", {"items": [{"decision_id": "nobody", "reward": 1.0}]}, 200),
    ],
)
def test_a_call_has_its_status_in_one_piece_and_in_chunks(
    wire: Wire, frame: Callable[..., bytes], path: str, body: Any, status: int
) -> None:
    wire.send(frame(body, path))
    assert wire.answer()[0] == status


def test_a_connection_is_kept_and_the_request_id_comes_back(wire: Wire) -> None:
    for number in range(3):
        wire.send(plain(CONTEXT, head=f"x-request-id: mine-{number}\r\n"))
        status, answer = wire.answer()
        assert (status, answer.headers["x-request-id"]) == (200, f"mine-{number}")


def test_a_body_may_come_in_pieces(wire: Wire) -> None:
    whole = plain(CONTEXT)
    for at in range(0, len(whole), 37):
        wire.send(whole[at : at + 37])
    assert wire.answer()[0] == 200


def test_pipelined_requests_are_answered_in_their_order(wire: Wire) -> None:
    calls = [plain({**CONTEXT, "decision_id": f"pipe-{number}"}) for number in range(5)]
    wire.send(calls[0] + calls[1] + b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" + b"".join(calls[2:]))
    ids = [json.loads(wire.answer()[1].body).get("decision_id", "alive") for _ in range(6)]
    assert ids == ["pipe-0", "pipe-1", "alive", "pipe-2", "pipe-3", "pipe-4"]


@pytest.mark.parametrize("frame", [plain, chunked])
def test_a_caller_that_expects_to_be_told_to_continue_is(wire: Wire, frame: Callable[..., bytes]) -> None:
    """Also where `Expect` comes before `Transfer-Encoding`."""
    head, _, body = frame(CONTEXT, head="expect: 100-continue\r\n").partition(b"\r\n\r\n")
    wire.send(head + b"\r\n\r\n")
    assert wire.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.send(body)
    assert wire.answer()[0] == 200


@pytest.mark.parametrize(("version", "head"), [("1.1", "connection: close\r\n"), ("1.0", "")])
def test_who_wants_the_connection_closed_gets_it_closed(wire: Wire, version: str, head: str) -> None:
    wire.send(plain(CONTEXT, head=head, version=version))
    status, answer = wire.answer()
    assert (status, answer.headers["connection"]) == (200, "close")
    assert wire.is_closed()


@pytest.mark.parametrize("name", ["connection", "Connection", "proxy-connection"])
def test_a_caller_by_http_1_0_gets_its_connection_closed_whatever_it_wants(wire: Wire, name: str) -> None:
    wire.send(plain(CONTEXT, head=f"{name}: keep-alive\r\nexpect: 100-continue\r\n", version="1.0"))
    status, answer = wire.answer()
    assert (status, answer.headers["connection"]) == (200, "close")
    assert wire.is_closed()


def test_a_body_beyond_the_limit_is_refused_and_other_methods_are_named(wire: Wire) -> None:
    wire.send(plain(b" " * 5001))
    assert wire.answer()[0] == 413
    wire.send(plain(b" " * 5000))
    assert wire.answer()[0] == 422
    wire.send(b"GET /price HTTP/1.1\r\nhost: localhost\r\n\r\n")
    status, answer = wire.answer()
    assert (status, answer.headers["allow"]) == (405, "POST")


def test_a_caller_who_leaves_is_counted_once_and_does_no_harm(city: RunningCity) -> None:
    before = count(city, "/price", 422)
    caller = Wire(city.url)
    caller.send(plain(CONTEXT)[:-20])
    caller.socket.close()
    for _ in range(1000):
        if count(city, "/price", 422) > before:
            break
    assert count(city, "/price", 422) == before + 1
    assert city.http.post("/price", json=CONTEXT).status_code == 200


def test_a_refused_caller_who_leaves_is_counted_once(city: RunningCity, wire: Wire) -> None:
    before = count(city, "/price", 403), count(city, "/price", 422)
    wire.send(plain(CONTEXT, head="origin: https://elsewhere.example\r\n")[:-20])
    assert wire.answer()[0] == 403
    wire.socket.close()
    assert city.http.post("/price", json=CONTEXT).status_code == 200
    assert (count(city, "/price", 403), count(city, "/price", 422)) == (before[0] + 1, before[1])


def test_an_origin_that_is_no_address_is_refused(wire: Wire) -> None:
    wire.send(plain(CONTEXT, head="origin: http://[\r\n"))
    assert wire.answer()[0] == 403


def test_a_caller_that_closes_its_side_still_gets_its_answers(wire: Wire) -> None:
    wire.send(plain(CONTEXT) + plain(CONTEXT))
    wire.socket.shutdown(socket.SHUT_WR)
    assert [wire.answer()[0] for _ in range(2)] == [200, 200]
    assert wire.is_closed()


UPGRADE = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"


@pytest.mark.parametrize("frame", [plain, chunked])
def test_an_offered_upgrade_is_ignored_and_the_call_is_answered(
    wire: Wire, frame: Callable[..., bytes]
) -> None:
    request = frame({**CONTEXT, "decision_id": f"upgrade-{frame.__name__}"}, head=UPGRADE)
    for start in range(0, len(request), 50):
        wire.send(request[start : start + 50])
    status, answer = wire.answer()
    assert (status, json.loads(answer.body)["decision_id"]) == (200, f"upgrade-{frame.__name__}")
    wire.send(request * 2)  # again, and as part of a pipeline
    assert [wire.answer()[0] for _ in range(2)] == [200, 200]


def test_the_body_of_an_offered_upgrade_is_never_read_as_a_request(city: RunningCity, wire: Wire) -> None:
    before = count(city, "/healthz", 200)
    wire.send(plain(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", head=UPGRADE))
    assert wire.answer()[0] == 422
    wire.send(plain(CONTEXT))
    assert wire.answer()[0] == 200
    assert count(city, "/healthz", 200) == before


def test_a_city_is_no_proxy(wire: Wire) -> None:
    wire.send(
        b"CONNECT elsewhere.example:443 HTTP/1.1\r\nhost: elsewhere.example\r\n\r\nGET / HTTP/1.1\r\n\r\n"
    )
    assert wire.answer()[0] == 405
    assert wire.is_closed()


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01 no HTTP", b"POST /price HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n"]
)
def test_bytes_that_are_no_request_get_a_problem_document_after_the_answers_before_them(
    wire: Wire, junk: bytes
) -> None:
    wire.send(plain(CONTEXT) + junk)
    assert wire.answer()[0] == 200
    status, answer = wire.answer()
    assert (status, answer.json["type"]) == (400, "urn:pricemesh:problem:malformed-request")
    assert wire.is_closed()


def test_a_long_body_before_the_next_headers_is_no_header(city: RunningCity) -> None:
    caller = Wire(city.url)
    big = plain(b" " * 4900)
    for _ in range(20):
        caller.send(big + plain(CONTEXT)[:30])
        assert caller.answer()[0] == 422
        caller.send(plain(CONTEXT)[30:])
        assert caller.answer()[0] == 200
    caller.socket.close()


def test_thousands_of_pipelined_requests_are_all_answered(city: RunningCity) -> None:
    caller = Wire(city.url)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(caller.send, plain(CONTEXT) * 1500)
        answers = [caller.answer()[0] for _ in range(1500)]
        sending.result()
    assert answers == [200] * 1500
    caller.socket.close()


@pytest.mark.parametrize("target", ["/price", "/price?x=1"])
def test_a_trailer_is_no_header(wire: Wire, target: str) -> None:
    wire.send(chunked(CONTEXT, target)[:-2] + b"origin: https://elsewhere.example\r\n\r\n")
    assert wire.answer()[0] == 200


@pytest.mark.parametrize("trailer", [b"a: b\r\n" * 50_000, b"a: " + b"b" * 300_000])
def test_trailers_without_end_are_refused(wire: Wire, trailer: bytes) -> None:
    with suppress(OSError):
        wire.send(chunked(CONTEXT)[:-2] + trailer)
    assert wire.answer()[0] == 431
    assert wire.is_closed()


def test_a_refusal_ends_a_connection_whose_trailers_have_no_end(wire: Wire) -> None:
    with suppress(OSError):
        wire.send(chunked(CONTEXT, "/healthz")[:-2] + b"a: b\r\n" * 50_000)
    assert wire.answer()[0] == 405
    assert wire.is_closed()


def test_another_transfer_encoding_is_refused(wire: Wire) -> None:
    wire.send(chunked(CONTEXT).replace(b"chunked", b"gzip, chunked"))
    assert wire.answer()[0] == 400


def test_a_refused_caller_that_closes_its_side_does_no_harm(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    wire.send(plain(CONTEXT, head="origin: https://elsewhere.example\r\n")[:-20])
    assert wire.answer()[0] == 403
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.is_closed()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_price_before_junk_is_answered_to_a_caller_that_closed_its_side(wire: Wire) -> None:
    wire.send(plain(CONTEXT) + b"\x16\x03\x01 no HTTP")
    wire.socket.shutdown(socket.SHUT_WR)
    assert [wire.answer()[0] for _ in range(2)] == [200, 400]
    assert wire.is_closed()


def test_an_answer_that_has_begun_is_not_interrupted_by_another(wire: Wire) -> None:
    wire.send(b"GET /events HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
    answer = wire.socket.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 200 ")
    wire.send(b"no chunk\r\n")
    with suppress(ConnectionError):
        while more := wire.socket.recv(65_536):
            answer += more
    assert b"HTTP/1.1 400" not in answer


def test_headers_without_end_are_refused(wire: Wire) -> None:
    wire.send(b"POST /price HTTP/1.1\r\nhost: localhost\r\n")
    line = b"x-filler: " + b"f" * 2000 + b"\r\n"
    with suppress(OSError):
        for _ in range(60):
            wire.send(line)
    assert wire.answer()[0] == 431


def test_one_wrong_request_does_not_take_those_beside_it_with_it(city: RunningCity) -> None:
    wires = [Wire(city.url) for _ in range(6)]
    wrong = {**CONTEXT, "shared": {**CONTEXT["shared"], "rain": 7.0}}
    for number, one in enumerate(wires):
        one.send(plain(wrong if number % 2 else CONTEXT))
    assert [one.answer()[0] for one in wires] == [200, 422] * 3
    for one in wires:
        one.socket.close()


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(start: Callable[..., RunningCity]) -> None:
    city = start(limits={"idle_seconds": 0.5})
    one = Wire(city.url)
    for _ in range(4):
        one.send(plain(CONTEXT))
        assert one.answer()[0] == 200
    assert one.is_closed()  # after half a second, not at once and not never
    one.socket.close()
