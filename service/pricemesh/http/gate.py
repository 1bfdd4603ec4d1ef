"""What every request passes on its way in and out: an id, the key, the clock, the log line.

A plain ASGI layer, because it stands in front of every price.
"""

import logging
import random
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pricemesh.city.pricing import Pricing
from pricemesh.errors import PricemeshError, WrongMethod
from pricemesh.gossip.mesh import Gossip
from pricemesh.gossip.signing import HEADER
from pricemesh.http.keys import Gatekeeper, Scope
from pricemesh.http.metrics import Metrics
from pricemesh.http.problems import refusal, unforeseen
from pricemesh.http.traffic import Traffic, read_body

log = logging.getLogger("pricemesh.requests")

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
DOCS_FILES = "/docs-files"
PAGE_FILES = "/page"  # what the dashboard is made of
OPEN = frozenset(("/", "/mesh", "/healthz", "/readyz", "/version", "/docs", "/openapi.json"))
ROUTINE = frozenset(("/gossip", "/healthz", "/readyz", "/metrics"))  # logged only when something is wrong
GOSSIP = "application/octet-stream"
_TELLING = frozenset((b"x-request-id", b"authorization", b"x-api-key", b"origin"))
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,200}")


def scope_of(path: str) -> Scope | None:
    """Which scope a path wants; None is open to all."""
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
    if path in OPEN or path.startswith((f"{DOCS_FILES}/", f"{PAGE_FILES}/")):
        return None
    return Scope.READ


@dataclass(slots=True)
class Passage:
    """One request on its way through."""

    started: float
    method: str
    path: str
    request_id: bytes
    key: str | None
    origin: str | None
    caller: str = ""  # the key's id, once admitted


class Gate:
    """One city as an ASGI application: traffic is answered here, everything else by the framework."""

    def __init__(
        self,
        app: Application,
        *,
        pricing: Pricing,
        gossip: Gossip,
        keeper: Gatekeeper,
        metrics: Metrics,
        traffic: Traffic,
    ) -> None:
        self.pricing = pricing
        self.gossip = gossip
        self._most_bytes = pricing.settings.limits.body_bytes
        self._app = app
        self._keeper = keeper
        self._metrics = metrics
        self._traffic = traffic

    @property
    def traffic(self) -> Traffic:
        return self._traffic

    def enter(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> "Passage":
        given = key = origin = None
        for name, value in headers:
            if name not in _TELLING:
                continue
            if name == b"x-request-id":
                given = value
            elif name == b"origin":
                origin = value.decode("latin-1")
            elif name == b"x-api-key":
                key = value.decode("latin-1")
            elif value[:7].lower() == b"bearer ":
                key = value[7:].strip().decode("latin-1")
        id_ = given if given and _REQUEST_ID.fullmatch(given) else b"%016x" % random.getrandbits(64)
        return Passage(perf_counter(), method, path, id_, key, origin)

    def admit(self, passage: "Passage") -> None:
        """Or an error of ours."""
        if passage.origin is not None:
            self._keeper.admit_page(passage.origin)
        passage.caller = self._keeper.admit(passage.key, scope_of(passage.path))

    def leave(self, passage: "Passage", route: str, status: int) -> None:
        seconds = perf_counter() - passage.started
        self._metrics.request(route, status, seconds)
        level = logging.DEBUG if status < 400 and passage.path in ROUTINE else logging.INFO
        if log.isEnabledFor(level):
            log.log(
                level,
                "%s %s %d",
                passage.method,
                passage.path,
                status,
                extra={
                    "request_id": passage.request_id.decode(),
                    "milliseconds": round(seconds * 1e3, 3),
                    "key": passage.caller,
                },
            )

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        passage = self.enter(scope["method"], path, scope["headers"])
        request_id = scope["request_id"] = passage.request_id.decode()
        status: int | None = None

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", passage.request_id)]
            await send(message)

        call = self._traffic.calls.get(path)
        try:
            self.admit(passage)
            if call is not None:
                await self._traffic.answer(call, scope, receive, answer)
            elif path == "/gossip":
                await self._exchange(scope, receive, answer)
            else:
                if scope["method"] == "HEAD":  # as GET; the server leaves the body out
                    scope = {**scope, "method": "GET", "without_body": True}
                await self._app(scope, receive, answer)
        except PricemeshError as fault:
            await refusal(fault, request_id)(scope, receive, answer)
        except Exception:
            log.exception("unforeseen", extra={"request_id": request_id})
            if status is None:
                await unforeseen(request_id)(scope, receive, answer)
        finally:
            own = call is not None or path == "/gossip"
            self.leave(passage, path if own else getattr(scope.get("route"), "path", "other"), status or 500)

    async def _exchange(self, scope: Any, receive: Receive, send: Send) -> None:
        """A peer's message and our answer: bytes both ways, nothing around them that need not be."""
        if scope["method"] != "POST":
            raise WrongMethod(scope["method"], allowed="POST")
        body = await read_body(scope, receive, await receive(), self._most_bytes)
        wanted = HEADER.encode()
        signature = next((value for name, value in scope["headers"] if name == wanted), b"").decode("latin-1")
        machine = (scope.get("client") or ("",))[0]
        answer, signed = await self.gossip.receive(body, signature, machine)
        headers = [(wanted, signed.encode())] if signed else []
        status = 204
        if answer is not None:
            status = 200
            headers += [(b"content-type", GOSSIP.encode()), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer or b""})
