"""The pages and their files: read once at the start, served unchanged, with headers that let them load
nothing from another host."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi import Path as PathParameter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pricemesh.http.admission import PAGE_FILES

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
IfNoneMatch = Annotated[str | None, Header()]


def page_routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    bodies = _bodies()
    tags = {name: f'"{sha256(body).hexdigest()[:16]}"' for name, body in bodies.items()}

    def answer(name: str, known_tag: str | None) -> Response:
        if name not in bodies:
            raise HTTPException(404, "the page has no such file")
        headers = HEADERS | {"ETag": tags[name]}
        if known_tag == tags[name]:
            return Response(status_code=304, headers=headers)
        return Response(bodies[name], headers=headers, media_type=MEDIA_TYPES[name.rpartition(".")[2]])

    @router.get("/")
    async def city(if_none_match: IfNoneMatch = None) -> Response:
        return answer("city.html", if_none_match)

    @router.get("/mesh")
    async def mesh(if_none_match: IfNoneMatch = None) -> Response:
        return answer("mesh.html", if_none_match)

    @router.get(f"{PAGE_FILES}/{{name}}")
    async def page_file(name: Annotated[str, PathParameter()], if_none_match: IfNoneMatch = None) -> Response:
        return answer(name, if_none_match)

    return router


@cache
def _bodies() -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (files("pricemesh.dashboard") / "page").iterdir()}
