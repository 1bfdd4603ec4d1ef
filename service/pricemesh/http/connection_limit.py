"""How many connections may be open at once, and what those beyond get. Knows no sockets."""

import logging
from math import inf

from pricemesh.http.exchange import as_answer
from pricemesh.http.fast_path import framed
from pricemesh.http.metrics import Metrics
from pricemesh.http.problems import problem
from pricemesh.runtime import Runtime

MAX_LINGERING = 64  # refused connections that get time to read why; beyond, they are closed at once
MIN_SECONDS_BETWEEN_LINES = 10.0  # of the log, under a flood

log = logging.getLogger("pricemesh")


class ConnectionLimit:
    def __init__(self, max_connections: int, metrics: Metrics, runtime: Runtime) -> None:
        self.max_connections = max_connections
        self._metrics = metrics
        self._monotonic = runtime.monotonic
        self._logged_at = -inf
        self._unlogged = 0
        self._refused_open = 0

    def enter(self) -> bool:
        """A connection was made. False where it is one too many: `refuse` follows. `leave` is its end."""
        if self._metrics.connections >= self.max_connections:
            return False
        self._metrics.connections += 1
        return True

    def leave(self, *, admitted: bool) -> None:
        if admitted:
            self._metrics.connections -= 1
        else:
            self._refused_open -= 1

    @property
    def may_linger(self) -> bool:
        return self._refused_open <= MAX_LINGERING

    def refuse(self) -> bytes:
        """Count a connection that is one too many. Returns what to answer it."""
        self._refused_open += 1
        self._metrics.refused_connections += 1
        self._unlogged += 1
        now = self._monotonic()
        if now - self._logged_at >= MIN_SECONDS_BETWEEN_LINES:
            extra = {"count": self._unlogged, "open": self._metrics.connections}
            log.warning("connections refused (limits.connections)", extra=extra)
            self._logged_at, self._unlogged = now, 0
        detail = f"{self.max_connections} connections are open here, and no more are taken: try again"
        document = problem(503, "too-many-connections", detail, None)
        document.headers["Retry-After"] = "1"
        return framed(as_answer(document, close=True), b"-", close=True)
