"""What the business asks: sales by time, acts of operators, alerts, what the mesh contributed. Only reads."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic_core import to_json
from starlette.responses import Response

from pricemesh.city.mesh_value import mesh_value
from pricemesh.city.pricing import Pricing
from pricemesh.city.sales import MAX_TIME, MIN_TIME, SalesQuery, sales_of
from pricemesh.errors import InvalidParameter, UnreadableBody
from pricemesh.gossip.mesh import Gossip
from pricemesh.http import sales_schemas as schemas
from pricemesh.http.alerts import alerts_of
from pricemesh.http.routes.bodies import json_response, problems
from pricemesh.store.acts import Act, read_acts
from pricemesh.store.calendar import Per

Time = Annotated[
    float | None, Query(ge=MIN_TIME, le=MAX_TIME, allow_inf_nan=False, description="Unix seconds")
]


def sales_routes(pricing: Pricing, gossip: Gossip) -> APIRouter:
    router = APIRouter(tags=["sales"])
    _add_sales(router, pricing)
    _add_acts(router, pricing)

    @router.get(
        "/alerts",
        summary="What needs a person's attention now",
        response_model=schemas.Alerts,
        responses=problems({}),
    )
    async def alerts() -> Response:
        return json_response(await alerts_of(pricing, gossip))

    @router.get(
        "/mesh-value",
        summary="What the mesh contributes, by this city's own estimates",
        response_model=schemas.MeshValue,
        responses=problems({}),
    )
    async def value() -> Response:
        return json_response(await mesh_value(pricing))

    return router


def _add_sales(router: APIRouter, pricing: Pricing) -> None:
    @router.get(
        "/sales",
        summary="Decisions, conversion and revenue per hour, day or week",
        response_model=schemas.Sales,
        response_model_exclude_unset=True,
        responses=problems({422: "A parameter is invalid, or the time has more than 1200 buckets."}),
    )
    async def sales(
        per: Annotated[Per, Query(description="Of `display.time_zone`")] = Per.DAY,
        since: Time = None,
        until: Time = None,
        arms: Annotated[bool, Query(description="Also by arm")] = False,
    ) -> Response:
        """Of the decisions made from the hour, day or week of `since` on and before `until` (now). Without
        `since`: 7 days of hours, 90 days, 104 weeks."""
        query = SalesQuery(per, since, until, arms)
        try:
            body: bytes = await pricing.read_many(_body, pricing, query, pricing.runtime.clock())
        except InvalidParameter as fault:
            raise UnreadableBody([("", str(fault))]) from None
        return Response(body, media_type="application/json")


def _body(pricing: Pricing, query: SalesQuery, now: float) -> bytes:
    """In a thread, also the encoding: by arm it may be megabytes."""
    return to_json(sales_of(pricing.settings, pricing.database.reader, query, now))


def _add_acts(router: APIRouter, pricing: Pricing) -> None:
    @router.get(
        "/acts",
        summary="What operators did, newest first",
        response_model=schemas.Acts,
        responses=problems({422: "A parameter is invalid."}),
    )
    async def acts(
        since: Time = None,
        until: Time = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> Response:
        start, end = MIN_TIME if since is None else since, MAX_TIME if until is None else until
        rows: list[Act] = await pricing.read_short(
            pricing.database.reader.read, lambda connection: read_acts(connection, start, end, limit + 1)
        )
        records = [row._asdict() for row in rows[:limit]]
        return json_response({"acts": records, "more": len(rows) > limit})
