"""What an operator may do to this city at run time. Pin, freeze and leave stay in force across restarts."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from pricemesh.city.forgetting import forget
from pricemesh.city.pricing import Pricing
from pricemesh.gossip.mesh import Gossip
from pricemesh.http import schemas
from pricemesh.http.forget_schemas import ForgetRequest, ForgetResult
from pricemesh.http.routes.bodies import Reason, caller_of, json_response, problems, read, takes
from pricemesh.http.state import state_of
from pricemesh.http.state_schemas import State
from pricemesh.store.acts import ActKind


def admin_routes(pricing: Pricing, gossip: Gossip) -> APIRouter:
    router = APIRouter(prefix="/admin", tags=["admin"])
    _add_pin_and_freeze(router, pricing, gossip)
    _add_tick_and_leave(router, pricing, gossip)
    _add_forget(router, pricing)
    return router


def _add_pin_and_freeze(router: APIRouter, pricing: Pricing, gossip: Gossip) -> None:
    max_bytes = pricing.settings.limits.body_bytes

    @router.post(
        "/pin",
        summary="Set one price for every request",
        response_model=State,
        **takes(
            schemas.PinRequest,
            {"price": pricing.settings.arms.prices[-1], "reason": "campaign"},
            {409: "No arm has this price, or the guardrails forbid it."},
        ),
    )
    async def pin(request: Request) -> Response:
        body = await read(request, schemas.PinRequest, max_bytes)
        await pricing.pin(body.price, body.reason, caller_of(request))
        return json_response(await state_of(pricing, gossip))

    refusals = problems({422: "The reason is too long."})

    @router.delete("/pin", summary="Lift the pin", response_model=State, responses=refusals)
    async def lift_pin(request: Request, reason: Reason = "") -> Response:
        await pricing.lift(ActKind.LIFT_PIN, caller_of(request), reason)
        return json_response(await state_of(pricing, gossip))

    @router.post(
        "/freeze",
        summary="Store feedback without learning from it",
        response_model=State,
        **takes(schemas.FreezeRequest, {"reason": "suspicious rewards"}, {}),
    )
    async def freeze(request: Request) -> Response:
        body = await read(request, schemas.FreezeRequest, max_bytes)
        await pricing.freeze(body.reason, caller_of(request))
        return json_response(await state_of(pricing, gossip))

    @router.delete("/freeze", summary="Lift the freeze", response_model=State, responses=refusals)
    async def lift_freeze(request: Request, reason: Reason = "") -> Response:
        await pricing.lift(ActKind.LIFT_FREEZE, caller_of(request), reason)
        return json_response(await state_of(pricing, gossip))


def _add_tick_and_leave(router: APIRouter, pricing: Pricing, gossip: Gossip) -> None:
    refusals = problems({422: "The reason is too long."})

    @router.post(
        "/tick",
        summary="Run one gossip tick now, as the driver of a city in lockstep mode does",
        response_model=schemas.TickResult,
        **takes(schemas.TickRequest, {"phase": "both"}, {}),
    )
    async def tick(request: Request) -> Response:
        body = await read(request, schemas.TickRequest, pricing.settings.limits.body_bytes)
        absorbed = False
        if body.phase != "absorb":
            await gossip.exchange()
        if body.phase != "exchange":
            absorbed = await gossip.absorb(always=pricing.settings.gossip.lockstep)
        return json_response({"ticks": gossip.ticks, "absorbed": absorbed})

    @router.post(
        "/leave",
        summary="Leave the mesh: tell the peers, then stop calling them",
        response_model=schemas.LeaveResult,
        responses=refusals,
    )
    async def leave(request: Request, reason: Reason = "") -> Response:
        return json_response({"told": await gossip.operators.leave(caller_of(request), reason)})

    @router.delete("/leave", summary="Rejoin the mesh", response_model=State, responses=refusals)
    async def join(request: Request, reason: Reason = "") -> Response:
        await gossip.operators.join(caller_of(request), reason)
        return json_response(await state_of(pricing, gossip))


def _add_forget(router: APIRouter, pricing: Pricing) -> None:
    @router.post(
        "/forget",
        summary="Remove a subject from all its decisions",
        response_model=ForgetResult,
        **takes(ForgetRequest, {"subject": "customer-17"}, {}),
    )
    async def forget_subject(request: Request) -> Response:
        body = await read(request, ForgetRequest, pricing.settings.limits.body_bytes)
        return json_response({"decisions": await forget(pricing, body.subject, caller_of(request))})
