"""The city as an ASGI application: traffic by an `Exchange`, gossip by bytes, the rest by the framework."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

from pricemesh.city.pricing import Pricing
from pricemesh.errors import PricemeshError, UnreadableBody, WrongMethod
from pricemesh.gossip.mesh import Gossip
from pricemesh.gossip.signing import HEADER
from pricemesh.http.admission import Admission, RequestContext
from pricemesh.http.body import (
    BodyBudget,
    announced_length,
    expects_continue,
    is_large,
    read_body,
    refuse_too_long,
)
from pricemesh.http.connection_limit import ConnectionLimit
from pricemesh.http.exchange import Answer, Exchange
from pricemesh.http.key_file import KeyFile
from pricemesh.http.problems import refusal, unforeseen
from pricemesh.http.traffic import Traffic, TrafficCall

log = logging.getLogger("pricemesh.requests")

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
GOSSIP_MEDIA_TYPE = "application/octet-stream"
_SIGNATURE = HEADER.encode()
GOSSIP_BODIES = 16  # of the largest size, in memory at once
MIN_GOSSIP_BUDGET_BYTES = 4_194_304
GOSSIP_BODY_SECONDS = 30.0  # in which a body must arrive


class AsgiExchange(Exchange):
    """Delivers to a future."""

    __slots__ = ("answer",)

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def deliver(self, answer: Answer) -> None:
        if not self.answer.done():  # cancelled: nobody waits
            self.answer.set_result(answer)


class Application:
    def __init__(
        self,
        framework: Callable[[Any, Any, Any], Awaitable[None]],
        *,
        add_routes: Callable[[], None],
        pricing: Pricing,
        gossip: Gossip,
        admission: Admission,
        traffic: Traffic,
        key_file: KeyFile | None,
    ) -> None:
        self.pricing = pricing
        self.gossip = gossip
        self.admission = admission
        self.traffic = traffic
        self.key_file = key_file
        self.max_body_bytes = pricing.settings.limits.body_bytes
        self.limits = pricing.settings.limits
        self.connections = ConnectionLimit(self.limits.connections, admission.metrics, pricing.runtime)
        self.fast_calls = (
            {path.encode(): call for path, call in traffic.calls.items()}
            if pricing.settings.server.fast_path
            else {}
        )
        self.gossip_budget = BodyBudget(max(GOSSIP_BODIES * self.max_body_bytes, MIN_GOSSIP_BUDGET_BYTES))
        self._framework = framework
        self._add_routes: Callable[[], None] | None = add_routes

    def complete(self) -> None:
        """Add the routes of the framework, if that was not done. It takes longer than all else that an
        application is made of, and many short-lived ones answer nothing but traffic and gossip."""
        add_routes, self._add_routes = self._add_routes, None
        if add_routes is not None:
            add_routes()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._framework(scope, receive, send)
            return
        context = self.admission.context(scope["method"], scope["path"], scope["headers"])
        call = self.traffic.calls.get(context.path)
        if call is not None:
            await self._answer_traffic(call, context, scope, receive, send)
        else:
            await self._answer_other(context, scope, receive, send)

    async def _answer_traffic(
        self, call: TrafficCall, context: RequestContext, scope: Any, receive: Receive, send: Send
    ) -> None:
        length = announced_length(scope["headers"])
        expects = expects_continue(scope["headers"]) and scope["http_version"] != "1.0"
        exchange = AsgiExchange(self.admission, context, call, length, expects, self.max_body_bytes)
        exchange.begin()
        while not exchange.answered:
            message = await receive()
            if message["type"] == "http.disconnect":
                exchange.abandon()
                return
            exchange.feed(message.get("body", b""))
            if not message.get("more_body"):
                exchange.end()
                break
        answer = await exchange.answer
        headers = [
            (b"content-type", answer.content_type),
            (b"content-length", b"%d" % len(answer.body)),
            (b"x-request-id", context.request_id),
            *answer.headers,
        ]
        if answer.close:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer_other(self, context: RequestContext, scope: Any, receive: Receive, send: Send) -> None:
        request_id = scope["request_id"] = context.request_id.decode()
        scope["still_admitted"] = partial(self.admission.still_admits, context)
        status: int | None = None
        detail = ""

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", context.request_id)]
                if status >= 400 and is_large(announced_length(scope["headers"])):
                    headers.append((b"connection", b"close"))
                message["headers"] = headers
            await send(message)

        try:
            self.admission.admit(context)
            scope["caller"] = context.caller
            if context.path == "/gossip":
                await self._answer_gossip(scope, receive, answer)
            else:
                if scope["method"] == "HEAD":  # as GET; the server leaves the body out
                    scope = {**scope, "method": "GET", "without_body": True}
                self.complete()
                await self._framework(scope, receive, answer)
        except PricemeshError as fault:
            detail = str(fault)
            await refusal(fault, request_id)(scope, receive, answer)
        except Exception:
            log.exception("unforeseen", extra={"request_id": request_id})
            if status is None:
                await unforeseen(request_id)(scope, receive, answer)
        finally:
            route = (
                context.path if context.path == "/gossip" else getattr(scope.get("route"), "path", "other")
            )
            self.admission.finish(context, route, status or 500, detail)

    async def _answer_gossip(self, scope: Any, receive: Receive, send: Send) -> None:
        """A peer's message and our answer: bytes both ways. No body is read for a caller whose signature
        does not hold."""
        if scope["method"] != "POST":
            raise WrongMethod(scope["method"], allowed="POST")
        length = announced_length(scope["headers"])
        refuse_too_long(length, self.max_body_bytes)
        signature = next((value for name, value in scope["headers"] if name == _SIGNATURE), b"").decode(
            "latin-1"
        )
        machine = (scope.get("client") or ("",))[0]
        self.gossip.admit(signature, machine)
        with self.gossip_budget.reserve(machine, self.max_body_bytes if length is None else length):
            try:
                async with asyncio.timeout(GOSSIP_BODY_SECONDS):
                    body = await read_body(scope, receive, self.max_body_bytes)
            except TimeoutError:
                limit = f"the body did not arrive within {GOSSIP_BODY_SECONDS:g} s"
                raise UnreadableBody([("", limit)]) from None
            answer, reply_signature = await self.gossip.receive(body, signature, machine)
        headers = [(_SIGNATURE, reply_signature.encode())] if reply_signature else []
        status = 204
        if answer is not None:
            status = 200
            headers += [
                (b"content-type", GOSSIP_MEDIA_TYPE.encode()),
                (b"content-length", b"%d" % len(answer)),
            ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer or b""})
