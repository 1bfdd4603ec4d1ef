"""What an operator may do about other cities: drop one, readmit it, or accept a new key for it."""

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi import Path as PathParameter
from starlette.responses import Response

from pricemesh.city.addresses import CITY_NAME
from pricemesh.gossip.mesh import Gossip
from pricemesh.http import schemas
from pricemesh.http.routes.bodies import Reason, caller_of, json_response, problems, read, takes
from pricemesh.http.state import state_of
from pricemesh.http.state_schemas import State

Origin = Annotated[str, PathParameter(pattern=f"^{CITY_NAME}$")]


def peer_routes(gossip: Gossip) -> APIRouter:
    router = APIRouter(prefix="/peers", tags=["admin"])
    max_bytes = gossip.pricing.settings.limits.body_bytes
    refusals = problems(
        {
            404: "This city knows no such peer.",
            422: "The name is not a city's name, or the reason is too long.",
        }
    )

    async def new_state() -> Response:
        return json_response(await state_of(gossip.pricing, gossip))

    @router.delete(
        "/{origin}",
        summary="Drop a peer: subtract its letters from the learner and refuse new ones",
        response_model=State,
        responses=refusals,
    )
    async def drop(origin: Origin, request: Request, reason: Reason = "") -> Response:
        await gossip.operators.drop(origin, caller_of(request), reason)
        return await new_state()

    @router.post(
        "/{origin}/readmit",
        summary="Accept letters of a dropped peer again",
        response_model=State,
        responses=refusals,
    )
    async def readmit(origin: Origin, request: Request, reason: Reason = "") -> Response:
        await gossip.operators.readmit(origin, caller_of(request), reason)
        return await new_state()

    @router.post(
        "/{origin}/trust",
        summary="Accept a new key of a peer that was set up anew",
        response_model=State,
        **takes(schemas.TrustRequest, {"key": "00" * 32}, {404: "The name is this city's own."}),
    )
    async def trust(origin: Origin, request: Request) -> Response:
        body = await read(request, schemas.TrustRequest, max_bytes)
        await gossip.operators.trust(origin, bytes.fromhex(body.key), caller_of(request), body.reason)
        return await new_state()

    return router
