"""An exchange without I/O: headers and body in, one answer out."""

import json
from typing import Any

import pytest

from pricemesh.city.wait_limit import Gate
from pricemesh.errors import Overloaded, StorageUnavailable
from pricemesh.http import body as body_module
from pricemesh.http import schemas
from pricemesh.http.admission import Admission
from pricemesh.http.exchange import Answer, Exchange
from pricemesh.http.keys import Gatekeeper, Key, new_key
from pricemesh.http.metrics import Metrics
from pricemesh.http.traffic import TrafficCall
from pricemesh.runtime import Runtime

MAX_BYTES = 100
STRONG, STRONG_KEY = new_key("price")
WEAK, WEAK_KEY = new_key("read")


class Recorder:
    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []

    def request(
        self, method: str, path: str, status: int, seconds: float, request_id: str, key: str, detail: str = ""
    ) -> None:
        assert (method, path, detail != "") == ("POST", "/price", status >= 400)
        assert seconds >= 0
        assert request_id
        self.lines.append((status, key))

    def flush(self) -> None: ...


class Delivery(Exchange):
    """Keeps what is delivered."""

    def deliver(self, answer: Answer) -> None:
        DELIVERED.append(answer)


DELIVERED: list[Answer] = []


class Desk:
    """A call that echoes its body, settled by hand."""

    def __init__(self, *keys: Key) -> None:
        DELIVERED.clear()
        self.recorder = Recorder()
        self.begun: list[bytes] = []
        self.gate = Gate()
        table = {key.id: key for key in keys} or None
        self._admission = Admission(
            Gatekeeper(table, None, lambda: 0.0),
            Metrics("lisbon"),
            self.recorder,
            Runtime(monotonic=lambda: 0.0),
            hosts=None,
            log_above_seconds=0.0,
        )
        self._call = TrafficCall(
            "echo",
            schemas.PriceRequest,
            schemas.Decision,
            {},
            bytes,
            self._begin,
            lambda _, result: result,
            self.gate,
        )

    def _begin(self, request: bytes, _ticket: Any) -> None:
        if request == b"broken":
            raise RuntimeError("a defect of our own")
        self.begun.append(request)

    def exchange(self, length: int | None, key: str = "", **headers: str) -> Delivery:
        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        if key:
            pairs.append((b"authorization", f"Bearer {key}".encode()))
        context = self._admission.context("POST", "/price", pairs)
        return Delivery(self._admission, context, self._call, length, "expect" in headers, MAX_BYTES)


def test_bytes_in_an_answer_out_once_it_is_settled() -> None:
    desk = Desk(STRONG_KEY)
    exchange = desk.exchange(10, STRONG)
    exchange.begin()
    exchange.feed(b"hello ")
    exchange.feed(b"you!")
    exchange.end()
    assert (desk.begun, DELIVERED) == ([b"hello you!"], [])
    exchange.settle({"price": 8.0})
    assert [(one.status, json.loads(one.body), one.close) for one in DELIVERED] == [
        (200, {"price": 8.0}, False)
    ]
    exchange.abandon()
    assert desk.recorder.lines == [(200, STRONG_KEY.id)]


def test_a_refusal_comes_before_the_body_and_names_the_key() -> None:
    desk = Desk(STRONG_KEY, WEAK_KEY)
    exchange = desk.exchange(10, WEAK)
    exchange.begin()
    assert [(one.status, one.close) for one in DELIVERED] == [(403, False)]
    exchange.feed(b"0123456789")
    exchange.end()
    exchange.abandon()
    assert (desk.begun, desk.recorder.lines) == ([], [(403, WEAK_KEY.id)])


@pytest.mark.parametrize(("length", "close"), [(10, False), (65_536, False), (65_537, True), (None, True)])
def test_a_long_or_endless_body_after_a_refusal_is_not_read(length: int | None, close: bool) -> None:
    exchange = Desk(STRONG_KEY).exchange(length)
    exchange.begin()
    assert [(one.status, one.close) for one in DELIVERED] == [(401, close)]


