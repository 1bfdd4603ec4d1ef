"""Where the parts meet: `create_app(settings)` is one city."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from pricemesh.city.pricing import Pricing
from pricemesh.city.settings import Settings
from pricemesh.dashboard.feed import Feed, cancelled
from pricemesh.dashboard.lab import Lab
from pricemesh.dashboard.pages import page_routes
from pricemesh.dashboard.routes import live_routes
from pricemesh.errors import StorageUnavailable
from pricemesh.gossip.exchange import Gossip
from pricemesh.http import api
from pricemesh.http.gate import DOCS_FILES, Gate
from pricemesh.http.keys import Gatekeeper, read_keys
from pricemesh.http.metrics import Metrics
from pricemesh.http.openapi import describe
from pricemesh.http.traffic import Traffic
from pricemesh.runtime import Runtime
from pricemesh.version import __version__

log = logging.getLogger("pricemesh")


def create_app(settings: Settings, runtime: Runtime | None = None) -> Gate:
    metrics = Metrics(settings.city)
    pricing = Pricing(settings, runtime or Runtime(), observed=metrics.commit)
    gossip = Gossip(pricing)
    metrics.watch(pricing, gossip)
    lab = Lab(demo=settings.lab.demo)
    feed = Feed(pricing, gossip, lab, lambda: api.state_of(pricing, gossip))
    keys = read_keys(settings.security.api_keys_file) if settings.security.api_keys_file else None

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await pricing.start()
        await gossip.start()
        log.info("serving", extra={"city": settings.city, "learner_version": pricing.version})
        beside = [asyncio.create_task(close_windows(pricing)), asyncio.create_task(feed.run(), name="feed")]
        try:
            yield
        finally:
            for task in beside:
                await cancelled(task)
            await gossip.stop()
            await pricing.stop()
            log.info("stopped", extra={"city": settings.city, "learner_version": pricing.version})

    app = FastAPIOffline(
        title=f"pricemesh: {settings.city}",
        version=__version__,
        description="One city of a mesh that learns prices together.",
        lifespan=lifespan,
        redoc_url=None,
        static_url=DOCS_FILES,
    )
    for router in (
        api.reading_routes(pricing, gossip),
        api.admin_routes(pricing, gossip),
        api.peer_routes(gossip),
        api.operating_routes(pricing, metrics),
        live_routes(pricing, feed, lab),
        page_routes(),
    ):
        app.include_router(router)
    api.handle_errors(app)
    keeper = Gatekeeper(keys, settings.security.rate_per_second, pricing.runtime.monotonic)
    traffic = Traffic(pricing)
    app.openapi = lambda: describe(app, settings, traffic)  # type: ignore[method-assign]
    return Gate(app, pricing=pricing, gossip=gossip, keeper=keeper, metrics=metrics, traffic=traffic)


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
