"""The pages and the files they are made of: read once, served as they are, and loading nothing else."""

from hashlib import sha256
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi import Path as PathParameter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pricemesh.http.admission import PAGE_FILES

KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
GUARDS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    held = {
        file.name: (file.read_bytes(), KINDS[file.name.rpartition(".")[2]])
        for file in (files("pricemesh.dashboard") / "page").iterdir()
    }
    tags = {name: f'"{sha256(body).hexdigest()[:16]}"' for name, (body, _) in held.items()}
    asked_for = Annotated[str | None, Header()]

    def file(name: str, known: str | None) -> Response:
        if name not in held:
            raise HTTPException(404, "the page has no such file")
        headers = GUARDS | {"ETag": tags[name]}
        if known == tags[name]:
            return Response(status_code=304, headers=headers)
        body, kind = held[name]
        return Response(body, headers=headers, media_type=kind)

    @router.get("/")
    async def city(if_none_match: asked_for = None) -> Response:
        return file("city.html", if_none_match)

    @router.get("/mesh")
    async def mesh(if_none_match: asked_for = None) -> Response:
        return file("mesh.html", if_none_match)

    @router.get(f"{PAGE_FILES}/{{name}}")
    async def part(name: Annotated[str, PathParameter()], if_none_match: asked_for = None) -> Response:
        return file(name, if_none_match)

    return router
