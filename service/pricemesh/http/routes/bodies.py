"""What all routes share: reading a JSON body, answering with one, and the OpenAPI description of both.

Request bodies are read here and not by FastAPI, so that every call has the same size limit and the same
problem documents as `/price`.
"""

from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import Response

from pricemesh.http.body import read_body
from pricemesh.http.problems import Body, parsed
from pricemesh.store.acts import OPERATOR

Responses = dict[int | str, dict[str, Any]]
# Of a call without a body.
Reason = Annotated[str, Query(max_length=500, description="Why; recorded with who asked, see `GET /acts`.")]

PROBLEMS_OF_ANY_CALL = {
    401: "The API key is missing or unknown.",
    403: "The key lacks the scope, or the Host is not a name of this city.",
    429: "The key's rate limit is exceeded.",
    503: (
        "`storage-unavailable`, `overloaded`: the database accepts no writes at present, or too many "
        "wait for it; nothing has changed. "
        "`in-doubt`: the commit failed and may have happened nevertheless; repeat the same request (a price "
        "under the same decision_id, the same feedback): what was committed is not done twice."
    ),
}
PROBLEMS_OF_A_BODY = {
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    422: "The body is invalid.",
}


async def read(request: Request, model: type[Body], max_bytes: int) -> Body:
    """The body of a request, checked against its model."""
    return parsed(model, await read_body(request.scope, request.receive, max_bytes))


def caller_of(request: Request) -> str:
    """The id of the key with which an operator calls."""
    caller: str = request.scope["caller"]
    return caller or OPERATOR


def json_response(content: Any, status: int = 200) -> Response:
    return Response(to_json(content), status, media_type="application/json")


def takes(model: type[BaseModel], example: Any, responses: dict[int, str]) -> dict[str, Any]:
    """Arguments of a FastAPI route that describe a body which the route reads itself."""
    return {
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {"$ref": f"#/components/schemas/{model.__name__}"},
                        "example": example,
                    }
                },
            }
        },
        "responses": problems(responses | PROBLEMS_OF_A_BODY),
    }


def problems(descriptions: dict[int, str]) -> Responses:
    """The problem documents of a call, by status: its own and those that any call may answer."""
    return {
        status: {
            "description": text,
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, text in sorted((PROBLEMS_OF_ANY_CALL | descriptions).items())
    }
