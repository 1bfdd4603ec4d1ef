"""The calls of a city as the client makes them: the request, and how its answer is read. No network here."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import httpx

from pricemesh.errors import PricemeshError
from pricemesh.http import retraction_schemas, schemas

Answer = TypeVar("Answer")
Given = TypeVar("Given")
Features = Mapping[str, float]
Context = tuple[Features, Features]  # shared, local
Amounts = Sequence[tuple[str, float]]  # decision_id; units sold or reward
Outcome = httpx.Response | httpx.TransportError


class CityError(PricemeshError):
    """The city refused the call. `problem` is its RFC 9457 document."""

    def __init__(self, problem: schemas.Problem) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")
        self.problem = problem


class CityUnreachable(PricemeshError):
    """Every attempt ended without an answer."""


RELEARN_SECONDS = 60.0  # a city answers within 30 seconds, whether it has learned again or not


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


def _price_body(
    shared: Features, local: Features | None, decision_id: str | None = None, subject: str | None = None
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "shared": dict(shared),
        "local": dict(local or {}),
        "decision_id": decision_id or str(uuid.uuid4()),
    }
    return body | ({"subject": subject} if subject is not None else {})


def price_call(
    shared: Features, local: Features | None, decision_id: str | None, subject: str | None
) -> Call[schemas.Decision]:
    body = _price_body(shared, local, decision_id, subject)
    return Call("POST", "/price", schemas.Decision.model_validate_json, body)


def prices_call(contexts: Sequence[Context]) -> Call[list[schemas.Decision]]:
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


def feedback_call(
    decision_id: str, sold: float | None, reward: float | None
) -> Call[schemas.FeedbackReceipt]:
    field, amount = _one_of(sold, reward)
    body = {"decision_id": decision_id, field: amount}
    return Call("POST", "/feedback", schemas.FeedbackReceipt.model_validate_json, body)


def feedbacks_call(sold: Amounts | None, reward: Amounts | None) -> Call[list[schemas.FeedbackOutcome]]:
    def read(content: bytes) -> list[schemas.FeedbackOutcome]:
        return schemas.FeedbackOutcomes.model_validate_json(content).outcomes

    field, items = _one_of(sold, reward)
    body = {"items": [{"decision_id": id_, field: amount} for id_, amount in items]}
    return Call("POST", "/feedback/batch", read, body)


def decision_call(decision_id: str) -> Call[schemas.DecisionRecord]:
    return Call("GET", f"/decisions/{decision_id}", schemas.DecisionRecord.model_validate_json)


def state_call() -> Call[schemas.State]:
    return Call("GET", "/state", schemas.State.model_validate_json)


def leave_call() -> Call[int]:
    def read(content: bytes) -> int:
        return schemas.LeaveResult.model_validate_json(content).told

    return Call("POST", "/admin/leave", read)


def retract_call(
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
    given = {name: value for name, value in selection.items() if value is not None}
    read = retraction_schemas.RetractionResult.model_validate_json
    return Call(
        "POST", "/admin/retract", read, {"reason": reason, "dry_run": dry_run, **given}, RELEARN_SECONDS
    )


def lift_call(retraction: int, reason: str) -> Call[retraction_schemas.LiftResult]:
    read = retraction_schemas.LiftResult.model_validate_json
    return Call("POST", f"/admin/retractions/{retraction}/lift", read, {"reason": reason}, RELEARN_SECONDS)


def retractions_call(limit: int, before: int | None) -> Call[list[retraction_schemas.RetractionRecord]]:
    def read(content: bytes) -> list[retraction_schemas.RetractionRecord]:
        return retraction_schemas.RetractionPage.model_validate_json(content).retractions

    page = "" if before is None else f"&before={before}"
    return Call("GET", f"/admin/retractions?limit={limit}{page}", read)
