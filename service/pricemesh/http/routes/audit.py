"""What happened and what the city believes now: decisions and state. Nothing here changes anything."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Path as PathParameter
from starlette.responses import Response

from pricemesh.city.pricing import Pricing
from pricemesh.core.decision import IDENTIFIER
from pricemesh.gossip.mesh import Gossip
from pricemesh.http import schemas
from pricemesh.http.answers import Answers
from pricemesh.http.routes.bodies import json_response, problems
from pricemesh.http.state import state_of
from pricemesh.http.state_schemas import State


def audit_routes(pricing: Pricing, gossip: Gossip) -> APIRouter:
    router = APIRouter(tags=["audit"])
    answers = Answers(pricing.settings.city, pricing.live)

    @router.get(
        "/decisions",
        summary="Decisions, newest first",
        response_model=schemas.DecisionPage,
        responses=problems({422: "A parameter is invalid."}),
    )
    async def decisions(
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        before: Annotated[int | None, Query(ge=0, le=2**62, description="`next_before` of a page")] = None,
        arm: Annotated[
            int | None, Query(ge=0, le=10_000, description="At the price that this arm has now")
        ] = None,
        since: Annotated[float | None, Query(allow_inf_nan=False, description="Unix seconds")] = None,
        until: Annotated[float | None, Query(allow_inf_nan=False, description="Unix seconds")] = None,
    ) -> Response:
        """A page looks at 50,000 decisions at most. Where few of them match, it has fewer than `limit`, and
        `next_before` says where to go on."""
        prices = pricing.settings.arms.prices
        if arm is not None and arm >= len(prices):
            return json_response({"decisions": [], "next_before": None})
        price = None if arm is None else prices[arm]
        page = await pricing.read_many(
            pricing.database.reader.page, limit=limit, before=before, price=price, since=since, until=until
        )
        records = [answers.record(row) for row in page.rows]
        return json_response({"decisions": records, "next_before": page.next_before})

    @router.get(
        "/decisions/{decision_id}",
        summary="The audit record of a decision",
        response_model=schemas.DecisionRecord,
        responses=problems({404: "There is no such decision.", 422: "The id is malformed."}),
    )
    async def decision(
        decision_id: Annotated[str, PathParameter(pattern=f"^{IDENTIFIER}$")],
    ) -> Response:
        return json_response(answers.record(await pricing.decision(decision_id)))

    @router.get("/state", summary="What this city believes", response_model=State, responses=problems({}))
    async def state() -> Response:
        return json_response(await state_of(pricing, gossip))

    return router
