"""Logs on standard error: a line of JSON each, or plain words on a terminal.

Request lines have a writer of their own, because there may be one for each call: `RequestLog` formats a line
without a log record and writes many at once. This file knows no path, and the event loop comes from outside.
"""

import json
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}

REQUESTS = "pricemesh.requests"
UNAVAILABLE = 503
FLUSH_SECONDS = 0.1
MAX_BUFFERED_CHARACTERS = 65_536


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Words(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        extras = " ".join(f"{key}={value}" for key, value in _extras(record).items())
        text = f"{time} {record.levelname.lower():7} {record.getMessage()}  {extras}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def logs_are_json() -> bool:
    """A person at a terminal reads words; a program that collects logs reads JSON."""
    return not sys.stderr.isatty()


def configure_logs(level: str = "info") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if logs_are_json() else Words())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").disabled = True
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)


class RequestLog:
    """A line for each request that failed, was refused or was slow; with `access`, for all others too.

    `write` takes text, `clock` gives Unix seconds, `schedule(seconds, function)` calls a function later.
    Lines are written together, `FLUSH_SECONDS` after the first of them; without `schedule`, by the next line
    after that time. The level of the logger `pricemesh.requests` applies.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        clock: Callable[[], float],
        *,
        as_json: bool,
        access: bool,
        slow_seconds: float,
        schedule: Callable[[float, Callable[[], None]], object] | None = None,
        routine_paths: frozenset[str] = frozenset(),
        stream_paths: frozenset[str] = frozenset(),
        in_outage: Callable[[], bool] = lambda: False,
    ) -> None:
        """Successes on `routine_paths` have the level debug, and so has a 503 while `in_outage`, because the
        outage has a line of its own. Calls on `stream_paths` are long, not slow."""
        self._write = write
        self._clock = clock
        self._line = _JsonRequests().line if as_json else _WordRequests().line
        self._access = access
        self._slow_seconds = slow_seconds
        self._schedule = schedule
        self._routine_paths = routine_paths
        self._stream_paths = stream_paths
        self._in_outage = in_outage
        self._is_enabled = logging.getLogger(REQUESTS).isEnabledFor
        self._lines: list[str] = []
        self._characters = 0
        self._oldest = 0.0  # the time of the first line that waits

    def request(
        self, method: str, path: str, status: int, seconds: float, request_id: str, key: str, detail: str = ""
    ) -> None:
        """`key` is the id of the caller's key; `detail` says why a request was refused."""
        level = self._level(path, status, seconds)
        if level is None or not self._is_enabled(level):
            return
        now = self._clock()
        message = f"{method} {path} {status}"
        line = self._line(now, _LEVELS[level], message, request_id, round(seconds * 1e3, 3), key, detail)
        if not self._lines:
            self._oldest = now
            if self._schedule is not None:
                self._schedule(FLUSH_SECONDS, self.flush)
        self._lines.append(line)
        self._characters += len(line)
        late = self._schedule is None and now - self._oldest >= FLUSH_SECONDS
        if late or self._characters >= MAX_BUFFERED_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Write the lines that wait. They are lost where they cannot be written: a log fails no request."""
        if not self._lines:
            return
        text = "".join(self._lines)
        self._lines.clear()
        self._characters = 0
        with suppress(OSError, ValueError):  # a full disk, a pipe without a reader, a closed file
            self._write(text)

    def _level(self, path: str, status: int, seconds: float) -> int | None:
        if status >= 500 and status != UNAVAILABLE:
            return logging.ERROR
        if status == UNAVAILABLE and self._in_outage():
            return logging.DEBUG
        slow = seconds >= self._slow_seconds and path not in self._stream_paths
        if slow or status == UNAVAILABLE:  # whose cause has an error line of its own
            return logging.WARNING
        if status >= 400:
            return logging.INFO
        if not self._access:
            return None
        return logging.DEBUG if path in self._routine_paths else logging.INFO


_LEVELS = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
}


class _JsonRequests:
    """Request lines as `JsonLines` would write them. The date is formatted once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._date = ""

    def line(
        self,
        now: float,
        level: str,
        message: str,
        request_id: str,
        milliseconds: float,
        key: str,
        detail: str,
    ) -> str:
        second = int(now)
        if second != self._second:
            self._second = second
            self._date = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        more = f', "detail": {quoted(detail)}' if detail else ""
        return (
            f'{{"time": "{self._date}.{int((now - second) * 1e3):03d}+00:00", "level": "{level}", '
            f'"logger": "{REQUESTS}", "message": {quoted(message)}, "request_id": {quoted(request_id)}, '
            f'"milliseconds": {milliseconds}, "key": {quoted(key)}{more}}}\n'
        )


class _WordRequests:
    """Request lines as `Words` would write them, with control characters escaped: a path may hold any."""

    def __init__(self) -> None:
        self._second = -1
        self._time = ""

    def line(
        self,
        now: float,
        level: str,
        message: str,
        request_id: str,
        milliseconds: float,
        key: str,
        detail: str,
    ) -> str:
        second = int(now)
        if second != self._second:
            self._second = second
            self._time = datetime.fromtimestamp(second).strftime("%H:%M:%S")
        more = f" detail={detail}" if detail else ""
        text = f"{message}  request_id={request_id} milliseconds={milliseconds} key={key}{more}"
        if not text.isprintable():
            text = text.encode("unicode_escape").decode("ascii")
        return f"{self._time} {level:7} {text}\n"
