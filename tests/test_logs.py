"""Which requests are logged, how their lines look, and when they are written."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from pricemesh.logs import FLUSH_SECONDS, MAX_BUFFERED_CHARACTERS, REQUESTS, JsonLines, RequestLog, Words

NOW = 1_700_000_000.25
PRICE = ("POST", "/price", 200, 0.0015, "r1", "k1")


@pytest.fixture(autouse=True)
def info() -> Iterator[None]:
    logger = logging.getLogger(REQUESTS)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(level)


class Sink:
    """The stream, the clock and the loop of a request log."""

    def __init__(self, **options: Any) -> None:
        self.writes: list[str] = []
        self.now = NOW
        self.timers: list[tuple[float, Callable[[], None]]] = []
        options = {"as_json": True, "access": False, "slow_seconds": 1.0} | options
        self.log = RequestLog(self.writes.append, lambda: self.now, **options)

    def schedule(self, seconds: float, function: Callable[[], None]) -> None:
        self.timers.append((seconds, function))

    def lines(self) -> list[dict[str, Any]]:
        self.log.flush()
        return [json.loads(line) for line in "".join(self.writes).splitlines()]


def record_of(level: int, **extras: object) -> logging.LogRecord:
    record = logging.makeLogRecord({"name": REQUESTS, "msg": "POST /price 200", "created": NOW, **extras})
    record.levelno, record.levelname = level, logging.getLevelName(level)
    return record


def test_ordinary_successes_are_logged_only_with_access() -> None:
    sink = Sink()
    sink.log.request(*PRICE)
    assert sink.lines() == []
    sink = Sink(access=True)
    sink.log.request(*PRICE)
    assert sink.lines() == [
        {
            "time": "2023-11-14T22:13:20.250+00:00",
            "level": "info",
            "logger": "pricemesh.requests",
            "message": "POST /price 200",
            "request_id": "r1",
            "milliseconds": 1.5,
            "key": "k1",
        }
    ]


def test_refusals_failures_and_slow_calls_are_always_logged() -> None:
    sink = Sink(stream_paths=frozenset({"/events"}))
    sink.log.request("POST", "/price", 403, 0.001, "r1", "k1", "this key has no scope price")
    sink.log.request("POST", "/price", 500, 0.001, "r2", "k1")
    sink.log.request("POST", "/price", 200, 1.0, "r3", "k1")
    sink.log.request("POST", "/price", 500, 5.0, "r4", "k1")
    sink.log.request("GET", "/events", 200, 500.0, "r5", "k1")
    sink.log.request("POST", "/price", 503, 0.001, "r6", "k1")  # its cause has an error line of its own
    lines = sink.lines()
    assert [(line["request_id"], line["level"]) for line in lines] == [
        ("r1", "info"),
        ("r2", "error"),
        ("r3", "warning"),
        ("r4", "error"),
        ("r6", "warning"),
    ]
    assert [line.get("detail") for line in lines] == ["this key has no scope price", *[None] * 4]


@pytest.mark.parametrize(
    ("level", "request_ids"),
    [
        (logging.DEBUG, ["routine", "ordinary", "refused", "slow", "failed"]),
        (logging.INFO, ["ordinary", "refused", "slow", "failed"]),
        (logging.WARNING, ["slow", "failed"]),
        (logging.ERROR, ["failed"]),
    ],
)
def test_the_level_of_the_logs_holds_for_requests(level: int, request_ids: list[str]) -> None:
    logging.getLogger(REQUESTS).setLevel(level)
    sink = Sink(access=True, routine_paths=frozenset({"/healthz"}))
    sink.log.request("GET", "/healthz", 200, 0.0, "routine", "")
    sink.log.request("GET", "/state", 200, 0.0, "ordinary", "")
    sink.log.request("GET", "/state", 401, 0.0, "refused", "")
    sink.log.request("GET", "/state", 200, 2.0, "slow", "")
    sink.log.request("GET", "/healthz", 500, 0.0, "failed", "")
    assert [line["request_id"] for line in sink.lines()] == request_ids


def test_a_503_in_an_outage_that_has_a_line_of_its_own_is_no_line() -> None:
    outage = [False, True, True, False]
    sink = Sink(in_outage=lambda: outage.pop(0))
    for number in range(4):
        sink.log.request("POST", "/price", 503, 2.0, f"r{number}", "k1")
    assert [line["request_id"] for line in sink.lines()] == ["r0", "r3"]


@pytest.mark.parametrize("path", ["/price", '/"quoted"', "/line\nbreak", "/\u2028", "/ø", "/\ud800"])
def test_a_line_is_one_line_of_json_whatever_the_path(path: str) -> None:
    sink = Sink(access=True)
    sink.log.request("GET", path, 404, 0.0, "r\n1", 'k"1', "no\nsuch path")
    (line,) = sink.lines()
    assert (line["message"], line["request_id"], line["key"]) == (f"GET {path} 404", "r\n1", 'k"1')


def test_a_line_of_words_is_one_line_whatever_the_path() -> None:
    sink = Sink(as_json=False)
    sink.log.request("GET", "/x\n12:00:00 error   forged", 404, 0.0, "r1", "", "no such path")
    sink.log.flush()
    (text,) = sink.writes
    assert text.count("\n") == 1
    assert text.isascii()


@pytest.mark.parametrize("created", [NOW, 1_700_000_000.0, 1_699_999_999.999, 1_709_210_096.5])
def test_request_lines_look_like_all_other_lines(created: float) -> None:
    extras = {"request_id": "r1", "milliseconds": 1.5, "key": "k1"}
    record = record_of(logging.INFO, **extras)
    record.created = created
    for as_json, formatter in ((True, JsonLines()), (False, Words())):
        sink = Sink(access=True, as_json=as_json)
        sink.now = created
        sink.log.request(*PRICE)
        sink.log.flush()
        assert sink.writes == [formatter.format(record) + "\n"]


def test_the_time_goes_on_from_line_to_line() -> None:
    sink = Sink(access=True)
    moments = [NOW, NOW + 0.5, NOW + 60, NOW + 86_400]
    for sink.now in moments:
        sink.log.request(*PRICE)
    times = [line["time"] for line in sink.lines()]
    assert times == [datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds") for at in moments]


def test_many_lines_are_written_at_once_a_moment_after_the_first() -> None:
    sink = Sink(access=True)
    sink.log = RequestLog(
        sink.writes.append,
        lambda: sink.now,
        as_json=True,
        access=True,
        slow_seconds=1.0,
        schedule=sink.schedule,
    )
    for _ in range(5):
        sink.log.request(*PRICE)
    assert sink.writes == []
    ((seconds, flush),) = sink.timers
    assert seconds == FLUSH_SECONDS
    flush()
    assert [text.count("\n") for text in sink.writes] == [5]
    sink.log.request(*PRICE)
    assert len(sink.timers) == 2


def test_a_full_buffer_is_written_at_once() -> None:
    sink = Sink(access=True)
    while not sink.writes:
        sink.log.request(*PRICE)
    assert MAX_BUFFERED_CHARACTERS <= len(sink.writes[0]) < MAX_BUFFERED_CHARACTERS + 1000


def test_without_a_loop_the_next_line_after_a_moment_writes() -> None:
    sink = Sink(access=True)
    sink.log.request(*PRICE)
    sink.log.request(*PRICE)
    assert sink.writes == []
    sink.now += 2 * FLUSH_SECONDS
    sink.log.request(*PRICE)
    assert [text.count("\n") for text in sink.writes] == [3]


def test_flush_writes_what_waits_and_nothing_twice() -> None:
    sink = Sink(access=True)
    sink.log.flush()
    assert sink.writes == []
    sink.log.request(*PRICE)
    sink.log.flush()
    sink.log.flush()
    assert len(sink.writes) == 1


def test_a_stream_that_is_closed_fails_no_request() -> None:
    def broken(_text: str) -> None:
        raise BrokenPipeError

    log = RequestLog(broken, lambda: NOW, as_json=True, access=True, slow_seconds=1.0)
    log.request(*PRICE)
    log.flush()
    log.request(*PRICE)


def test_an_exception_is_part_of_its_line() -> None:
    try:
        raise RuntimeError("boom")
    except RuntimeError as fault:
        record = record_of(logging.ERROR, exc_info=(RuntimeError, fault, fault.__traceback__))
    assert "RuntimeError: boom" in json.loads(JsonLines().format(record))["exception"]
    assert re.search(r"RuntimeError: boom$", Words().format(record))
