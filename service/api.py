"""The routes of a city, and the one place where errors become status codes.

Bodies of the calls that carry traffic are read and written by pydantic directly: between the socket and
the use case there is nothing but the validation that the model asks for.
"""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

import service
from service import wire
from service.errors import (
    BodyTooLarge,
    ImpossiblePin,
    InvalidContext,
    NoKey,
    NotAllowed,
    OtherReward,
    PricemeshError,
    StorageUnavailable,
    TooFast,
    TooLate,
    UnknownDecision,
    UnreadableBody,
)
from service.metrics import Metrics
from service.pricing import Pricing
from service.store.operations import FeedbackResult, FeedbackStatus, Row

STATUSES: dict[type[PricemeshError], int] = {
    UnreadableBody: 422,
    InvalidContext: 422,
    BodyTooLarge: 413,
    NoKey: 401,
    NotAllowed: 403,
    TooFast: 429,
    UnknownDecision: 404,
    OtherReward: 409,
    TooLate: 410,
    ImpossiblePin: 409,
    StorageUnavailable: 503,
}
Body = TypeVar("Body", bound=BaseModel)


# Problems


def problem(status: int, kind: str, detail: str, request_id: str | None, errors: Any = None) -> Response:
    """An RFC 9457 problem document. `kind` is stable: programs may rely on it."""
    document = wire.Problem(
        type=f"urn:pricemesh:problem:{kind}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        request_id=request_id,
        errors=errors,
    )
    body = to_json(document.model_dump(exclude_none=True))
    return Response(body, status, media_type="application/problem+json")


def refusal(fault: PricemeshError, request_id: str | None) -> Response:
    """The answer to an error of ours."""
    status = STATUSES.get(type(fault), 500)
    kind = "".join(f"-{c.lower()}" if c.isupper() else c for c in type(fault).__name__).strip("-")
    errors = None
    if isinstance(fault, UnreadableBody):
        errors = [wire.FieldFault(field=field, detail=said) for field, said in fault.faults]
    elif isinstance(fault, InvalidContext):
        pairs = [text.partition(": ") for text in str(fault).split("; ")]
        errors = [wire.FieldFault(field=field, detail=said) for field, _, said in pairs]
    response = problem(status, kind, str(fault), request_id, errors)
    if isinstance(fault, TooFast):
        response.headers["Retry-After"] = str(max(1, round(fault.retry_after_seconds + 0.5)))
    elif isinstance(fault, NoKey):
        response.headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(fault, StorageUnavailable):
        response.headers["Retry-After"] = "1"
    return response


def handle_errors(app: FastAPI) -> None:
    @app.exception_handler(PricemeshError)
    async def ours(request: Request, fault: PricemeshError) -> Response:
        return refusal(fault, request.scope.get("request_id"))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, fault: RequestValidationError) -> Response:
        return refusal(UnreadableBody(_faults(fault.errors())), request.scope.get("request_id"))

    @app.exception_handler(HTTPException)
    async def http(request: Request, fault: HTTPException) -> Response:
        kind = HTTPStatus(fault.status_code).phrase.lower().replace(" ", "-")
        detail = f"{request.method} {request.url.path}: {fault.detail}"
        response = problem(fault.status_code, kind, detail, request.scope.get("request_id"))
        response.headers.update(fault.headers or {})
        if fault.status_code == 405:
            response.headers["Allow"] = ", ".join(_methods(app, request))
        return response

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, _fault: Exception) -> Response:
        detail = "an unforeseen fault, logged under this request_id"
        return problem(500, "internal", detail, request.scope.get("request_id"))


def _methods(app: FastAPI, request: Request) -> list[str]:
    """Every method of this path; the router itself names those of the first route that fits."""
    path = getattr(request.scope.get("route"), "path", "")
    return sorted(method.upper() for method in app.openapi()["paths"].get(path, {}))


def _faults(errors: Any) -> list[tuple[str, str]]:
    return [
        (
            ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path")),
            "unknown field" if error["type"] == "extra_forbidden" else str(error["msg"]),
        )
        for error in errors
    ]


# Bodies


async def read(request: Request, model: type[Body], most_bytes: int) -> Body:
    """The body as `model`, refused before it is held in memory if it is too large."""
    too_large = BodyTooLarge(f"a body here has at most {most_bytes} bytes")
    announced = request.headers.get("content-length")
    if announced and announced.isdigit() and int(announced) > most_bytes:
        raise too_large
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most_bytes:
            raise too_large
        chunks.append(chunk)
    try:
        return model.model_validate_json(b"".join(chunks))
    except ValidationError as fault:
        raise UnreadableBody(_faults(fault.errors(include_url=False, include_input=False))) from None


def json_response(content: Any) -> Response:
    return Response(to_json(content), media_type="application/json")


def _body(model: type[BaseModel], example: Any, responses: dict[int, str]) -> dict[str, Any]:
    """What OpenAPI says of a call whose body we read ourselves."""
    return {
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {"$ref": f"#/components/schemas/{model.__name__}"},
                        "example": example,
                    }
                },
            }
        },
        "responses": problems(responses | {413: "The body is too large.", 422: "The body is wrong."}),
    }


