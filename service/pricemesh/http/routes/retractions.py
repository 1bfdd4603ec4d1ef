"""Taking feedback back: retract it, lift a retraction, list them."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from starlette.responses import Response

from pricemesh.city.pricing import Pricing
from pricemesh.city.retracting import Retractor
from pricemesh.errors import UnreadableBody
from pricemesh.http import retraction_schemas as schemas
from pricemesh.http.price_reader import refuse_too_many
from pricemesh.http.routes.bodies import caller_of, json_response, problems, read, takes
from pricemesh.store.commands import Retraction, Selection

MAX_SHOWN_IDS = 20  # of the decisions that a retraction names
ONE_SELECTION = "name exactly one of decisions, import, since/until and key"
LATER = "Committed; the learner is still learning again."


def retraction_routes(pricing: Pricing) -> APIRouter:
    router = APIRouter(prefix="/admin", tags=["admin"])
    retractor = Retractor(pricing)
    limits = pricing.settings.limits
    later = {202: {"description": LATER}}
    described = takes(
        schemas.RetractRequest,
        {"decisions": ["order-1"], "reason": "a till that counted twice"},
        {404: "A decision does not exist, or no feedback is selected: nothing was changed."},
    )

    @router.post(
        "/retract",
        summary="Take feedback back: it stays in the audit and stops counting everywhere",
        response_model=schemas.RetractionResult,
        openapi_extra=described["openapi_extra"],
        responses=described["responses"] | later,
    )
    async def retract(request: Request) -> Response:
        body = await read(request, schemas.RetractRequest, limits.body_bytes)
        selection = _selection(body, limits.batch_size)
        if body.dry_run:
            counts = await retractor.count(selection)
            return json_response({"retraction": None, **counts._asdict(), "relearned": False})
        result, is_relearned = await retractor.retract(selection, caller_of(request), body.reason)
        answer = {"retraction": _record(result.retraction), **result.counts._asdict()}
        return json_response(answer | {"relearned": is_relearned}, 200 if is_relearned else 202)

    _add_lift_and_list(router, retractor, limits.body_bytes)
    return router


def _add_lift_and_list(router: APIRouter, retractor: Retractor, max_bytes: int) -> None:
    described = takes(
        schemas.LiftRequest,
        {"reason": "the till was right"},
        {404: "There is no such retraction.", 422: "The body or the number is invalid."},
    )

    @router.post(
        "/retractions/{retraction}/lift",
        summary="Lift a retraction: its feedback counts again",
        response_model=schemas.LiftResult,
        openapi_extra=described["openapi_extra"],
        responses=described["responses"] | {202: {"description": LATER}},
    )
    async def lift(
        retraction: Annotated[int, PathParameter(ge=1, le=2**31 - 1)], request: Request
    ) -> Response:
        body = await read(request, schemas.LiftRequest, max_bytes)
        result, is_relearned = await retractor.lift(retraction, caller_of(request), body.reason)
        answer = {
            "retraction": _record(result.retraction),
            "restored": result.restored,
            "still_retracted": result.still_retracted,
            "pruned": result.pruned,
            "relearned": is_relearned,
        }
        return json_response(answer, 200 if is_relearned else 202)

    @router.get(
        "/retractions",
        summary="Retractions, newest first, also those that were lifted",
        response_model=schemas.RetractionPage,
        responses=problems({422: "A parameter is invalid."}),
    )
    async def retractions(
        limit: Annotated[int, Query(ge=1, le=100)] = 50,
        before: Annotated[
            int | None, Query(ge=1, le=2**31 - 1, description="`next_before` of a page")
        ] = None,
    ) -> Response:
        rows = await retractor.retractions(limit=limit, before=before)
        next_before = rows[-1].id if len(rows) == limit and rows[-1].id > 1 else None
        return json_response({"retractions": [_record(row) for row in rows], "next_before": next_before})


def _selection(body: schemas.RetractRequest, max_decisions: int) -> Selection:
    fields = body.model_fields_set
    ways = fields & {"decisions", "import_name", "key"} | ({"time"} if fields & {"since", "until"} else set())
    if len(ways) != 1:
        raise UnreadableBody([("", ONE_SELECTION)])
    decisions = tuple(body.decisions or ())
    refuse_too_many(max_decisions, len(decisions), "decisions")
    return Selection(decisions, body.import_name, body.since, body.until, body.key)


def _record(retraction: Retraction) -> dict[str, Any]:
    selection = json.loads(retraction.selection)
    if "decisions" in selection:
        selection["decisions"] = selection["decisions"][:MAX_SHOWN_IDS]
    return {
        "id": retraction.id,
        "at": retraction.made_at,
        "by": retraction.made_by,
        "reason": retraction.reason,
        "selection": selection,
        "feedback": retraction.feedback_count,
        "lifted_at": retraction.lifted_at,
        "lifted_by": retraction.lifted_by,
        "lift_reason": retraction.lift_reason,
    }
