"""The calls of a city: their requests, how their answers are read, and when they are made again. No I/O."""

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import httpx

from pricemesh.errors import InvalidParameter, PricemeshError
from pricemesh.http import retraction_schemas, sales_schemas, schemas
from pricemesh.http.forget_schemas import ForgetResult
from pricemesh.http.state_schemas import State

Answer = TypeVar("Answer")
Given = TypeVar("Given")
Features = Mapping[str, float]
Context = tuple[Features, Features]  # shared, local
Amounts = Sequence[tuple[str, float]]  # decision_id; units sold or reward
Outcome = httpx.Response | httpx.TransportError
TRANSIENT_STATUSES = frozenset({429, 502, 503, 504})
MAX_PAUSE_SECONDS = 30.0  # whatever Retry-After says
PAGE_ROWS = 500  # of `decisions`
RELEARN_SECONDS = 60.0  # a city answers within 30 seconds, whether it has learned again or not


class CityError(PricemeshError):
    """The city refused the call. `problem` is its RFC 9457 document."""

    def __init__(self, problem: schemas.Problem) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")
        self.problem = problem


class CityUnreachable(PricemeshError):
    """Every attempt ended without an answer."""


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """One request, and how the body of its answer is read."""

    method: str
    path: str
    read: Callable[[bytes], Answer]
    body: Any = None
    timeout_seconds: float | None = None  # where the client's own is too short

    def answer(self, outcome: Outcome) -> Answer:
        if isinstance(outcome, httpx.TransportError):
            raise CityUnreachable(f"{self.method} {self.path}: {outcome}") from outcome
        if not outcome.is_success:
            raise CityError(_problem(outcome))
        return self.read(outcome.content)


def _problem(response: httpx.Response) -> schemas.Problem:
    try:
        return schemas.Problem.model_validate_json(response.content)
    except ValueError:  # not from a city: a proxy's page, say
        return schemas.Problem(
            type="about:blank",
            title=response.reason_phrase,
            status=response.status_code,
            detail=response.text[:500],
        )


@dataclass(frozen=True)
class Retries:
    """How often a call is tried, and how long to wait in between: twice as long each time, with jitter; at
    least as long as the city asks for, and at most MAX_PAUSE_SECONDS."""

    attempts: int = 4
    first_pause_seconds: float = 0.1

    def pause_seconds(self, attempt: int, outcome: Outcome) -> float | None:
        """The pause after this attempt (the first is 0); None where its outcome is final."""
        retry_after = ""
        if isinstance(outcome, httpx.Response):
            if outcome.status_code not in TRANSIENT_STATUSES:
                return None
            retry_after = outcome.headers.get("retry-after", "")
        if attempt + 1 >= self.attempts:
            return None
        pause: float = self.first_pause_seconds * 2**attempt * (0.5 + random.random())
        if retry_after.isascii() and retry_after.isdigit():
            pause = max(pause, float(retry_after))
        return min(pause, MAX_PAUSE_SECONDS)


def _price_body(
    shared: Features, local: Features | None, decision_id: str | None = None, subject: str | None = None
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "shared": dict(shared),
        "local": dict(local or {}),
        "decision_id": decision_id or str(uuid.uuid4()),
    }
    return body | ({"subject": subject} if subject is not None else {})


def price(
    shared: Features, local: Features | None, decision_id: str | None, subject: str | None
) -> Call[schemas.Decision]:
    body = _price_body(shared, local, decision_id, subject)
    return Call("POST", "/price", schemas.Decision.model_validate_json, body)


def prices(contexts: Sequence[Context]) -> Call[list[schemas.Decision]]:
    def read(content: bytes) -> list[schemas.Decision]:
        return schemas.DecisionBatch.model_validate_json(content).decisions

    return Call("POST", "/price/batch", read, {"requests": [_price_body(*context) for context in contexts]})


def _one_of(sold: Given | None, reward: Given | None) -> tuple[str, Given]:
    """The field of the body and what it holds."""
    if sold is not None and reward is None:
        return "sold", sold
    if reward is not None and sold is None:
        return "reward", reward
    raise TypeError("give either sold=... (to a city of purchases) or reward=... (to a city of values)")


def feedback(decision_id: str, sold: float | None, reward: float | None) -> Call[schemas.FeedbackReceipt]:
    field, amount = _one_of(sold, reward)
    body = {"decision_id": decision_id, field: amount}
    return Call("POST", "/feedback", schemas.FeedbackReceipt.model_validate_json, body)


