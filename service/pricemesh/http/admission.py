"""Who may call what: the context of a request, its admission, and what is recorded when it ends.

Used by every way into the city, and knows none of them.
"""

import re
from collections.abc import Iterable
from typing import Protocol

import msgspec

from pricemesh.http.hosts import Hosts
from pricemesh.http.keys import Gatekeeper, Scope
from pricemesh.http.metrics import Metrics
from pricemesh.runtime import Runtime

DOCS_FILES = "/docs-files"
PAGE_FILES = "/page"  # what the dashboard is made of
OPEN_PATHS = frozenset(("/", "/mesh", "/healthz", "/readyz", "/version", "/docs", "/openapi.json"))
ROUTINE_PATHS = frozenset(("/gossip", "/healthz", "/readyz", "/metrics"))  # called every few seconds
STREAM_PATHS = frozenset(("/events", "/export"))  # last as long as their readers, so are never slow
_HEADERS = frozenset((b"x-request-id", b"authorization", b"x-api-key", b"origin", b"host"))
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,200}")


def scope_of(path: str) -> Scope | None:
    """The scope that a path requires; None is open to all."""
    if path in ("/price", "/price/batch"):
        return Scope.PRICE
    if path in ("/feedback", "/feedback/batch"):
        return Scope.FEEDBACK
    if path.startswith("/admin"):
        return Scope.ADMIN
    if path == "/gossip":  # signed by a secret of its own
        return None
    if path.startswith("/peers"):
        return Scope.ADMIN
    if path.startswith("/lab"):
        return Scope.FEEDBACK
    if path in OPEN_PATHS or path.startswith((f"{DOCS_FILES}/", f"{PAGE_FILES}/")):
        return None
    return Scope.READ


class RequestContext(msgspec.Struct, gc=False):
    started: float  # on the monotonic clock
    method: str
    path: str
    request_id: bytes
    key: str | None  # as presented
    origin: str | None  # of the page that calls, if a browser says so
    host: bytes | None  # by which the city is called
    caller: str = ""  # the key's id, once it is known


class RequestRecorder(Protocol):
    """The request log, as admission sees it."""

    def request(
        self, method: str, path: str, status: int, seconds: float, request_id: str, key: str, detail: str = ""
    ) -> None: ...

    def flush(self) -> None: ...


class Admission:
    def __init__(
        self,
        gatekeeper: Gatekeeper,
        metrics: Metrics,
        recorder: RequestRecorder,
        runtime: Runtime,
        *,
        hosts: Hosts | None,
        log_above_seconds: float,
    ) -> None:
        """Without `hosts`, the city may be called by any name."""
        self._gatekeeper = gatekeeper
        self._hosts = hosts
        self.metrics = metrics
        self._recorder = recorder
        self._log_above_seconds = log_above_seconds  # faster successes are not worth a line
        self._monotonic = runtime.monotonic
        self._random_bits = runtime.rng.getrandbits

    def context(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> RequestContext:
        """Of a request with these headers; their names are lower case."""
        given_id = key = origin = host = None
        for name, value in headers:
            if name not in _HEADERS:
                continue
            if name == b"host":
                host = value if host is None else b"%b, %b" % (host, value)  # two are no name
            elif name == b"x-request-id":
                given_id = value
            elif name == b"origin":
                origin = value.decode("latin-1")
            elif name == b"x-api-key":
                key = value.decode("latin-1")
            elif value[:7].lower() == b"bearer ":
                key = value[7:].strip().decode("latin-1")
        if given_id is None or not _REQUEST_ID.fullmatch(given_id):
            given_id = b"%016x" % self._random_bits(64)
        return RequestContext(self._monotonic(), method, path, given_id, key, origin, host)

    def admit(self, context: RequestContext) -> None:
        """Raises a `Refused` when this caller may not make this request."""
        gatekeeper = self._gatekeeper
        hosts = self._hosts
        if hosts is not None and context.host not in hosts.remembered:
            hosts.admit(context.host)
        if context.origin is not None:
            gatekeeper.admit_page(context.origin)
        if gatekeeper.keys is None:
            return
        scope = scope_of(context.path)
        key = gatekeeper.identify(context.key, scope)
        if key is not None and scope is not None:
            context.caller = key.id
            gatekeeper.authorise(key, scope)

    def still_admits(self, context: RequestContext) -> bool:
        """For answers that last: whether the caller's key has been revoked since."""
        return self._gatekeeper.still_admits(context.caller, scope_of(context.path))

    def charge(self, context: RequestContext, rows: int) -> None:
        """A batch counts by its size: one was taken when it was admitted, the rest is taken now."""
        if context.caller:
            self._gatekeeper.charge(context.caller, rows - 1)

    def finish(self, context: RequestContext, route: str, status: int, detail: str = "") -> None:
        """Count a request that has its answer, and log it if it was refused, failed or slow."""
        seconds = self._monotonic() - context.started
        self.metrics.request(route, status, seconds)
        if status >= 400 or seconds >= self._log_above_seconds:
            self._recorder.request(
                context.method,
                context.path,
                status,
                seconds,
                context.request_id.decode(),
                context.caller,
                detail,
            )
