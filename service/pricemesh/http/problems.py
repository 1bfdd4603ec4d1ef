"""The one place where errors become status codes: RFC 9457 problem documents.

It knows errors and bodies; it does not know which call they belong to.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.responses import Response

from pricemesh.city.addresses import CITY_NAME, CITY_NAME_RULE
from pricemesh.core.decision import IDENTIFIER, IDENTIFIER_RULE
from pricemesh.errors import (
    BodyTooLarge,
    ConflictingReward,
    ImpossiblePin,
    IncompatibleMesh,
    InDoubt,
    InvalidContext,
    MissingExtra,
    NotADemo,
    NotAllowed,
    NothingToRetract,
    OtherReceiver,
    OtherTerms,
    Overloaded,
    PricemeshError,
    SignedTooEarly,
    StepConflict,
    StorageUnavailable,
    TooFast,
    TooLate,
    TooManyReaders,
    Unauthenticated,
    UnknownCity,
    UnknownDecision,
    UnknownRetraction,
    UnreadableBody,
    WrongHost,
    WrongMethod,
)
from pricemesh.http import schemas
from pricemesh.validation import Fault, Wording, message, must_be_kind, primary, shown

STATUSES: dict[type[PricemeshError], int] = {
    UnreadableBody: 422,
    InvalidContext: 422,
    BodyTooLarge: 413,
    Unauthenticated: 401,
    SignedTooEarly: 425,
    OtherReceiver: 421,
    NotAllowed: 403,
    WrongHost: 403,
    TooFast: 429,
    UnknownDecision: 404,
    ConflictingReward: 409,
    TooLate: 410,
    ImpossiblePin: 409,
    IncompatibleMesh: 409,
    OtherTerms: 409,
    UnknownCity: 404,
    UnknownRetraction: 404,
    NothingToRetract: 404,
    WrongMethod: 405,
    NotADemo: 403,
    MissingExtra: 501,
    TooManyReaders: 503,
    StorageUnavailable: 503,
    Overloaded: 503,
    StepConflict: 503,
    InDoubt: 503,
}
Body = TypeVar("Body", bound=BaseModel)


def problem(status: int, kind: str, detail: str, request_id: str | None, errors: Any = None) -> Response:
    """An RFC 9457 problem document. `kind` is stable: programs may rely on it."""
    document = schemas.Problem(
        type=f"urn:pricemesh:problem:{kind}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        request_id=request_id,
        errors=errors,
    )
    body = to_json(document.model_dump(exclude_none=True))
    return Response(body, status, media_type="application/problem+json")


def refusal(fault: PricemeshError, request_id: str | None) -> Response:
    """The answer to an error of ours."""
    status = STATUSES.get(type(fault), 500)
    errors = None
    if isinstance(fault, UnreadableBody | InvalidContext):
        errors = [schemas.FieldFault(field=field, detail=detail) for field, detail in fault.faults]
    response = problem(status, fault.kind, str(fault), request_id, errors)
    if isinstance(fault, TooFast | Overloaded):
        response.headers["Retry-After"] = str(max(1, ceil(fault.retry_after_seconds)))
    elif isinstance(fault, WrongMethod):
        response.headers["Allow"] = fault.allowed
    elif isinstance(fault, Unauthenticated):
        response.headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(fault, StorageUnavailable | TooManyReaders):
        response.headers["Retry-After"] = "1"
    return response


def parsed(model: type[Body], body: bytes) -> Body:
    """A body as its model, or every fault in it."""
    try:
        validated: Body = model.__pydantic_validator__.validate_json(body)
    except ValidationError as fault:
        raise UnreadableBody(field_faults(fault.errors(include_url=False))) from None
    return validated


def field_faults(errors: Any) -> list[tuple[str, str]]:
    """What pydantic found, as (field, message) pairs in our words."""
    return [
        (
            ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path")),
            message(error, _WORDINGS),
        )
        for error in primary(errors)
    ]


def _not_json(fault: Fault) -> str:
    place = re.search(r"line (\d+) column (\d+)$", str(fault["ctx"]["error"]))
    return f"is not JSON from line {place[1]}, column {place[2]} on" if place else "is not JSON"


def _mismatch(fault: Fault) -> str:
    rule = PATTERN_RULES.get(fault["ctx"]["pattern"])
    return f"must be {rule}, not {shown(fault['input'])}" if rule else "has a character that is not allowed"


PATTERN_RULES = {
    f"^{CITY_NAME}$": CITY_NAME_RULE,
    f"^{IDENTIFIER}$": IDENTIFIER_RULE,
    r"^[^\x00-\x1f\x7f]*$": "text without control characters",
    "^[0-9a-f]{64}$": "64 hexadecimal digits in lower case",
}
_OBJECT = must_be_kind("a JSON object")
_WORDINGS: Mapping[str, Wording] = {
    "extra_forbidden": lambda _: "unknown field",
    "json_invalid": _not_json,
    "string_pattern_mismatch": _mismatch,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
}


def unforeseen(request_id: str) -> Response:
    """The answer to a fault of our own. The log has the traceback under the same request_id."""
    return problem(500, "internal", "an unforeseen fault, logged under this request_id", request_id)