def feedbacks(sold: Amounts | None, reward: Amounts | None) -> Call[list[schemas.FeedbackOutcome]]:
    def read(content: bytes) -> list[schemas.FeedbackOutcome]:
        return schemas.FeedbackOutcomes.model_validate_json(content).outcomes

    field, items = _one_of(sold, reward)
    body = {"items": [{"decision_id": id_, field: amount} for id_, amount in items]}
    return Call("POST", "/feedback/batch", read, body)


def decision(decision_id: str) -> Call[schemas.DecisionRecord]:
    return Call("GET", f"/decisions/{decision_id}", schemas.DecisionRecord.model_validate_json)


class Filters(NamedTuple):
    """Which decisions a caller wants, as `GET /decisions` takes it."""

    arm: int | None = None
    since: float | None = None  # Unix seconds
    until: float | None = None


def decisions(filters: Filters, before: int | None) -> Call[schemas.DecisionPage]:
    """A page of decisions, newest first, from `next_before` of the page before it."""
    query = _query(**filters._asdict(), before=before, limit=PAGE_ROWS)
    return Call("GET", f"/decisions?{query}", schemas.DecisionPage.model_validate_json)


def _query(**parameters: Any) -> httpx.QueryParams:
    """Without those that are None."""
    return httpx.QueryParams({name: value for name, value in parameters.items() if value is not None})


def sales(per: str, since: float | None, until: float | None, arms: bool) -> Call[sales_schemas.Sales]:
    query = _query(per=per, since=since, until=until, arms=arms)
    return Call("GET", f"/sales?{query}", sales_schemas.Sales.model_validate_json)


def acts(since: float | None, until: float | None, limit: int) -> Call[list[sales_schemas.ActRecord]]:
    def read(content: bytes) -> list[sales_schemas.ActRecord]:
        return sales_schemas.Acts.model_validate_json(content).acts

    return Call("GET", f"/acts?{_query(since=since, until=until, limit=limit)}", read)


def alerts() -> Call[list[sales_schemas.Alert]]:
    def read(content: bytes) -> list[sales_schemas.Alert]:
        return sales_schemas.Alerts.model_validate_json(content).alerts

    return Call("GET", "/alerts", read)


def mesh_value() -> Call[sales_schemas.MeshValue]:
    return Call("GET", "/mesh-value", sales_schemas.MeshValue.model_validate_json)


def state() -> Call[State]:
    return Call("GET", "/state", State.model_validate_json)


def leave() -> Call[int]:
    def read(content: bytes) -> int:
        return schemas.LeaveResult.model_validate_json(content).told

    return Call("POST", "/admin/leave", read)


def forget(subject: str) -> Call[int]:
    def read(content: bytes) -> int:
        return ForgetResult.model_validate_json(content).decisions

    return Call("POST", "/admin/forget", read, {"subject": subject})


def address_of(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        address = httpx.URL()
    if address.scheme not in ("http", "https") or not address.host:
        raise InvalidParameter(f"{url!r} is not the address of a city: write http://host:port")
    return address


def headers_of(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def retract(
    reason: str,
    decisions: Sequence[str] | None,
    import_name: str | None,
    since: float | None,
    until: float | None,
    key: str | None,
    dry_run: bool,
) -> Call[retraction_schemas.RetractionResult]:
    selection = {
        "decisions": None if decisions is None else list(decisions),
        "import": import_name,
        "since": since,
        "until": until,
        "key": key,
    }
    fields = {name: value for name, value in selection.items() if value is not None}
    read = retraction_schemas.RetractionResult.model_validate_json
    return Call(
        "POST", "/admin/retract", read, {"reason": reason, "dry_run": dry_run, **fields}, RELEARN_SECONDS
    )


def lift_retraction(retraction: int, reason: str) -> Call[retraction_schemas.LiftResult]:
    read = retraction_schemas.LiftResult.model_validate_json
    return Call("POST", f"/admin/retractions/{retraction}/lift", read, {"reason": reason}, RELEARN_SECONDS)


def retractions(limit: int, before: int | None) -> Call[list[retraction_schemas.RetractionRecord]]:
    def read(content: bytes) -> list[retraction_schemas.RetractionRecord]:
        return retraction_schemas.RetractionPage.model_validate_json(content).retractions

    page = "" if before is None else f"&before={before}"
    return Call("GET", f"/admin/retractions?limit={limit}{page}", read)
