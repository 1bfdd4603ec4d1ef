"""The OpenAPI document of a city: FastAPI's, with the bodies we read ourselves and this city's features."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service import wire
from service.core.features import Feature
from service.settings import Settings

BODIES: tuple[type[BaseModel], ...] = (
    wire.PriceRequest,
    wire.PriceBatch,
    wire.FeedbackRequest,
    wire.FeedbackBatch,
    wire.PinRequest,
    wire.FreezeRequest,
    wire.Problem,
)


def describe(app: FastAPI, settings: Settings) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        _, definitions = models_json_schema(
            [(model, "validation") for model in BODIES], ref_template="#/components/schemas/{model}"
        )
        schemas = definitions["$defs"]
        _name_features(schemas["PriceRequest"], settings)
        schemas["PriceBatch"]["properties"]["requests"]["maxItems"] = settings.limits.batch_size
        schemas["FeedbackBatch"]["properties"]["items"]["maxItems"] = settings.limits.batch_size
        document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
        app.openapi_schema = document
    return app.openapi_schema


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
