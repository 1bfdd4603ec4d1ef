"""What the page asks a city: the live feed, its beliefs; and where a driver reports the truth."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from pricemesh.city.beliefs import beliefs_of
from pricemesh.city.pricing import Pricing
from pricemesh.dashboard.events import EventStream
from pricemesh.dashboard.feed import Feed
from pricemesh.dashboard.lab import Lab
from pricemesh.http import schemas
from pricemesh.http.answers import example_request
from pricemesh.http.api import json_response, problems, read, takes

EVENTS = """Server-sent events. First `history`: the last five minutes, second by second (`seconds`: `at`,
`decisions` as [arm, count] pairs, `learned`, `reward`), the `versions` held by city, and what a driver told
of the `truth`. Then a `frame` a second: `state` as `GET /state` gives it, `rates`, the new `seconds`, the
`latest` decisions, `truth`. A `fault` says in `detail` why there is no frame. A reader that does not keep
up is cut off: connect again."""


def live_routes(pricing: Pricing, feed: Feed, lab: Lab) -> APIRouter:
    router = APIRouter(tags=["dashboard"])
    most_bytes = pricing.settings.limits.body_bytes
    asked_for = {
        part: features
        for part, features in example_request(pricing.settings).items()
        if part != "decision_id"
    }

    @router.get(
        "/events",
        summary="The live feed",
        description=EVENTS,
        response_class=Response,
        responses=problems(
            {422: "A parameter is wrong.", 503: "As many listen as may (limits.event_readers)."}
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
        response_model=schemas.Beliefs,
        **takes(schemas.BeliefRequest, asked_for, {}),
    )
    async def beliefs(request: Request) -> Response:
        asked = await read(request, schemas.BeliefRequest, most_bytes)
        return json_response(beliefs_of(pricing, asked.shared, asked.local))

    @router.post(
        "/lab/truth",
        summary="For a driver that knows the truth: regret of cities together and alone",
        response_model=schemas.TruthTaken,
        **takes(
            schemas.TruthRequest,
            _example(pricing.settings.city),
            {403: "This city is no demonstration, or the key lacks the scope."},
        ),
    )
    async def truth(request: Request) -> Response:
        told = await read(request, schemas.TruthRequest, most_bytes)
        lab.report(told.cities, time.time())
        return json_response({"cities": len(told.cities)})

    return router


def _example(city: str) -> dict[str, Any]:
    return {
        "cities": [
            {
                "city": city,
                "together": {"decisions": 1000, "regret": 24.5},
                "alone": {"decisions": 1000, "regret": 69.9},
            }
        ]
    }
