"""The calls of a city as a page, and as openapi.json, from the document that the city serves."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from documentation.markdown import code, table
from pricemesh.city.settings import Settings
from pricemesh.http.admission import scope_of
from pricemesh.http.asgi import Application

METHODS = ("get", "post", "put", "delete")
MIN_USES = 10  # an answer that so many calls share is described once
Answer = tuple[str, str]  # status and description


def openapi_document(app: Application) -> dict[str, Any]:
    """As `GET /openapi.json` answers."""

    async def fetch() -> dict[str, Any]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get("/openapi.json")
            document: dict[str, Any] = answer.raise_for_status().json()
            return document

    return asyncio.run(fetch())


def openapi_text(app: Application, settings: Settings) -> str:
    document = openapi_document(app)
    assert settings.city in document["info"]["title"]
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def calls(app: Application) -> str:
    document = openapi_document(app)
    operations = list(_operations(document["paths"]))
    overview = table(
        ("call", "scope", "does"),
        [[_link(method, path), _scope(path), item["summary"]] for method, path, item in operations],
    )
    schemas: dict[str, Any] = document["components"]["schemas"]
    uses = Counter(answer for _, _, item in operations for answer in _answers(item))
    common = {answer for answer, count in uses.items() if count >= MIN_USES and answer[0] >= "400"}
    parts = ["## All calls", overview, "## Answers of most calls"]
    parts.append(table(("status", "meaning"), sorted(common)))
    parts.append("## Each call")
    parts += [_call(method, path, item, common) for method, path, item in operations]
    parts += ["## Bodies", "Fields in bold are required."]
    parts += [_schema(name, schemas[name]) for name in sorted(schemas)]
    return "\n\n".join(parts)


def _operations(paths: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in paths.items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path, item[method]


def _answers(item: Mapping[str, Any]) -> list[Answer]:
    return [(status, one["description"]) for status, one in sorted(item["responses"].items())]


def _title(method: str, path: str) -> str:
    return f"{method} {path}"


def _link(method: str, path: str) -> str:
    return f"[{code(_title(method, path))}](#{slug(_title(method, path))})"


def slug(title: str) -> str:
    """The anchor of a heading, on GitHub and on the site."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.strip().replace(" ", "-")


def _scope(path: str) -> str:
    scope = scope_of(path)
    return code(scope) if scope else "none"


def _call(method: str, path: str, item: Mapping[str, Any], common: set[Answer]) -> str:
    summary = item["summary"]
    parts = [f"### {_title(method, path)}", summary if summary.endswith("?") else f"{summary}."]
    if description := item.get("description", ""):
        parts.append(" ".join(description.split()))
    if parameters := item.get("parameters"):
        rows = [
            [
                f"**{code(one['name'])}**" if one.get("required") else code(one["name"]),
                one["in"],
                _type(one["schema"]),
                one.get("description", ""),
            ]
            for one in parameters
        ]
        parts.append(table(("parameter", "in", "type", "meaning"), rows))
    if body := item.get("requestBody"):
        parts.append(f"Body: {_content(body)}.")
        if example := _example(body):
            parts.append(f"```json\n{json.dumps(example, ensure_ascii=False)}\n```")
    answers = _answers(item)
    rows = [
        [status, _content(item["responses"][status]), description]
        for status, description in answers
        if (status, description) not in common
    ]
    parts.append(table(("status", "body", "meaning"), rows))
    if rest := [answer[0] for answer in answers if answer in common]:
        parts.append(f"And [as most calls](#answers-of-most-calls): {', '.join(rest)}.")
    return "\n\n".join(parts)


def _content(body: Mapping[str, Any]) -> str:
    kinds = []
    for media, content in body.get("content", {}).items():
        schema = content.get("schema", {})
        kinds.append(_type(schema) if media.endswith("json") and schema else code(media))
    return " or ".join(dict.fromkeys(kinds)) or "none"


def _example(body: Mapping[str, Any]) -> Any:
    return body["content"].get("application/json", {}).get("example")


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        [
            f"**{code(field)}**" if field in required else code(field),
            _type(one),
            _limits(one),
            one.get("description", ""),
        ]
        for field, one in schema.get("properties", {}).items()
    ]
    parts = [f"### {name}"]
    if description := schema.get("description"):
        parts.append(" ".join(description.split()))
    parts.append(table(("field", "type", "limits", "meaning"), rows) if rows else f"{_type(schema)}.")
    return "\n\n".join(parts)


def _type(schema: Mapping[str, Any]) -> str:
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{slug(name)})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_type, choices)))
    if values := schema.get("enum"):
        return " or ".join(code(json.dumps(value)) for value in values)
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and schema.get("properties"):
        return "object of " + ", ".join(map(code, schema["properties"]))
    if kind == "object" and isinstance(inner := schema.get("additionalProperties"), dict):
        return f"object of {_type(inner)}"
    return kind


def _limits(schema: Mapping[str, Any]) -> str:
    words = (
        ("minimum", "from {}"),
        ("exclusiveMinimum", "above {}"),
        ("maximum", "to {}"),
        ("exclusiveMaximum", "below {}"),
        ("minItems", "at least {} items"),
        ("maxItems", "at most {} items"),
        ("maxLength", "at most {} characters"),
    )
    shapes = [schema, *schema.get("anyOf", ())]
    return ", ".join(
        dict.fromkeys(text.format(shape[key]) for key, text in words for shape in shapes if key in shape)
    )
