"""What a 422 says of a body that is wrong: its field, and the fault in our words."""

import json
from typing import Any

import pytest

from pricemesh.errors import UnreadableBody
from pricemesh.http import schemas
from pricemesh.http.problems import parsed
from pricemesh.http.retraction_schemas import LiftRequest, RetractRequest
from pricemesh.http.truth_schemas import TruthRequest
from tests.city.test_settings import LIBRARY_WORDS

GOOD: dict[type[schemas.RequestBody], dict[str, Any]] = {
    schemas.PriceRequest: {"shared": {"rain": 1}, "local": {}, "decision_id": "d1", "subject": "ann"},
    schemas.PriceBatch: {"requests": [{"shared": {"rain": 1}}]},
    schemas.FeedbackRequest: {"decision_id": "d1", "reward": 1},
    schemas.FeedbackBatch: {"items": [{"decision_id": "d1", "reward": 1}]},
    schemas.PinRequest: {"price": 8, "reason": ""},
    schemas.FreezeRequest: {"reason": ""},
    schemas.TickRequest: {"phase": "both"},
    schemas.TrustRequest: {"key": "0" * 64},
    TruthRequest: {"cities": [{"city": "a", "together": {"decisions": 1, "regret": 0}}]},
    RetractRequest: {"decisions": ["d1"], "reason": "a test", "dry_run": True},
    LiftRequest: {"reason": "a test"},
}
HOSTILE: tuple[str, ...] = (
    "null",
    "true",
    "-1",
    "1.5",
    "1e999",
    "NaN",
    '""',
    '"a b"',
    '"\\u0000"',
    f'"{"x" * 1000}"',
    "[]",
    "[5]",
    f"[{'{},' * 100}{{}}]",
    "{}",
    '{"x": "y"}',
    '{"x": NaN}',
    "9" * 400,
    "9" * 5000,
)


def faults_of(model: type[schemas.RequestBody], body: str) -> list[tuple[str, str]]:
    with pytest.raises(UnreadableBody) as error:
        parsed(model, body.encode())
    return error.value.faults


@pytest.mark.parametrize(
    ("model", "body", "faults"),
    [
        (schemas.FeedbackRequest, "", [("", "is not JSON from line 1, column 0 on")]),
        (schemas.FeedbackRequest, '{"decision_id"', [("", "is not JSON from line 1, column 14 on")]),
        (schemas.FeedbackRequest, "5", [("", "must be a JSON object, not a number")]),
        (schemas.FeedbackRequest, "{}", [("decision_id", "is missing"), ("reward", "is missing")]),
        (
            schemas.FeedbackRequest,
            '{"decision_id": "a b", "reward": "1", "more": 1}',
            [
                ("decision_id", "must be 1 to 128 letters, digits and . _ : @ -, not 'a b'"),
                ("reward", "must be a number, not '1'"),
                ("more", "unknown field"),
            ],
        ),
        (
            schemas.FeedbackRequest,
            '{"decision_id": "d", "reward": 1e13}',
            [("reward", "must be at most 1000000000000, not 10000000000000")],
        ),
        (
            schemas.FeedbackRequest,
            '{"decision_id": "d", "reward": NaN}',
            [("reward", "must be a finite number, not nan")],
        ),
        (schemas.PriceRequest, '{"shared": {"rain": true}}', [("shared.rain", "must be a number, not true")]),
        (schemas.PriceRequest, '{"shared": []}', [("shared", "must be a JSON object, not a list")]),
        (
            schemas.PriceRequest,
            '{"shared": {}, "subject": "\\u0001"}',
            [("subject", "must be text without control characters, not '\\x01'")],
        ),
        (schemas.PriceBatch, '{"requests": []}', [("requests", "give at least one item, not 0")]),
        (schemas.PriceBatch, '{"requests": [{}]}', [("requests.0.shared", "is missing")]),
        (
            schemas.TickRequest,
            '{"phase": "x"}',
            [("phase", "must be 'exchange', 'absorb' or 'both', not 'x'")],
        ),
        (
            schemas.TrustRequest,
            '{"key": "x"}',
            [("key", "must be 64 hexadecimal digits in lower case, not 'x'")],
        ),
        (
            schemas.FreezeRequest,
            json.dumps({"reason": "x" * 501}),
            [("reason", "must have at most 500 characters, not 501")],
        ),
    ],
)
def test_every_fault_of_a_body_is_under_its_field(
    model: type[schemas.RequestBody], body: str, faults: list[tuple[str, str]]
) -> None:
    assert faults_of(model, body) == faults


@pytest.mark.parametrize("model", GOOD, ids=lambda model: model.__name__)
def test_no_body_is_answered_in_a_librarys_words(model: type[schemas.RequestBody]) -> None:
    parsed(model, json.dumps(GOOD[model]).encode())
    bodies = list(HOSTILE)
    for field in GOOD[model]:
        rest = {name: value for name, value in GOOD[model].items() if name != field}
        others = json.dumps(rest)[1:-1]
        bodies += [f'{{"{field}": {value}{", " if others else ""}{others}}}' for value in HOSTILE]
    listed = 0
    for body in bodies:
        try:
            parsed(model, body.encode())
        except UnreadableBody as error:
            for field, fault in error.faults:
                assert not [word for word in LIBRARY_WORDS if word.lower() in fault.lower()], (field, fault)
                assert "cannot be" not in fault, f"no wording for this fault: {fault}"
                assert len(fault) < 300
                listed += 1
    assert listed > 10
