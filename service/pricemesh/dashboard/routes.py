"""The calls of the page (live feed, beliefs), and the one by which a driver reports the truth."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from pricemesh.city.beliefs import beliefs_of
from pricemesh.city.pricing import Pricing
from pricemesh.dashboard.events import EventStream
from pricemesh.dashboard.feed import Feed
from pricemesh.dashboard.truth import TruthReports
from pricemesh.http import schemas
from pricemesh.http.answers import example_request
from pricemesh.http.belief_schemas import Beliefs
from pricemesh.http.routes.bodies import json_response, problems, read, takes
from pricemesh.http.truth_schemas import TruthReceipt, TruthRequest

EVENTS = """Server-sent events. First `history`: the last five minutes, second by second (`seconds`: `at`,
`decisions` as [arm, count] pairs, `learned`, `reward`), the `versions` held of each city, and the `truth`
that a driver has reported. Then a `frame` a second: `state` as in `GET /state`, `rates`, the new `seconds`,
the `latest` decisions, `truth`. A `fault` says in `detail` why there is no frame. A reader that does not keep
up is disconnected: connect again."""


def live_routes(pricing: Pricing, feed: Feed, truth_reports: TruthReports) -> APIRouter:
    router = APIRouter(tags=["dashboard"])
    max_bytes = pricing.settings.limits.body_bytes

    @router.get(
        "/events",
        summary="The live feed",
        description=EVENTS,
        response_class=Response,
        responses=problems(
            {
                422: "A parameter is invalid.",
                503: "The feed has its maximum of readers (limits.event_readers).",
            }
        )
        | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events(
        frames: Annotated[int | None, Query(ge=1, le=1_000_000, description="End after so many.")] = None,
    ) -> Response:
        return EventStream(feed, frames)

    @router.post(
        "/beliefs",
        summary="What would be chosen for a context, and why; nothing is decided",
        response_model=Beliefs,
        **takes(schemas.BeliefRequest, _context_example(pricing), {}),
    )
    async def beliefs(request: Request) -> Response:
        context = await read(request, schemas.BeliefRequest, max_bytes)
        return json_response(beliefs_of(pricing, context.shared, context.local))

    @router.post(
        "/lab/truth",
        summary="For the driver of a demonstration: regret of the cities together and alone",
        response_model=TruthReceipt,
        **takes(
            TruthRequest,
            _truth_example(pricing.settings.city),
            {403: "This city is not a demonstration, or the key lacks the scope."},
        ),
    )
    async def truth(request: Request) -> Response:
        report = await read(request, TruthRequest, max_bytes)
        truth_reports.report(report.cities, pricing.runtime.clock())
        return json_response({"cities": len(report.cities)})

    return router


def _context_example(pricing: Pricing) -> dict[str, Any]:
    example = example_request(pricing.settings)
    return {"shared": example["shared"], "local": example["local"]}


def _truth_example(city: str) -> dict[str, Any]:
    return {
        "cities": [
            {
                "city": city,
                "together": {"decisions": 1000, "regret": 24.5},
                "alone": {"decisions": 1000, "regret": 69.9},
            }
        ]
    }
