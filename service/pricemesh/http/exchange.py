"""One call of traffic and its answer, without I/O: bytes go in, one `Answer` comes out.

Reads headers and body, admits, hands the call to the city and makes the answer. The two ways in, `fast_path`
and `asgi`, are adapters that feed it and frame what it delivers; they know nothing of what is in a body.
"""

import logging
from typing import Any

import msgspec

from pricemesh.errors import PricemeshError, UnreadableBody, WrongMethod
from pricemesh.http.admission import Admission, RequestContext
from pricemesh.http.body import INCOMPLETE, Body, is_large, refuse_too_long
from pricemesh.http.problems import refusal, unforeseen
from pricemesh.http.traffic import TrafficCall

log = logging.getLogger("pricemesh.requests")

JSON = b"application/json"


class Answer(msgspec.Struct, frozen=True, gc=False):
    status: int
    content_type: bytes
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()  # beside content-type, content-length and x-request-id
    close: bool = False  # the rest of the request is not worth reading


class Exchange:
    """`begin` with the headers, `feed` the body, `end` it; `deliver` is then called exactly once, at once or
    when the city has committed. `abandon` says that the caller has left."""

    __slots__ = (
        "_admission",
        "_arriving_bytes",
        "_body",
        "_call",
        "_ended",
        "_expects_continue",
        "_length",
        "_max_bytes",
        "_whole_body",
        "_work",
        "answered",
        "context",
    )

    def __init__(
        self,
        admission: Admission,
        context: RequestContext,
        call: TrafficCall,
        length: int | None,
        expects_continue: bool,
        max_bytes: int,
    ) -> None:
        """`length` is the announced content-length; None is a body of unknown length. A refused caller that
        expects to be told to continue may never send its body."""
        self._admission = admission
        self._call = call
        self._length = length
        self._expects_continue = expects_continue
        self._max_bytes = max_bytes
        self._whole_body = b""  # as it mostly arrives
        self._body: Body | None = None  # that arrives in pieces
        self._work: Any = None  # what the call needs to know again to make its answer
        self._ended = False
        self._arriving_bytes = 0  # as the gate counts them
        self.context = context
        self.answered = False

    def begin(self) -> None:
        """Refuse a caller before its body is read."""
        try:
            self._admission.admit(self.context)
            if self.context.method != "POST":
                raise WrongMethod(self.context.method, allowed="POST")
            refuse_too_long(self._length, self._max_bytes)
            if self._call.gate.refusal is not None:
                self._refuse_at_gate(self._call.gate.refusal)
        except PricemeshError as fault:
            self._refuse(fault)
        except Exception as fault:
            self._fail(fault)

    def feed(self, chunk: bytes) -> None:
        if self.answered:
            return
        if self._body is None:
            if len(chunk) == self._length:
                self._whole_body = chunk
                return
            self._body = Body(self._max_bytes)
        try:
            self._body.add(chunk)
            self._count_arriving(len(chunk))
        except PricemeshError as fault:
            self._refuse(fault)

    def end(self) -> None:
        """The body is complete."""
        if self.answered:
            return
        self._ended = True
        if self._arriving_bytes:
            self._forget_arriving()
        call = self._call
        try:
            request = call.read(self._whole_body if self._body is None else self._body.take())
            if call.size is not None:
                self._admission.charge(self.context, call.size(request))
            self._work = call.begin(request, self)
        except PricemeshError as fault:
            self._refuse(fault)
        except Exception as fault:
            self._fail(fault)

    def settle(self, result: Any) -> None:
        """The city's result, once it is committed; or the exception instead."""
        try:
            body = self._call.answer(self._work, result)
        except Exception as fault:
            body = fault
        if isinstance(body, bytes):
            self._answer(Answer(200, JSON, body))
        elif isinstance(body, PricemeshError):
            self._refuse(body)
        else:
            self._fail(body)

    def abandon(self) -> None:
        """The caller has left. What the city has taken on goes on; only an incomplete request is refused."""
        if not self._ended and not self.answered:
            self._refuse(UnreadableBody([("", INCOMPLETE)]))

    def deliver(self, answer: Answer) -> None:
        raise NotImplementedError

    def _refuse(self, fault: PricemeshError, *, keep: bool = False) -> None:
        """`keep` reads even a long body to its end."""
        self._forget_arriving()
        request_id = self.context.request_id.decode()
        close = not self._ended and not keep and (self._expects_continue or is_large(self._length))
        self._answer(as_answer(refusal(fault, request_id), close=close), str(fault))

    def _refuse_at_gate(self, fault: PricemeshError) -> None:
        """Too much waits, so nothing of the body is stored or parsed. The fault is not raised: it is shared,
        and would refer to this frame. A long body is read for nothing, because a caller that connects again
        is more work."""
        self._refuse(fault, keep=not self._expects_continue and self._length is not None)

    def _count_arriving(self, count: int) -> None:
        self._arriving_bytes += count
        gate = self._call.gate
        fault = gate.add_arriving(count) or gate.refusal  # it may have shut since the headers came
        if fault is not None:
            self._refuse_at_gate(fault)

    def _forget_arriving(self) -> None:
        self._call.gate.arriving_bytes -= self._arriving_bytes
        self._arriving_bytes = 0

    def _fail(self, fault: Exception) -> None:
        request_id = self.context.request_id.decode()
        log.error("unforeseen", exc_info=fault, extra={"request_id": request_id})
        self._answer(as_answer(unforeseen(request_id)), f"unforeseen: {type(fault).__name__}")

    def _answer(self, answer: Answer, detail: str = "") -> None:
        self.answered = True
        self._whole_body, self._body = b"", None
        self.deliver(answer)
        self._admission.finish(self.context, self.context.path, answer.status, detail)


def as_answer(response: Any, *, close: bool = False) -> Answer:
    """A problem document as an answer."""
    ordinary = (b"content-type", b"content-length")
    headers = tuple(pair for pair in response.raw_headers if pair[0] not in ordinary)
    return Answer(response.status_code, b"application/problem+json", response.body, headers, close)
