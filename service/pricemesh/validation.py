"""What a fault found by pydantic is called in our own words.

Configuration files and HTTP bodies are checked by pydantic models. Its messages name Python types and its own
machinery, so each of its error types has a message here. This file knows no model and no key.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

MAX_SHOWN_CHARACTERS = 40
MAX_SHOWN_BITS = 128
MAX_MESSAGE_CHARACTERS = 250  # of a validator, which may quote a value

# What pydantic says of one fault: its `type`, `loc`, `input` and `ctx` (the limits that were broken).
Fault = Mapping[str, Any]
Wording = Callable[[Fault], str]


def shown(value: Any) -> str:
    """A value as an error message shows it: a number or short text as it is, anything else by its kind."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    if isinstance(value, int):
        return str(value) if value.bit_length() <= MAX_SHOWN_BITS else "a number with very many digits"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, str) and len(value) <= MAX_SHOWN_CHARACTERS:
        return repr(value)
    return kind_of(value)


def kind_of(value: Any) -> str:
    """A value by its kind only: for keys whose values may be secret or long."""
    kinds = {
        "null": type(None),
        "true or false": bool,
        "a number": int | float,
        "text": str | bytes,
        "a list": list | tuple,
        "a group of keys": Mapping,
    }
    return next((kind for kind, types in kinds.items() if isinstance(value, types)), "something else")


def shorten(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARACTERS else f"{text[: MAX_MESSAGE_CHARACTERS - 3]}..."


def counted(number: int, noun: str) -> str:
    """`one price`, `two prices`, `64 prices`."""
    word = {1: "one", 2: "two", 3: "three"}.get(number, str(number))
    return f"{word} {noun}" if number == 1 else f"{word} {noun}s"


def must_be(what: str) -> Wording:
    return lambda fault: f"must be {what}, not {shown(fault['input'])}"


def must_be_kind(what: str) -> Wording:
    return lambda fault: f"must be {what}, not {kind_of(fault['input'])}"


def limit(words: str, name: str) -> Wording:
    return lambda fault: f"must be {words} {shown(fault['ctx'][name])}, not {shown(fault['input'])}"


def too_few(noun: str) -> Wording:
    return lambda fault: (
        f"give at least {counted(fault['ctx']['min_length'], noun)}, not {fault['ctx']['actual_length']}"
    )


def too_many(noun: str) -> Wording:
    return lambda fault: (
        f"give at most {counted(fault['ctx']['max_length'], noun)}, not {fault['ctx']['actual_length']}"
        if fault["ctx"]["actual_length"] is not None
        else f"give at most {counted(fault['ctx']['max_length'], noun)}"
    )


_NUMBER = must_be("a number")
_WHOLE_NUMBER = must_be("a whole number")
_TRUTH = must_be("true or false")
_TEXT = must_be_kind("text")
_LIST = must_be_kind("a list")
_GROUP = must_be_kind("a group of keys")

WORDINGS: Mapping[str, Wording] = {
    "missing": lambda _: "is missing",
    "extra_forbidden": lambda _: "is not known here",
    "value_error": lambda fault: shorten(str(fault["ctx"]["error"])),  # our own validators raise these
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": must_be("a finite number"),
    "int_type": _WHOLE_NUMBER,
    "int_parsing": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "int_parsing_size": lambda _: "must be a whole number with fewer digits",
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "string_type": _TEXT,
    "string_unicode": lambda _: "must be text in UTF-8",
    "string_too_short": lambda fault: (
        f"must have at least {counted(fault['ctx']['min_length'], 'character')}"
    ),
    "string_too_long": lambda fault: (
        f"must have at most {counted(fault['ctx']['max_length'], 'character')}, not {len(fault['input'])}"
    ),
    "string_pattern_mismatch": lambda _: "has a character that is not allowed here",
    "literal_error": lambda fault: f"must be {fault['ctx']['expected']}, not {shown(fault['input'])}",
    "path_type": must_be_kind("the path of a file"),
    "list_type": _LIST,
    "tuple_type": _LIST,
    "too_short": too_few("item"),
    "too_long": too_many("item"),
    "dict_type": _GROUP,
    "model_type": _GROUP,
    "model_attributes_type": _GROUP,
    "greater_than": limit("greater than", "gt"),
    "greater_than_equal": limit("at least", "ge"),
    "less_than": limit("less than", "lt"),
    "less_than_equal": limit("at most", "le"),
}


def primary(faults: Iterable[Fault]) -> list[Fault]:
    """The faults without those that follow from others: pydantic counts only the valid items of a list."""
    return [
        fault
        for fault in faults
        if fault["type"] != "too_short" or len(fault["input"]) < fault["ctx"]["min_length"]
    ]


def message(fault: Fault, own: Mapping[str, Wording]) -> str:
    """`own` are the wordings of the caller, which win over the ones here."""
    wording = own.get(fault["type"]) or WORDINGS.get(fault["type"])
    return wording(fault) if wording else f"cannot be {shown(fault['input'])}"