def test_a_refused_caller_that_waits_to_be_told_to_continue_is_closed() -> None:
    exchange = Desk(STRONG_KEY).exchange(10, expect="100-continue")
    exchange.begin()
    assert [(one.status, one.close) for one in DELIVERED] == [(401, True)]


def test_a_body_that_is_too_long_is_refused_when_announced_and_when_it_turns_out() -> None:
    desk = Desk()
    desk.exchange(MAX_BYTES + 1).begin()
    endless = desk.exchange(None)
    endless.begin()
    endless.feed(b"x" * MAX_BYTES)
    assert [one.status for one in DELIVERED] == [413]
    endless.feed(b"x")
    assert [(one.status, one.close) for one in DELIVERED] == [(413, False), (413, True)]


def test_a_caller_who_leaves_early_is_refused_once_and_a_complete_request_goes_on() -> None:
    desk = Desk()
    early, complete = desk.exchange(10), desk.exchange(2)
    for exchange in (early, complete):
        exchange.begin()
        exchange.feed(b"hi")
    complete.end()
    for exchange in (early, complete, early):
        exchange.abandon()
    assert [one.status for one in DELIVERED] == [422]
    complete.settle({})
    assert [one.status for one in DELIVERED] == [422, 200]


def test_a_shut_gate_refuses_before_the_body_and_says_when_to_come_back() -> None:
    desk = Desk()
    desk.gate.refusal = Overloaded("too much waits", 2.5)
    exchange = desk.exchange(2)
    exchange.begin()
    exchange.feed(b"hi")
    exchange.end()
    assert [(one.status, one.close, desk.begun) for one in DELIVERED] == [(503, False, [])]
    assert (b"retry-after", b"3") in DELIVERED[0].headers
    assert b"problem:overloaded" in DELIVERED[0].body


def test_a_gate_that_shuts_while_a_body_arrives_refuses_it_unread() -> None:
    desk = Desk()
    exchange = desk.exchange(2)
    exchange.begin()
    exchange.feed(b"h")
    desk.gate.refusal = Overloaded("too much waits", 1.0)
    exchange.feed(b"i")
    exchange.end()
    assert [(one.status, one.close, desk.begun) for one in DELIVERED] == [(503, False, [])]


def test_bodies_that_arrive_at_once_have_a_bound_together_and_give_back_what_they_held() -> None:
    desk = Desk()
    desk.gate.max_arriving_bytes = 10
    first, second, third = desk.exchange(8), desk.exchange(8), desk.exchange(8)
    for exchange in (first, second, third):
        exchange.begin()
    first.feed(b"123456")
    second.feed(b"123456")
    assert [one.status for one in DELIVERED] == [503]
    third.feed(b"12345678")  # complete in one piece
    first.feed(b"78")
    for exchange in (first, third):
        exchange.end()
    assert (desk.begun, desk.gate.arriving_bytes) == ([b"12345678"] * 2, 0)
    early = desk.exchange(8)
    early.begin()
    early.feed(b"1")
    early.abandon()
    assert desk.gate.arriving_bytes == 0


@pytest.mark.parametrize(("length", "close"), [(100, False), (None, True)])
def test_a_shut_gate_keeps_the_connection_of_a_batch_whose_length_is_known(
    length: int | None, close: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_module, "MAX_DISCARDED_BYTES", 10)
    desk = Desk()
    desk.gate.refusal = Overloaded("too much waits", 1.0)
    desk.exchange(length).begin()
    assert [(one.status, one.close) for one in DELIVERED] == [(503, close)]


def test_an_error_of_the_city_is_a_problem_and_a_defect_of_ours_a_500() -> None:
    desk = Desk()
    failing, broken = desk.exchange(2), desk.exchange(6)
    failing.begin()
    failing.end()
    failing.settle(StorageUnavailable("the disk is full"))
    broken.begin()
    broken.feed(b"broken")
    broken.end()
    assert [one.status for one in DELIVERED] == [503, 500]
    assert DELIVERED[0].content_type == b"application/problem+json"
    assert (b"retry-after", b"1") in DELIVERED[0].headers
    assert b"defect" not in DELIVERED[1].body
