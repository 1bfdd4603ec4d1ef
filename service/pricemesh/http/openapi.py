"""The OpenAPI document of a city: FastAPI's own, the calls answered before FastAPI, and this city's features.

`routes/bodies.py` describes what the routes themselves take and answer.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from pricemesh.city.settings import Settings
from pricemesh.core.features import Feature
from pricemesh.http import schemas
from pricemesh.http.admission import scope_of
from pricemesh.http.answers import example_request
from pricemesh.http.asgi import GOSSIP_MEDIA_TYPE
from pricemesh.http.forget_schemas import ForgetRequest
from pricemesh.http.retraction_schemas import LiftRequest, RetractRequest
from pricemesh.http.routes.bodies import PROBLEMS_OF_A_BODY, problems
from pricemesh.http.traffic import Traffic, TrafficCall
from pricemesh.http.truth_schemas import TruthRequest

# What FastAPI does not know of, because the calls read and write these themselves.
MODELS: tuple[type[BaseModel], ...] = (
    schemas.PriceRequest,
    schemas.PriceBatch,
    schemas.Decision,
    schemas.DecisionBatch,
    schemas.FeedbackReceipt,
    schemas.FeedbackOutcomes,
    schemas.PinRequest,
    schemas.FreezeRequest,
    schemas.TickRequest,
    schemas.TrustRequest,
    schemas.BeliefRequest,
    TruthRequest,
    ForgetRequest,
    RetractRequest,
    LiftRequest,
    schemas.Problem,
)
REFERENCE = "#/components/schemas/"


def describe(app: FastAPI, settings: Settings, traffic: Traffic) -> dict[str, Any]:
    """Built once, when it is first asked for."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app, settings, traffic)
    return app.openapi_schema


def _document(app: FastAPI, settings: Settings, traffic: Traffic) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    examples = _examples(settings)
    document["paths"] = {
        path: {"post": _traffic_call(path, call, examples[path])} for path, call in traffic.calls.items()
    } | document["paths"]
    document["paths"]["/gossip"] = {"post": _gossip_call()}
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(_models_of(settings, traffic))
    if settings.security.api_keys_file is not None:
        _add_scopes(document, components)
    return document


def _models_of(settings: Settings, traffic: Traffic) -> dict[str, Any]:
    """The JSON schemas of our models, with this city's kind of feedback, features and limits."""
    feedback = traffic.feedback
    _, definitions = models_json_schema(
        [(model, "validation") for model in (*MODELS, feedback.request, feedback.batch)],
        ref_template=REFERENCE + "{model}",
    )
    models: dict[str, Any] = definitions["$defs"]
    for name in ("PriceRequest", "BeliefRequest"):
        _add_features(models[name], settings)
    reward = settings.reward
    low, high = (0, reward.max_units) if reward.largest is None else (-reward.largest, reward.largest)
    amount = models[feedback.request.__name__]["properties"][feedback.field]
    amount |= {"minimum": low, "maximum": high}
    models["PriceBatch"]["properties"]["requests"]["maxItems"] = settings.limits.batch_size
    models[feedback.batch.__name__]["properties"]["items"]["maxItems"] = settings.limits.batch_size
    models["RetractRequest"]["properties"]["decisions"]["maxItems"] = settings.limits.batch_size
    return models


def _examples(settings: Settings) -> dict[str, Any]:
    price = example_request(settings)
    amount = {"sold": 1} if settings.reward.is_purchase else {"reward": min(0.8, settings.largest_reward)}
    feedback = {"decision_id": price["decision_id"], **amount}
    return {
        "/price": price,
        "/price/batch": {"requests": [price, price]},
        "/feedback": feedback,
        "/feedback/batch": {"items": [feedback]},
    }


def _traffic_call(path: str, call: TrafficCall, example: Any) -> dict[str, Any]:
    answers: dict[str, Any] = {
        "200": {
            "description": "Committed.",
            "content": {"application/json": {"schema": {"$ref": REFERENCE + call.response.__name__}}},
        }
    }
    schema = {"schema": {"$ref": REFERENCE + call.request.__name__}, "example": example}
    return {
        "tags": ["prices"],
        "summary": call.summary,
        "operationId": path.strip("/").replace("/", "_"),
        "requestBody": {"required": True, "content": {"application/json": schema}},
        "responses": answers | _refusals(call.problems | PROBLEMS_OF_A_BODY),
    }


def _gossip_call() -> dict[str, Any]:
    message = {GOSSIP_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}
    answers: dict[str, Any] = {
        "200": {
            "description": "This city's digest, and the letters that the caller lacks.",
            "content": message,
        },
        "204": {"description": "Both cities hold the same letters."},
    }
    refusals = {
        401: "Not signed with a secret of this city, too old, or a replay.",
        403: "This city takes no gossip, or an operator has dropped the caller.",
        409: "The cities differ in arms, shared features, policy, group or gossip format.",
        413: "The body is too large.",
        421: "Signed for another city.",
        422: "The body is not a gossip message.",
        425: "Signed before this city started: sign anew and try again.",
        429: "This city or machine calls too often.",
    }
    return {
        "tags": ["gossip"],
        "summary": "For peers: exchange letters",
        "operationId": "gossip",
        "requestBody": {"required": True, "content": message},
        "responses": answers | _refusals(refusals),
    }


def _refusals(descriptions: dict[int, str]) -> dict[str, Any]:
    return {str(status): response for status, response in problems(descriptions).items()}


def _add_scopes(document: dict[str, Any], components: dict[str, Any]) -> None:
    components["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key made by `pricemesh keys new`, here or in `X-API-Key`.",
        }
    }
    for path, operations in document["paths"].items():
        scope = scope_of(path)
        for operation in operations.values():
            operation["security"] = [{"key": []}] if scope else []
            if scope:
                operation["description"] = f"Needs a key with the scope `{scope}`."


def _add_features(request: dict[str, Any], settings: Settings) -> None:
    space = settings.features.space
    request["properties"]["shared"] = _object_of(space.shared)
    request["properties"]["local"] = _object_of(space.local)
    request["required"] = ["shared", "local"] if space.local else ["shared"]


def _object_of(features: tuple[Feature, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            feature.name: {"type": "number", "minimum": feature.min, "maximum": feature.max}
            for feature in features
        },
        "required": [feature.name for feature in features],
        "additionalProperties": False,
    }
