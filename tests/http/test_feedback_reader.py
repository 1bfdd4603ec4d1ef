"""The decoder of a feedback takes what its model takes, as the same values, and leaves refusals to it."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pricemesh.errors import UnreadableBody
from pricemesh.http.feedback_reader import FeedbackReader
from tests.running import settings_for

_NUMBERS = """
0 1 0.5 -0 -0.0 1e12 -1e12 1000000000000 1000000000001 1.0000000000000002e12 1e-400 1e308 1e400 -1e400
9007199254740993 18446744073709551617 NaN Infinity null true 01 1. .5 +1 0x1 [] {} "1"
"""
_IDS = ["order-1", "a", "", "order\\n", "a b", "é", "\\ud800", "\\u0061", "x" * 128, "x" * 129]

numbers = st.one_of(
    st.sampled_from([*_NUMBERS.split(), "1" + "0" * 400, "[" * 500 + "]" * 500]),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
ids = st.sampled_from(["null", "1", "true", *(f'"{id_}"' for id_ in _IDS)])
members = st.one_of(
    ids.map(lambda id_: f'"decision_id":{id_}'),
    numbers.map(lambda number: f'"reward":{number}'),
    numbers.map(lambda number: f'"sold":{number}'),
    st.sampled_from(['"other":1', '"reward":"1"', '"decision_id" : "b"', '"rew\\u0061rd":2']),
)
bodies = st.builds(
    lambda parts, end: "{" + ",".join(parts) + "}" + end,
    st.tuples(
        ids.map(lambda id_: f'"decision_id":{id_}'),
        st.builds(lambda name, number: f'"{name}":{number}', st.sampled_from(["reward", "sold"]), numbers),
    )
    | st.lists(members, max_size=4),
    st.sampled_from(["", "", " ", "}", ",", "\x00", "{}"]),
)


def reader(**reward: Any) -> FeedbackReader:
    return FeedbackReader(settings_for("sqlite:///unused.db", reward=reward))


VALUES = reader(kind="value", largest=1e12)
SALES = reader(kind="purchase", max_units=3)


def came_of(read: Any, body: bytes) -> Any:
    try:
        id_, amount = read(body)
        return id_, repr(float(amount))
    except UnreadableBody as fault:
        return fault.faults


@settings(max_examples=600, deadline=None, derandomize=True)
@given(bodies)
@example('{"decision_id":"a","reward":1,"reward":2}')
@example('{"decision_id":"a","reward":1,"other":2}')
@example('{"decision_id":"a","sold":1,"reward":2}')
@example('["a",1]')
@example("")
def test_the_decoder_and_the_model_agree(text: str) -> None:
    for each in (VALUES, SALES):
        assert came_of(each.one, text.encode()) == came_of(each.explain, text.encode())


@pytest.mark.parametrize(
    ("each", "body", "amount"),
    [
        (VALUES, b'{"reward": 2, "decision_id": "order-1"}', 2.0),
        (SALES, b'{"decision_id":"order-1","sold":3}', 3.0),
    ],
)
def test_a_good_body_needs_no_model(
    each: FeedbackReader, body: bytes, amount: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("pricemesh.http.feedback_reader.parsed")
    assert each.one(body) == ("order-1", amount)


@pytest.mark.parametrize(
    "body", [b'{"decision_id":"\xff","reward":1}', b'{"decision_id":"a\xed\xa0\x80","reward":1}']
)
def test_bytes_that_are_no_text_are_refused_by_the_model(body: bytes) -> None:
    with pytest.raises(UnreadableBody):
        VALUES.one(body)