def problems(said: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    everywhere = {
        401: "No API key, or one that is not known.",
        403: "The key lacks the scope.",
        429: "Beyond the key's rate.",
        503: "The database takes no writes now; nothing has changed.",
    }
    return {
        status: {
            "description": text,
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, text in sorted((everywhere | said).items())
    }


# Routes


def traffic_routes(pricing: Pricing) -> APIRouter:
    """Prices and feedback."""
    router = APIRouter(tags=["prices"])
    settings = pricing.settings
    most_bytes, most_items = settings.limits.body_bytes, settings.limits.batch_size
    example = example_request(pricing)
    answer = Answer(pricing)

    @router.post(
        "/price",
        summary="Ask for a price",
        response_model=wire.Decision,
        **_body(wire.PriceRequest, example, {}),
    )
    async def price(request: Request) -> Response:
        asked = await read(request, wire.PriceRequest, most_bytes)
        row = await pricing.quote(asked.shared, asked.local, asked.decision_id, asked.subject)
        return json_response(answer.decision(row))

    @router.post(
        "/price/batch",
        summary="Ask for many prices in one commit",
        response_model=wire.DecisionBatch,
        **_body(wire.PriceBatch, {"requests": [example, example]}, {}),
    )
    async def price_batch(request: Request) -> Response:
        asked = (await read(request, wire.PriceBatch, most_bytes)).requests
        _check_batch(len(asked), most_items, "requests")
        rows = await pricing.quote_many([(a.shared, a.local, a.decision_id, a.subject) for a in asked])
        return json_response({"decisions": [answer.decision(row) for row in rows]})

    @router.post(
        "/feedback",
        summary="Tell what a decision brought",
        response_model=wire.Learned,
        **_body(
            wire.FeedbackRequest,
            {"decision_id": "order-1", "reward": 0.8},
            {
                404: "There is no such decision.",
                409: "The decision has another reward already.",
                410: "The reward window has closed.",
            },
        ),
    )
    async def feedback(request: Request) -> Response:
        given = await read(request, wire.FeedbackRequest, most_bytes)
        (result,) = await pricing.feedback([(given.decision_id, given.reward)])
        fault = feedback_fault(given.decision_id, result)
        if fault is not None:
            raise fault
        return json_response(
            {
                "decision_id": given.decision_id,
                "reward": given.reward,
                "learned": result.version is not None,
                "version": result.version,
            }
        )

    @router.post(
        "/feedback/batch",
        summary="Tell what many decisions brought; each has its own outcome",
        response_model=wire.FeedbackOutcomes,
        **_body(wire.FeedbackBatch, {"items": [{"decision_id": "order-1", "reward": 0.8}]}, {}),
    )
    async def feedback_batch(request: Request) -> Response:
        items = (await read(request, wire.FeedbackBatch, most_bytes)).items
        _check_batch(len(items), most_items, "items")
        results = await pricing.feedback([(item.decision_id, item.reward) for item in items])
        outcomes = [
            feedback_outcome(item.decision_id, result) for item, result in zip(items, results, strict=True)
        ]
        return json_response({"outcomes": outcomes})

    return router


def _check_batch(size: int, most: int, field: str) -> None:
    if size > most:
        raise UnreadableBody([(field, f"at most {most} in one call, not {size}")])


def feedback_fault(decision_id: str, result: FeedbackResult) -> PricemeshError | None:
    match result.status:
        case FeedbackStatus.UNKNOWN:
            return UnknownDecision(f"there is no decision {decision_id!r}")
        case FeedbackStatus.OTHER_REWARD:
            return OtherReward(f"decision {decision_id!r} has the reward {result.kept_reward} already")
        case FeedbackStatus.TOO_LATE:
            return TooLate(f"the reward window of decision {decision_id!r} has closed")
        case _:
            return None


def feedback_outcome(decision_id: str, result: FeedbackResult) -> dict[str, Any]:
    fault = feedback_fault(decision_id, result)
    return {
        "decision_id": decision_id,
        "status": 200 if fault is None else STATUSES[type(fault)],
        "learned": fault is None and result.version is not None,
        "version": result.version if fault is None else None,
        "detail": None if fault is None else str(fault),
    }


def reading_routes(pricing: Pricing) -> APIRouter:
    """What happened, and what is believed now."""
    router = APIRouter(tags=["audit"])
    answer = Answer(pricing)

    @router.get(
        "/decisions",
        summary="Decisions, newest first",
        response_model=wire.DecisionPage,
        responses=problems({422: "A parameter is wrong."}),
    )
    async def decisions(
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        before: Annotated[int | None, Query(ge=0, le=2**62, description="`next_before` of a page")] = None,
        arm: Annotated[int | None, Query(ge=0, le=10_000)] = None,
        since: Annotated[float | None, Query(allow_inf_nan=False, description="Unix seconds")] = None,
        until: Annotated[float | None, Query(allow_inf_nan=False, description="Unix seconds")] = None,
    ) -> Response:
        rows = await pricing.latest_decisions(limit=limit, before=before, arm=arm, since=since, until=until)
        page = {
            "decisions": [answer.record(row) for row in rows],
            "next_before": rows[-1]["number"] if len(rows) == limit else None,
        }
        return json_response(page)

    @router.get(
        "/decisions/{decision_id}",
        summary="The audit record of a decision",
        response_model=wire.DecisionRecord,
        responses=problems({404: "There is no such decision.", 422: "The id is not one."}),
    )
    async def decision(
        decision_id: Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9._:@-]{1,128}$")],
    ) -> Response:
        return json_response(answer.record(await pricing.decision(decision_id)))

    @router.get(
        "/state", summary="What this city believes", response_model=wire.State, responses=problems({})
    )
    async def state() -> Response:
        return json_response(await pricing.state())

    return router


def admin_routes(pricing: Pricing) -> APIRouter:
    """What an operator may do at run time; it stays in force across restarts."""
    router = APIRouter(prefix="/admin", tags=["admin"])
    most_bytes = pricing.settings.limits.body_bytes

    @router.post(
        "/pin",
        summary="Give everyone this price",
        response_model=wire.State,
        **_body(
            wire.PinRequest,
            {"price": pricing.settings.arms.prices[-1], "reason": "campaign"},
            {409: "No arm has this price, or the guardrails forbid it."},
        ),
    )
    async def pin(request: Request) -> Response:
        asked = await read(request, wire.PinRequest, most_bytes)
        await pricing.pin(asked.price, asked.reason)
        return json_response(await pricing.state())

    @router.post(
        "/freeze",
        summary="Keep feedback without learning from it",
        response_model=wire.State,
        **_body(wire.FreezeRequest, {"reason": "suspicious rewards"}, {}),
    )
    async def freeze(request: Request) -> Response:
        asked = await read(request, wire.FreezeRequest, most_bytes)
        await pricing.freeze(asked.reason)
        return json_response(await pricing.state())

    for name in ("pin", "freeze"):
        router.delete(
            f"/{name}",
            summary=f"Lift the {name}",
            response_model=wire.State,
            responses=problems({}),
            name=f"lift_{name}",
        )(_lift(pricing, name))
    return router


def _lift(pricing: Pricing, name: str) -> Callable[[], Any]:
    async def lift() -> Response:
        await pricing.lift(name)
        return json_response(await pricing.state())

    return lift


def operating_routes(pricing: Pricing, metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["operation"])
    unready: dict[int | str, dict[str, Any]] = {503: {"model": wire.Health, "description": "Not ready."}}

    @router.get("/healthz", summary="Is the process alive?", response_model=wire.Health)
    async def healthz() -> Response:
        return json_response({"status": "alive", "faults": []})

    @router.get("/readyz", summary="Can it serve?", response_model=wire.Health, responses=unready)
    async def readyz() -> Response:
        faults = await pricing.faults()
        body = {"status": "not ready" if faults else "ready", "faults": faults}
        return Response(to_json(body), 503 if faults else 200, media_type="application/json")

    @router.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses=problems({}) | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def prometheus() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/version", summary="Name and version", response_model=wire.Version)
    async def version() -> Response:
        city = pricing.settings.city
        return json_response({"name": "pricemesh", "version": service.__version__, "city": city})

    return router


class Answer:
    """Rows as the bodies that callers get."""

    def __init__(self, pricing: Pricing) -> None:
        self._settings = pricing.settings
        self._space = pricing.settings.features.space

    def decision(self, row: Row) -> dict[str, Any]:
        arm = row["arm"]
        limits = row["limited_by"]
        return {
            "decision_id": row["id"],
            "city": self._settings.city,
            "arm": arm,
            "price": row["price"],
            "estimate": float(np.frombuffer(row["estimates"])[arm]),
            "radius": float(np.frombuffer(row["radii"])[arm]),
            "policy": row["policy"],
            "limited_by": [] if limits == "[]" else json.loads(limits),
        }

    def record(self, row: Row) -> dict[str, Any]:
        estimates, radii = np.frombuffer(row["estimates"]), np.frombuffer(row["radii"])
        short = self.decision(row)
        answered = row["reward"] is not None
        return short | {
            "number": row["number"],
            "made_at": row["made_at"],
            "subject": row["subject"],
            "context": self._space.named(np.frombuffer(row["context"])),
            "arms": [
                {"arm": arm, "price": price, "estimate": float(estimates[arm]), "radius": float(radii[arm])}
                for arm, price in enumerate(self._settings.arms.prices)
            ],
            "learner_version": row["learner_version"],
            "feedback": {key: row[key] for key in wire.FeedbackRecord.model_fields} if answered else None,
            "contributions": [{"origin": self._settings.city, "estimate": short["estimate"]}],
        }


def example_request(pricing: Pricing) -> dict[str, Any]:
    """A request that this city accepts as it stands."""
    space = pricing.settings.features.space

    def middle(low: float, high: float) -> float:
        return (low + high) / 2 if high - low < 1e4 else min(max(0.5, low), high)

    return {
        "shared": {feature.name: middle(feature.min, feature.max) for feature in space.shared},
        "local": {feature.name: middle(feature.min, feature.max) for feature in space.local},
        "decision_id": "order-1",
    }
