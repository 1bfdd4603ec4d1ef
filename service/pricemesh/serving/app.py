"""Where the parts meet: `create_app(settings)` is one city."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from pricemesh.city.addresses import host_of
from pricemesh.city.clock import watch
from pricemesh.city.pricing import Pricing
from pricemesh.city.replicas import ConnectDatabase, connect_database
from pricemesh.city.sales_folding import SalesFolding
from pricemesh.city.settings import Settings
from pricemesh.dashboard.feed import Feed
from pricemesh.dashboard.pages import page_routes
from pricemesh.dashboard.routes import live_routes
from pricemesh.dashboard.truth import TruthReports
from pricemesh.gossip.mesh import Gossip
from pricemesh.http.admission import DOCS_FILES, ROUTINE_PATHS, STREAM_PATHS, Admission, RequestRecorder
from pricemesh.http.asgi import Application
from pricemesh.http.hosts import Hosts
from pricemesh.http.key_file import KeyFile
from pricemesh.http.keys import Gatekeeper, read_keys
from pricemesh.http.metrics import Metrics
from pricemesh.http.openapi import describe
from pricemesh.http.routes.admin import admin_routes
from pricemesh.http.routes.audit import audit_routes
from pricemesh.http.routes.errors import handle_errors
from pricemesh.http.routes.export import export_routes
from pricemesh.http.routes.operation import operation_routes
from pricemesh.http.routes.peers import peer_routes
from pricemesh.http.routes.retractions import retraction_routes
from pricemesh.http.routes.sales import sales_routes
from pricemesh.http.state import state_of
from pricemesh.http.traffic import Traffic
from pricemesh.logs import RequestLog, logs_are_json
from pricemesh.runtime import Runtime, cancel_task
from pricemesh.version import __version__

log = logging.getLogger("pricemesh")


def create_app(
    settings: Settings,
    runtime: Runtime | None = None,
    recorder: RequestRecorder | None = None,
    connect: ConnectDatabase = connect_database,
) -> Application:
    """A simulation brings its own runtime, and its own way to the database."""
    runtime = runtime or Runtime()
    metrics = Metrics(settings.city)
    pricing = Pricing(settings, runtime, observe_commit=metrics.commit, connect=connect)
    gossip = Gossip(pricing)
    truth = TruthReports(demo=settings.lab.demo)
    feed = Feed(pricing, gossip, truth, lambda: state_of(pricing, gossip))
    gatekeeper, key_file = _gatekeeper(settings, runtime)
    metrics.watch(pricing, gossip, key_file)
    server = settings.server
    recorder = recorder or request_log(settings, runtime, lambda: pricing.health.is_lost)
    admission = Admission(
        gatekeeper,
        metrics,
        recorder,
        runtime,
        hosts=_hosts(settings),
        log_above_seconds=0.0 if server.access_log else server.slow_seconds,
    )
    traffic = Traffic(pricing)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await gossip.open_all()  # before the loop looks at what other replicas write
        await pricing.start()
        await gossip.start()
        log.info("serving", extra={"city": settings.city, "learner_version": pricing.version})
        tasks = [
            asyncio.create_task(pricing.close_windows(), name="windows"),
            asyncio.create_task(SalesFolding(pricing).run(), name="sales"),
            asyncio.create_task(watch(pricing.clock), name="clock"),
            asyncio.create_task(feed.run(), name="feed"),
        ]
        if pricing.role.is_replica:
            tasks.append(asyncio.create_task(pricing.role.keep(pricing.loop.following.wait), name="role"))
        if key_file is not None:
            tasks.append(asyncio.create_task(key_file.watch(), name="keys"))
        try:
            yield
        finally:
            for task in tasks:
                await cancel_task(task)
            await gossip.stop()
            await pricing.stop()
            recorder.flush()
            log.info("stopped", extra={"city": settings.city, "learner_version": pricing.version})

    framework = FastAPIOffline(
        title=f"pricemesh: {settings.city}",
        version=__version__,
        description="One city of a mesh that learns prices together.",
        lifespan=lifespan,
        redoc_url=None,
        static_url=DOCS_FILES,
    )
    handle_errors(framework)
    framework.openapi = lambda: describe(framework, settings, traffic)  # type: ignore[method-assign]
    return Application(
        framework,
        add_routes=lambda: _add_routes(framework, pricing, gossip, metrics, feed, truth),
        pricing=pricing,
        gossip=gossip,
        admission=admission,
        traffic=traffic,
        key_file=key_file,
    )


def _gatekeeper(settings: Settings, runtime: Runtime) -> tuple[Gatekeeper, KeyFile | None]:
    """Who is admitted, and the file that says so, if there is one."""
    path, rate = settings.security.api_keys_file, settings.security.rate_per_second
    if path is None:
        return Gatekeeper(None, rate, runtime.monotonic, settings.server.hosts), None
    gatekeeper = Gatekeeper(read_keys(path), rate, runtime.monotonic)
    return gatekeeper, KeyFile(path, gatekeeper, runtime)


def _hosts(settings: Settings) -> Hosts | None:
    """The names this city may be called by. With keys any, unless server.hosts lists them."""
    names = settings.server.hosts
    if settings.security.api_keys_file is not None and not names:
        return None
    own_address = settings.gossip.address
    return Hosts([*names, host_of(own_address)] if own_address else names)


def _add_routes(
    framework: FastAPI, pricing: Pricing, gossip: Gossip, metrics: Metrics, feed: Feed, truth: TruthReports
) -> None:
    for router in (
        audit_routes(pricing, gossip),
        export_routes(pricing),
        admin_routes(pricing, gossip),
        retraction_routes(pricing),
        sales_routes(pricing, gossip),
        peer_routes(gossip),
        operation_routes(pricing, metrics),
        live_routes(pricing, feed, truth),
        page_routes(),
    ):
        framework.include_router(router)


def request_log(settings: Settings, runtime: Runtime, in_outage: Callable[[], bool]) -> RequestLog:
    """Lines on standard error, in the format of all other lines there."""

    def schedule(seconds: float, action: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, action)

    return RequestLog(
        sys.stderr.write,
        runtime.clock,
        as_json=logs_are_json(),
        access=settings.server.access_log,
        slow_seconds=settings.server.slow_seconds,
        schedule=schedule,
        routine_paths=ROUTINE_PATHS,
        stream_paths=STREAM_PATHS,
        in_outage=in_outage,
    )
