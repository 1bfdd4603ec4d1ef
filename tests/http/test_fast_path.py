"""Plain traffic takes the fast lane, all else uvicorn's own way: over a raw socket, both answer alike."""

import json
import socket
from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCity]:
    folder: Path = tmp_path_factory.mktemp("lane")
    running = RunningCity(settings_for(f"sqlite:///{folder}/city.db", limits={"body_bytes": 5000}))
    yield running
    running.stop()


@pytest.fixture
def wire(city: RunningCity) -> Iterator[Wire]:
    made = Wire(city.url)
    yield made
    made.socket.close()


def plain(body: Any, path: str = "/price", head: str = "", version: str = "1.1") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = f"POST {path} HTTP/{version}\r\nhost: city\r\n{head}content-length: {len(content)}\r\n\r\n"
    return lines.encode() + content


def chunked(body: Any, path: str = "/price") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = f"POST {path} HTTP/1.1\r\nhost: city\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (content[:7], content[7:]) if part)
    return lines + pieces + b"0\r\n\r\n"


def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that go through the fast lane from now on."""
    seen: list[str] = []
    start = FastExchange.start

    def note(self: FastExchange) -> None:
        seen.append(self.context.path)
        start(self)

    monkeypatch.setattr(FastExchange, "start", note)
    return seen


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/price", CONTEXT),
        ("/price", {"shared": {}, "local": {}}),
        ("/price", {**CONTEXT, "shared": {**CONTEXT["shared"], "rain": 2.0}}),
        ("/price", {**CONTEXT, "more": 1}),
        ("/price", b"{not json"),
        ("/price", b'{"shared": {"demand": NaN}}'),
        ("/price/batch", {"requests": [CONTEXT, CONTEXT]}),
        ("/price/batch", {"requests": [CONTEXT, {"shared": {}}]}),
        ("/feedback", {"decision_id": "nobody", "reward": 1.0}),
        ("/feedback", {"decision_id": "nobody", "reward": "much"}),
        ("/feedback/batch", {"items": [{"decision_id": "nobody", "reward": 1.0}]}),
    ],
)
def test_both_ways_give_the_same_answer(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, path: str, body: Any
) -> None:
    seen = taken(monkeypatch)
    wire.send(plain(body, path))
    status, answer = wire.answer()
    assert seen == [path]
    wire.send(chunked(body, path))
    other_status, other = wire.answer()
    assert seen == [path]
    assert status == other_status
    if "decisions" in answer.json:
        ours, theirs = answer.json["decisions"], other.json["decisions"]
        assert [one | {"decision_id": ""} for one in ours] == [one | {"decision_id": ""} for one in theirs]
    else:
        assert answer.json == other.json
    volatile = {"x-request-id", "content-length"}
    assert {name: value for name, value in answer.headers.items() if name not in volatile} == {
        name: value for name, value in other.headers.items() if name not in volatile
    }
    assert answer.headers.keys() == other.headers.keys()


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
    wire.send(calls[0] + calls[1] + b"GET /healthz HTTP/1.1\r\nhost: city\r\n\r\n" + b"".join(calls[2:]))
    ids = [json.loads(wire.answer()[1].body).get("decision_id", "alive") for _ in range(6)]
    assert ids == ["pipe-0", "pipe-1", "alive", "pipe-2", "pipe-3", "pipe-4"]


def test_whoever_expects_to_be_told_to_go_on_is(wire: Wire) -> None:
    head, _, body = plain(CONTEXT, head="expect: 100-continue\r\n").partition(b"\r\n\r\n")
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


def test_a_body_beyond_the_limit_is_refused_and_other_methods_are_named(wire: Wire) -> None:
    wire.send(plain(b" " * 5001))
    assert wire.answer()[0] == 413
    wire.send(plain(b" " * 5000))
    assert wire.answer()[0] == 422
    wire.send(b"GET /price HTTP/1.1\r\nhost: city\r\n\r\n")
    status, answer = wire.answer()
    assert (status, answer.headers["allow"]) == (405, "POST")


def test_a_caller_who_leaves_is_counted_and_does_no_harm(city: RunningCity) -> None:
    def refused() -> float:
        lines = city.http.get("/metrics").text.splitlines()
        wanted = 'pricemesh_requests_total{route="/price",status="422"}'
        return next((float(line.split()[-1]) for line in lines if line.startswith(wanted)), 0.0)

    before = refused()
    gone = Wire(city.url)
    gone.send(plain(CONTEXT)[:-20])
    gone.socket.close()
    for _ in range(100):
        if refused() > before:
            break
    assert refused() == before + 1
    assert city.http.post("/price", json=CONTEXT).status_code == 200


def test_one_wrong_request_does_not_take_those_beside_it_with_it(city: RunningCity) -> None:
    wires = [Wire(city.url) for _ in range(6)]
    wrong = {**CONTEXT, "shared": {**CONTEXT["shared"], "rain": 7.0}}
    for number, one in enumerate(wires):
        one.send(plain(wrong if number % 2 else CONTEXT))
    assert [one.answer()[0] for one in wires] == [200, 422] * 3
    for one in wires:
        one.socket.close()


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(
    city: RunningCity, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = city._server.config
    monkeypatch.setattr(config, "timeout_keep_alive", 0.5)
    one = Wire(city.url)
    for _ in range(4):
        one.send(plain(CONTEXT))
        assert one.answer()[0] == 200
    assert one.is_closed()  # after half a second, not at once and not never
    one.socket.close()
