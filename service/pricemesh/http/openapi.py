"""The OpenAPI document of a city: FastAPI's, with the bodies we read ourselves and this city's features."""

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
from pricemesh.http.api import problems
from pricemesh.http.asgi import GOSSIP_MEDIA_TYPE
from pricemesh.http.traffic import Traffic, TrafficCall

BODIES: tuple[type[BaseModel], ...] = (
    schemas.PriceRequest,
    schemas.PriceBatch,
    schemas.FeedbackRequest,
    schemas.FeedbackBatch,
    schemas.Decision,
    schemas.DecisionBatch,
    schemas.Learned,
    schemas.FeedbackOutcomes,
    schemas.PinRequest,
    schemas.FreezeRequest,
    schemas.TickRequest,
    schemas.TrustRequest,
    schemas.BeliefRequest,
    schemas.TruthRequest,
    schemas.Problem,
)


def describe(app: FastAPI, settings: Settings, traffic: Traffic) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        _, definitions = models_json_schema(
            [(model, "validation") for model in BODIES], ref_template="#/components/schemas/{model}"
        )
        schemas = definitions["$defs"]
        examples = _examples(settings)
        document["paths"] = {
            path: {"post": _operation(path, call, examples[path])} for path, call in traffic.calls.items()
        } | document["paths"]
        document["paths"]["/gossip"] = {"post": _gossip()}
        for name in ("PriceRequest", "BeliefRequest"):
            _name_features(schemas[name], settings)
        most = settings.feedback.largest_reward
        schemas["FeedbackRequest"]["properties"]["reward"] |= {"minimum": -most, "maximum": most}
        schemas["PriceBatch"]["properties"]["requests"]["maxItems"] = settings.limits.batch_size
        schemas["FeedbackBatch"]["properties"]["items"]["maxItems"] = settings.limits.batch_size
        components = document.setdefault("components", {})
        components.setdefault("schemas", {}).update(schemas)
        if settings.security.api_keys_file is not None:
            _name_scopes(document, components)
        app.openapi_schema = document
    return app.openapi_schema


def _examples(settings: Settings) -> dict[str, Any]:
    asked = example_request(settings)
    given = {"decision_id": asked["decision_id"], "reward": 0.8}
    return {
        "/price": asked,
        "/price/batch": {"requests": [asked, asked]},
        "/feedback": given,
        "/feedback/batch": {"items": [given]},
    }


def _operation(path: str, call: TrafficCall, example: Any) -> dict[str, Any]:
    reference = "#/components/schemas/"
    refused = {413: "The body is too large.", 422: "The body is wrong."}
    answers: dict[str, Any] = {
        "200": {
            "description": "Done, and kept.",
            "content": {"application/json": {"schema": {"$ref": reference + call.response.__name__}}},
        }
    }
    answers |= {str(status): said for status, said in problems(call.problems | refused).items()}
    schema = {"schema": {"$ref": reference + call.request.__name__}, "example": example}
    return {
        "tags": ["prices"],
        "summary": call.summary,
        "operationId": path.strip("/").replace("/", "_"),
        "requestBody": {"required": True, "content": {"application/json": schema}},
        "responses": answers,
    }


def _gossip() -> dict[str, Any]:
    bytes_ = {GOSSIP_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}
    answers: dict[str, Any] = {
        "200": {"description": "What this city holds, and what the caller lacks.", "content": bytes_},
        "204": {"description": "Both hold the same."},
    }
    refused = {
        401: "Not signed with a secret known here, too old, or heard before.",
        403: "This city takes no gossip, or an operator has dropped the caller.",
        409: "The cities differ in arms, shared features, policy or group.",
        413: "The body is too large.",
        422: "The body is no gossip.",
    }
    return {
        "tags": ["gossip"],
        "summary": "For peers: exchange letters",
        "operationId": "gossip",
        "requestBody": {"required": True, "content": bytes_},
        "responses": answers | {str(status): said for status, said in problems(refused).items()},
    }


def _name_scopes(document: dict[str, Any], components: dict[str, Any]) -> None:
    components["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key made by `pricemesh keys new`; X-API-Key takes it too.",
        }
    }
    for path, operations in document["paths"].items():
        scope = scope_of(path)
        for operation in operations.values():
            operation["security"] = [{"key": []}] if scope else []
            if scope:
                operation["description"] = f"Wants a key with the scope `{scope}`."


def _name_features(request: dict[str, Any], settings: Settings) -> None:
    space = settings.features.space
    request["properties"]["shared"] = _object(space.shared)
    request["properties"]["local"] = _object(space.local)
    request["required"] = ["shared", "local"] if space.local else ["shared"]


def _object(features: tuple[Feature, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            feature.name: {
                "type": "number",
                "minimum": feature.min,
                "maximum": feature.max,
            }
            for feature in features
        },
        "required": [feature.name for feature in features],
        "additionalProperties": False,
    }
