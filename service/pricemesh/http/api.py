"""The routes that the framework serves: what happened, what is believed, what an operator may do."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pricemesh.city.addresses import CITY_NAME
from pricemesh.city.pricing import Pricing
from pricemesh.errors import PricemeshError, UnreadableBody
from pricemesh.gossip.mesh import Gossip
from pricemesh.gossip.view import peers_of
from pricemesh.http import schemas
from pricemesh.http.answers import Answers
from pricemesh.http.metrics import Metrics
from pricemesh.http.problems import Body, field_faults, parsed, problem, refusal
from pricemesh.http.traffic import read_body
from pricemesh.version import __version__


def handle_errors(app: FastAPI) -> None:
    @app.exception_handler(PricemeshError)
    async def ours(request: Request, fault: PricemeshError) -> Response:
        return refusal(fault, request.scope.get("request_id"))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, fault: RequestValidationError) -> Response:
        return refusal(UnreadableBody(field_faults(fault.errors())), request.scope.get("request_id"))

    @app.exception_handler(HTTPException)
    async def http(request: Request, fault: HTTPException) -> Response:
        kind = HTTPStatus(fault.status_code).phrase.lower().replace(" ", "-")
        detail = f"{request.method} {request.url.path}: {fault.detail}"
        response = problem(fault.status_code, kind, detail, request.scope.get("request_id"))
        response.headers.update(fault.headers or {})
        if fault.status_code == 405:
            response.headers["Allow"] = ", ".join(_methods(app, request))
        return response


def _methods(app: FastAPI, request: Request) -> list[str]:
    """Every method of this path; the router itself names those of the first route that fits."""
    path = getattr(request.scope.get("route"), "path", "")
    return sorted(method.upper() for method in app.openapi()["paths"].get(path, {}))


async def read(request: Request, model: type[Body], most_bytes: int) -> Body:
    first = await request.receive()
    return parsed(model, await read_body(request.scope, request.receive, first, most_bytes))


def json_response(content: Any) -> Response:
    return Response(to_json(content), media_type="application/json")


def takes(model: type[BaseModel], example: Any, responses: dict[int, str]) -> dict[str, Any]:
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


def reading_routes(pricing: Pricing, gossip: Gossip) -> APIRouter:
    """What happened, and what is believed now."""
    router = APIRouter(tags=["audit"])
    answer = Answers(pricing.settings)

    @router.get(
        "/decisions",
        summary="Decisions, newest first",
        response_model=schemas.DecisionPage,
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
            "next_before": rows[-1].number if len(rows) == limit else None,
        }
        return json_response(page)

    @router.get(
        "/decisions/{decision_id}",
        summary="The audit record of a decision",
        response_model=schemas.DecisionRecord,
        responses=problems({404: "There is no such decision.", 422: "The id is not one."}),
    )
    async def decision(
        decision_id: Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9._:@-]{1,128}$")],
    ) -> Response:
        return json_response(answer.record(await pricing.decision(decision_id)))

    @router.get(
        "/state", summary="What this city believes", response_model=schemas.State, responses=problems({})
    )
    async def state() -> Response:
        return json_response(await state_of(pricing, gossip))

    return router


async def state_of(pricing: Pricing, gossip: Gossip) -> dict[str, Any]:
    own = gossip.node.letters.get(gossip.city)
    return {
        **await pricing.state(),
        "peers": peers_of(gossip),
        "gossip": {
            "group": gossip.settings.group,
            "epoch": own.summary.epoch if own else None,
            "published_version": own.summary.version if own else None,
            "ticks": gossip.ticks,
            "left": gossip.left,
            "key": gossip.publisher.seal.key.hex(),
        },
    }


def peer_routes(gossip: Gossip) -> APIRouter:
    """What an operator may do about other cities."""
    router = APIRouter(prefix="/peers", tags=["admin"])
    most_bytes = gossip.pricing.settings.limits.body_bytes
    unknown = problems({404: "No such city is known here.", 422: "That is no city's name."})
    origin_ = Annotated[str, PathParameter(pattern=f"^{CITY_NAME}$")]

    async def done() -> Response:
        return json_response(await state_of(gossip.pricing, gossip))

    @router.delete(
        "/{origin}",
        summary="Drop a city: what it told is subtracted, and nothing is heard of it any more",
        response_model=schemas.State,
        responses=unknown,
    )
    async def drop(origin: origin_) -> Response:
        await gossip.operators.drop(origin)
        return await done()

    @router.post(
        "/{origin}/readmit",
        summary="Hear a dropped city again",
        response_model=schemas.State,
        responses=unknown,
    )
    async def readmit(origin: origin_) -> Response:
        await gossip.operators.readmit(origin)
        return await done()

    @router.post(
        "/{origin}/trust",
        summary="Know a city by this key from now on: it was set up anew",
        response_model=schemas.State,
        **takes(schemas.TrustRequest, {"key": "00" * 32}, {404: "That is this city itself."}),
    )
    async def trust(origin: origin_, request: Request) -> Response:
        asked = await read(request, schemas.TrustRequest, most_bytes)
        await gossip.operators.trust(origin, bytes.fromhex(asked.key))
        return await done()

    return router


def admin_routes(pricing: Pricing, gossip: Gossip) -> APIRouter:
    """What an operator may do at run time; it stays in force across restarts."""
    router = APIRouter(prefix="/admin", tags=["admin"])
    most_bytes = pricing.settings.limits.body_bytes

    @router.post(
        "/pin",
        summary="Give everyone this price",
        response_model=schemas.State,
        **takes(
            schemas.PinRequest,
            {"price": pricing.settings.arms.prices[-1], "reason": "campaign"},
            {409: "No arm has this price, or the guardrails forbid it."},
        ),
    )
    async def pin(request: Request) -> Response:
        asked = await read(request, schemas.PinRequest, most_bytes)
        await pricing.pin(asked.price, asked.reason)
        return json_response(await state_of(pricing, gossip))

    @router.post(
        "/freeze",
        summary="Keep feedback without learning from it",
        response_model=schemas.State,
        **takes(schemas.FreezeRequest, {"reason": "suspicious rewards"}, {}),
    )
    async def freeze(request: Request) -> Response:
        asked = await read(request, schemas.FreezeRequest, most_bytes)
        await pricing.freeze(asked.reason)
        return json_response(await state_of(pricing, gossip))

    @router.post(
        "/tick",
        summary="Drive a tick by hand, as a city in lockstep mode is driven",
        response_model=schemas.Ticked,
        **takes(schemas.TickRequest, {"phase": "both"}, {}),
    )
    async def tick(request: Request) -> Response:
        asked = await read(request, schemas.TickRequest, most_bytes)
        absorbed = False
        if asked.phase != "absorb":
            await gossip.exchange()
        if asked.phase != "exchange":
            absorbed = await gossip.absorb(always=pricing.settings.gossip.lockstep)
        return json_response({"ticks": gossip.ticks, "absorbed": absorbed})

    @router.post(
        "/leave",
        summary="Tell the peers that this city goes, and call nobody any more",
        response_model=schemas.Left,
        responses=problems({}),
    )
    async def leave() -> Response:
        return json_response({"told": await gossip.operators.leave()})

    @router.delete(
        "/leave", summary="Take part in gossip again", response_model=schemas.State, responses=problems({})
    )
    async def join() -> Response:
        await gossip.operators.join()
        return json_response(await state_of(pricing, gossip))

    for name in ("pin", "freeze"):
        router.delete(
            f"/{name}",
            summary=f"Lift the {name}",
            response_model=schemas.State,
            responses=problems({}),
            name=f"lift_{name}",
        )(_lift(pricing, gossip, name))
    return router


def _lift(pricing: Pricing, gossip: Gossip, name: str) -> Callable[[], Any]:
    async def lift() -> Response:
        await pricing.lift(name)
        return json_response(await state_of(pricing, gossip))

    return lift


def operating_routes(pricing: Pricing, metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["operation"])
    unready: dict[int | str, dict[str, Any]] = {503: {"model": schemas.Health, "description": "Not ready."}}

    @router.get("/healthz", summary="Is the process alive?", response_model=schemas.Health)
    async def healthz() -> Response:
        return json_response({"status": "alive", "faults": []})

    @router.get("/readyz", summary="Can it serve?", response_model=schemas.Health, responses=unready)
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

    @router.get("/version", summary="Name and version", response_model=schemas.Version)
    async def version() -> Response:
        city = pricing.settings.city
        return json_response({"name": "pricemesh", "version": __version__, "city": city})

    return router
