"""Where the parts meet: `create_app(settings)` is one city."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import service
from service import api, wire
from service.errors import StorageUnavailable
from service.gate import Gate
from service.keys import Gatekeeper, read_keys
from service.metrics import Metrics
from service.pricing import Pricing
from service.settings import Settings

log = logging.getLogger("pricemesh")

BODIES: tuple[type[BaseModel], ...] = (
    wire.PriceRequest,
    wire.PriceBatch,
    wire.FeedbackRequest,
    wire.FeedbackBatch,
    wire.PinRequest,
    wire.FreezeRequest,
    wire.Problem,
)


def create_app(settings: Settings) -> FastAPI:
    metrics = Metrics(settings.city)
    pricing = Pricing(settings, observed=metrics.commit)
    metrics.watch(pricing)
    keys = read_keys(settings.security.api_keys_file) if settings.security.api_keys_file else {}

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await pricing.start()
        log.info("serving", extra={"city": settings.city, "learner_version": pricing.version})
        closing = asyncio.create_task(close_windows(pricing))
        try:
            yield
        finally:
            closing.cancel()
            with suppress(asyncio.CancelledError):
                await closing
            await pricing.stop()
            log.info("stopped", extra={"city": settings.city, "learner_version": pricing.version})

    app = FastAPI(
        title=f"pricemesh: {settings.city}",
        version=service.__version__,
        description="One city of a mesh that learns prices together.",
        lifespan=lifespan,
        redoc_url=None,
    )
    app.state.pricing = pricing
    for router in (
        api.traffic_routes(pricing),
        api.reading_routes(pricing),
        api.admin_routes(pricing),
        api.operating_routes(pricing, metrics),
    ):
        app.include_router(router)
    api.handle_errors(app)
    keeper = Gatekeeper(keys, settings.security.rate_per_second)
    app.add_middleware(Gate, keeper=keeper, metrics=metrics, refuse=api.refusal)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


async def close_windows(pricing: Pricing) -> None:
    """Where a default reward is configured, settle decisions whose window has closed."""
    if pricing.settings.feedback.default_reward is None:
        return
    pause = min(60.0, max(0.05, pricing.settings.feedback.window_seconds / 10))
    while True:
        try:
            if await pricing.close_window():
                continue
        except StorageUnavailable as fault:
            log.warning("windows not closed", extra={"fault": str(fault)})
        await asyncio.sleep(pause)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's description, with the bodies that we read ourselves."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        _, schemas = models_json_schema(
            [(model, "validation") for model in BODIES], ref_template="#/components/schemas/{model}"
        )
        document.setdefault("components", {}).setdefault("schemas", {}).update(schemas["$defs"])
        app.openapi_schema = document
    return app.openapi_schema
