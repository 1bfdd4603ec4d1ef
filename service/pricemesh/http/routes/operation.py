"""What monitors and orchestrators call: liveness, readiness, metrics, version."""

from fastapi import APIRouter
from starlette.responses import Response

from pricemesh.city.pricing import Pricing
from pricemesh.http import schemas
from pricemesh.http.metrics import Metrics
from pricemesh.http.routes.bodies import Responses, json_response, problems
from pricemesh.version import __version__


def operation_routes(pricing: Pricing, metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["operation"])
    not_ready: Responses = {503: {"model": schemas.Health, "description": "Not ready."}}

    @router.get("/healthz", summary="Is the process alive?", response_model=schemas.Health)
    async def healthz() -> Response:
        return json_response({"status": "alive", "faults": []})

    @router.get("/readyz", summary="Can it serve?", response_model=schemas.Health, responses=not_ready)
    async def readyz() -> Response:
        faults = await pricing.faults()
        body = {"status": "not ready" if faults else "ready", "faults": faults}
        return json_response(body, 503 if faults else 200)

    @router.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses=problems({}) | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def prometheus() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/version", summary="Name and version", response_model=schemas.Version)
    async def version() -> Response:
        city = pricing.settings.city
        return json_response({"name": "pricemesh", "version": __version__, "city": city})

    return router
