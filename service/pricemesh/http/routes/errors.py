"""What FastAPI does with an exception: every one becomes a problem document, as outside the framework."""

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pricemesh.errors import PricemeshError, UnreadableBody
from pricemesh.http.problems import field_faults, problem, refusal


def handle_errors(app: FastAPI) -> None:
    @app.exception_handler(PricemeshError)
    async def refuse(request: Request, fault: PricemeshError) -> Response:
        return refusal(fault, request.scope.get("request_id"))

    @app.exception_handler(RequestValidationError)
    async def refuse_parameters(request: Request, fault: RequestValidationError) -> Response:
        return refusal(UnreadableBody(field_faults(fault.errors())), request.scope.get("request_id"))

    @app.exception_handler(HTTPException)
    async def refuse_path_or_method(request: Request, fault: HTTPException) -> Response:
        kind = HTTPStatus(fault.status_code).phrase.lower().replace(" ", "-")
        detail = f"{request.method} {request.url.path}: {fault.detail}"
        response = problem(fault.status_code, kind, detail, request.scope.get("request_id"))
        response.headers.update(fault.headers or {})
        if fault.status_code == 405:
            response.headers["Allow"] = ", ".join(_methods_of_path(app, request))
        return response


def _methods_of_path(app: FastAPI, request: Request) -> list[str]:
    """Starlette's own `Allow` names the methods of the first route that matches, not of all."""
    path = getattr(request.scope.get("route"), "path", "")
    return sorted(method.upper() for method in app.openapi()["paths"].get(path, {}))
