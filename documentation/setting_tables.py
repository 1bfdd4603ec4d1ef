"""Tables of all settings, from the pydantic models: key, type, default, limits, description."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from documentation.markdown import code, table
from pricemesh.city.configuration import PREFIX
from pricemesh.city.settings import FeatureSettings, Settings
from pricemesh.core.policies import POLICIES

HEAD = ("key", "type", "default", "limits", "meaning")
TYPE_NAMES: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    type(None): "",
}


def setting_tables() -> str:
    """A heading and a table for each section, in the order of the model."""
    parts = ["## The top\n", table(HEAD, [_row("", "city", Settings.model_fields["city"])])]
    for name, field in Settings.model_fields.items():
        model = field.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        parts.append(f"\n## [{name}]\n")
        rows = [_row(name, key, item) for key, item in model.model_fields.items()]
        parts.append(table(HEAD, rows))
        if name == "features":
            parts.append("\nA feature is its name, or a table with these keys:\n")
            items = FeatureSettings.model_fields.items()
            parts.append(table(HEAD, [_row(name, key, item, variable=False) for key, item in items]))
    return "\n".join(parts)


def _row(section: str, key: str, field: FieldInfo, *, variable: bool = True) -> list[str]:
    name = f"{PREFIX}{section}_{key}".upper() if section else f"{PREFIX}{key}".upper()
    names = f"{code(key)}<br>{code(name)}" if variable else code(key)
    return [names, _type(field.annotation), _default(field), _limits(field), field.description or ""]


def _type(annotation: Any) -> str:
    if annotation in TYPE_NAMES:
        return TYPE_NAMES[annotation]
    if get_origin(annotation) is Literal:
        return " or ".join(code(value) for value in get_args(annotation))
    if get_origin(annotation) is tuple:
        inner = get_args(annotation)
        if inner[-1] is ...:
            kind = _type(inner[0])
            return (
                "list of tables or names" if kind == "table" else f"list of {kind}s".replace("texts", "text")
            )
        return f"list of {len(inner)} numbers"
    if get_origin(annotation) is dict:
        return "table"
    if isinstance(annotation, type):
        return "table" if issubclass(annotation, BaseModel) else "path"
    return " or ".join(filter(None, map(_type, get_args(annotation))))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.default
    if value is None or value == ():
        return "none"
    return code(toml_value(value))


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (
        f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
    )


def _limits(field: FieldInfo) -> str:
    return ", ".join(_bounds(field))


def _bounds(field: FieldInfo) -> Iterator[str]:
    words = (
        ("gt", "above {}"),
        ("ge", "from {}"),
        ("lt", "below {}"),
        ("le", "to {}"),
        ("min_length", "at least {} long"),
        ("max_length", "at most {} long"),
    )
    for attribute, text in words:
        for constraint in field.metadata:
            if (bound := getattr(constraint, attribute, None)) is not None:
                yield text.format(f"{bound:g}" if isinstance(bound, float) else bound)


def policy_table() -> str:
    """Every parameter of every policy with its default; a dash where a policy has none of that name."""
    defaults: dict[str, dict[str, str]] = {}
    for name, policy in POLICIES.items():
        for field in fields(policy):  # type: ignore[arg-type]
            value = "required" if field.default is MISSING else toml_value(field.default)
            defaults.setdefault(field.name, {})[name] = value
    rows = [
        [code(parameter), *(code(values[name]) if name in values else "–" for name in POLICIES)]
        for parameter, values in defaults.items()
    ]
    return table(("parameter", *map(code, POLICIES)), rows)
