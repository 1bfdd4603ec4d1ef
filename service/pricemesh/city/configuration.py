"""How a city's settings are read: a TOML file, then `.env`, then PRICEMESH_* variables; the later one wins.

All faults are listed at once, each under its key as the file spells it. pydantic-settings is not used: it has
one spelling of a variable instead of our two, ignores unknown ones and stops at the first that is not JSON.
"""

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast, get_args

from dotenv import dotenv_values
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from pricemesh.city.addresses import CITY_NAME_RULE
from pricemesh.city.settings import Settings
from pricemesh.errors import WrongConfiguration
from pricemesh.validation import Fault, Wording, kind_of, message, primary, shown, too_few, too_many

PREFIX = "PRICEMESH_"
NOT_SETTINGS = {"PRICEMESH_CONFIG", "PRICEMESH_KEY", "PRICEMESH_REVISION"}  # read elsewhere
MOVED = {  # keys of earlier versions, and what to write instead; {} is the value
    "feedback.largest_reward": 'is gone: write largest = {} under [reward] with kind = "value"',
}
NOUNS = {"prices": "price", "shared": "feature", "local": "feature"}

Key = tuple[str | int, ...]  # ("gossip", "peers", 0) is gossip.peers.0


def load_settings(path: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """The effective configuration, or `WrongConfiguration` with every fault in it."""
    values = _from_file(path) if path else {}
    variables: dict[Key, str] = {}
    for source in (_from_dotenv(Path(".env")), os.environ if environ is None else environ):
        for name, text in source.items():
            if name.startswith(PREFIX) and name not in NOT_SETTINGS and text is not None:
                key = _key_of(name)
                variables[key] = name
                _put(values, key, text)
    return settings_from(values, variables)


def settings_from(values: Mapping[str, Any], variables: Mapping[Key, str] | None = None) -> Settings:
    """Plain values as settings. `variables` are the names of those that have set a key."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        faults = primary(cast(list[Fault], error.errors(include_url=False)))
        raise WrongConfiguration([_line(fault, variables or {}) for fault in faults]) from None


def as_variables(values: Mapping[str, Any]) -> dict[str, str]:
    """A configuration as the PRICEMESH_* variables that `load_settings` reads."""
    flat = {}
    for section, content in values.items():
        for key, value in content.items() if isinstance(content, dict) else [("", content)]:
            name = f"{PREFIX}{section}_{key}".rstrip("_").upper()
            flat[name] = value if isinstance(value, str) else json.dumps(value)
    return flat


def without_secrets(settings: Settings) -> dict[str, Any]:
    """The effective values as plain data, without the database's password and the gossip secrets."""
    from sqlalchemy.engine import make_url

    values: dict[str, Any] = settings.model_dump(mode="json")
    values["database"]["url"] = make_url(settings.database.url).render_as_string(hide_password=True)
    values["gossip"]["secrets"] = [f"{text.partition(':')[0]}:***" for text in settings.gossip.secrets]
    return values


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise WrongConfiguration([f"{path}: cannot be read: {fault.strerror}"]) from None
    except UnicodeDecodeError:
        raise WrongConfiguration([f"{path}: not TOML: it is not text in UTF-8"]) from None
    except (ValueError, RecursionError) as fault:  # a number may have too many digits, a list too many levels
        raise WrongConfiguration([f"{path}: not TOML: {fault}"]) from None


def _from_dotenv(path: Path) -> Mapping[str, str | None]:
    try:
        return dotenv_values(path)
    except OSError as fault:
        raise WrongConfiguration([f"{path}: cannot be read: {fault.strerror}"]) from None
    except UnicodeDecodeError:
        raise WrongConfiguration([f"{path}: it is not text in UTF-8"]) from None


def _key_of(variable: str) -> Key:
    """PRICEMESH_DATABASE_URL and PRICEMESH_DATABASE__URL both set database.url."""
    name = variable.removeprefix(PREFIX).lower()
    section, _, key = name.partition("__") if "__" in name else name.partition("_")
    return (section, key) if key else (section,)


def _put(values: dict[str, Any], key: Key, text: str) -> None:
    if len(key) == 1:
        values[str(key[0])] = text
        return
    section = values.setdefault(str(key[0]), {})
    if isinstance(section, dict):  # where the file has something else, that is the fault to report
        section[str(key[1])] = _parsed(text)


def _parsed(text: str) -> Any:
    """Lists and tables are written as JSON; what is not JSON may be a list with commas, so it stays text."""
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _line(fault: Any, variables: Mapping[Key, str]) -> str:
    """One fault under its key; where a variable has set the key, the variable is named as well."""
    key: Key = fault["loc"]
    text = message(fault, _WORDINGS)
    variable = variables.get(key[:2]) or variables.get(key[:1])
    if variable:
        text = f"{text} (set by {variable})"
    return f"{_dotted(key)}: {text}" if key else text


def _dotted(key: Key) -> str:
    return ".".join(map(str, key))


def _is_missing(fault: Fault) -> str:
    field = _field(fault["loc"])
    examples = field.examples if field else None
    return f"is missing: write {examples[0]}" if examples else "is missing"


def _is_unknown(fault: Fault) -> str:
    """Suggests a key of the same section that is spelled alike, or one of the same name elsewhere."""
    *section, name = fault["loc"]
    if (hint := MOVED.get(_dotted(fault["loc"]))) is not None:
        return hint.format(shown(fault["input"]).strip("'"))
    beside = {_dotted((*section, other)) for other in _keys_in(tuple(section))}
    namesakes = {_dotted(key) for key in _all_keys() if key[-1] == name}
    near = get_close_matches(_dotted(fault["loc"]), beside, n=1) or sorted(namesakes)
    return f"unknown key; did you mean {near[0]}?" if near else "unknown key"


def _is_no_table(fault: Fault) -> str:
    key: Key = fault["loc"]
    if len(key) == 1:
        return f"must be a section, written [{key[0]}], not {kind_of(fault['input'])}"
    example = '{ name = "rain", min = 0, max = 1 }'
    return f"must be a name or a table, such as {example}, not {shown(fault['input'])}"


def _is_no_list(fault: Fault) -> str:
    examples = {
        "prices": "[8.0, 9.0]",
        "peers": '["http://10.0.0.2:8000"]',
        "secrets": '["k1:..."]',
        "hosts": '["pricing.local"]',
    }
    example = examples.get(str(fault["loc"][-1]), '["..."]')
    return f"must be a list, such as {example}, not {kind_of(fault['input'])}"


def _with_noun(wording: Any) -> Wording:
    return lambda fault: str(wording(NOUNS.get(str(fault["loc"][-1]), "item"))(fault))


_WORDINGS: Mapping[str, Wording] = {
    "missing": _is_missing,
    "extra_forbidden": _is_unknown,
    "model_type": _is_no_table,
    "tuple_type": _is_no_list,
    "too_short": _with_noun(too_few),
    "too_long": _with_noun(too_many),
    "string_pattern_mismatch": lambda fault: f"must be {CITY_NAME_RULE}, not {shown(fault['input'])}",
}


def _field(key: Key) -> FieldInfo | None:
    """What the models say of a key, such as ("gossip", "peers"); None where they have no such key."""
    model: type[BaseModel] | None = Settings
    field = None
    for part in key:
        if isinstance(part, int):  # an item of a list: the list's own field names its model
            continue
        field = model.model_fields.get(part) if model else None
        model = _model(field) if field else None
    return field


def _model(field: FieldInfo) -> type[BaseModel] | None:
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _keys_in(section: Key) -> list[str]:
    field = _field(section)
    model = Settings if not section else _model(field) if field else None
    return list(model.model_fields) if model else []


def _all_keys() -> Iterator[Key]:
    for section in Settings.model_fields:
        yield from ((section, name) for name in _keys_in((section,)))
